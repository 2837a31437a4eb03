"""The planner's input, a gang and the candidate worker clusters, and the planner's filter.

A candidate that cannot take part has a reason instead of an offer. Nothing is chosen among the others here.
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

# The workers of one gang that a plan sends to one cluster, where they have one share. Kueue gives a share's group
# Workload an owner reference to each of its pods (docs/upstream.md, "A Workload lists its pods"). With some 8000 that
# object is as large as etcd accepts (1.5 MiB). Half of that is for its other content.
MAX_WORKERS_PER_CLUSTER = 4000


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """One worker group as it is to be reserved.

    `pod_spec` is the remote pod's, before a cluster's own changes (`pod_spec_in`). `request` is what one pod requests
    of quota, before them (`request_in`).
    """

    name: str
    role: str
    count: int
    pod_spec: Raw
    request: Resources
    zone: str = ""  # the only zone that it may run in; empty: any
    # Cluster -> what a dry run there made of such a pod.
    dry_run_results: Mapping[str, DryRunResult] = field(default_factory=dict)
    # All that quota and nodes depend on in such a pod (pod_requests.scheduling_hash); empty if not known.
    scheduling_hash: str = ""


@dataclass(frozen=True, slots=True)
class GangRequest:
    """A gang to be placed, and how its policy wants that."""

    namespace: str
    queue: str
    groups: tuple[GroupRequest, ...]
    strategy: Strategy = "FillInOrder"
    mode: GangMode = "AllOrNothing"
    min_workers: int = 0  # the workers that a BestEffort gang needs
    reclaims_quota: bool = False  # quota that others borrowed counts, too

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def groups_by_role(self) -> tuple[GroupRequest, ...]:
        """The groups in the order in which a worker cluster's Kueue processes those of a share."""
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
    """What a running gang requests beside its kept shares.

    Shares in drained clusters do not count, nor do the `unusable_slots` of each group. The job goes on meanwhile, so
    some workers at once are better than none. But it needs at least a quarter of the missing workers: each round is one
    more share in a cluster, and so there are few rounds.
    """
    slots = Counter[str]()
    for share in (share for share in kept_shares if share.cluster not in draining):
        slots.update({group.name: group.count for group in share.groups})
    slots.subtract(unusable_slots or {})
    missing = [replace(group, count=max(group.count - slots[group.name], 0)) for group in request.groups]
    groups = tuple(group for group in missing if group.count)
    if request.mode == "SameCluster":
        return replace(request, groups=groups)
    min_workers = -(-sum(group.count for group in groups) // 4)
    return replace(request, groups=groups, mode="BestEffort", min_workers=min_workers)


def scale_up_request(
    request: GangRequest,
    kept_shares: Collection[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
) -> GangRequest:
    """What a running elastic job requests beside its kept shares: even one worker that fits is better than none."""
    return replace(
        remaining_request(replace(request, mode="BestEffort"), kept_shares, draining, unusable_slots), min_workers=1
    )


def keeps_a_cluster(
    request: GangRequest, remaining: GangRequest, kept_shares: Iterable[Share], draining: Collection[str]
) -> bool:
    """Whether a gang has a cluster that it need not leave, so that it only requests the missing workers."""
    return remaining.workers < request.workers and any(share.cluster not in draining for share in kept_shares)


def kept_clusters(clusters: Sequence[str], kept_shares: Iterable[Share], draining: Collection[str]) -> Sequence[str]:
    """The clusters that a gang which must be in one cluster may grow in: only those that it need not leave."""
    staying = {share.cluster for share in kept_shares} - set(draining)
    return [name for name in clusters if name in staying]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker cluster as the planner sees it; `problem` says why it cannot take part now."""

    name: str
    problem: str
    quota_tree: QuotaTree
    queues: Mapping[Key, tuple[str, str]]  # LocalQueue -> its ClusterQueue, and why it takes no gang (empty: it does)
    namespaces: Mapping[str, Mapping[str, str]]  # name -> labels
    zone: str = ""
    nodes: NodeIndex | None = None  # None: not known, so they limit nothing
    can_grow: bool = False
    pod_mapping: PodMapping = NO_MAPPING


def pod_spec_in(candidate: Candidate, group: GroupRequest) -> Raw:
    """A group's pod spec as it is reserved in the cluster."""
    dry_run = _accepted_dry_run(candidate, group)
    return (
        dry_run.reserved_template["spec"]
        if dry_run
        else pod_mapping.apply_to_spec(group.pod_spec, candidate.pod_mapping)
    )


def request_in(candidate: Candidate, group: GroupRequest) -> Resources:
    """What one pod of a group requests of quota in the cluster."""
    dry_run = _accepted_dry_run(candidate, group)
    return dry_run.request if dry_run else group.request


def scheduling_hash_in(candidate: Candidate, group: GroupRequest) -> str:
    """A hash of what a group's offers in the cluster depend on, beside name, zone and count; empty if not known."""
    dry_run = group.dry_run_results.get(candidate.name)
    if dry_run is None or not group.scheduling_hash:
        return group.scheduling_hash
    if dry_run.denied_reason:
        return f"refused: {dry_run.denied_reason}"
    if dry_run.reserved_template:  # the cluster's mapping is in it already
        return f"held: {dry_run.scheduling_hash}" if dry_run.scheduling_hash else ""
    return group.scheduling_hash


def _accepted_dry_run(candidate: Candidate, group: GroupRequest) -> DryRunResult | None:
    dry_run = group.dry_run_results.get(candidate.name)
    return dry_run if dry_run and dry_run.reserved_template else None


def denied_reason(candidate: Candidate, group: GroupRequest) -> str:
    """Why a cluster denies the pods of a group; empty if it does not, or had no dry run."""
    dry_run = group.dry_run_results.get(candidate.name)
    return (
        f"it refuses the pods of worker group {printable(group.name)}: {dry_run.denied_reason}"
        if dry_run and dry_run.denied_reason
        else ""
    )


# A tuple, since each plan creates many, and creating a dataclass takes three times as long.
class Offer(NamedTuple):
    """The pods of one group that one candidate could take: with nominal quota, with borrowing, ever, and on today's
    nodes."""

    nominal: int = 0
    total: int = 0
    potential: int = 0
    on_nodes: int = 0
    reclaimed: int = 0  # those of the total that need quota that others borrowed

    def at_most(self, most: int) -> "Offer":
        """The offer limited to `most` pods."""
        nominal, total, potential, on_nodes, reclaimed = self
        free = min(total - reclaimed, most)
        return Offer(
            min(nominal, most), min(total, most), min(potential, most), min(on_nodes, most), min(total, most) - free
        )


def filter_reason(request: GangRequest, candidate: Candidate) -> str:
    """The filter: why a candidate cannot take any worker of the gang; empty if it can."""
    if candidate.problem:
        return candidate.problem
    if request.namespace not in candidate.namespaces:
        return f"no namespace {request.namespace} there: create it, with a LocalQueue {request.queue}"
    if (request.namespace, request.queue) not in candidate.queues:
        return f"no LocalQueue {request.queue} in namespace {request.namespace} there: create it"
    return candidate.queues[request.namespace, request.queue][1]


def queue_name(request: GangRequest, candidate: Candidate) -> str:
    """The ClusterQueue of the gang's LocalQueue in the cluster; empty if there is none."""
    return candidate.queues.get((request.namespace, request.queue), ("", ""))[0]


def may_reclaim(request: GangRequest, candidate: Candidate) -> bool:
    """Whether that ClusterQueue may take back quota that others borrowed from it."""
    queue = queue_name(request, candidate)
    return queue in candidate.quota_tree.queues and candidate.quota_tree.queues[queue].reclaims_within_cohort
