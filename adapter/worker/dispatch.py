"""The next actions for one worker pod: its manager pod, and its remote pods in the worker clusters.

The manager pod is the desired state, and a remote pod of the same name the actual one. Through every fault:

- A remote pod is deleted once its manager pod (same uid) is gone.
- A manager pod whose remote pod vanished is reported as Failed, so that KubeRay replaces it.
- A remote pod is created only for a pod with a slot on an admitted share, and never a second time.
- Nothing changes in an unreachable cluster: its workers count as running until they count as lost.

RULES has the rules in order. The first that applies gives the actions, after deletions of orphans.
docs/architecture.md lists the rules.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from adapter import names
from adapter.actions import Action, AssignSlot, DeletePod, RequeueAfter, emit_event
from adapter.objects import replica
from adapter.objects.placement import Placement
from adapter.objects.unstructured import Raw, key_of, meta, uid_of
from adapter.objects.worker_pod import (
    Slot,
    has_ended,
    has_template_slot,
    is_deleting,
    is_dispatched,
    is_planned_slot,
    may_get_slot,
    slot_of,
    unlocked_reason,
    waits_for_quota,
)  # fmt: skip
from adapter.objects.workload import Job
from adapter.rules import Rule, always, no_actions
from adapter.worker import create_pod, report
from adapter.worker.worker_facts import Worker

MANAGER_POD_GONE = "its pod in the manager cluster is gone"
SLOT_ELSEWHERE = "its pod holds a slot in another cluster"
POD_ENDED = "its pod in the manager cluster ended"
# After how long a pod without a free slot is requeued, if another pod holds its template slot or is about to take it.
# If the other pod leaves the slot, this event enqueues the waiting pod. If the other pod never takes the slot, no event
# does. Only pods with a repeated replica index are requeued like this. Pods of a given-up share, maybe a whole group,
# wait for an event, like all pods without a slot.
SLOT_RETRY = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The facts, prepared for the rules. Earlier rules ensure what the properties assert."""

    worker: Worker
    own_remote_pods: Mapping[str, Raw]  # cluster -> pod created for this very manager pod
    slot: Slot | None
    now: datetime

    @property
    def pod(self) -> Raw:
        assert self.worker.pod is not None
        return self.worker.pod

    @property
    def placement(self) -> Placement:
        assert self.worker.placement is not None
        return self.worker.placement

    @property
    def held_slot(self) -> Slot:
        assert self.slot is not None
        return self.slot

    @property
    def cluster(self) -> str:
        return self.slot.cluster if self.slot else ""

    @property
    def remote_pod(self) -> Raw | None:
        return self.own_remote_pods.get(self.cluster)

    @property
    def is_created(self) -> bool:
        return bool(self.own_remote_pods or self.worker.creation.created or is_dispatched(self.pod))

    @property
    def has_planned_slot(self) -> bool:
        """Whether the pod has a slot, and the plan has this slot for the pod's group.

        The slot may be from an annotation in a user's template, which may name any slot.
        """
        return is_planned_slot(self.placement, self.pod, self.slot)


def decide(worker: Worker, now: datetime) -> list[Action]:
    state = worker_state(worker, now)
    return [*_delete_orphans(state), *first_rule(state).actions(state)]


def worker_state(worker: Worker, now: datetime) -> WorkerState:
    pod = worker.pod
    own_remote_pods = worker.own_remote_pods(pod) if pod else {}
    return WorkerState(worker, own_remote_pods, slot_of(pod) if pod else None, now)


# --- deletion of orphans ---------------------------------------------------------------------------------------------


def _delete_orphans(state: WorkerState) -> list[Action]:
    """Delete remote pods of a gone or earlier manager pod, or outside of the slot's cluster."""
    own = state.own_remote_pods
    orphans: list[Action] = [
        DeletePod(cluster, remote_pod, MANAGER_POD_GONE, names.OrphanReason.POD_GONE)
        for cluster, remote_pod in state.worker.remote_pods.items()
        if cluster not in own and not is_deleting(remote_pod)
    ]
    if state.worker.pod is None or state.slot is None or _is_over(state):
        return orphans
    return orphans + [
        DeletePod(cluster, remote_pod, SLOT_ELSEWHERE, names.OrphanReason.SLOT_ELSEWHERE)
        for cluster, remote_pod in own.items()
        if cluster != state.cluster and not is_deleting(remote_pod)
    ]


# --- the rules, in their order ---------------------------------------------------------------------------------------


def _has_no_pod(state: WorkerState) -> bool:
    return state.worker.pod is None


