"""The slots of a Placement that are taken, and the state of the pods that hold them.

Three things hold a slot: the manager pod that names it, the pod's remote pod (also in a cluster that is unreachable
now), and a pod that is just being assigned it. Between a decision and the answer to its write, no store shows the slot.

A template slot counts as held by its pod whether or not the pod owns it. A pod that does not own it is one without a
slot for every decision, and gets another one.

Labels and annotations are easily forged: a pod that is known to be outside the job's RayCluster keeps no share. It may
keep a slot, and then another slot is used: a gang has thousands of pods, and ownership is not checked for every slot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from adapter import names
from adapter.actions import Action, AssignSlot
from adapter.gang import drain_order
from adapter.gang.drain_order import GangWorkers
from adapter.objects import raycluster
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Key, Raw, condition_true_since, key_of, label, uid_of
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
)  # fmt: skip
from adapter.objects.workload import Job, job_of
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_placement, by_ray_cluster
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.observe.transient_state import TransientState
from adapter.worker import template_slots
from adapter.worker.template_slots import TemplateSlotFacts


@dataclass(frozen=True, slots=True)
class _WorkerState:
    """What a gang reads of each of its pods."""

    pod: Raw
    share: ShareKey | None  # None: it has no slot
    living: bool  # it neither ended nor is it being deleted
    dispatched: bool
    waits_for_quota: bool  # the manager's
    working: bool  # its Ray node


def _worker_state(pod: Raw) -> _WorkerState:
    living = not (is_deleting(pod) or has_ended(pod))
    return _WorkerState(
        pod, slot_share(pod), living, is_dispatched(pod), waits_for_quota(pod), has_working_ray_node(pod)
    )


class PendingAssignments:
    """The slots that are being written, by the pod that gets each."""

    def __init__(self) -> None:
        self.changes = 0
        self._slots: dict[str, tuple[str, Slot]] = {}  # pod uid -> Placement's key, slot

    def add(self, actions: list[Action]) -> list[Action]:
        """Add what these actions assign, and return them. Do not await between reading the facts and this call."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self.changes += 1
                self._slots[uid_of(action.pod)] = (by_placement(action.pod), action.slot)
        return actions

    def remove(self, actions: list[Action]) -> None:
        """Remove what these actions assign: the writes succeeded or failed, and the stores show the result."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self.changes += 1
                self._slots.pop(uid_of(action.pod), None)

    def slots(self, group: str, *, but: str | None) -> frozenset[Slot]:
        """The slots of a Placement (by its key) that are being written into other pods than `but` (a uid, or None)."""
        return frozenset(slot for uid, (key, slot) in self._slots.items() if key == group and uid != but)


class SlotObserver:
    """Reads the pods of the manager cluster and of the worker clusters."""

    def __init__(
        self, manager: ManagerCache, fleet: Fleet, assignments: PendingAssignments, transient: TransientState
    ) -> None:
        self._manager, self._fleet, self._assignments, self._transient = manager, fleet, assignments, transient
        # The effective pods of the last Placement, and the versions of all that they were read from.
        self._cached_pods: tuple[Placement | None, object, list[Raw]] = None, None, []
        self._states: tuple[list[Raw], list[_WorkerState]] = [], []  # the same pods, and their states

    def effective_pod(self, placement: Placement, pod: Raw) -> Raw:
        """A pod as decisions see it: without its template slots when it does not own its slot."""
        return self._effective_pods(placement, [pod])[0]

    def _effective_pods(self, placement: Placement, pods: Iterable[Raw]) -> list[Raw]:
        """Some pods of a Placement, which may be thousands, as decisions see them."""
        seen, draining = self._fleet.reachable(), self._fleet.draining()
        group = _placement_key(placement)
        counts, pending = self._slot_counts(group), self._assignments.slots(group, but=None)

        def owns_slot(pod: Raw) -> bool:
            if not template_slots.must_check_slot(pod):
                return True
            slot = slot_of(pod)
            is_only_holder = slot is None or (slot not in pending and _holders(counts, slot) <= 1)
            shared = not is_only_holder and self.is_shared(pod)
            facts = self._template_slot_facts(pod, seen.get(slot_cluster(pod)), shared, draining)
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
        """Whether this process or an earlier leader may have sent a pod's remote pod to any cluster."""
        memory = self._transient
        return template_slots.may_have_been_sent(
            pod, sent=uid_of(pod) in memory.sent_pods, leads_since=memory.leading_since
        )

    def _slot_counts(self, placement_key: str) -> list[Mapping[Slot, int]]:
        """How many pods hold each slot, by cluster."""
        members = self._fleet.caches().values()
        return [
            self._manager.pods.value_counts(placement_key),
            *(member.pods.value_counts(placement_key) for member in members),
        ]

    def is_shared(self, pod: Raw) -> bool:
        """Whether another pod holds a pod's slot as well, or is about to."""
        group, slot = by_placement(pod), slot_of(pod)
        if slot is None:
            return False
        holders = _holders(self._slot_counts(group), slot)
        return holders > self._own_slots(pod)[slot] or slot in self._assignments.slots(group, but=uid_of(pod))

    def taken_by_others(self, pod: Raw) -> frozenset[Slot]:
        """The slots of a pod's Placement that others hold. It is called for each pod of a large gang, so it does not
        read every pod."""
        group, uid = by_placement(pod), uid_of(pod)
        counts = self._slot_counts(group)
        own = {slot for slot, held in self._own_slots(pod).items() if _holders(counts, slot) <= held}
        return frozenset[Slot]().union(*counts) - own | self._assignments.slots(group, but=uid)

    def outranks_others(self, placement: Placement, pod: Raw) -> bool:
        """Whether all other pods with a pod's slot have it from their template and are to get another one: a written
        slot takes precedence. Otherwise each would wait for the other when no other slot is free."""
        group, slot, uid = by_placement(pod), slot_of(pod), uid_of(pod)
        if slot is None or template_slots.must_check_slot(pod) or slot in self._assignments.slots(group, but=uid):
            return False
        holders = _holders(self._slot_counts(group), slot)
        others = [other for other in self._manager.pods.group_matches(group, str(slot)) if uid_of(other) != uid]
        if holders > self._own_slots(pod)[slot] + len(others):  # a remote pod of another pod
            return False
        return not any(map(slot_of, self._effective_pods(placement, others)))

    def _own_slots(self, pod: Raw) -> Counter[Slot]:
        """The slots of its Placement that a pod and its remote pods hold, and how many of them hold each."""
        group, uid = by_placement(pod), uid_of(pod)
        stores = [self._manager.pods, *(member.pods for member in self._fleet.caches().values())]
        own = (raw for store in stores if (raw := store.get(key_of(pod))) and uid in _own_and_owner_uid(raw))
        return Counter(slot for raw in own if by_placement(raw) == group and (slot := slot_of(raw)))

    def taken_slots(self, placement: Placement) -> frozenset[Slot]:
        """The slots of a Placement that are held."""
        group = _placement_key(placement)
        return frozenset[Slot]().union(*self._slot_counts(group), self._assignments.slots(group, but=None))

    def occupied_shares(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement with a slot that is held, except by a pod that is not the job's."""
        pending = (slot.share for slot in self._assignments.slots(_placement_key(placement), but=None))
        return self.shares_of_pods(placement).union(self.shares_of_remote_pods(placement), pending)

    def shares_of_pods(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that manager pods are on, ended ones included."""
        return self._shares(placement, self._worker_states(placement))

    def shares_of_remote_pods(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that remote pods are on, or were when their cluster became unreachable."""
        group = _placement_key(placement)
        counts = (member.pods.value_counts(group) for member in self._fleet.caches().values())
        return frozenset(slot.share for count in counts for slot in count)

    def shares_of_living_pods(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that its living pods are on."""
        return self._shares(placement, (state for state in self._worker_states(placement) if state.living))

    def shares_of_dispatched_pods(self, placement: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that the remote pods of living pods were observed on, also by an earlier
        process."""
        states = (state for state in self._worker_states(placement) if state.living and state.dispatched)
        return self._shares(placement, states)

    def running_remote_pods(self, share: Reservation, now: datetime) -> tuple[Raw, ...]:
        """The remote pods that hold the quota of a share in a reachable cluster: none that has ended or counts as gone.
        It is called for a share that is to be deleted, and not in each reconcile of a large gang."""
        pods = self._fleet.caches()[share.cluster].pods.by_index(f"{share.namespace}/{share.placement}")
        remotes = (pod for pod in pods if slot_share(pod) == share.key)
        return tuple(pod for pod in remotes if not has_ended(pod) and not is_overdue_for_deletion(pod, now))

    def has_unplaced_pod(self, placement: Placement) -> bool:
        """Whether a living pod has no slot, and the manager has quota for it."""
        return any(
            state.living and not (state.share or state.waits_for_quota) for state in self._worker_states(placement)
        )

    def living_pods(self, placement: Placement) -> list[Raw]:
        """The manager pods of a Placement that neither ended nor are being deleted."""
        return [state.pod for state in self._worker_states(placement) if state.living]

    def pods_to_move(self, placement: Placement, reservations: Iterable[Reservation]) -> tuple[tuple[str, Raw], ...]:
        """The remote pods that are to leave draining clusters now, each with its cluster; `reservations` are its
        Workload's."""
        members = self._fleet.caches()
        draining = {name: members[name].spec.max_unavailable for name in self._fleet.draining()}
        if not draining:  # This is so most of the time, and then a large gang is not gathered.
            return ()
        return drain_order.pods_to_move(self._gather_workers(placement, reservations), draining)

    def unready_workers(self, placement: Placement, reservations: Iterable[Reservation]) -> GangWorkers | None:
        """The workers of a Placement; None while all that its RayCluster wants are ready, and then they are not
        gathered."""
        states = self._worker_states(placement)
        pods, ready = [state.pod for state in states], sum(state.working for state in states)
        all_ready = ready == len(pods) and ready >= self._desired_workers(pods, placement)
        return None if all_ready else self._gather_workers(placement, reservations)

    def _gather_workers(self, placement: Placement, reservations: Iterable[Reservation]) -> GangWorkers:
        pods = self._valid_pods(placement)
        admitted = {share.key for share in reservations if share.placement == placement.name and share.admitted}
        desired, head = self._desired_workers(pods, placement), self._head_of(pods)
        since = condition_true_since(head, "Ready") if head else None
        return GangWorkers(
            placement, pods, self._remote_pods(pods), self.taken_slots(placement), admitted, desired, since
        )

    def _valid_pods(self, placement: Placement) -> list[Raw]:
        """The effective manager pods of a Placement. They are cached: each reconcile of a gang reads them several
        times."""
        pods = self._manager.pods.by_index(_placement_key(placement))
        if not pods:
            return []  # This is so for each gang that waits. It saves reading the versions of a hundred clusters.
        last_placement, last_versions, effective = self._cached_pods
        versions = self._versions()
        if last_placement is not placement or last_versions != versions:
            effective = self._effective_pods(placement, pods)
            self._cached_pods = placement, versions, effective
        return effective

    def _versions(self) -> object:
        """A value that changes with everything that the effective pods are read from."""
        stores = (self._manager.pods, *(member.pods for member in self._fleet.caches().values()))
        changes = (
            self._assignments.changes,
            frozenset(self._transient.unanswered_pods),
            *(store.change_count for store in stores),
        )
        return changes, frozenset(self._fleet.reachable()), self._fleet.draining()

    def _worker_states(self, placement: Placement) -> list[_WorkerState]:
        """The states of the effective pods of a Placement. Each version of a pod is read once."""
        pods = self._valid_pods(placement)
        last_pods, states = self._states
        if last_pods is not pods:
            states = [self._manager.pods.read_cached(pod, _worker_state) for pod in pods]
            self._states = pods, states
        return states

    def _shares(self, placement: Placement, states: Iterable[_WorkerState]) -> frozenset[ShareKey]:
        """The shares that these pods of a Placement are on, without pods that are not the job's. While the job is not
        known, all count."""
        job, shares = placement.job or self._job_of(placement), set[ShareKey]()
        for state in states:
            # Ownership is checked once for each share, mostly.
            if state.share and state.share not in shares and self._may_belong_to(job, state.pod):
                shares.add(state.share)
        return frozenset(shares)

    def _may_belong_to(self, job: Job | None, pod: Raw) -> bool:
        return job is None or raycluster.belongs_to_job(pod, self._manager.ray_cluster_of(pod), job) is not False

    def _job_of(self, placement: Placement) -> Job | None:
        workload = self._manager.workloads.get((placement.namespace, placement.workload))
        return job_of(workload) if workload else None

    def _head_of(self, pods: Iterable[Raw]) -> Raw | None:
        """The head that these pods join."""
        first = next((pod for pod in pods if not is_deleting(pod)), None)
        return raycluster.find_head(first, self._manager.heads.by_index(by_ray_cluster(first))) if first else None

    def _remote_pods(self, pods: Iterable[Raw]) -> dict[Key, Raw]:
        """The remote pod of each of these pods in the cluster of its slot, by the pod's key."""
        members = self._fleet.caches()
        pairs = ((key_of(pod), members.get(slot_cluster(pod))) for pod in pods)
        return {key: remote for key, member in pairs if member and (remote := member.pods.get(key))}

    def _desired_workers(self, pods: Iterable[Raw], placement: Placement) -> int:
        """How many workers of the Placement's groups their RayCluster wants."""
        first = min(pods, key=key_of, default={})
        raw = self._manager.ray_cluster_of(first)
        if raw is None:
            return 0
        cluster = self._manager.ray_clusters.read_cached(raw, read_ray_cluster).cluster
        return cluster.desired_workers({group.name for share in placement.shares for group in share.groups})


def _placement_key(placement: Placement) -> str:
    return f"{placement.namespace}/{placement.name}"


def _holders(counts: Iterable[Mapping[Slot, int]], slot: Slot) -> int:
    return sum(count.get(slot, 0) for count in counts)


def _own_and_owner_uid(pod: Raw) -> tuple[str, str]:
    """A pod's own uid, and the uid of the manager pod that it is the remote pod of."""
    return uid_of(pod), label(pod, names.POD_UID_LABEL)
