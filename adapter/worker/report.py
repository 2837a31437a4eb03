"""Writes the state of a remote pod to its manager pod: it starts or runs, is unreachable, does not end, or is gone.

Only the status of the manager pod is written, and only what changed (status_mirror.py builds the patches). KubeRay
replaces a pod that is reported as Failed. dispatch.py decides what is created and deleted in the worker clusters.
"""

from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, PatchPodStatus, RequeueAfter, emit_event
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw, condition, format_time, meta, parse_time
from adapter.objects.worker_pod import Slot, is_dispatched
from adapter.objects.workload import Job
from adapter.rewrite import group_workload
from adapter.worker import status_mirror
from adapter.worker.cluster_loss import ClusterLoss

# A remote pod whose image is present runs within a second or two, in a large gang within five. Then one write has all
# of it, and no reader needs an earlier one. That saves half of all writes to the manager.
START_QUIET_PERIOD = timedelta(seconds=5)
# While remote pods are created, of any job, API servers are busy and starts take longer: half a minute for a gang of a
# thousand. A failure is reported at once all the same.
BUSY_START_QUIET_PERIOD = timedelta(seconds=30)
# More than a kubelet needs after the grace period, and more than the clocks of two clusters differ.
STUCK_AFTER = timedelta(seconds=60)


def excess_message(remote: Raw, reservation: Reservation | None, slot: Slot | None, cluster: str) -> str:
    """A sentence on what a remote pod requests beyond its share, equal for all of its siblings; empty if there is
    nothing.

    It is also empty if the share is not known. The pod runs on: a stopped worker would cost more than some quota that
    is counted short, and its replacement would request the same.
    """
    role = slot.role if slot else ""
    template = reservation.templates.get(role) if reservation else None
    if not reservation or not template:
        return ""
    excess = group_workload.excess_requests(
        remote.get("spec") or {}, template, reservation.usage.get(role), reservation.counts.get(role, 0)
    )
    return excess and (
        f"A worker in {cluster} runs with more than its share there holds, {excess}: something adds to pods there that "
        "did not when it was tried, or that takes no dry runs. Write what it adds into the worker group's template, "
        "or have it take dry runs."
    )


def mirror_status(
    job: Job | None, pod: Raw, remote: Raw, cluster: str, now: datetime, excess: str = "", *, busy: bool = False
) -> list[Action]:
    """Mirror the status of a remote pod and its excess, if they changed.

    A starting pod is mirrored only when it runs, fails, or has started for the quiet period. That is longer while
    remote pods are created (`busy`).
    """
    patch = status_mirror.status_patch(pod, remote, cluster, excess)
    if not patch:
        return []
    events, remaining = (
        _report_trouble(job, remote, cluster),
        _quiet_time_left(remote, now, BUSY_START_QUIET_PERIOD if busy else START_QUIET_PERIOD),
    )
    events += emit_event(job, names.EventReason.POD_EXCEEDS_SHARE, excess, warning=True) if excess else []
    if remaining and not events and not is_dispatched(pod):
        return [RequeueAfter(remaining)]
    return [PatchPodStatus(pod, patch), *events]


def _quiet_time_left(remote: Raw, now: datetime, quiet_period: timedelta) -> timedelta:
    """For how long a pending remote pod may still start unreported, at most until the next reconcile.

    Zero if our clock and the cluster's differ too much.
    """
    created = parse_time(meta(remote).get("creationTimestamp"))
    if created is None or (remote.get("status") or {}).get("phase") not in (None, "Pending"):
        return timedelta(0)
    remaining = created + quiet_period - now
    return min(remaining, START_QUIET_PERIOD) if timedelta(0) < remaining <= quiet_period else timedelta(0)


def _report_trouble(job: Job | None, remote: Raw, cluster: str) -> list[Action]:
    text = status_mirror.trouble_message(remote, cluster)
    return emit_event(job, names.EventReason.WORKER_FAILING, text, warning=True) if text else []


def mark_unreachable(job: Job | None, pod: Raw, cluster: str, loss: ClusterLoss, now: datetime) -> list[Action]:
    """Report a worker whose cluster is unreachable.

    A lost API connection does not mean a lost data path, so the worker counts as running until its timeout. It does so
    longer while the head has its node alive, and is failed at once when the head reports the node dead.
    """
    is_overdue = loss.given_up_at is not None and now >= loss.given_up_at
    if loss.ray_node_alive is False:
        return _fail_pod(
            pod, names.WORKER_LOST, f"Ray's head lost the node, and worker cluster {cluster} {loss.reason}.", now
        )
    if is_overdue and not loss.ray_node_alive:
        return _fail_pod(pod, names.WORKER_LOST, f"Given up: worker cluster {cluster} {loss.reason}.", now)
    has_state = loss.lost_since is not None and is_dispatched(pod)
    patch = (
        status_mirror.unknown_patch(pod, cluster, loss.reason, format_time(loss.lost_since or now))
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


def fail_if_stuck(pod: Raw, remote: Raw, cluster: str, now: datetime) -> list[Action]:
    """Fail a worker whose remote pod should have ended; its node is probably lost.

    The worker is replaced, but its slot is free only when the cluster has removed the remote pod.
    """
    ends = parse_time(meta(remote).get("deletionTimestamp"))  # the end of its grace period
    if ends is None or now < ends + STUCK_AFTER:
        return []
    ended = "is being deleted, and did not end in time; its node may be lost"
    return _fail_pod(
        pod, names.REMOTE_POD_STUCK, f"The pod in worker cluster {cluster} {ended}{_termination_reason(remote)}", now
    )


def requeue_while_ending(remote: Raw, now: datetime) -> list[Action]:
    """Requeue at the time when the remote pod is overdue: no watch event reports a pod that does not end."""
    ends = parse_time(meta(remote).get("deletionTimestamp"))
    return [RequeueAfter(ends + STUCK_AFTER - now)] if ends and now < ends + STUCK_AFTER else []


def fail_missing(pod: Raw, cluster: str, now: datetime) -> list[Action]:
    """Fail a worker whose remote pod was observed and is gone, so that KubeRay replaces it."""
    text = f"The pod in worker cluster {cluster} was deleted or evicted there{_termination_reason(pod)}"
    return _fail_pod(pod, names.REMOTE_POD_GONE, text, now)


def _termination_reason(pod: Raw) -> str:
    """Why a remote pod ended or ends, by its last condition.

    Kueue, the kubelet and evictors write a condition before they stop a pod.
    """
    messages = (condition(pod, kind).get("message") for kind in ("TerminationTarget", "DisruptionTarget"))
    return next((f": {text}" for text in messages if text), ".")


def _fail_pod(pod: Raw, reason: str, text: str, now: datetime) -> list[Action]:
    patch = status_mirror.failed_patch(pod, reason=reason, message=text, now=format_time(now))
    return [PatchPodStatus(pod, patch)] if patch else []
