"""Computes what one pod shape demands of a ClusterQueue's flavors, and how many such pods its quota admits.

The demand does not depend on usage. Counting pods is separate from explaining a shortage, because a plan counts far
more often.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.objects.pod_requests import PODS, UNLIMITED, Resources, format_quantity, pod_requests
from adapter.objects.selectors import Labels, selects
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import UNREADABLE, Raw, printable
from adapter.quota import cohort, resource_flavor
from adapter.quota.clusterqueue import ClusterQueueRules, ResourceGroup
from adapter.quota.cohort import FlavorResource, QuotaPath
from adapter.quota.kueue_answers import uncovered_resources
from adapter.quota.resource_flavor import Flavor

_MAX_LIST_LENGTH = 200  # characters


class FlavorChoice(NamedTuple):
    flavor: str
    # The needs of one pod, in the units of `pod_requests.Resources`; never empty.
    needs: Mapping[FlavorResource, int]
    unusable_reason: str = ""


@dataclass(frozen=True, slots=True)
class Demand:
    """The flavors of each resource group that serves a request, in order of preference."""

    queue: ClusterQueueRules
    groups: Sequence[Sequence[FlavorChoice]] = ()
    closed_reason: str = ""


def build_demand(
    queue: ClusterQueueRules,
    flavors: Mapping[str, Flavor],
    request: Resources,
    pod_spec: Raw,
    namespace: Labels | None,
    uncovered_note: str = "",
    topology: TopologyRequest | None = None,
) -> Demand:
    """Distribute the pod's requests over the resource groups; None as `namespace` skips the namespaceSelector.

    `uncovered_note` continues the sentence on resources that the ClusterQueue does not cover.
    """
    closed = queue.closed_reason or _namespace_mismatch(queue, namespace)
    closed = closed or _uncovered_reason(queue, request, uncovered_note)
    if closed:
        return Demand(queue, closed_reason=closed)
    shares = _requests_by_group(queue, request)
    requested = pod_requests(pod_spec).keys() - {PODS} if topology else ()
    return Demand(
        queue,
        [
            # Flavors of what only Kueue's configuration adds need no topology.
            [
                _flavor_choice(queue, flavors[name], needs, pod_spec, topology if needs.keys() & requested else None)
                for name in group.flavors
            ]
            for group, needs in shares
        ],
    )


def _namespace_mismatch(queue: ClusterQueueRules, namespace: Labels | None) -> str:
    try:
        if namespace is None or selects(queue.namespace_selector, namespace):
            return ""
    except UNREADABLE as error:
        return f"the namespaceSelector of ClusterQueue {queue.name} cannot be read ({error})"
    return f"ClusterQueue {queue.name} does not select the namespace"


def _uncovered_reason(queue: ClusterQueueRules, request: Resources, note: str) -> str:
    uncovered = uncovered_resources(request, queue.covered_resources)
    return f"{describe_uncovered(queue.name, uncovered)}{note}" if uncovered else ""


def describe_uncovered(queue: str, uncovered: Collection[str]) -> str:
    return f"ClusterQueue {queue} does not cover {printable(', '.join(sorted(uncovered)), _MAX_LIST_LENGTH)}"


def _requests_by_group(queue: ClusterQueueRules, request: Resources) -> list[tuple[ResourceGroup, dict[str, int]]]:
    """The requests by group: the first group that covers a resource serves it, as in Kueue."""
    remaining = {**request, PODS: 1}
    shares = []
    for group in queue.groups:
        needs = {name: remaining.pop(name) for name in sorted(remaining) if name in group.resources}
        if needs:
            shares.append((group, needs))
    return shares


def _flavor_choice(
    queue: ClusterQueueRules, flavor: Flavor, needs: Resources, pod_spec: Raw, topology: TopologyRequest | None
) -> FlavorChoice:
    try:
        reason = resource_flavor.mismatch_reason(flavor, pod_spec, queue.topology_only, topology)
    except UNREADABLE as error:
        reason = f"flavor {flavor.name} or the pod's scheduling rules cannot be read ({error})"
    return FlavorChoice(flavor.name, {(flavor.name, resource): need for resource, need in needs.items()}, reason)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The scarcest resource of a flavor; `need` is for one pod."""

    flavor: str
    resource: str
    free: int  # borrowing included
    total: int  # if nothing were in use
    need: int

    def __str__(self) -> str:
        free, total, need = (format_quantity(amount, self.resource) for amount in (self.free, self.total, self.need))
        have = f"{free} free of {total}" if self.need <= self.total else f"{total} at most"
        return f"{self.resource} in flavor {self.flavor}: {have}, one worker needs {need}"


@dataclass(frozen=True, slots=True)
class Fit:
    """How many pods are admitted now without preemption; UNLIMITED where no quota limits them.

    `flavors` is by resource, as in a Workload's podSetAssignments; empty if no pod fits.
    """

    flavors: Mapping[str, str] = field(default_factory=dict)
    nominal: int = 0
    borrow: int = 0


# The next two classes are tuples, because each plan creates many and a dataclass takes three times as long.


class FlavorOffer(NamedTuple):
    choice: FlavorChoice
    fitting_pods: int