def _is_over(state: WorkerState) -> bool:
    return is_deleting(state.pod) or has_ended(state.pod)


def _delete_running_remote_pods(state: WorkerState) -> list[Action]:
    return [
        DeletePod(cluster, remote_pod, POD_ENDED)
        for cluster, remote_pod in state.own_remote_pods.items()
        if not is_deleting(remote_pod) and not has_ended(remote_pod)
    ]


def _has_finished_job(state: WorkerState) -> bool:
    return state.worker.owner.finished and bool(state.worker.owner.owns_pod)


def _report_finished(state: WorkerState) -> list[Action]:
    """Report a worker as not ready once its remote pod is gone.

    In an unreachable cluster that pod may still run, so the manager pod keeps its last state.
    """
    if not is_dispatched(state.pod) or state.own_remote_pods or not state.worker.clusters.reachable:
        return []
    return report.mark_job_finished(state.pod, state.cluster, state.now)


def _has_unknown_owner(state: WorkerState) -> bool:
    return state.worker.placement is None or state.worker.owner.owns_pod is None


def _is_foreign(state: WorkerState) -> bool:
    """Whether the pod does not belong to the RayCluster of the Placement's job.

    Such a pod is not dispatched: the label that names the Placement is easily forged.
    """
    return not state.worker.owner.owns_pod


def _report_foreign(state: WorkerState) -> list[Action]:
    generate_name = meta(state.pod).get("generateName")  # pods of one template share it, and one event
    name = f"{generate_name}*" if generate_name else meta(state.pod).get("name")
    text = (
        f"Pod {name} carries the label {names.PLACEMENT_LABEL} but belongs to no RayCluster of this job, so it is "
        "ignored; remove the label from its template."
    )
    return emit_event(state.worker.owner.job, names.EventReason.REMOTE_POD_CONFLICT, text, warning=True)


def _waits_for_quota(state: WorkerState) -> bool:
    return waits_for_quota(state.pod) and not state.is_created


def _is_ungated(state: WorkerState) -> bool:
    """Whether the manager's nodes may run the pod.

    If it got a remote pod, the worker would exist twice, once without quota.
    """
    return bool(unlocked_reason(state.pod)) and not state.is_created


def _report_ungated(state: WorkerState) -> list[Action]:
    namespace, name = key_of(state.pod)
    text = (
        f"{unlocked_reason(state.pod)}, so the manager's nodes may run this pod, and it gets no remote pod; do not "
        "change schedulingGates and nodeSelector of the template, and delete the pod: KubeRay creates another one."
    )
    pod = Job("v1", "Pod", namespace, name, uid_of(state.pod))
    return emit_event(pod, names.EventReason.POD_NOT_GATED, text, warning=True)


def _needs_slot(state: WorkerState) -> bool:
    """Whether the pod must choose a slot: it has none, or its slot is not planned, is taken or is not its replica's.

    Two writers may have given the same slot to two pods, or places apart to one replica. A pod gives up such a slot
    only while it has no remote pod.
    """
    slots = state.worker.slots
    return _may_choose_slot(state) and (
        state.slot in slots.taken
        or not state.has_planned_slot
        or slots.yields_block
        or replica.leaves_replica(state.placement, state.pod, state.slot, slots.joined)
    )


def _assign_free_slot(state: WorkerState) -> list[Action]:
    if withheld_for := state.worker.slots.withheld_for:
        return [RequeueAfter(withheld_for)]  # the free slots are for workers that may be created
    if free := _free_slot(state):
        return [AssignSlot(state.pod, free.cluster, free)]
    if mismatch := replica.mismatch_reason(state.placement, state.pod):
        text = f"Remote pods are not created: {mismatch}."
        return emit_event(state.worker.owner.job, names.EventReason.WORKER_FAILING, text, warning=True)
    if state.worker.slots.lost_template_slot:
        return [RequeueAfter(SLOT_RETRY)]
    return _requeue_after_exclusion(state) if state.placement.exclusions and _has_slot_elsewhere(state) else []


def _has_better_slot(state: WorkerState) -> bool:
    """Whether the template slot is in an excluded cluster, and the plan has a free one elsewhere."""
    is_excluded = state.cluster in state.placement.excluded_clusters(state.now)
    return has_template_slot(state.pod) and is_excluded and _may_choose_slot(state) and _has_slot_elsewhere(state)


def _assign_better_slot(state: WorkerState) -> list[Action]:
    slot = _free_slot(state)
    return [AssignSlot(state.pod, slot.cluster, slot)] if slot else _requeue_after_exclusion(state)


