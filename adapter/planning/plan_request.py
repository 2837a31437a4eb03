"""What is to be placed, and on which worker clusters? The planner's input, and its filter.

A candidate that cannot take part has a reason instead of an offer; nothing here chooses between those that can.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from adapter.objects.placement import Share
from adapter.objects.specs import NO_MAPPING, PodMapping
from adapter.objects.unstructured import Key, Raw, printable
from adapter.quota.node_capacity import NodeIndex
from adapter.quota.tree import QuotaTree, Resources
from adapter.rewrite import pod_mapping
from adapter.rewrite.dry_run_pod import DryRunResult

Strategy = Literal["FillInOrder", "AvailableCapacity", "Spread"]
GangMode = Literal["AllOrNothing", "SameCluster", "BestEffort"]

MAX_WORKERS_PER_CLUSTER = 4000
"""Of one gang that a plan sends to one cluster, where they have one share. Kueue gives a share's group Workload an owner reference to each of its
pods (docs/upstream.md, "A Workload lists its pods"): with some 8000 that object is as large as etcd takes (1.5 MiB). Half of it is left for all
else that stands in it."""


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """One worker group as it is to be reserved: `pod_spec` is the remote one before a cluster gives it what is its own
    (`pod_spec_in`), `request` what one pod asks of quota before (`request_in`)."""

    name: str
    role: str
    count: int
    pod_spec: Raw
    request: Resources
    zone: str = ""  # the only zone that it may run in; empty: any
    dry_run_results: Mapping[str, DryRunResult] = field(
        default_factory=dict
    )  # by cluster: what that makes of such a pod, where it was asked
    scheduling_hash: str = (
        ""  # all that quota and nodes read of such a pod (podrequests.alike), empty where nobody says
    )


@dataclass(frozen=True, slots=True)
class GangRequest:
    """A gang that wants to be placed, and how its policy wants that done."""

    namespace: str
    queue: str
    groups: tuple[GroupRequest, ...]
    strategy: Strategy = "FillInOrder"
    mode: GangMode = "AllOrNothing"
    min_workers: int = 0  # workers that a BestEffort gang needs at least
    reclaims_quota: bool = False  # whether quota that others borrowed counts, too

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def groups_by_role(self) -> tuple[GroupRequest, ...]:
        """The groups in the order in which a worker cluster's Kueue goes through those of a share."""
        return tuple(sorted(self.groups, key=lambda group: group.role))

    @property
    def needed_workers(self) -> int:
        """How many workers must fit at once."""
        return min(self.min_workers, self.workers) if self.mode == "BestEffort" else self.workers


