"""What does one pod shape ask of a ClusterQueue's flavors, and how many such pods does its quota admit as it stands?

First all that can be said before anybody looks at what is in use, so that it is found once however often that changes; then the
count. Counting and explaining are apart: a plan counts far more often than anybody is told why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.objects.pod_requests import PODS, UNLIMITED, Resources, format_quantity
from adapter.objects.selectors import Labels, selects
from adapter.objects.unstructured import UNREADABLE, Raw, printable
from adapter.quota import cohort, resource_flavor
from adapter.quota.clusterqueue import ClusterQueueRules, ResourceGroup
from adapter.quota.cohort import FlavorResource, QuotaPath
from adapter.quota.resource_flavor import Flavor

_MAX_LIST_LENGTH = 200  # characters of what a job asks for, and a queue does not know


class FlavorChoice(NamedTuple):
    """A flavor that could pay for some of the pod's resources, or why it may not."""

    flavor: str
    needs: Mapping[
        FlavorResource, int
    ]  # what one pod asks of the flavor, in the units of `podrequests.Resources`; never nothing
    unusable_reason: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """For each resource group that pays for something, its flavors in order of preference."""

    queue: ClusterQueueRules
    groups: Sequence[Sequence[FlavorChoice]] = ()
    closed_reason: str = ""  # why no pod fits, whatever is free


def build_demand(
    queue: ClusterQueueRules, flavors: Mapping[str, Flavor], request: Resources, pod_spec: Raw, namespace: Labels | None
) -> Demand:
    """Share the pod's requests out over the queue's resource groups; None skips the queue's namespaceSelector."""
    closed = queue.closed_reason or _namespace_mismatch(queue, namespace) or _uncovered_resources(queue, request)
    if closed:
        return Demand(queue, closed_reason=closed)
    shares = _requests_by_group(queue, request)
    return Demand(
        queue, [[_flavor_choice(queue, flavors[of], needs, pod_spec) for of in g.flavors] for g, needs in shares]
    )


def _namespace_mismatch(queue: ClusterQueueRules, namespace: Labels | None) -> str:
    try:
        if namespace is None or selects(queue.namespace_selector, namespace):
            return ""
    except UNREADABLE as error:
        return f"the namespaceSelector of ClusterQueue {queue.name} cannot be read ({error})"
    return f"ClusterQueue {queue.name} does not select the namespace"


def _uncovered_resources(queue: ClusterQueueRules, request: Resources) -> str:
    asked = {name for name, need in request.items() if need and name != PODS}
    left = asked.difference(*(group.resources for group in queue.groups))
    return (
        f"ClusterQueue {queue.name} does not cover {printable(', '.join(sorted(left)), _MAX_LIST_LENGTH)}"
        if left
        else ""
    )


def _requests_by_group(queue: ClusterQueueRules, request: Resources) -> list[tuple[ResourceGroup, dict[str, int]]]:
    """Which group pays for which resource: the first that covers it, as in Kueue."""
    left = {**request, PODS: 1}
    shares = []
    for group in queue.groups:
        needs = {name: left.pop(name) for name in sorted(left) if name in group.resources}
        if needs:
            shares.append((group, needs))
    return shares