def _requeue_after_exclusion(state: WorkerState) -> list[Action]:
    """Wait for the cluster of a free slot to be reachable, which enqueues the pod, or for the end of an exclusion."""
    ends = [exclusion.until for exclusion in state.placement.exclusions if exclusion.until > state.now]
    return [RequeueAfter(min(ends) - state.now)] if ends else []


def _is_unreachable(state: WorkerState) -> bool:
    return state.cluster not in state.worker.clusters.targets


def _report_unreachable(state: WorkerState) -> list[Action]:
    loss = state.worker.clusters.loss
    return report.mark_unreachable(state.worker.owner.job, state.pod, state.cluster, loss, state.now) if loss else []


def _restarts_with_gang(state: WorkerState) -> bool:
    """Whether the remote pod ended or is gone, its share is lost, and so the whole gang restarts (gang/running.py).

    If the manager pod were Failed now, KubeRay would replace the pod, and then suspend the RayCluster and delete the
    replacement. KubeRay would keep expecting the replacement
    (kuberay:controllers/ray/expectations/scale_expectations.go). So the resumed group would get no workers until
    KubeRay's next resync, up to five minutes later.
    """
    if state.remote_pod is not None and not has_ended(state.remote_pod):
        return False
    reservation = state.worker.clusters.reservations.get(state.held_slot.share)
    is_lost = reservation is None or bool(reservation.eviction_message)
    return state.worker.owner.restarts_on_share_loss and is_lost and state.has_planned_slot


def _has_remote_pod(state: WorkerState) -> bool:
    return bool(state.remote_pod)


def _mirror_remote_pod(state: WorkerState) -> list[Action]:
    worker, pod, cluster, now = state.worker, state.pod, state.cluster, state.now
    remote_pod, cluster_time = state.own_remote_pods[cluster], worker.clusters.clocks.time_in(cluster, now)
    job, reservation = worker.owner.job, worker.clusters.reservations.get(state.held_slot.share)
    if stuck := report.fail_if_stuck(pod, remote_pod, cluster, now, cluster_time):
        return stuck
    heads = (
        create_pod.head_mirror_writes(worker, pod, state.placement, state.held_slot.share)
        if _observes_mirrors(state)
        else []
    )
    excess = report.excess_message(remote_pod, reservation, state.held_slot, cluster)
    status = report.mirror_status(
        job, pod, remote_pod, cluster, cluster_time, excess, busy=worker.creation.creating_pods
    )
    return [
        *heads,
        *status,
        *(report.requeue_while_ending(remote_pod, cluster_time) or _delete_outdated(state, remote_pod)),
    ]


def _is_remote_pod_gone(state: WorkerState) -> bool:
    return state.worker.creation.created or is_dispatched(state.pod)


def _report_gone(state: WorkerState) -> list[Action]:
    return report.fail_missing(state.pod, state.cluster, state.now)


def _create_remote_pod(state: WorkerState) -> list[Action]:
    if not state.has_planned_slot:
        return []
    return create_pod.create_when_ready(state.worker, state.pod, state.placement, state.held_slot, state.now)


# --- what the rules share --------------------------------------------------------------------------------------------


def _may_choose_slot(state: WorkerState) -> bool:
    """Whether the pod has no slot, or may take another one.

    The pod must keep its slot in three cases:

    - A create request for the planned slot is unanswered; the request is repeated (create_pod.create_when_ready).
    - The remote pod has been created.
    - The slot's cluster is unreachable, and the remote pod may exist there. A round that is withdrawn meanwhile takes
      the cluster out of the plan, and not the pod off its node, until the cluster counts as lost. A slot in no cluster
      of the plan or the fleet is one that a user's template names.
    """
    creation = state.worker.creation
    if creation.unanswered and state.has_planned_slot:
        return False
    if state.slot is None:
        return True
    if creation.created or not may_get_slot(state.pod, state.worker.remote_pods):
        return False
    return not creation.may_exist_unobserved or not _is_unreachable(state) or not _is_known_cluster(state)


def _is_known_cluster(state: WorkerState) -> bool:
    loss = state.worker.clusters.loss
    is_in_plan = any(share.cluster == state.cluster for share in state.placement.active_shares)
    if is_in_plan or loss is None or has_template_slot(state.pod):  # a template slot is of the first round
        return is_in_plan
    return not loss.is_given_up(state.now)


