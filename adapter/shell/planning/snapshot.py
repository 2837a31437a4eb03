"""Reads the facts of a plan: the gangs, each worker cluster, and what other gangs are promised there.

One cluster's objects, of any shape, do not affect other clusters.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from adapter.admission.policy import ResolvedPolicy
from adapter.objects import pod_requests, rayjob
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.location import ANYWHERE, Location, annotated_location, merge_locations
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.rayjob import UNKNOWN_JOB, JobObject
from adapter.objects.required_objects import required_objects
from adapter.objects.reservation import Reservation
from adapter.objects.specs import DispatchPolicy
from adapter.objects.topology_request import read_topology_request
from adapter.objects.unstructured import UNREADABLE, Key, Raw
from adapter.objects.workload import PodSet, Workload
from adapter.planning import capacity
from adapter.planning.capacity import HeldShare
from adapter.planning.plan_request import MOVED_FROM_REASON, Candidate, GangRequest, GroupRequest
from adapter.planning.rounds import PlanRequest
from adapter.preflight import reachability
from adapter.quota import preemption, tree
from adapter.rewrite import group_workload
from adapter.rewrite.target import capped_priority
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.drains import DrainObserver
from adapter.shell.observe.dry_run_answers import DryRunAnswers
from adapter.shell.observe.reservations import ReservationObserver
from adapter.shell.observe.targets import TargetBuilder
from adapter.shell.supervise import read_each


class Snapshot:
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
        self._drains = DrainObserver(manager, fleet)
        # By cluster and ClusterQueue: the quota tree after preemption, with the facts that it was computed from.
        self._preempted_trees: dict[tuple[str, str], tuple[tuple[object, ...], tree.QuotaTree | None]] = {}

    def request_of(
        self, workload: Workload, check: str, policy: DispatchPolicy | None = None, unsubmitted: JobObject | None = None
    ) -> GangRequest:
        """A gang's request; without a policy, only what its shares are charged for.

        `unsubmitted`: a job that is in no store, with its own Workload.
        """
        job = unsubmitted or self._policies.job_of(workload)
        workload = self._policies.with_relay(workload, check, job)
        locations, hosts = rayjob.podset_locations(job), rayjob.podset_hosts(job)
        podsets = self._policies.remote_podsets(workload, check)
        groups = tuple(
            self._worker_group(workload, podset, locations.get(podset.name, ANYWHERE), hosts.get(podset.name, 1))
            for podset in podsets
        )
        if policy is None:
            return GangRequest(workload.namespace, workload.queue, groups)
        is_relayed = bool(self._policies.relay_identity(workload, check, job))
        # Where the whole gang restarts, small shares would save no worker.
        borrowing_shares = policy.borrowing_shares if policy.share_lost_action == "Replace" else 0
        return GangRequest(
            workload.namespace,
            workload.queue,
            groups,
            policy.strategy,
            policy.gang,
            policy.min_workers,
            relayed=is_relayed,
            relay_key_problem=self._policies.relay_key_problem(workload, check),
            relay_problem="" if is_relayed else self._policies.relay_problem(workload, check, job),
            borrowing_shares=borrowing_shares,
            moved_from=self._drains.moved_from(unsubmitted)
            if unsubmitted
            else self._drains.moved_from_by(workload.job),
        )

    def _worker_group(self, workload: Workload, podset: PodSet, labelled: Location, hosts: int) -> GroupRequest:
        memo, flavors = self._manager.memo_of(workload), self._targets.flavor_specs((podset,))
        is_stored = self._manager.is_stored(workload)  # a preview must leave nothing in a cache
        group = memo.get_or_find(
            (Snapshot, podset.name), (podset, *flavors), lambda: self._base_group(podset, known=is_stored)
        )
        results = self._dry_run_answers.answers_for(workload, podset)
        if not results and not any(labelled) and hosts == 1:
            return group
        location = merge_locations(group.location, labelled)
        return replace(group, dry_run_results=results, location=location, hosts=hosts)

    def _base_group(self, podset: PodSet, *, known: bool) -> GroupRequest:
        spec = self._targets.reservation_template(podset)["spec"]
        role = group_workload.role_of_group(podset.name)
        requests = pod_requests.pod_requests(spec)
        scheduling_hash = pod_requests.scheduling_hash(spec, requests) if known else ""
        return GroupRequest(
            podset.name,
            role,
            podset.count,
            spec,
            requests,
            annotated_location(podset.template),
            scheduling_hash=scheduling_hash,
            required=required_objects(podset.template.get("spec") or {}),
            topology=read_topology_request(podset.template),
        )

    def least_workers(self, workload: Workload) -> Mapping[str, int] | None:
        """The minimum workers by group; None if not elastic, or while the job is unknown."""
        job = self._policies.job_of(workload) if workload.elastic else UNKNOWN_JOB
        return rayjob.podset_min_workers(job) if job.is_known else None

    def plan_request(
        self, request: GangRequest, chosen: ResolvedPolicy | None, excluded: Sequence[Exclusion]
    ) -> PlanRequest:
        """A gang's request with its clusters; without a policy it has no clusters."""
        return (
            PlanRequest(request, chosen.clusters, excluded, self._unusable_clusters(request, chosen))
            if chosen
            else PlanRequest(request)
        )

    def _unusable_clusters(self, request: GangRequest, chosen: ResolvedPolicy) -> dict[str, str]:
        members = self._fleet.caches()
        relayed = (name for name in chosen.clusters if name in members and members[name].spec.network.is_relayed)
        unprepared = dict.fromkeys(relayed, request.relay_problem) if request.relay_problem else {}
        refused = dict.fromkeys(chosen.clusters, request.relay_key_problem) if request.relay_key_problem else {}
        moved_from = dict.fromkeys(request.moved_from, MOVED_FROM_REASON)
        return {**self._unproven_clusters(chosen), **unprepared, **moved_from, **refused}

    def _unproven_clusters(self, chosen: ResolvedPolicy) -> dict[str, str]:
        if not chosen.policy.require_reachable:
            return {}
        raws = {name: self._manager.worker_clusters.by_name(name) or {} for name in chosen.clusters}
        return {name: reachability.unproven_reason(raw) for name, raw in raws.items()}

    def trees_after_preemption(
        self, order: Iterable[str], priority: int, local_queue: Key
    ) -> dict[str, tree.QuotaTree]:
        """Quota trees by cluster, less the gangs of lower priority that Kueue may preempt.

        Those are in the ClusterQueue of the gang's own LocalQueue there. `priority` is the gang's own; each cluster may
        cap it.
        """
        members = self._fleet.caches()
        self._preempted_trees = {
            (name, queue): entry
            for (name, queue), entry in self._preempted_trees.items()
            if name in members and queue in members[name].tree.queues
        }
        queues = {name: members[name].queues.get(local_queue, ("", ""))[0] for name in order if name in members}
        trees = {
            name: self._tree_after_preemption(members[name], priority, queue) for name, queue in queues.items() if queue
        }
        return {name: quota_tree for name, quota_tree in trees.items() if quota_tree}

    def _tree_after_preemption(self, cache: WorkerClusterCache, priority: int, queue: str) -> tree.QuotaTree | None:
        """A cluster's tree, None if nothing can be preempted; cached, since many waiting gangs have one priority."""
        capped = capped_priority(priority, cache.spec.max_priority) or 0
        facts = capped, cache.tree, cache.workloads.change_count
        key = cache.name, queue
        if self._preempted_trees.get(key, ((), None))[0] != facts:
            queues = _queues_after_preemption(cache, capped, queue)
            quota_tree = tree.build(queues, cache.cohorts, cache.flavors, previous=cache.tree) if queues else None
            self._preempted_trees[key] = facts, quota_tree
        return self._preempted_trees[key][1]

    def candidates(
        self, clusters: Iterable[str], trees: Mapping[str, tree.QuotaTree], namespace: str
    ) -> list[Candidate]:
        """The current candidates for a gang of a namespace; `trees` replaces some clusters' quota trees."""
        members, unreachable = self._fleet.caches(), self._fleet.unreachable(namespace)
        return capacity.remaining_capacity(
            (_read_candidate(name, members.get(name), unreachable.get(name, "")) for name in clusters), trees, ()
        )

    def settled_at(self, now: datetime) -> datetime | None:
        """When no share can be deducted any more that its cluster counts already; None if none can now."""
        held_shares = (
            held_share
            for _, placement in self._gangs_with_shares()
            for _, held_share in self._held_shares(placement, capacity.promised_shares(placement))
        )
        return capacity.all_counted_at(held_shares, now)

    def uncounted_shares(
        self, own_workload: Workload, now: datetime, kept_shares: Sequence[Share] = ()
    ) -> Iterator[tuple[GangRequest, Sequence[Share]]]:
        """Each gang's request and the shares that clusters do not count yet; for the own gang, of `kept_shares`."""
        for workload, placement in self._gangs_with_shares():
            shares = capacity.promised_shares(placement) if workload.gang_key != own_workload.gang_key else kept_shares
            if uncounted := capacity.uncounted_shares(self._held_shares(placement, shares), now):
                yield self.request_of(workload, self._policies.check_of(workload)), uncounted

    def _gangs_with_shares(self) -> Iterator[tuple[Workload, Placement]]:
        for placement in self._manager.read_placements():
            if not placement.shares:
                continue  # skips a crowd of waiting gangs quickly
            workload = self._reservations.workload_of(placement) if capacity.promised_shares(placement) else None
            # A deleted Workload's shares are deleted, and it is not planned again.
            if workload and not self._reservations.is_leaving(workload):
                yield workload, placement

    def _held_shares(self, placement: Placement, shares: Sequence[Share]) -> Iterator[tuple[Share, HeldShare | None]]:
        """What clusters show of shares; without shares in clusters where their namespace is incomplete.

        Those mostly count in their queues already, and must not be deducted from others' capacity once more.
        """
        caches = self._fleet.caches()
        shares = [
            share
            for share in shares
            if share.cluster not in caches or caches[share.cluster].namespace_shares.is_complete(placement.namespace)
        ]
        clusters = {share.cluster for share in shares}
        clocks = self._fleet.clock_offsets(clusters, self._manager.clock)
        by_cluster = {name: _held_by_round(caches.get(name), placement, clocks) for name in clusters}
        return ((share, by_cluster[share.cluster].get(placement.round_of(share))) for share in shares)


