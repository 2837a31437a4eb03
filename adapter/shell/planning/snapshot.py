"""What do the stores show of each worker cluster, and of what was promised there? The facts that a plan is made on.

It reads, and decides nothing: whether a cluster takes part, and what is deducted from what it shows, is for
`planning.capacity` to say. What one cluster shows may be of any shape, and is in no other cluster's way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from adapter import names
from adapter.admission.policy import ResolvedPolicy
from adapter.objects import pod_requests, rayjob
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.rayjob import UNKNOWN_JOB
from adapter.objects.reservation import Reservation
from adapter.objects.specs import DispatchPolicy
from adapter.objects.unstructured import UNREADABLE, Raw, annotation
from adapter.objects.workload import PodSet, Workload
from adapter.planning import capacity
from adapter.planning.capacity import HeldShare
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.rounds import PlanRequest
from adapter.preflight import reachability
from adapter.quota import preemption, tree
from adapter.rewrite import group_workload
from adapter.rewrite.target import capped_priority
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.dry_run_answers import DryRunAnswers
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.targets import TargetBuilder
from adapter.shell.supervise import read_each


class Snapshot:
    """The gangs and the worker clusters as a planner sees them."""

    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        policies: PolicyObserver,
        targets: TargetBuilder,
        reservations: ReservationObserver,
        dry_run_answers: DryRunAnswers,
    ) -> None:
        self._manager, self._fleet, self._dry_run_answers = manager, fleet, dry_run_answers
        self._policies, self._targets, self._reservations = policies, targets, reservations
        self._preempted_trees: dict[
            str, tuple[tuple[object, ...], tree.QuotaTree | None]
        ] = {}  # by cluster, and what it was found from

    def request_of(self, workload: Workload, check: str, policy: DispatchPolicy | None = None) -> GangRequest:
        """What a gang asks for; without a policy, only how its shares are charged."""
        zones = rayjob.podset_zones(self._manager.job_object(workload.job)) if workload.job else {}
        podsets = self._policies.remote_podsets(workload, check)
        groups = tuple(self._worker_group(workload, podset, zones.get(podset.name, "")) for podset in podsets)
        if policy is None:
            return GangRequest(workload.namespace, workload.queue, groups)
        return GangRequest(workload.namespace, workload.queue, groups, policy.strategy, policy.gang, policy.min_workers)

    def _worker_group(self, workload: Workload, podset: PodSet, zone: str) -> GroupRequest:
        kept, flavors = self._manager.memo_of(workload), self._targets.flavor_specs((podset,))
        held = self._manager.is_stored(workload)  # what somebody only asks about leaves nothing behind
        group = kept.get_or_find(
            (Snapshot, podset.name), (podset, *flavors), lambda: self._base_group(podset, known=held)
        )
        tried = self._dry_run_answers.answers_for(workload, podset)
        return replace(group, dry_run_results=tried, zone=group.zone or zone) if tried or zone else group

    def _base_group(self, podset: PodSet, *, known: bool) -> GroupRequest:
        spec = self._targets.reservation_template(podset)["spec"]
        zone = annotation(podset.template, names.ZONE_ANNOTATION)
        role = group_workload.role_of_group(podset.name)
        asked = pod_requests.pod_requests(spec)
        alike = pod_requests.scheduling_hash(spec, asked) if known else ""
        return GroupRequest(podset.name, role, podset.count, spec, asked, zone, scheduling_hash=alike)

    def least_workers(self, workload: Workload) -> Mapping[str, int] | None:
        """How many workers of each group an elastic job never has fewer of; None of any other, and while its job is not known."""
        job = self._manager.job_object(workload.job) if workload.elastic and workload.job else UNKNOWN_JOB
        return rayjob.podset_min_replicas(job) if job.is_known else None

    def plan_request(
        self, request: GangRequest, chosen: ResolvedPolicy | None, excluded: Sequence[Exclusion]
    ) -> PlanRequest:
        """Whom a gang asks for room, and whom it does not: without a policy, nobody."""
        return (
            PlanRequest(request, chosen.clusters, excluded, self._unproven_clusters(chosen))
            if chosen
            else PlanRequest(request)
        )

    def _unproven_clusters(self, chosen: ResolvedPolicy) -> dict[str, str]:
        """Why no preflight found the policy's clusters reachable, where it requires that."""
        if not chosen.policy.require_reachable:
            return {}
        found = {name: self._manager.worker_clusters.by_name(name) or {} for name in chosen.clusters}
        return {name: reachability.unproven_reason(raw) for name, raw in found.items()}

    def trees_after_preemption(self, order: Iterable[str], priority: int) -> dict[str, tree.QuotaTree]:
        """The quota of those clusters in which Kueue may preempt gangs of lower priority, as it were without them; `priority` is the
        gang's own, which counts as far as each cluster lets it."""
        members = self._fleet.caches()
        self._preempted_trees = {name: kept for name, kept in self._preempted_trees.items() if name in members}
        found = {name: self._tree_after_preemption(members[name], priority) for name in order if name in members}
        return {name: one for name, one in found.items() if one}

    def _tree_after_preemption(self, cache: WorkerClusterCache, priority: int) -> tree.QuotaTree | None:
        """A cluster's quota without gangs of lower priority; None where there are none. Found once until something changes there:
        many that wait have the same priority."""
        there = capped_priority(priority, cache.spec.max_priority) or 0
        facts = there, cache.tree, cache.workloads.change_count
        if self._preempted_trees.get(cache.name, ((), None))[0] != facts:
            queues = _queues_after_preemption(cache, there)
            made = tree.build(queues, cache.cohorts, cache.flavors, previous=cache.tree) if queues else None
            self._preempted_trees[cache.name] = facts, made
        return self._preempted_trees[cache.name][1]

    def candidates(self, clusters: Iterable[str], trees: Mapping[str, tree.QuotaTree]) -> list[Candidate]:
        """The clusters as they stand; `trees`: quotas to be reckoned with instead of those of these clusters."""
        members, silent = self._fleet.caches(), self._fleet.unreachable()
        return capacity.remaining_capacity(
            (_read_candidate(name, members.get(name), silent.get(name, "")) for name in clusters), trees, ()
        )

    def settled_at(self, now: datetime) -> datetime | None:
        """When the last share that is deducted and may be counted already is deducted no more."""
        held = (
            held
            for _, place in self._gangs_with_shares()
            for _, held in self._held_shares(place, capacity.promised_shares(place))
        )
        return capacity.all_counted_at(held, now)

    def uncounted_shares(
        self, own_workload: Workload, now: datetime, kept_shares: Sequence[Share] = ()
    ) -> Iterator[tuple[GangRequest, Sequence[Share]]]:
        """What the clusters do not count yet: what other gangs were promised, and what this one keeps."""
        for work, place in self._gangs_with_shares():
            shares = capacity.promised_shares(place) if work.gang_key != own_workload.gang_key else kept_shares
            if uncounted := capacity.uncounted_shares(self._held_shares(place, shares), now):
                yield self.request_of(work, self._policies.check_of(work)), uncounted

    def _gangs_with_shares(self) -> Iterator[tuple[Workload, Placement]]:
        """The gangs that have shares, reserved or about to be."""
        for place in self._manager.read_placements():
            if not place.shares:
                continue  # as of a whole crowd that waits
            work = self._reservations.workload_of(place) if capacity.promised_shares(place) else None
            if work and not self._reservations.is_leaving(work):  # else its shares go, and it plans no more
                yield work, place

    def _held_shares(self, placement: Placement, shares: Sequence[Share]) -> Iterator[tuple[Share, HeldShare | None]]:
        """What stands for each share in its cluster, and how old the figures are there; None where nothing is seen of it."""
        found = {
            name: _held_by_round(self._fleet.caches().get(name), placement) for name in {one.cluster for one in shares}
        }
        return ((share, found[share.cluster].get(placement.round_of(share))) for share in shares)