def _free_slot(state: WorkerState) -> Slot | None:
    """The first free slot in plan order; in an excluded cluster, only if the plan has no free slot elsewhere.

    Workers may not start in an excluded cluster, and workers there make the share elsewhere surplus
    (gang/group_slots.py). So the pod waits while the cluster of its slot elsewhere is unreachable.
    """
    excluded = state.placement.excluded_clusters(state.now)
    if excluded and not _has_slot_elsewhere(state):
        excluded = set()
    return next((slot for slot in _open_slots(state, excluded) if slot.cluster in state.worker.clusters.targets), None)


def _has_slot_elsewhere(state: WorkerState) -> bool:
    """Whether the plan has a free slot outside of excluded clusters; its cluster may be unreachable."""
    return any(True for _ in _open_slots(state, state.placement.excluded_clusters(state.now)))


def _open_slots(state: WorkerState, excluded: Collection[str]) -> Iterator[Slot]:
    """The free slots in clusters that are neither drained nor excluded."""
    slots, draining = state.worker.slots, state.worker.clusters.draining
    for slot in replica.open_slots(state.placement, state.pod, slots.taken, slots.joined):
        if slot.cluster not in draining and slot.cluster not in excluded:
            yield slot


def _observes_mirrors(state: WorkerState) -> bool:
    """Whether the mirror of the head is observed; if not, only the creation of a pod updates it."""
    mirror = state.worker.head.mirrors.get(state.cluster)
    return mirror is not None and mirror.readable


def _delete_outdated(state: WorkerState, remote_pod: Raw) -> list[Action]:
    """Delete a remote pod that uses an earlier address of the head, because the head moved.

    In the remote pod's grace period, its Ray node drains itself.
    """
    if is_deleting(remote_pod) or has_ended(remote_pod):
        return []
    address = state.worker.head.address
    moved_from = address.stale_address(remote_pod, mirrored=_observes_mirrors(state))
    reason = f"the head moved from {moved_from} to {address.ip}"
    return [DeletePod(state.cluster, remote_pod, reason)] if moved_from else []


# --- the table -------------------------------------------------------------------------------------------------------

RULES: Final = (
    Rule(
        "manager pod gone",
        "Its remote pods are deleted as orphans, and nothing else is done.",
        _has_no_pod,
        no_actions,
    ),
    Rule(
        "manager pod ended",
        "It ended or is being deleted, so its remote pods are deleted.",
        _is_over,
        _delete_running_remote_pods,
    ),
    Rule(
        "job finished",
        "It is reported as not ready once its remote pod is gone; KubeRay may keep it for long.",
        _has_finished_job,
        _report_finished,
    ),
    Rule(
        "owner not known",
        "Nothing is done until its Placement and its RayCluster are observed.",
        _has_unknown_owner,
        no_actions,
    ),
    Rule(
        "pod of another RayCluster",
        "It is ignored, and an event reports it.",
        _is_foreign,
        _report_foreign,
    ),
    Rule(
        "no quota in the manager cluster",
        "It waits.",
        _waits_for_quota,
        no_actions,
    ),
    Rule(
        "not gated",
        "The manager's nodes may run it, so it gets no remote pod, and an event reports it.",
        _is_ungated,
        _report_ungated,
    ),
    Rule(
        "no slot, or one that it cannot keep",
        "It gets the first free slot of the plan.",
        _needs_slot,
        _assign_free_slot,
    ),
    Rule(
        "template slot in an excluded cluster",
        "It gets a free slot in another cluster, and waits while that cluster is unreachable.",
        _has_better_slot,
        _assign_better_slot,
    ),
    Rule(
        "cluster unreachable",
        "It keeps its last state until its cluster counts as lost.",
        _is_unreachable,
        _report_unreachable,
    ),
    Rule(
        "whole gang restarts",
        "Nothing is done: KubeRay must not replace it before the job is suspended.",
        _restarts_with_gang,
        no_actions,
    ),
    Rule(
        "remote pod exists",
        "Its status is mirrored; it is deleted when the head moved.",
        _has_remote_pod,
        _mirror_remote_pod,
    ),
    Rule(
        "remote pod gone",
        "The manager pod is reported as Failed, so that KubeRay replaces it.",
        _is_remote_pod_gone,
        _report_gone,
    ),
    Rule(
        "remote pod not created yet",
        "It is created once its share is admitted and its head has an address.",
        always,
        _create_remote_pod,
    ),
)


def first_rule(state: WorkerState) -> Rule[WorkerState]:
    return next(rule for rule in RULES if rule.applies(state))
