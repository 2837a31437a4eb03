"""What does one pod shape ask of a ClusterQueue's flavors, and how many such pods does its quota admit as it stands?

First all that can be said before anybody looks at what is in use, so that it is found once however often that changes; then the
count. Counting and explaining are apart: a plan counts far more often than anybody is told why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.objects.pod_requests import PODS, UNLIMITED, Resources, as_text
from adapter.objects.selectors import Labels, selects
from adapter.objects.unstructured import UNREADABLE, Raw, quoted
from adapter.quota import cohort, resource_flavor
from adapter.quota.clusterqueue import Group, Queue
from adapter.quota.cohort import Cell, Line
from adapter.quota.resource_flavor import Flavor

_LONGEST_LIST = 200  # characters of what a job asks for, and a queue does not know


class Choice(NamedTuple):
    """A flavor that could pay for some of the pod's resources, or why it may not."""

    flavor: str
    needs: Mapping[Cell, int]  # what one pod asks of the flavor, in the units of `podrequests.Resources`; never nothing
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """For each resource group that pays for something, its flavors in order of preference."""

    queue: Queue
    groups: Sequence[Sequence[Choice]] = ()
    closed: str = ""  # why no pod fits, whatever is free


def read(
    queue: Queue, flavors: Mapping[str, Flavor], request: Resources, pod_spec: Raw, namespace: Labels | None
) -> Demand:
    """Share the pod's requests out over the queue's resource groups; None skips the queue's namespaceSelector."""
    closed = queue.closed or _outside(queue, namespace) or _uncovered(queue, request)
    if closed:
        return Demand(queue, closed=closed)
    shares = _shared_out(queue, request)
    return Demand(queue, [[_choice(queue, flavors[of], needs, pod_spec) for of in g.flavors] for g, needs in shares])


def _outside(queue: Queue, namespace: Labels | None) -> str:
    try:
        if namespace is None or selects(queue.namespaces, namespace):
            return ""
    except UNREADABLE as error:
        return f"the namespaceSelector of ClusterQueue {queue.name} cannot be read ({error})"
    return f"ClusterQueue {queue.name} does not select the namespace"


def _uncovered(queue: Queue, request: Resources) -> str:
    asked = {name for name, need in request.items() if need and name != PODS}
    left = asked.difference(*(group.resources for group in queue.groups))
    return f"ClusterQueue {queue.name} does not cover {quoted(', '.join(sorted(left)), _LONGEST_LIST)}" if left else ""


def _shared_out(queue: Queue, request: Resources) -> list[tuple[Group, dict[str, int]]]:
    """Which group pays for which resource: the first that covers it, as in Kueue."""
    left = {**request, PODS: 1}
    shares = []
    for group in queue.groups:
        needs = {name: left.pop(name) for name in sorted(left) if name in group.resources}
        if needs:
            shares.append((group, needs))
    return shares


