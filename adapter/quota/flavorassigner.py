"""Computes what one pod shape demands of a ClusterQueue's flavors, and how many such pods its quota admits.

The demand does not depend on usage, so it is computed once; the count is computed for each usage. Counting and
explaining are separate, because a plan counts far more often than it explains.
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

_MAX_LIST_LENGTH = 200  # characters of the list of resources that a queue does not cover


class FlavorChoice(NamedTuple):
    """A flavor of a resource group, with the requests that it could serve or a reason why the pod may not use it."""

    flavor: str
    # One pod's requests of the flavor, in the units of `pod_requests.Resources`; never empty.
    needs: Mapping[FlavorResource, int]
    unusable_reason: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """The flavors of each resource group that serves a request, in order of preference."""

    queue: ClusterQueueRules
    groups: Sequence[Sequence[FlavorChoice]] = ()
    closed_reason: str = ""  # why no pod fits at any usage


def build_demand(
    queue: ClusterQueueRules, flavors: Mapping[str, Flavor], request: Resources, pod_spec: Raw, namespace: Labels | None
) -> Demand:
    """Distribute the pod's requests over the queue's resource groups; None skips the queue's namespaceSelector."""
    closed = queue.closed_reason or _namespace_mismatch(queue, namespace) or _uncovered_resources(queue, request)
    if closed:
        return Demand(queue, closed_reason=closed)
    shares = _requests_by_group(queue, request)
    return Demand(
        queue,
        [[_flavor_choice(queue, flavors[name], needs, pod_spec) for name in group.flavors] for group, needs in shares],
    )


def _namespace_mismatch(queue: ClusterQueueRules, namespace: Labels | None) -> str:
    try:
        if namespace is None or selects(queue.namespace_selector, namespace):
            return ""
    except UNREADABLE as error:
        return f"the namespaceSelector of ClusterQueue {queue.name} cannot be read ({error})"
    return f"ClusterQueue {queue.name} does not select the namespace"


def _uncovered_resources(queue: ClusterQueueRules, request: Resources) -> str:
    requested = {name for name, need in request.items() if need and name != PODS}
    uncovered = requested.difference(*(group.resources for group in queue.groups))
    return (
        f"ClusterQueue {queue.name} does not cover {printable(', '.join(sorted(uncovered)), _MAX_LIST_LENGTH)}"
        if uncovered
        else ""
    )


def _requests_by_group(queue: ClusterQueueRules, request: Resources) -> list[tuple[ResourceGroup, dict[str, int]]]:
    """The requests that each group serves: the first group that covers a resource serves it, as in Kueue."""
    remaining = {**request, PODS: 1}
    shares = []
    for group in queue.groups:
        needs = {name: remaining.pop(name) for name in sorted(remaining) if name in group.resources}
        if needs:
            shares.append((group, needs))
    return shares


