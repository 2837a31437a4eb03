"""The planner's input (a gang and the candidate worker clusters), and the planner's filter."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from adapter.objects.claimed_resources import add_resources, claimed_resources
from adapter.objects.location import ANYWHERE, Location
from adapter.objects.placement import Share
from adapter.objects.pod_requests import pod_requests
from adapter.objects.required_objects import RequiredObject, unnamed_objects, unnamed_reason
from adapter.objects.specs import NO_MAPPING, PodMapping
from adapter.objects.topology_request import TopologyRequest
from adapter.objects.unstructured import Key, Raw, printable
from adapter.planning.prices import Prices
from adapter.quota.kueue_answers import (
    NO_ANSWERS,
    Answers,
    Question,
    QueueAnswers,
    answers_for,
    uncovered_resources,
)
from adapter.quota.node_capacity import NodeIndex
from adapter.quota.tree import QuotaTree, Resources
from adapter.rewrite import pod_mapping
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.rewrite.resource_names import rename_resources

Strategy = Literal["FillInOrder", "AvailableCapacity", "Spread", "Cheapest"]
GangMode = Literal["AllOrNothing", "SameCluster", "BestEffort"]

# The limit of one gang's workers in one cluster. Kueue gives a share's group Workload an owner reference to each pod
# (docs/upstream.md, "A Workload lists its pods"). With some 8000 of them that object is as large as etcd accepts (1.5
# MiB). Half of that is for its other content.
MAX_WORKERS_PER_CLUSTER = 4000

# Why a gang uses no cluster that its job moves away from, a fragment.
MOVED_FROM_REASON = "the job moves away from it"


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """One worker group.

    `pod_spec` and `request` are those before a cluster's own changes (`pod_spec_in`, `request_in`).
    """

    name: str
    role: str
    count: int
    pod_spec: Raw
    request: Resources
    location: Location = ANYWHERE  # that it requires
    # By cluster.
    dry_run_results: Mapping[str, DryRunResult] = field(default_factory=dict)
    # See pod_requests.scheduling_hash; empty if not known.
    scheduling_hash: str = ""
    required: tuple[RequiredObject, ...] = ()  # that a cluster must name
    hosts: int = 1  # of each replica; a share has whole replicas
    topology: TopologyRequest | None = None


@dataclass(frozen=True, slots=True)
class GangRequest:
    namespace: str
    queue: str
    groups: tuple[GroupRequest, ...]
    strategy: Strategy = "FillInOrder"
    mode: GangMode = "AllOrNothing"
    min_workers: int = 0  # of a BestEffort gang
    reclaims_quota: bool = False  # quota that others borrowed counts, too
    relayed: bool = False  # its head is, or will be, a node of a relayed network
    relay_problem: str = ""  # why it uses no relayed cluster, a fragment
    moved_from: frozenset[str] = frozenset()  # clusters that its job moves away from
    relay_key_problem: str = ""  # why its head would refuse new workers in any cluster, a fragment
    borrowing_shares: int = 0  # into how many shares a cluster's borrowed workers are divided; 0: they are not

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def groups_by_role(self) -> tuple[GroupRequest, ...]:
        """The groups in the order in which a worker cluster's Kueue processes those of a share."""
        return tuple(sorted(self.groups, key=lambda group: group.role))

    @property
    def needed_workers(self) -> int:
        return min(self.min_workers, self.workers) if self.mode == "BestEffort" else self.workers


def request_without(request: GangRequest, withheld_workers: Mapping[str, int]) -> GangRequest:
    """A gang's request without its withheld workers, which are counted by group."""
    if not withheld_workers:
        return request
    reduced = (replace(group, count=group.count - withheld_workers.get(group.name, 0)) for group in request.groups)
    return replace(request, groups=tuple(group for group in reduced if group.count > 0))