def _read_candidate(name: str, cache: WorkerClusterCache | None, unreachable_reason: str) -> Candidate:
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
        location=cache.spec.location(name),
        nodes=cache.nodes,
        can_grow=cache.spec.can_grow,
        pod_mapping=cache.spec.pods,
        kueue_answers=cache.kueue_answers,
        prices=cache.spec.price_per_hour,
    )


def _held_by_round(
    cache: WorkerClusterCache | None, placement: Placement, clocks: ClockOffsets
) -> dict[int, HeldShare]:
    """A Placement's reservations in a cluster, by round; without unreadable ones, whose shares are deducted then."""
    if cache is None:
        return {}
    group_workloads = cache.workloads.by_index(f"{placement.namespace}/{placement.gang_name}")
    listed = read_each("share", group_workloads, partial(_read_held, cache, clocks))
    return {
        reservation.round: held_share
        for _, (reservation, held_share) in listed
        if reservation.placement == placement.name
    }


def _read_held(cache: WorkerClusterCache, clocks: ClockOffsets, raw: Raw) -> tuple[Reservation, HeldShare]:
    reservation = cache.read_reservation(raw)
    reserved_at = reservation.reserved_at and clocks.manager_time(cache.name, reservation.reserved_at)
    return reservation, HeldShare(reserved_at, cache.reserved_as_of(reservation), cache.queue_version(reservation))


def _queues_after_preemption(cache: WorkerClusterCache, priority: int, queue: str) -> Sequence[Raw] | None:
    try:
        return preemption.simulate_removal(cache.cluster_queues, cache.workloads, priority, queue)
    except UNREADABLE:
        return None  # unknown which gangs can be preempted