def _flavor_choice(queue: ClusterQueueRules, flavor: Flavor, needs: Resources, pod_spec: Raw) -> FlavorChoice:
    try:
        reason = resource_flavor.mismatch_reason(flavor, pod_spec, queue.topology_only)
    except UNREADABLE as error:
        reason = f"flavor {flavor.name} or the pod's scheduling rules cannot be read ({error})"
    return FlavorChoice(flavor.name, {(flavor.name, resource): need for resource, need in needs.items()}, reason)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The scarcest resource of a flavor: amounts as in `pod_requests.Resources`, `need` for one pod."""

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
    """How many pods fit; UNLIMITED where no quota limits their requests.

    `nominal + borrow` are admitted now without preemption, in `flavors` (resource -> flavor, as in a Workload's
    podSetAssignments; empty when none fits).
    """

    flavors: Mapping[str, str] = field(default_factory=dict)
    nominal: int = 0
    borrow: int = 0


# Each plan creates many of the next two, and a dataclass takes three times as long.


class FlavorOffer(NamedTuple):
    """The number of pods that one flavor could serve."""

    choice: FlavorChoice
    fitting_pods: int


class FlavorCapacity(NamedTuple):
    """The capacity of one ClusterQueue's flavors for one pod shape, for any number of pods."""

    demand: Demand
    path: QuotaPath
    groups: Sequence[Sequence[FlavorOffer]] = ()  # as in the demand
    max_pods: int = 0  # the number of pods that fit in every group

    def fit(self, wanted: int) -> Fit:
        """Compute how many more such pods are admitted now as one podset.

        Per resource group the whole podset takes one flavor: the first, in the group's order, that the pod may use and
        where `wanted` pods fit; with whenCanBorrow TryNextFlavor the one that borrows from nearest, the first among
        equals. Where fewer than `wanted` fit, the rule applies to the most that fit. The choice depends on the count:
        call it with the count to place, and reserve one podset before the next.
        Source: pkg/scheduler/flavorassigner/flavorassigner.go findFlavorForPodSets, shouldTryNextFlavor, isPreferred.
        """
        chosen = self._chosen_offers(wanted)
        if chosen is None:
            return Fit()
        total = min([offer.fitting_pods for offer in chosen], default=UNLIMITED)
        # Others may have borrowed the unused nominal quota, so nominal is at most the pods that fit.
        nominal = min([total, *[self._nominal_pods(offer) for offer in chosen]])
        return Fit(_flavor_by_resource(chosen), nominal, total - nominal)

    def assigned_flavors(self, wanted: int) -> Mapping[str, str]:
        """The flavors in which so many pods are admitted; none where fewer fit."""
        chosen = self._chosen_offers(wanted) if wanted <= self.max_pods else None
        return _flavor_by_resource(chosen or ())

    def reclaimable_fit(self, wanted: int) -> Fit:
        """Compute how many fit the queue's own unused nominal quota once Kueue has reclaimed it from borrowers.

        Only where reclaimWithinCohort is Any, because then no borrower's priority can prevent it; else none fit.
        `nominal` is the count, `flavors` the first per resource group in which most of `wanted` fit.
        Source: pkg/scheduler/preemption/preemption.go, a Workload within nominal quota may preempt those that borrow.
        """
        if self.demand.closed_reason or not self.demand.queue.reclaims_within_cohort:
            return Fit()
        own = [[(self._nominal_pods(offer), offer) for offer in group] for group in self.groups]
        best = [max(group, key=lambda entry: min(entry[0], wanted)) for group in own]
        count = min((nominal for nominal, _ in best), default=0)
        return Fit(_flavor_by_resource([offer for _, offer in best]) if count else {}, count)

    def flavors_if_empty(self, wanted: int) -> Mapping[str, str]:
        """The flavors that would hold so many pods if nothing were in use: a share that preempts gets one of them."""
        able = [
            [offer for offer in group if _pods_within(cohort.potential_available, self.path, offer.choice) >= wanted]
            for group in self.groups
        ]
        return _flavor_by_resource([group[0] for group in able]) if all(able) else {}

    def potential_pods(self) -> int:
        """The number of pods that would fit if nothing were in use."""
        most = (
            max(_pods_within(cohort.potential_available, self.path, offer.choice) for offer in group)
            for group in self.groups
        )
        return 0 if self.demand.closed_reason else min(most, default=UNLIMITED)

    def shortage_reason(self, wanted: int) -> str:
        """Explain the first group in which fewer than `wanted` fit, flavor by flavor; empty when all fit."""
        short = next((group for group in self.groups if _max_fitting_pods(group) < max(wanted, 1)), ())
        texts = (offer.choice.unusable_reason or str(_find_shortfall(self.path, offer.choice)) for offer in short)
        return self.demand.closed_reason or "; ".join(texts)

    def shortfall(self, wanted: int) -> Shortfall | None:
        """The scarcest resource of the chosen flavors; without any, that of the flavor that could hold the most."""
        chosen = self._chosen_offers(wanted)
        if chosen is None:
            full = next((group for group in self.groups if _max_fitting_pods(group) == 0), ())
            usable = [offer.choice for offer in full if not offer.choice.unusable_reason]
            best = max(
                usable, key=lambda choice: _pods_within(cohort.potential_available, self.path, choice), default=None
            )
            return _find_shortfall(self.path, best) if best else None
        least = min((offer.fitting_pods for offer in chosen), default=UNLIMITED)
        shortfalls = (
            _find_shortfall(self.path, offer.choice) for offer in chosen if offer.fitting_pods == least != UNLIMITED
        )
        return next(shortfalls, None)

    def _chosen_offers(self, wanted: int) -> list[FlavorOffer] | None:
        """The flavor of each group that Kueue takes for so many pods, or for the most that fit; None where none fits."""
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
    """Count the pods that each flavor could serve; `path` is the queue's."""
    if demand.closed_reason:
        return FlavorCapacity(demand, path)
    groups = [
        [FlavorOffer(choice, _pods_within(cohort.available, path, choice)) for choice in group]
        for group in demand.groups
    ]
    return FlavorCapacity(demand, path, groups, min(map(_max_fitting_pods, groups), default=UNLIMITED))


def _pods_within(amount: Callable[[QuotaPath, FlavorResource], int], path: QuotaPath, choice: FlavorChoice) -> int:
    """The number of pods for which this amount of each resource suffices."""
    least = 0 if choice.unusable_reason else UNLIMITED
    for cell, need in choice.needs.items():
        if not least:
            break  # while a gang waits most flavors are full
        least = min(least, _times_fitting(amount(path, cell), need))
    return least


def _times_fitting(amount: int, need: int) -> int:
    return UNLIMITED if need == 0 or amount == UNLIMITED else max(0, amount) // need


def _max_fitting_pods(group: Sequence[FlavorOffer]) -> int:
    return max([offer.fitting_pods for offer in group])


def _flavor_by_resource(chosen: Sequence[FlavorOffer]) -> dict[str, str]:
    return {resource: flavor for offer in chosen for flavor, resource in offer.choice.needs}


def _max_borrowing_level(path: QuotaPath, choice: FlavorChoice, count: int) -> int:
    """The largest borrowing level over the resources of so many pods."""
    return max(cohort.borrowing_level(path, cell, min(need * count, UNLIMITED)) for cell, need in choice.needs.items())


def _find_shortfall(path: QuotaPath, choice: FlavorChoice) -> Shortfall:
    """The resource that is free for the fewest pods; of equals, the one with the lowest total."""
    rows = []
    for cell, need in choice.needs.items():
        free, total = max(0, cohort.available(path, cell)), max(0, cohort.potential_available(path, cell))
        rows.append((_times_fitting(free, need), _times_fitting(total, need), cell[1], free, total, need))
    _, _, resource, free, total, need = min(rows)
    return Shortfall(choice.flavor, resource, free, total, need)