def remaining_request(
    request: GangRequest,
    kept_shares: Iterable[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
) -> GangRequest:
    """What a gang that runs asks for beside the shares that it keeps, of which those in clusters that are drained do not count,
    nor so many slots of others as `without` says of each group.

    Its job goes on meanwhile, so some of the workers at once are better than none; but at least a quarter of those that are
    missing: each round is one more share in a cluster, and so they are few however the room comes.
    """
    held = Counter[str]()
    for share in (one for one in kept_shares if one.cluster not in draining):
        held.update({group.name: group.count for group in share.groups})
    held.subtract(unusable_slots or {})
    left = [replace(group, count=max(group.count - held[group.name], 0)) for group in request.groups]
    groups = tuple(group for group in left if group.count)
    if request.mode == "SameCluster":
        return replace(request, groups=groups)
    least = -(-sum(group.count for group in groups) // 4)
    return replace(request, groups=groups, mode="BestEffort", min_workers=least)


def scale_up_request(
    request: GangRequest,
    kept_shares: Collection[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
) -> GangRequest:
    """The same for an elastic job that runs: whatever fits is better than nothing, even one worker."""
    return replace(
        remaining_request(replace(request, mode="BestEffort"), kept_shares, draining, unusable_slots), min_workers=1
    )


def keeps_a_cluster(
    request: GangRequest, remaining: GangRequest, kept_shares: Iterable[Share], draining: Collection[str]
) -> bool:
    """Whether a gang has a cluster that it need not leave, beside which it asks for the rest only."""
    return remaining.workers < request.workers and any(share.cluster not in draining for share in kept_shares)


def kept_clusters(clusters: Sequence[str], kept_shares: Iterable[Share], draining: Collection[str]) -> Sequence[str]:
    """Whom a gang that must be in one cluster asks for more workers: only the one that it need not leave."""
    own = {share.cluster for share in kept_shares} - set(draining)
    return [name for name in clusters if name in own]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker cluster as the planner sees it; `problem` says why it cannot take part now."""

    name: str
    problem: str
    quota_tree: QuotaTree
    queues: Mapping[Key, tuple[str, str]]  # LocalQueue -> its ClusterQueue, and why it takes nothing (empty: it does)
    namespaces: Mapping[str, Mapping[str, str]]  # name -> its labels
    zone: str = ""
    nodes: NodeIndex | None = None  # None: not known, so nothing is concluded from them
    can_grow: bool = False
    pod_mapping: PodMapping = NO_MAPPING


def pod_spec_in(candidate: Candidate, group: GroupRequest) -> Raw:
    """A group's pod spec as it is reserved in that cluster."""
    held = _accepted_dry_run(candidate, group)
    return held.reserved_template["spec"] if held else pod_mapping.apply_to_spec(group.pod_spec, candidate.pod_mapping)


def request_in(candidate: Candidate, group: GroupRequest) -> Resources:
    """What one pod of a group asks of quota there."""
    held = _accepted_dry_run(candidate, group)
    return held.request if held else group.request


def scheduling_hash_in(candidate: Candidate, group: GroupRequest) -> str:
    """What tells two groups apart there but for their names, zones and counts: those of which it is the same are offered the same. Empty
    where nobody says."""
    found = group.dry_run_results.get(candidate.name)
    if found is None or not group.scheduling_hash:
        return group.scheduling_hash
    if found.denied_reason:
        return f"refused: {found.denied_reason}"
    if found.reserved_template:  # and so nothing is mapped there any more
        return f"held: {found.scheduling_hash}" if found.scheduling_hash else ""
    return group.scheduling_hash


def _accepted_dry_run(candidate: Candidate, group: GroupRequest) -> DryRunResult | None:
    found = group.dry_run_results.get(candidate.name)
    return found if found and found.reserved_template else None


def denied_reason(candidate: Candidate, group: GroupRequest) -> str:
    """Why a cluster does not take the pods of a group, empty when it does or was not asked."""
    found = group.dry_run_results.get(candidate.name)
    return (
        f"it refuses the pods of worker group {printable(group.name)}: {found.denied_reason}"
        if found and found.denied_reason
        else ""
    )


class Offer(NamedTuple):  # many are made for each plan, and a dataclass takes three times as long to make
    """What one candidate has for one group: pods that fit nominal quota, with borrowing, ever, and on today's nodes."""

    nominal: int = 0
    total: int = 0
    potential: int = 0
    on_nodes: int = 0
    reclaimed: int = 0  # of the total, those that need what others borrowed

    def at_most(self, most: int) -> "Offer":
        """No more than so many of it."""
        nominal, total, ever, now, taken_back = self
        free = min(total - taken_back, most)
        return Offer(min(nominal, most), min(total, most), min(ever, most), min(now, most), min(total, most) - free)


def filter_reason(request: GangRequest, candidate: Candidate) -> str:
    """Why a candidate cannot take any worker of this gang, empty when it can: the filter."""
    if candidate.problem:
        return candidate.problem
    if request.namespace not in candidate.namespaces:
        return f"no namespace {request.namespace} there: create it, with a LocalQueue {request.queue}"
    if (request.namespace, request.queue) not in candidate.queues:
        return f"no LocalQueue {request.queue} in namespace {request.namespace} there: create it"
    return candidate.queues[request.namespace, request.queue][1]


def queue_name(request: GangRequest, candidate: Candidate) -> str:
    """The ClusterQueue behind the gang's LocalQueue there, empty when there is none."""
    return candidate.queues.get((request.namespace, request.queue), ("", ""))[0]


def may_reclaim(request: GangRequest, candidate: Candidate) -> bool:
    """Whether the queue there may take back what others borrowed of it."""
    queue = queue_name(request, candidate)
    return queue in candidate.quota_tree.queues and candidate.quota_tree.queues[queue].reclaims_within_cohort