def remaining_request(
    request: GangRequest,
    kept_shares: Iterable[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
) -> GangRequest:
    """What a running gang requests beside its kept shares in clusters that are not drained.

    The job runs, so some workers suffice: at least a quarter of those missing, since each round is one more share.
    """
    slots = Counter[str]()
    for share in (share for share in kept_shares if share.cluster not in draining):
        slots.update({group.name: group.count for group in share.groups})
    slots.subtract(unusable_slots or {})
    missing = [
        replace(group, count=_whole_replicas(max(group.count - slots[group.name], 0), group))
        for group in request.groups
    ]
    groups = tuple(group for group in missing if group.count)
    if request.mode == "SameCluster":
        return replace(request, groups=groups)
    min_workers = -(-sum(group.count for group in groups) // 4)
    return replace(request, groups=groups, mode="BestEffort", min_workers=min_workers)


def _whole_replicas(missing_workers: int, group: GroupRequest) -> int:
    """The workers of all replicas that lack some: KubeRay replaces a replica as a whole."""
    return min(-(-missing_workers // group.hosts) * group.hosts, group.count)


def scale_up_request(
    request: GangRequest,
    kept_shares: Collection[Share],
    draining: Collection[str],
    unusable_slots: Mapping[str, int] | None = None,
) -> GangRequest:
    """What a running elastic job requests beside its kept shares; it takes even one worker."""
    return replace(
        remaining_request(replace(request, mode="BestEffort"), kept_shares, draining, unusable_slots), min_workers=1
    )


def keeps_a_cluster(
    request: GangRequest, remaining: GangRequest, kept_shares: Iterable[Share], draining: Collection[str]
) -> bool:
    """Whether a gang need not leave all of its clusters, and only requests the missing workers."""
    return remaining.workers < request.workers and any(share.cluster not in draining for share in kept_shares)


def kept_clusters(clusters: Sequence[str], kept_shares: Iterable[Share], draining: Collection[str]) -> Sequence[str]:
    """Those of `clusters` that a SameCluster gang need not leave: they have a kept share and are not drained."""
    staying = {share.cluster for share in kept_shares} - set(draining)
    return [name for name in clusters if name in staying]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker cluster as the planner sees it; `problem` says why it cannot take part now."""

    name: str
    problem: str
    quota_tree: QuotaTree
    queues: Mapping[Key, tuple[str, str]]  # LocalQueue -> its ClusterQueue, and why it is closed
    namespaces: Mapping[str, Mapping[str, str]]  # name -> labels
    location: Location = ANYWHERE
    nodes: NodeIndex | None = None  # None: not known, no limit
    can_grow: bool = False
    pod_mapping: PodMapping = NO_MAPPING
    kueue_answers: Answers = field(default_factory=dict)
    prices: Prices = field(default_factory=dict)  # under the names that resources have there
    # Plans as if Kueue there did not count what the ClusterQueue does not cover. Its answer to the share will show it.
    asks_kueue: bool = False


def pod_spec_in(candidate: Candidate, group: GroupRequest) -> Raw:
    dry_run = _accepted_dry_run(candidate, group)
    return (
        dry_run.reserved_template["spec"]
        if dry_run
        else pod_mapping.apply_to_spec(group.pod_spec, candidate.pod_mapping)
    )


def request_in(candidate: Candidate, group: GroupRequest) -> Resources:
    dry_run, renames = _accepted_dry_run(candidate, group), candidate.pod_mapping.extended_resources
    if dry_run:
        return dry_run.request
    if renames.keys().isdisjoint(group.request):
        return group.request
    return pod_requests(rename_resources(group.pod_spec, renames))


def quota_request_in(request: GangRequest, candidate: Candidate, group: GroupRequest) -> Resources:
    """What one pod requests of quota: nodes do not show the devices of its claims."""
    claimed = claimed_resources(group.required, candidate.pod_mapping, request.namespace)
    return add_resources(request_in(candidate, group), claimed)


def resource_names_in(groups: Iterable[GroupRequest], candidate: Candidate) -> Mapping[str, str]:
    """The names in the manager and there of the groups' extended resources that have two."""
    renames = candidate.pod_mapping.extended_resources
    requested = {name for group in groups for name in group.request}
    return {name: renamed for name, renamed in renames.items() if name in requested}


def answers_in(request: GangRequest, candidate: Candidate) -> QueueAnswers:
    """What Kueue has answered in the gang's namespace and ClusterQueue there."""
    if not candidate.kueue_answers:
        return NO_ANSWERS
    name = queue_name(request, candidate)
    rules = candidate.quota_tree.queues.get(name)
    if rules is None:
        return NO_ANSWERS
    return answers_for(candidate.kueue_answers, (request.namespace, name), rules.covered_resources)


def counted_request_in(request: GangRequest, candidate: Candidate, group: GroupRequest) -> Resources:
    """What Kueue there is thought to count of one pod's requests."""
    counted = answers_in(request, candidate).counted(quota_request_in(request, candidate, group))
    if not candidate.asks_kueue:
        return counted
    uncovered = _uncovered_in(request, candidate, counted)
    return {name: amount for name, amount in counted.items() if name not in uncovered}


def uncovered_in(request: GangRequest, candidate: Candidate) -> frozenset[str]:
    """The resources that the gang's ClusterQueue does not cover, of those that Kueue there is thought to count."""
    counted = (counted_request_in(request, candidate, group) for group in request.groups)
    return frozenset[str]().union(*(_uncovered_in(request, candidate, resources) for resources in counted))


def _uncovered_in(request: GangRequest, candidate: Candidate, resources: Resources) -> frozenset[str]:
    rules = candidate.quota_tree.queues.get(queue_name(request, candidate))
    return uncovered_resources(resources, rules.covered_resources) if rules else frozenset()


def question_in(request: GangRequest, candidate: Candidate, uncovered: frozenset[str]) -> Question:
    """What a share of the gang asks of Kueue there."""
    amounts = Counter[str]()
    for group in request.groups:
        requested = quota_request_in(request, candidate, group)
        amounts.update({name: amount * group.count for name, amount in requested.items()})
    return Question(uncovered, frozenset(amounts.items()))


def uncovered_note(request: GangRequest, candidate: Candidate) -> str:
    """What is known of Kueue's own opinion on uncovered resources, and the remedy; continues a sentence."""
    if answers_in(request, candidate).is_denied(uncovered_in(request, candidate)):
        return ", which Kueue there counts: extend coveredResources, or exclude it in Kueue's configuration"
    return "; whether Kueue there counts that is not known yet"


def scheduling_hash_in(candidate: Candidate, group: GroupRequest) -> str:
    """A hash of what a group's offers in a cluster depend on beside name, location and count; empty if not known."""
    dry_run = group.dry_run_results.get(candidate.name)
    if dry_run is None or not group.scheduling_hash:
        return group.scheduling_hash
    if dry_run.denied_reason:
        return f"refused: {dry_run.denied_reason}"
    if dry_run.reserved_template:  # it includes the cluster's mapping
        return f"held: {dry_run.scheduling_hash}" if dry_run.scheduling_hash else ""
    return group.scheduling_hash


def _accepted_dry_run(candidate: Candidate, group: GroupRequest) -> DryRunResult | None:
    dry_run = group.dry_run_results.get(candidate.name)
    return dry_run if dry_run and dry_run.reserved_template else None


def denied_reason(request: GangRequest, candidate: Candidate, group: GroupRequest) -> str:
    """Why a cluster denies the pods of a group; empty also without a dry run."""
    mapping, namespace = candidate.pod_mapping, request.namespace
    if unnamed := unnamed_reason(unnamed_objects(group.required, mapping, namespace), mapping, namespace):
        return f"worker group {printable(group.name)}: {unnamed}"
    dry_run = group.dry_run_results.get(candidate.name)
    return (
        f"it denies the pods of worker group {printable(group.name)}: {dry_run.denied_reason}"
        if dry_run and dry_run.denied_reason
        else ""
    )


# A NamedTuple, because creating a dataclass takes three times as long, and each plan creates many offers.
class Offer(NamedTuple):
    """Pods of one group: with nominal quota, with borrowing, with nothing in use, and on today's nodes."""

    nominal: int = 0
    total: int = 0
    potential: int = 0
    on_nodes: int = 0
    reclaimed: int = 0  # of the total, by taking back borrowed quota

    def at_most(self, most: int) -> "Offer":
        nominal, total, potential, on_nodes, reclaimed = self
        free = min(total - reclaimed, most)
        return Offer(
            min(nominal, most), min(total, most), min(potential, most), min(on_nodes, most), min(total, most) - free
        )

    def in_replicas(self, hosts: int) -> "Offer":
        """The same in replicas of several hosts, as many as fit as a whole."""
        nominal, total, potential, on_nodes, reclaimed = self
        free = (total - reclaimed) // hosts
        return Offer(nominal // hosts, total // hosts, potential // hosts, on_nodes // hosts, total // hosts - free)

    def in_workers(self, hosts: int) -> "Offer":
        """The workers of an offer in replicas."""
        return Offer(*(count * hosts for count in self))


def filter_reason(request: GangRequest, candidate: Candidate) -> str:
    """Why a candidate cannot take any worker of the gang; empty if it can."""
    if candidate.problem:
        return candidate.problem
    if request.namespace not in candidate.namespaces:
        return f"no namespace {request.namespace} there: create it, with a LocalQueue {request.queue}"
    if (request.namespace, request.queue) not in candidate.queues:
        return f"no LocalQueue {request.queue} in namespace {request.namespace} there: create it"
    return candidate.queues[request.namespace, request.queue][1]


def queue_name(request: GangRequest, candidate: Candidate) -> str:
    """The ClusterQueue of the gang's LocalQueue; empty if there is none."""
    return candidate.queues.get((request.namespace, request.queue), ("", ""))[0]


def may_reclaim(request: GangRequest, candidate: Candidate) -> bool:
    queue = queue_name(request, candidate)
    return queue in candidate.quota_tree.queues and candidate.quota_tree.queues[queue].reclaims_within_cohort
