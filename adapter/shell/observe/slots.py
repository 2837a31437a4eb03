"""The slots of a Placement that are taken, and the state of the pods that hold them.

A slot is held by the manager pod that names it and by that pod's remote pod, even in an unreachable cluster. A pod to
which a slot is being assigned holds it too: no store shows that before the write's answer. A template slot counts as
held. For every decision, a pod that does not own its template slot has no slot; it gets another one.

Labels and annotations are easily forged. A pod known to be outside the job's RayCluster keeps no share in use. It may
keep a slot taken: a gang has thousands of pods, too many to check every slot's owner.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from adapter import names
from adapter.actions import Action, AssignSlot
from adapter.gang import drain_order
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import WorkerCounts
from adapter.objects import raycluster
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.replica import block_slots, host_index, hosts_of, mismatch_reason, replica_key, replica_name
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import (
    Key,
    Raw,
    condition_true_since,
    controller_uid,
    is_condition_true,
    key_of,
    label,
    meta,
    parse_time,
    uid_of,
)
from adapter.objects.worker_pod import (
    Slot,
    has_ended,
    has_working_ray_node,
    is_deleting,
    is_dispatched,
    is_overdue_for_deletion,
    slot_cluster,
    slot_of,
    slot_share,
    waits_for_quota,
    without_template_slots,
    worker_group_of,
)  # fmt: skip
from adapter.objects.workload import Job, Workload, job_of
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_placement, by_ray_cluster, in_replica
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.observe.drains import DrainObserver
from adapter.shell.observe.transient_state import TransientState
from adapter.worker import template_slots
from adapter.worker.template_slots import TemplateSlotFacts


@dataclass(frozen=True, slots=True)
class _WorkerState:
    pod: Raw
    share: ShareKey | None  # None: no slot
    living: bool
    dispatched: bool
    waits_for_quota: bool  # the manager's
    working: bool  # its Ray node


def _worker_state(pod: Raw) -> _WorkerState:
    living = not (is_deleting(pod) or has_ended(pod))
    return _WorkerState(
        pod, slot_share(pod), living, is_dispatched(pod), waits_for_quota(pod), has_working_ray_node(pod)
    )


def _is_hidden(state: _WorkerState, unreachable: Collection[str]) -> bool:
    """Whether a worker has a remote pod in an unreachable cluster."""
    return state.dispatched and state.share is not None and state.share.cluster in unreachable


class PendingAssignments:
    """Slots being written, by the pod that gets each."""

    def __init__(self) -> None:
        self.changes = 0
        self._slots: dict[str, tuple[str, Slot]] = {}  # by pod uid: the Placement's key, and the slot

    def add(self, actions: list[Action]) -> list[Action]:
        """Add the slots that these actions assign. Do not await between reading the facts and this call."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self.changes += 1
                self._slots[uid_of(action.pod)] = (by_placement(action.pod), action.slot)
        return actions

    def remove(self, actions: list[Action]) -> None:
        """Remove the slots that these actions assigned: the writes have ended, and the stores show the result."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self.changes += 1
                self._slots.pop(uid_of(action.pod), None)

    def slot_for(self, pod: Raw) -> Slot | None:
        """The slot that is being written into a pod."""
        return self._slots.get(uid_of(pod), ("", None))[1]

    def slots(self, group: str, *, but: str | None) -> frozenset[Slot]:
        """The slots being written for a Placement (by key) into other pods than `but` (a uid)."""
        return frozenset(slot for uid, (key, slot) in self._slots.items() if key == group and uid != but)


class SlotObserver:
    def __init__(
        self, manager: ManagerCache, fleet: Fleet, assignments: PendingAssignments, transient: TransientState
    ) -> None:
        self._manager, self._fleet, self._assignments, self._transient = manager, fleet, assignments, transient
        self._drains = DrainObserver(manager, fleet)
        # The effective pods of the last Placement, with all versions that they were read from.
        self._cached_pods: tuple[Placement | None, object, list[Raw]] = None, None, []
        self._states: tuple[list[Raw], list[_WorkerState]] = [], []  # the same pods, with their states

    def effective_pod(self, placement: Placement, pod: Raw) -> Raw:
        """A pod as decisions see it: without template slots if it does not own its slot."""
        return self._effective_pods(placement, [pod])[0]

    def _effective_pods(self, placement: Placement, pods: Iterable[Raw]) -> list[Raw]:
        reachable, draining = self._fleet.reachable(placement.namespace), self._draining_clusters(placement)
        group = _placement_key(placement)
        counts, pending = self._slot_counts(group), self._assignments.slots(group, but=None)

        def owns_slot(pod: Raw) -> bool:
            if not template_slots.must_check_slot(pod):
                return True
            slot = slot_of(pod)
            is_only_holder = slot is None or (slot not in pending and _holders(counts, slot) <= 1)
            shared = not is_only_holder and self.is_shared(pod)
            facts = self._template_slot_facts(pod, reachable.get(slot_cluster(pod)), shared, draining)
            return template_slots.owns_slot(placement, pod, facts)

        return [pod if owns_slot(pod) else without_template_slots(pod) for pod in pods]

    def _template_slot_facts(
        self, pod: Raw, member: WorkerClusterCache | None, shared: bool, draining: Collection[str]
    ) -> TemplateSlotFacts:
        uid, memory = uid_of(pod), self._transient
        remote = member.pods.get(key_of(pod)) if member else None
        return TemplateSlotFacts(
            remote_pod_created=bool(remote and label(remote, names.POD_UID_LABEL) == uid) or uid in memory.created_pods,
            reachable=member is not None,
            maybe_sent=member is None and self.may_have_been_sent(pod),
            create_unanswered=uid in memory.unanswered_pods,
            slot_shared=shared,
            draining_clusters=draining,
        )

    def may_have_been_sent(self, pod: Raw) -> bool:
        """Whether any leader may have sent the remote pod, to any cluster."""
        memory = self._transient
        return template_slots.may_have_been_sent(
            pod, sent=uid_of(pod) in memory.sent_pods, leads_since=memory.leading_since
        )

    def _slot_counts(self, placement_key: str) -> list[Mapping[Slot, int]]:
        members = self._fleet.caches().values()
        return [
            self._manager.pods.value_counts(placement_key),
            *(member.pods.value_counts(placement_key) for member in members),
        ]

    def is_shared(self, pod: Raw) -> bool:
        """Whether another pod holds a pod's slot, or is about to."""
        group, slot = by_placement(pod), slot_of(pod)
        if slot is None:
            return False
        holders = _holders(self._slot_counts(group), slot)
        return holders > self._own_slots(pod)[slot] or slot in self._assignments.slots(group, but=uid_of(pod))

    def taken_by_others(self, pod: Raw) -> frozenset[Slot]:
        """The slots that other pods hold. Called for each pod of a large gang, so it does not read every pod."""
        group, uid = by_placement(pod), uid_of(pod)
        counts = self._slot_counts(group)
        own = {slot for slot, count in self._own_slots(pod).items() if _holders(counts, slot) <= count}
        return frozenset[Slot]().union(*counts) - own | self._assignments.slots(group, but=uid)

    def outranks_others(self, placement: Placement, pod: Raw) -> bool:
        """Whether all other pods with this pod's slot have it from their template only, and so get another one.

        A written slot takes precedence. Otherwise, when no slot is free, each of two pods would wait for the other.
        """
        group, slot, uid = by_placement(pod), slot_of(pod), uid_of(pod)
        if slot is None or template_slots.must_check_slot(pod) or slot in self._assignments.slots(group, but=uid):
            return False
        holders = _holders(self._slot_counts(group), slot)
        others = [other for other in self._manager.pods.group_matches(group, str(slot)) if uid_of(other) != uid]
        if holders > self._own_slots(pod)[slot] + len(others):  # a remote pod of another pod
            return False
        return not any(map(slot_of, self._effective_pods(placement, others)))

    def joined_slot(self, placement: Placement, pod: Raw) -> Slot | None:
        """The slot of the pod that the other hosts of a replica follow; None if it is this pod, or none has a slot.

        That is one whose remote pod may exist, because it stays where it is, or else the first of the hosts.
        """
        name, count = replica_name(pod), hosts_of(placement, pod)
        if not name or count == 1:
            return None
        # A replica has a few more pods than hosts while KubeRay replaces it. Any number has a forged label.
        named = self._manager.pods.group_matches(by_placement(pod), in_replica(name), 4 * count)
        hosts = [other for other in named if replica_key(other) == replica_key(pod)]
        ranked = [
            (*self._rank_in_replica(host), slot, uid_of(host))
            for host in hosts
            if (slot := self._assignments.slot_for(host) or slot_of(host))
        ]
        *_, slot, uid = min(ranked, default=(None, ""))
        return None if uid == uid_of(pod) else slot

    def yields_block(self, placement: Placement, pod: Raw) -> bool:
        """Whether a host of another replica in its block goes before it: one that is bound, or the first by name.

        Two writers may have placed both. Each would wait for the other's slot.
        """
        slot, name = slot_of(pod), replica_name(pod)
        if slot is None or not name or hosts_of(placement, pod) == 1:
            return False
        group = by_placement(pod)
        others = (
            other
            for held in block_slots(placement, pod, slot)
            for other in self._manager.pods.group_matches(group, str(held))
            if replica_key(other) != replica_key(pod)
        )
        return any(self._is_bound(other) or replica_name(other) < name for other in others)

    def _is_bound(self, pod: Raw) -> bool:
        return is_dispatched(pod) or uid_of(pod) in self._transient.sent_pods

    def _rank_in_replica(self, pod: Raw) -> tuple[bool, int]:
        return not self._is_bound(pod), host_index(pod) or 0

    def _own_slots(self, pod: Raw) -> Counter[Slot]:
        group, uid = by_placement(pod), uid_of(pod)
        stores = [self._manager.pods, *(member.pods for member in self._fleet.caches().values())]
        own = (raw for store in stores if (raw := store.get(key_of(pod))) and uid in _own_and_owner_uid(raw))
        return Counter(slot for raw in own if by_placement(raw) == group and (slot := slot_of(raw)))

    def rounds_in_use(self, placement: Key) -> frozenset[int]:
        """The rounds of the slots that pods of a Placement hold, whether or not it exists."""
        group = "/".join(placement)
        slots = (slot for counts in self._slot_counts(group) for slot in counts)
        return frozenset(slot.share.round for slot in (*slots, *self._assignments.slots(group, but=None)))

    def taken_slots(self, placement: Placement) -> frozenset[Slot]:
        group = _placement_key(placement)
        return frozenset[Slot]().union(*self._slot_counts(group), self._assignments.slots(group, but=None))

    def occupied_shares(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares with a held slot; a manager pod that is not the job's does not count."""
        pending = (slot.share for slot in self._assignments.slots(_placement_key(placement), but=None))
        return self.shares_of_pods(placement).union(self.shares_of_remote_pods(placement), pending)

    def shares_of_pods(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares that manager pods are on, even ended ones."""
        return self._shares(placement, self._worker_states(placement))

    def shares_of_remote_pods(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares with remote pods, also last observed in an unreachable cluster."""
        group = _placement_key(placement)
        counts = (member.pods.value_counts(group) for member in self._fleet.caches().values())
        return frozenset(slot.share for count in counts for slot in count)

    def shares_of_living_pods(self, placement: Placement) -> frozenset[ShareKey]:
        return self._shares(placement, (state for state in self._worker_states(placement) if state.living))

    def shares_of_dispatched_pods(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares on which remote pods were observed, also by an earlier process."""
        states = (state for state in self._worker_states(placement) if state.living and state.dispatched)
        return self._shares(placement, states)

    def running_remote_pods(self, share: Reservation, now: datetime) -> tuple[Raw, ...]:
        """The remote pods that hold a share's quota: not ended, not overdue for deletion.

        Called only for a share to be deleted.
        """
        pods = self._fleet.caches()[share.cluster].pods.by_index(f"{share.namespace}/{share.placement}")
        remotes = (pod for pod in pods if slot_share(pod) == share.key)
        cluster_time = self._fleet.clock_offsets([share.cluster], self._manager.clock).time_in(share.cluster, now)
        return tuple(pod for pod in remotes if not has_ended(pod) and not is_overdue_for_deletion(pod, cluster_time))

    def has_unplaced_pod(self, placement: Placement, withheld: Collection[str] = ()) -> bool:
        """Whether a living pod other than the withheld ones (uids) has the manager's quota but no slot."""
        return any(
            state.living and not (state.share or state.waits_for_quota) and uid_of(state.pod) not in withheld
            for state in self._worker_states(placement)
        )

    def unlabelled_hosts(self, placement: Placement) -> str:
        """Why no replica of several hosts can be placed: no pod of the job has the labels of hosts; empty if one has.

        Only pods that are known to be the job's count, and other groups' pods do not.
        """
        groups = {part.name for share in placement.shares for part in share.groups if part.hosts > 1}
        job = (placement.job or self._job_of(placement)) if groups else None
        if job is None:
            return ""
        unlabelled: Raw | None = None
        for state in self._worker_states(placement):
            pod = state.pod
            if not state.living or worker_group_of(pod) not in groups:
                continue
            if raycluster.belongs_to_job(pod, self._manager.ray_cluster_of(pod), job):
                if replica_name(pod):
                    return ""
                unlabelled = unlabelled or pod
        return mismatch_reason(placement, unlabelled) if unlabelled else ""

    def living_pods(self, placement: Placement) -> list[Raw]:
        return [state.pod for state in self._worker_states(placement) if state.living]

    def pods_to_move(self, placement: Placement, reservations: Iterable[Reservation]) -> tuple[tuple[str, Raw], ...]:
        """The remote pods that must leave draining clusters now; `reservations` are the Workload's."""
        members = self._fleet.caches()
        names_there = self._draining_clusters(placement) & members.keys()
        draining = {name: members[name].spec.max_unavailable for name in names_there}
        if not draining:  # mostly none is draining, and then a large gang's workers need not be gathered
            return ()
        return drain_order.pods_to_move(self._gather_workers(placement, reservations), draining)

    def unready_workers(self, placement: Placement, reservations: Sequence[Reservation]) -> GangWorkers | None:
        """The workers; None, without gathering them, while all workers that their RayCluster wants are ready.

        They are also gathered while Kueue counts how long a share has unready pods: a worker of a RayService works
        without a Serve replica, and is not ready then.
        """
        if any(share.pods_unready_since for share in reservations if share.placement == placement.name):
            return self._gather_workers(placement, reservations)
        states = self._worker_states(placement)
        pods, ready = [state.pod for state in states], sum(state.working for state in states)
        all_ready = ready == len(pods) and ready >= self._desired_workers(pods, placement)
        return None if all_ready else self._gather_workers(placement, reservations)

    def _gather_workers(self, placement: Placement, reservations: Iterable[Reservation]) -> GangWorkers:
        pods = self._valid_pods(placement)
        admitted = {share.key for share in reservations if share.placement == placement.name and share.admitted}
        desired, head = self._desired_workers(pods, placement), self._head_of(pods)
        ray_cluster = self._manager.ray_cluster_of(min(pods, key=key_of, default={})) or {}
        return GangWorkers(
            placement,
            pods,
            self._remote_pods(pods),
            self.taken_slots(placement),
            admitted,
            desired,
            condition_true_since(head, "Ready") if head else None,
            head,
            was_complete=raycluster.was_complete(ray_cluster),
            creation_failure=raycluster.creation_failure(ray_cluster),
        )

    def _valid_pods(self, placement: Placement) -> list[Raw]:
        """The effective pods, cached: each reconcile reads them several times."""
        pods = self._manager.pods.by_index(_placement_key(placement))
        if not pods:
            return []  # a waiting gang: saves reading the versions of a hundred clusters
        last_placement, last_versions, effective = self._cached_pods
        versions = self._versions(placement)
        if last_placement is not placement or last_versions != versions:
            effective = self._effective_pods(placement, pods)
            self._cached_pods = placement, versions, effective
        return effective

    def _draining_clusters(self, placement: Placement) -> frozenset[str]:
        return self._drains.clusters_of(placement.job or self._job_of(placement))

    def _versions(self, placement: Placement) -> object:
        stores = (self._manager.pods, *(member.pods for member in self._fleet.caches().values()))
        changes = (
            self._assignments.changes,
            frozenset(self._transient.unanswered_pods),
            *(store.change_count for store in stores),
        )
        return changes, frozenset(self._fleet.reachable(placement.namespace)), self._draining_clusters(placement)

    def _worker_states(self, placement: Placement) -> list[_WorkerState]:
        pods = self._valid_pods(placement)
        last_pods, states = self._states
        if last_pods is not pods:
            states = [self._manager.pods.read_cached(pod, _worker_state) for pod in pods]
            self._states = pods, states
        return states

    def _shares(self, placement: Placement, states: Iterable[_WorkerState]) -> frozenset[ShareKey]:
        """The shares of these pods, except of pods that are not the job's; of all pods while the job is unknown."""
        job, shares = placement.job or self._job_of(placement), set[ShareKey]()
        for state in states:
            # Mostly one ownership check per share.
            if state.share and state.share not in shares and self._may_belong_to(job, state.pod):
                shares.add(state.share)
        return frozenset(shares)

    def _may_belong_to(self, job: Job | None, pod: Raw) -> bool:
        return job is None or raycluster.belongs_to_job(pod, self._manager.ray_cluster_of(pod), job) is not False

    def _job_of(self, placement: Placement) -> Job | None:
        workload = self._manager.workloads.get((placement.namespace, placement.workload))
        return job_of(workload) if workload else None

    def _head_of(self, pods: Iterable[Raw]) -> Raw | None:
        first = next((pod for pod in pods if not is_deleting(pod)), None)
        return (
            raycluster.find_starting_head(first, self._manager.heads.by_index(by_ray_cluster(first))) if first else None
        )

    def _remote_pods(self, pods: Iterable[Raw]) -> dict[Key, Raw]:
        members = self._fleet.caches()
        pairs = ((key_of(pod), members.get(slot_cluster(pod))) for pod in pods)
        return {key: remote for key, member in pairs if member and (remote := member.pods.get(key))}

    def wants_no_workers(self, workload: Workload, placement: Placement) -> bool:
        """Whether the job's RayCluster was scaled to zero, which its Workload does not show."""
        raw = self._ray_cluster_of_job(workload.job) if workload.job else None
        return raw is not None and not self._count_desired(raw, placement)

    def count_workers(
        self, workload: Workload, placement: Placement, podsets: Collection[str], unreachable: Collection[str]
    ) -> WorkerCounts | None:
        """The workers of a job's RayCluster; None where no minimum applies.

        It applies neither to a job that is suspended or finished, nor to one that has no RayCluster yet, or to a
        RayService: it serves with the workers that it has.
        """
        job = workload.job
        raw = self._ray_cluster_of_job(job) if job and not job.service else None
        if job is None or raw is None:
            return None
        owner = self._manager.job_object(job)
        ray_cluster = self._manager.ray_clusters.read_cached(raw, read_ray_cluster)
        if owner.suspended or ray_cluster.suspended or owner.status.is_finished:
            return None
        states = [s for s in self._worker_states(placement) if s.living and controller_uid(s.pod) == uid_of(raw)]
        running = sum(state.working or self._is_remote_ready(state, unreachable) for state in states)
        unknown = sum(not state.working and _is_hidden(state, unreachable) for state in states)
        spec, created = ray_cluster.cluster, parse_time(meta(raw).get("creationTimestamp"))
        return WorkerCounts(running, spec.desired_workers(podsets), spec.fewest_workers(podsets), unknown, created)

    def _is_remote_ready(self, state: _WorkerState, unreachable: Collection[str]) -> bool:
        """Whether a remote pod is ready, although its manager pod is not updated yet, as when a controller starts."""
        member = self._fleet.caches().get(state.share.cluster) if state.share else None
        if member is None or member.name in unreachable or not state.dispatched:
            return False
        return is_condition_true(member.pods.get(key_of(state.pod)) or {}, "Ready")

    def _ray_cluster_of_job(self, job: Job) -> Raw | None:
        is_ray_job = job.kind == "RayJob"
        name = self._manager.job_object(job).status.ray_cluster if is_ray_job else job.name
        return self._manager.ray_clusters.get((job.namespace, name))

    def _desired_workers(self, pods: Iterable[Raw], placement: Placement) -> int:
        first = min(pods, key=key_of, default={})
        raw = self._manager.ray_cluster_of(first)
        return self._count_desired(raw, placement) if raw else 0

    def _count_desired(self, raw: Raw, placement: Placement) -> int:
        cluster = self._manager.ray_clusters.read_cached(raw, read_ray_cluster).cluster
        return cluster.desired_workers({group.name for share in placement.shares for group in share.groups})


def _placement_key(placement: Placement) -> str:
    return f"{placement.namespace}/{placement.name}"


def _holders(counts: Iterable[Mapping[Slot, int]], slot: Slot) -> int:
    return sum(count.get(slot, 0) for count in counts)


def _own_and_owner_uid(pod: Raw) -> tuple[str, str]:
    return uid_of(pod), label(pod, names.POD_UID_LABEL)
