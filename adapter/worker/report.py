"""Writes the state of a remote pod to its manager pod: it starts or runs, is unreachable, does not end, or is gone.

Only the manager pod's status is written (manager_pod_status.py builds the patches). KubeRay replaces Failed pods.
dispatch.py decides what is created and deleted in the worker clusters.
"""

from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, PatchPodStatus, RequeueAfter, emit_event
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw, condition, format_time, meta, parse_time
from adapter.objects.worker_pod import Slot, is_dispatched
from adapter.objects.workload import Job
from adapter.rewrite import group_workload
from adapter.worker import manager_pod_status
from adapter.worker.cluster_loss import ClusterLoss

# How long a starting pod is not mirrored. A remote pod whose image is present runs within a second or two, in a large
# gang within five. One write for the whole start saves half of all writes to the manager.
START_QUIET_PERIOD = timedelta(seconds=5)
# The same while remote pods of any job are created. API servers are busy then: a gang of a thousand takes half a minute
# to start. Failures are reported at once all the same.
BUSY_START_QUIET_PERIOD = timedelta(seconds=30)
# How long after its grace period a pod counts as stuck: longer than a kubelet needs.
STUCK_AFTER = timedelta(seconds=60)


def excess_message(remote: Raw, reservation: Reservation | None, slot: Slot | None, cluster: str) -> str:
    """A message on what a remote pod requests beyond its share, equal for its siblings; empty if nothing.

    The pod runs on: stopping it would cost more than some uncounted quota, and its replacement would request the same.
    """
    role = slot.role if slot else ""
    template = reservation.templates.get(role) if reservation else None
    if not reservation or not template:
        return ""
    excess = group_workload.excess_requests(
        remote.get("spec") or {}, template, reservation.usage.get(role), reservation.counts.get(role, 0)
    )
    return excess and (
        f"A worker in {cluster} requests more than its share there holds, {excess}: something there adds to pods but "
        "did not in the dry run, or does not support dry runs. Put the addition into the worker group's template, or "
        "make its source support dry runs."
    )


def mirror_status(
    job: Job | None,
    pod: Raw,
    remote: Raw,
    cluster: str,
    cluster_time: datetime,
    excess: str = "",
    *,
    busy: bool = False,
) -> list[Action]:
    """Mirror the status of a remote pod, and its excess.

    A starting pod is mirrored once it runs, fails, or outlasts the quiet period, which is longer while remote pods are
    created (`busy`).
    """
    patch = manager_pod_status.status_patch(pod, remote, cluster, excess)
    if not patch:
        return []
    events, remaining = (
        _report_trouble(job, remote, cluster),
        _quiet_time_left(remote, cluster_time, BUSY_START_QUIET_PERIOD if busy else START_QUIET_PERIOD),
    )
    events += emit_event(job, names.EventReason.POD_EXCEEDS_SHARE, excess, warning=True) if excess else []
    if remaining and not events and not is_dispatched(pod):
        return [RequeueAfter(remaining)]
    return [PatchPodStatus(pod, patch), *events]


def _quiet_time_left(remote: Raw, cluster_time: datetime, quiet_period: timedelta) -> timedelta:
    """How long a pending remote pod may stay unreported; zero if clocks differ too much."""
    created = parse_time(meta(remote).get("creationTimestamp"))
    if created is None or (remote.get("status") or {}).get("phase") not in (None, "Pending"):
        return timedelta(0)
    remaining = created + quiet_period - cluster_time
    return min(remaining, START_QUIET_PERIOD) if timedelta(0) < remaining <= quiet_period else timedelta(0)


def _report_trouble(job: Job | None, remote: Raw, cluster: str) -> list[Action]:
    text = manager_pod_status.trouble_message(remote, cluster)
    return emit_event(job, names.EventReason.WORKER_FAILING, text, warning=True) if text else []


def mark_unreachable(job: Job | None, pod: Raw, cluster: str, loss: ClusterLoss, now: datetime) -> list[Action]:
    """Report a worker whose cluster is unreachable.

    Its data path may still work, so it counts as running until its timeout, and longer while the head has its node
    alive. It fails at once when the head reports the node dead.
    """
    is_overdue = loss.is_given_up(now)
    if loss.ray_node_alive is False:
        return _fail_pod(
            pod, names.WORKER_LOST, f"Ray's head lost the node, and worker cluster {cluster} {loss.reason}.", now
        )
    if is_overdue and not loss.ray_node_alive:
        return _fail_pod(pod, names.WORKER_LOST, f"Given up: worker cluster {cluster} {loss.reason}.", now)
    has_state = loss.lost_since is not None and is_dispatched(pod)
    patch = (
        manager_pod_status.unknown_patch(pod, cluster, loss.reason, format_time(loss.lost_since or now))
        if has_state
        else None
    )
    actions: list[Action] = [PatchPodStatus(pod, patch)] if patch else []
    actions += (
        emit_event(job, names.EventReason.HEAD_UNREACHABLE, loss.head_problem, warning=True)
        if loss.head_problem
        else []
    )
    return [*actions, RequeueAfter(loss.given_up_at - now)] if loss.given_up_at and not is_overdue else actions


def fail_if_stuck(pod: Raw, remote: Raw, cluster: str, now: datetime, cluster_time: datetime) -> list[Action]:
    """Fail a worker whose remote pod should have ended by the time in its cluster; its node is probably lost.

    Its slot is free only once the cluster has removed the remote pod.
    """
    ends = parse_time(meta(remote).get("deletionTimestamp"))  # after the grace period
    if ends is None or cluster_time < ends + STUCK_AFTER:
        return []
    ended = "is being deleted, and did not end in time; its node may be lost"
    return _fail_pod(
        pod, names.REMOTE_POD_STUCK, f"The pod in worker cluster {cluster} {ended}{_termination_reason(remote)}", now
    )


def requeue_while_ending(remote: Raw, cluster_time: datetime) -> list[Action]:
    """Requeue when a pod that is being deleted counts as stuck: no watch event reports a pod that does not end."""
    ends = parse_time(meta(remote).get("deletionTimestamp"))
    return [RequeueAfter(ends + STUCK_AFTER - cluster_time)] if ends and cluster_time < ends + STUCK_AFTER else []


def fail_missing(pod: Raw, cluster: str, now: datetime) -> list[Action]:
    text = f"The pod in worker cluster {cluster} was deleted or evicted there{_termination_reason(pod)}"
    return _fail_pod(pod, names.REMOTE_POD_GONE, text, now)


def mark_job_finished(pod: Raw, cluster: str, now: datetime) -> list[Action]:
    """Report that a worker has ended with its job; the phase stays, because KubeRay replaces ended pods."""
    text = f"The job is finished, so the pod in worker cluster {cluster} was deleted and its quota is free."
    patch = manager_pod_status.finished_patch(pod, reason=names.JOB_FINISHED, message=text, now=format_time(now))
    return [PatchPodStatus(pod, patch)] if patch else []


def _termination_reason(pod: Raw) -> str:
    """Why a pod was stopped: Kueue, the kubelet and evictors write a condition before they stop a pod."""
    messages = (condition(pod, kind).get("message") for kind in ("TerminationTarget", "DisruptionTarget"))
    return next((f": {text}" for text in messages if text), ".")


def _fail_pod(pod: Raw, reason: str, text: str, now: datetime) -> list[Action]:
    patch = manager_pod_status.failed_patch(pod, reason=reason, message=text, now=format_time(now))
    return [PatchPodStatus(pod, patch)] if patch else []