def _choice(queue: Queue, of: Flavor, needs: Resources, pod_spec: Raw) -> Choice:
    try:
        refusal = resource_flavor.refusal(of, pod_spec, queue.topology_only)
    except UNREADABLE as error:
        refusal = f"flavor {of.name} or the pod's scheduling rules cannot be read ({error})"
    return Choice(of.name, {(of.name, resource): need for resource, need in needs.items()}, refusal)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The resource that ends first, in the flavor looked at: amounts as in `podrequests.Resources`, `need` for one pod."""

    flavor: str
    resource: str
    free: int  # now, borrowing included
    total: int  # if nothing were in use
    need: int

    def __str__(self) -> str:
        free, total, need = (as_text(amount, self.resource) for amount in (self.free, self.total, self.need))
        have = f"{free} free of {total}" if self.need <= self.total else f"{total} at most"
        return f"{self.resource} in flavor {self.flavor}: {have}, one worker needs {need}"


@dataclass(frozen=True, slots=True)
class Fit:
    """How many pods fit; UNLIMITED where no quota counts what they ask.

    `nominal + borrow` are admitted now without preemption, in `flavors` (resource -> flavor, as in a Workload's
    podSetAssignments; empty when none fits).
    """

    flavors: Mapping[str, str] = field(default_factory=dict)
    nominal: int = 0
    borrow: int = 0


# Many of the next two are made for each plan, and a dataclass takes three times as long to make.


class Offer(NamedTuple):
    """How many pods one flavor could pay for."""

    choice: Choice
    fits: int


class Survey(NamedTuple):
    """What one ClusterQueue's flavors have left for one pod shape, however many such pods are wanted."""

    demand: Demand
    line: Line
    groups: Sequence[Sequence[Offer]] = ()  # as in the demand
    most: int = 0  # how many pods fit in every group

    def fit(self, wanted: int) -> Fit:
        """Say how many more such pods are admitted now as one podset.

        Per resource group the whole podset takes one flavor: the first, in the group's order, that the pod may use and where
        `wanted` pods fit; with whenCanBorrow TryNextFlavor the one that borrows from nearest, the first among equals. Where
        fewer than `wanted` fit anywhere, the same rule is followed for the most that do. As the choice depends on the count,
        ask with the count that is to be placed, and reserve one podset before asking for the next.
        Source: pkg/scheduler/flavorassigner/flavorassigner.go findFlavorForPodSets, shouldTryNextFlavor, isPreferred.
        """
        chosen = self._chosen(wanted)
        if chosen is None:
            return Fit()
        total = min([offer.fits for offer in chosen], default=UNLIMITED)
        # Others may have borrowed what is nominally free here, so nominal is no more than what fits.
        nominal = min([total, *[self._nominal(offer) for offer in chosen]])
        return Fit(_flavors(chosen), nominal, total - nominal)

    def flavors(self, wanted: int) -> Mapping[str, str]:
        """Name the flavors in which so many pods are admitted; none where fewer fit."""
        chosen = self._chosen(wanted) if wanted <= self.most else None
        return _flavors(chosen or ())

    def reclaimable(self, wanted: int) -> Fit:
        """Say how many fit the queue's own unused nominal quota once Kueue has taken back what others borrowed of it.

        Only where reclaimWithinCohort is Any, for then no borrower's priority can prevent it; else no room. `nominal` is the
        count, `flavors` the first per resource group in which most of `wanted` fit.
        Source: pkg/scheduler/preemption/preemption.go, a Workload within nominal quota may preempt those that borrow.
        """
        if self.demand.closed or not self.demand.queue.reclaims:
            return Fit()
        own = [[(self._nominal(offer), offer) for offer in group] for group in self.groups]
        best = [max(group, key=lambda one: min(one[0], wanted)) for group in own]
        count = min((nominal for nominal, _ in best), default=0)
        return Fit(_flavors([offer for _, offer in best]) if count else {}, count)

    def emptied(self, wanted: int) -> Mapping[str, str]:
        """Name the flavors that would hold so many were nothing in use: into one of them they come who preempt others."""
        able = [
            [one for one in group if _pods(cohort.potential, self.line, one.choice) >= wanted] for group in self.groups
        ]
        return _flavors([group[0] for group in able]) if all(able) else {}

    def ever(self) -> int:
        """Say how many would fit were nothing in use."""
        most = (max(_pods(cohort.potential, self.line, offer.choice) for offer in group) for group in self.groups)
        return 0 if self.demand.closed else min(most, default=UNLIMITED)

    def reason(self, wanted: int) -> str:
        """Explain the first group in which fewer than wanted fit, flavor by flavor; empty when all fit."""
        short = next((group for group in self.groups if _most(group) < max(wanted, 1)), ())
        texts = (offer.choice.refusal or str(_shortfall(self.line, offer.choice)) for offer in short)
        return self.demand.closed or "; ".join(texts)

    def tight(self, wanted: int) -> Shortfall | None:
        """What ends first in the flavors chosen; where none is, in the one that could ever hold the most."""
        chosen = self._chosen(wanted)
        if chosen is None:
            full = next((group for group in self.groups if _most(group) == 0), ())
            open_ = [offer.choice for offer in full if not offer.choice.refusal]
            best = max(open_, key=lambda of: _pods(cohort.potential, self.line, of), default=None)
            return _shortfall(self.line, best) if best else None
        least = min((offer.fits for offer in chosen), default=UNLIMITED)
        found = (_shortfall(self.line, offer.choice) for offer in chosen if offer.fits == least != UNLIMITED)
        return next(found, None)

    def _chosen(self, wanted: int) -> list[Offer] | None:
        """Which flavor of each group Kueue takes for so many pods, or for the most that fit; None where not one does."""
        if self.most == 0:
            return None
        count = min(max(wanted, 1), self.most)
        return [self._first([offer for offer in group if offer.fits >= count], count) for group in self.groups]

    def _nominal(self, offer: Offer) -> int:
        return _pods(cohort.nominal_free, self.line, offer.choice)

    def _first(self, able: Sequence[Offer], count: int) -> Offer:
        if not self.demand.queue.next_before_borrowing:
            return able[0]
        return min(able, key=lambda offer: _level(self.line, offer.choice, count))


def survey(demand: Demand, line: Line) -> Survey:
    """Count the pods that each flavor could pay for; `line` is the queue's."""
    if demand.closed:
        return Survey(demand, line)
    groups = [[Offer(of, _pods(cohort.available, line, of)) for of in group] for group in demand.groups]
    return Survey(demand, line, groups, min(map(_most, groups), default=UNLIMITED))


def _pods(amount: Callable[[Line, Cell], int], line: Line, of: Choice) -> int:
    """For how many pods such an amount of each resource is enough."""
    least = 0 if of.refusal else UNLIMITED
    for cell, need in of.needs.items():
        if not least:
            break  # nothing is less, and while a gang waits most flavors are full
        least = min(least, _times(amount(line, cell), need))
    return least


def _times(amount: int, need: int) -> int:
    return UNLIMITED if need == 0 or amount == UNLIMITED else max(0, amount) // need


def _most(group: Sequence[Offer]) -> int:
    return max([offer.fits for offer in group])


def _flavors(chosen: Sequence[Offer]) -> dict[str, str]:
    return {resource: flavor for offer in chosen for flavor, resource in offer.choice.needs}


def _level(line: Line, of: Choice, count: int) -> int:
    """How far up so many pods would have to borrow."""
    return max(cohort.borrowing_level(line, cell, min(need * count, UNLIMITED)) for cell, need in of.needs.items())


def _shortfall(line: Line, of: Choice) -> Shortfall:
    """The resource of which the fewest pods' worth is free; of equals, the one of which the fewest could ever be."""
    rows = []
    for cell, need in of.needs.items():
        free, total = max(0, cohort.available(line, cell)), max(0, cohort.potential(line, cell))
        rows.append((_times(free, need), _times(total, need), cell[1], free, total, need))
    _, _, resource, free, total, need = min(rows)
    return Shortfall(of.flavor, resource, free, total, need)