class FlavorCapacity(NamedTuple):
    demand: Demand
    path: QuotaPath
    groups: Sequence[Sequence[FlavorOffer]] = ()
    max_pods: int = 0  # that fit in every group

    def fit(self, wanted: int) -> Fit:
        """Compute how many more such pods are admitted now as one podset.

        Per resource group the whole podset takes the first usable flavor where `wanted` pods fit. With whenCanBorrow
        TryNextFlavor it takes, of these flavors, the first that borrows from the nearest cohort. If fewer pods fit, the
        rule applies to as many as fit. So call this with the number of pods to place, and reserve one podset's quota
        before you call it for the next. Source: pkg/scheduler/flavorassigner/flavorassigner.go findFlavorForPodSets,
        shouldTryNextFlavor, isPreferred.
        """
        chosen = self._chosen_offers(wanted)
        if chosen is None:
            return Fit()
        total = min([offer.fitting_pods for offer in chosen], default=UNLIMITED)
        # Other queues may have borrowed the unused nominal quota.
        nominal = min([total, *[self._nominal_pods(offer) for offer in chosen]])
        return Fit(_flavor_by_resource(chosen), nominal, total - nominal)

    def assigned_flavors(self, wanted: int) -> Mapping[str, str]:
        """The flavors in which `wanted` pods are admitted; empty if fewer fit."""
        chosen = self._chosen_offers(wanted) if wanted <= self.max_pods else None
        return _flavor_by_resource(chosen or ())

    def reclaimable_fit(self, wanted: int) -> Fit:
        """Compute how many pods fit the queue's own nominal quota once Kueue has reclaimed it from borrowers.

        It is 0 unless reclaimWithinCohort is Any, because otherwise a borrower's priority may prevent the preemption.
        `flavors` has, for each resource group, the first flavor in which most of `wanted` fit. Source:
        pkg/scheduler/preemption/preemption.go, a Workload within nominal quota may preempt those that borrow.
        """
        if self.demand.closed_reason or not self.demand.queue.reclaims_within_cohort:
            return Fit()
        own = [[(self._nominal_pods(offer), offer) for offer in group] for group in self.groups]
        best = [max(group, key=lambda entry: min(entry[0], wanted)) for group in own]
        count = min((nominal for nominal, _ in best), default=0)
        return Fit(_flavor_by_resource([offer for _, offer in best]) if count else {}, count)

    def flavors_if_empty(self, wanted: int) -> Mapping[str, str]:
        """The flavors of a share that preempts: those that could hold `wanted` pods if nothing were in use."""
        able = [
            [offer for offer in group if _pods_within(cohort.potential_available, self.path, offer.choice) >= wanted]
            for group in self.groups
        ]
        return _flavor_by_resource([group[0] for group in able]) if all(able) else {}

    def potential_pods(self) -> int:
        most = (
            max(_pods_within(cohort.potential_available, self.path, offer.choice) for offer in group)
            for group in self.groups
        )
        return 0 if self.demand.closed_reason else min(most, default=UNLIMITED)

    def shortage_reason(self, wanted: int) -> str:
        """Explain the first group in which fewer than `wanted` pods fit, flavor by flavor."""
        short = next((group for group in self.groups if _max_fitting_pods(group) < max(wanted, 1)), ())
        texts = (offer.choice.unusable_reason or str(_find_shortfall(self.path, offer.choice)) for offer in short)
        return self.demand.closed_reason or "; ".join(texts)

    def shortfall(self, wanted: int) -> Shortfall | None:
        """The scarcest resource of the chosen flavors; if none is chosen, of the flavor that could hold the most."""
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
        """The flavors that Kueue assigns to `wanted` pods, or to as many as fit; None if no pod fits."""
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
    if demand.closed_reason:
        return FlavorCapacity(demand, path)
    groups = [
        [FlavorOffer(choice, _pods_within(cohort.available, path, choice)) for choice in group]
        for group in demand.groups
    ]
    return FlavorCapacity(demand, path, groups, min(map(_max_fitting_pods, groups), default=UNLIMITED))


def _pods_within(amount: Callable[[QuotaPath, FlavorResource], int], path: QuotaPath, choice: FlavorChoice) -> int:
    least = 0 if choice.unusable_reason else UNLIMITED
    for cell, need in choice.needs.items():
        if not least:
            break  # most flavors are full while a gang waits
        least = min(least, _times_fitting(amount(path, cell), need))
    return least


def _times_fitting(amount: int, need: int) -> int:
    return UNLIMITED if need == 0 or amount == UNLIMITED else max(0, amount) // need


def _max_fitting_pods(group: Sequence[FlavorOffer]) -> int:
    return max([offer.fitting_pods for offer in group])


def _flavor_by_resource(chosen: Sequence[FlavorOffer]) -> dict[str, str]:
    return {resource: flavor for offer in chosen for flavor, resource in offer.choice.needs}


def _max_borrowing_level(path: QuotaPath, choice: FlavorChoice, count: int) -> int:
    return max(cohort.borrowing_level(path, cell, min(need * count, UNLIMITED)) for cell, need in choice.needs.items())


def _find_shortfall(path: QuotaPath, choice: FlavorChoice) -> Shortfall:
    """The resource that is free for the fewest pods; of equal resources, the one with the lowest total."""
    rows = []
    for cell, need in choice.needs.items():
        free, total = max(0, cohort.available(path, cell)), max(0, cohort.potential_available(path, cell))
        rows.append((_times_fitting(free, need), _times_fitting(total, need), cell[1], free, total, need))
    _, _, resource, free, total, need = min(rows)
    return Shortfall(choice.flavor, resource, free, total, need)