def _flavor_choice(queue: ClusterQueueRules, flavor: Flavor, needs: Resources, pod_spec: Raw) -> FlavorChoice:
    try:
        refusal = resource_flavor.mismatch_reason(flavor, pod_spec, queue.topology_only)
    except UNREADABLE as error:
        refusal = f"flavor {flavor.name} or the pod's scheduling rules cannot be read ({error})"
    return FlavorChoice(flavor.name, {(flavor.name, resource): need for resource, need in needs.items()}, refusal)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The resource that ends first, in the flavor looked at: amounts as in `podrequests.Resources`, `need` for one pod."""

    flavor: str
    resource: str
    free: int  # now, borrowing included
    total: int  # if nothing were in use
    need: int

    def __str__(self) -> str:
        free, total, need = (format_quantity(amount, self.resource) for amount in (self.free, self.total, self.need))
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


class FlavorOffer(NamedTuple):
    """How many pods one flavor could pay for."""

    choice: FlavorChoice
    fitting_pods: int


class FlavorCapacity(NamedTuple):
    """What one ClusterQueue's flavors have left for one pod shape, however many such pods are wanted."""

    demand: Demand
    path: QuotaPath
    groups: Sequence[Sequence[FlavorOffer]] = ()  # as in the demand
    max_pods: int = 0  # how many pods fit in every group

    def fit(self, wanted: int) -> Fit:
        """Say how many more such pods are admitted now as one podset.

        Per resource group the whole podset takes one flavor: the first, in the group's order, that the pod may use and where
        `wanted` pods fit; with whenCanBorrow TryNextFlavor the one that borrows from nearest, the first among equals. Where
        fewer than `wanted` fit anywhere, the same rule is followed for the most that do. As the choice depends on the count,
        ask with the count that is to be placed, and reserve one podset before asking for the next.
        Source: pkg/scheduler/flavorassigner/flavorassigner.go findFlavorForPodSets, shouldTryNextFlavor, isPreferred.
        """
        chosen = self._chosen_offers(wanted)
        if chosen is None:
            return Fit()
        total = min([offer.fitting_pods for offer in chosen], default=UNLIMITED)
        # Others may have borrowed what is nominally free here, so nominal is no more than what fits.
        nominal = min([total, *[self._nominal_pods(offer) for offer in chosen]])
        return Fit(_flavor_by_resource(chosen), nominal, total - nominal)

    def assigned_flavors(self, wanted: int) -> Mapping[str, str]:
        """Name the flavors in which so many pods are admitted; none where fewer fit."""
        chosen = self._chosen_offers(wanted) if wanted <= self.max_pods else None
        return _flavor_by_resource(chosen or ())

    def reclaimable_fit(self, wanted: int) -> Fit:
        """Say how many fit the queue's own unused nominal quota once Kueue has taken back what others borrowed of it.

        Only where reclaimWithinCohort is Any, for then no borrower's priority can prevent it; else no room. `nominal` is the
        count, `flavors` the first per resource group in which most of `wanted` fit.
        Source: pkg/scheduler/preemption/preemption.go, a Workload within nominal quota may preempt those that borrow.
        """
        if self.demand.closed_reason or not self.demand.queue.reclaims_within_cohort:
            return Fit()
        own = [[(self._nominal_pods(offer), offer) for offer in group] for group in self.groups]
        best = [max(group, key=lambda one: min(one[0], wanted)) for group in own]
        count = min((nominal for nominal, _ in best), default=0)
        return Fit(_flavor_by_resource([offer for _, offer in best]) if count else {}, count)

    def flavors_if_empty(self, wanted: int) -> Mapping[str, str]:
        """Name the flavors that would hold so many were nothing in use: into one of them they come who preempt others."""
        able = [
            [one for one in group if _pods_within(cohort.potential_available, self.path, one.choice) >= wanted]
            for group in self.groups
        ]
        return _flavor_by_resource([group[0] for group in able]) if all(able) else {}

    def potential_pods(self) -> int:
        """Say how many would fit were nothing in use."""
        most = (
            max(_pods_within(cohort.potential_available, self.path, offer.choice) for offer in group)
            for group in self.groups
        )
        return 0 if self.demand.closed_reason else min(most, default=UNLIMITED)

    def shortage_reason(self, wanted: int) -> str:
        """Explain the first group in which fewer than wanted fit, flavor by flavor; empty when all fit."""
        short = next((group for group in self.groups if _max_fitting_pods(group) < max(wanted, 1)), ())
        texts = (offer.choice.unusable_reason or str(_find_shortfall(self.path, offer.choice)) for offer in short)
        return self.demand.closed_reason or "; ".join(texts)

    def shortfall(self, wanted: int) -> Shortfall | None:
        """What ends first in the flavors chosen; where none is, in the one that could ever hold the most."""
        chosen = self._chosen_offers(wanted)
        if chosen is None:
            full = next((group for group in self.groups if _max_fitting_pods(group) == 0), ())
            open_ = [offer.choice for offer in full if not offer.choice.unusable_reason]
            best = max(open_, key=lambda of: _pods_within(cohort.potential_available, self.path, of), default=None)
            return _find_shortfall(self.path, best) if best else None
        least = min((offer.fitting_pods for offer in chosen), default=UNLIMITED)
        found = (
            _find_shortfall(self.path, offer.choice) for offer in chosen if offer.fitting_pods == least != UNLIMITED
        )
        return next(found, None)

    def _chosen_offers(self, wanted: int) -> list[FlavorOffer] | None:
        """Which flavor of each group Kueue takes for so many pods, or for the most that fit; None where not one does."""
        if self.max_pods == 0:
            return None
        count = min(max(wanted, 1), self.max_pods)
        return [
            self._preferred_offer([offer for offer in group if offer.fitting_pods >= count], count)
            for group in self.groups
        ]

    def _nominal_pods(self, offer: FlavorOffer) -> int:
        return _pods_within(cohort.unused_nominal, self.path, offer.choice)

    def _preferred_offer(self, able: Sequence[FlavorOffer], count: int) -> FlavorOffer:
        if not self.demand.queue.next_before_borrowing:
            return able[0]
        return min(able, key=lambda offer: _max_borrowing_level(self.path, offer.choice, count))