def _read_candidate(name: str, cache: WorkerClusterCache | None, unreachable_reason: str) -> Candidate:
    """A cluster as it stands; `silent` says why it cannot be seen, empty when it can."""
    spec, unmirrored = (cache.spec, cache.unmirrored_reason) if cache else (None, "")
    problem = capacity.cluster_problem(name, unreachable_reason, spec, unmirrored)
    if cache is None or problem:
        return capacity.absent_candidate(name, problem)
    return Candidate(
        name=name,
        problem="",
        quota_tree=cache.tree,
        queues=cache.queues,
        namespaces=cache.namespace_labels,
        zone=cache.spec.zone or name,
        nodes=cache.nodes,
        can_grow=cache.spec.can_grow,
        pod_mapping=cache.spec.pods,
    )


def _held_by_round(cache: WorkerClusterCache | None, placement: Placement) -> dict[int, HeldShare]:
    """What stands for a Placement in one cluster, by round; what cannot be read stands for nothing, so it is deducted."""
    if cache is None:
        return {}
    listed = read_each(
        "share", cache.workloads.by_index(f"{placement.namespace}/{placement.gang_name}"), partial(_read_held, cache)
    )
    return {found.round: held for _, (found, held) in listed if found.placement == placement.name}


def _read_held(cache: WorkerClusterCache, raw: Raw) -> tuple[Reservation, HeldShare]:
    found = cache.read_reservation(raw)
    return found, HeldShare(found.reserved_at, cache.reserved_as_of(found), cache.queue_version(found))


def _queues_after_preemption(cache: WorkerClusterCache, priority: int) -> Sequence[Raw] | None:
    try:
        return preemption.simulate_removal(cache.cluster_queues, cache.workloads, priority)
    except UNREADABLE:
        return None  # who can be preempted there is not known