def flavor_capacity(demand: Demand, path: QuotaPath) -> FlavorCapacity:
    """Count the pods that each flavor could pay for; `line` is the queue's."""
    if demand.closed_reason:
        return FlavorCapacity(demand, path)
    groups = [[FlavorOffer(of, _pods_within(cohort.available, path, of)) for of in group] for group in demand.groups]
    return FlavorCapacity(demand, path, groups, min(map(_max_fitting_pods, groups), default=UNLIMITED))


def _pods_within(amount: Callable[[QuotaPath, FlavorResource], int], path: QuotaPath, choice: FlavorChoice) -> int:
    """For how many pods such an amount of each resource is enough."""
    least = 0 if choice.unusable_reason else UNLIMITED
    for cell, need in choice.needs.items():
        if not least:
            break  # nothing is less, and while a gang waits most flavors are full
        least = min(least, _times_fitting(amount(path, cell), need))
    return least


def _times_fitting(amount: int, need: int) -> int:
    return UNLIMITED if need == 0 or amount == UNLIMITED else max(0, amount) // need


def _max_fitting_pods(group: Sequence[FlavorOffer]) -> int:
    return max([offer.fitting_pods for offer in group])


def _flavor_by_resource(chosen: Sequence[FlavorOffer]) -> dict[str, str]:
    return {resource: flavor for offer in chosen for flavor, resource in offer.choice.needs}


def _max_borrowing_level(path: QuotaPath, choice: FlavorChoice, count: int) -> int:
    """How far up so many pods would have to borrow."""
    return max(cohort.borrowing_level(path, cell, min(need * count, UNLIMITED)) for cell, need in choice.needs.items())


def _find_shortfall(path: QuotaPath, choice: FlavorChoice) -> Shortfall:
    """The resource of which the fewest pods' worth is free; of equals, the one of which the fewest could ever be."""
    rows = []
    for cell, need in choice.needs.items():
        free, total = max(0, cohort.available(path, cell)), max(0, cohort.potential_available(path, cell))
        rows.append((_times_fitting(free, need), _times_fitting(total, need), cell[1], free, total, need))
    _, _, resource, free, total, need = min(rows)
    return Shortfall(choice.flavor, resource, free, total, need)
