"""What does the manager's pod say of its copy: as it starts and runs, is out of sight, hangs, or is gone?

Only the pod's status is written, and only what is news in it (status_mirror.py has the patches). A pod that is said to have failed is
replaced by KubeRay. What is made or deleted in the worker clusters is decided elsewhere (dispatch.py).
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

# A copy whose image is at hand runs within a second or two, in a large gang within five, and then one write says all; before
# that there is nothing in it that anybody waits for. The write that is spared is half of all writes to the manager.
START_QUIET_PERIOD = timedelta(seconds=5)
# While copies are made, of whichever job, API servers are busy and all of it takes longer: half a minute is what a gang of a thousand
# takes. What is wrong with a copy is said at once all the same.
BUSY_START_QUIET_PERIOD = timedelta(seconds=30)
# Longer than a kubelet takes after the grace period, and than clocks of two clusters differ.
STUCK_AFTER = timedelta(seconds=60)


def excess_message(remote: Raw, reservation: Reservation | None, slot: Slot | None, cluster: str) -> str:
    """What a copy asks for beyond its share, a sentence for all of its siblings; empty when nothing, or nothing is known of the share.

    It runs: a worker that is stopped is worth less than some quota that is counted short, and its replacement would be the same.
    """
    role = slot.role if slot else ""
    held = reservation.templates.get(role) if reservation else None
    if not reservation or not held:
        return ""
    more = group_workload.excess_requests(
        remote.get("spec") or {}, held, reservation.usage.get(role), reservation.counts.get(role, 0)
    )
    return more and (
        f"A worker in {cluster} runs with more than its share there holds, {more}: something adds to pods there that did not when it "
        "was tried, or that takes no dry runs. Write what it adds into the worker group's template, or have it take dry runs."
    )


def mirror_status(
    job: Job | None, pod: Raw, remote: Raw, cluster: str, now: datetime, excess: str = "", *, busy: bool = False
) -> list[Action]:
    """Say of the pod what its copy says, if that is news, and what it asks for beyond its share (`more`); of one that just starts only
    when it does, or takes its time, which is more while others are made (`busy`)."""
    patch = status_mirror.status_patch(pod, remote, cluster, excess)
    if not patch:
        return []
    said, left = (
        _report_trouble(job, remote, cluster),
        _quiet_time_left(remote, now, BUSY_START_QUIET_PERIOD if busy else START_QUIET_PERIOD),
    )
    said += emit_event(job, names.EventReason.POD_EXCEEDS_SHARE, excess, warning=True) if excess else []
    if left and not said and not is_dispatched(pod):
        return [RequeueAfter(left)]
    return [PatchPodStatus(pod, patch), *said]


def _quiet_time_left(remote: Raw, now: datetime, quiet_period: timedelta) -> timedelta:
    """For how long a copy that is pending may well run in a moment, and no longer than until it is to be asked again; nothing by a
    clock of which that cannot be told."""
    created = parse_time(meta(remote).get("creationTimestamp"))
    if created is None or (remote.get("status") or {}).get("phase") not in (None, "Pending"):
        return timedelta(0)
    left = created + quiet_period - now
    return min(left, START_QUIET_PERIOD) if timedelta(0) < left <= quiet_period else timedelta(0)


def _report_trouble(job: Job | None, remote: Raw, cluster: str) -> list[Action]:
    text = status_mirror.trouble_message(remote, cluster)
    return emit_event(job, names.EventReason.WORKER_FAILING, text, warning=True) if text else []


def mark_unreachable(job: Job | None, pod: Raw, cluster: str, loss: ClusterLoss, now: datetime) -> list[Action]:
    """API link lost is not data path lost: the worker counts as running until its time is over, for as long as the head
    hears from it, and no longer than until the head says that it does not."""
    late = loss.given_up_at is not None and now >= loss.given_up_at
    if loss.ray_node_alive is False:
        return _fail_pod(
            pod, names.WORKER_LOST, f"Ray's head lost the node, and worker cluster {cluster} {loss.reason}.", now
        )
    if late and not loss.ray_node_alive:
        return _fail_pod(pod, names.WORKER_LOST, f"Given up: worker cluster {cluster} {loss.reason}.", now)
    known = loss.lost_since is not None and is_dispatched(pod)
    patch = (
        status_mirror.unknown_patch(pod, cluster, loss.reason, format_time(loss.lost_since or now)) if known else None
    )
    unknown: list[Action] = [PatchPodStatus(pod, patch)] if patch else []
    unknown += (
        emit_event(job, names.EventReason.HEAD_UNREACHABLE, loss.head_problem, warning=True)
        if loss.head_problem
        else []
    )
    return [*unknown, RequeueAfter(loss.given_up_at - now)] if loss.given_up_at and not late else unknown


def fail_if_stuck(pod: Raw, remote: Raw, cluster: str, now: datetime) -> list[Action]:
    """A copy that should be gone, and nobody ends: its node is lost, most likely. Its worker shall be replaced all the same;
    its slot is free when that cluster has removed it."""
    ends = parse_time(meta(remote).get("deletionTimestamp"))  # the end of its grace period
    if ends is None or now < ends + STUCK_AFTER:
        return []
    ended = "is being deleted, and did not end in time; its node may be lost"
    return _fail_pod(
        pod, names.REMOTE_POD_STUCK, f"The pod in worker cluster {cluster} {ended}{_termination_reason(remote)}", now
    )


def requeue_while_ending(remote: Raw, now: datetime) -> list[Action]:
    """Nobody tells of a copy that does not end, so it is looked at when its time is over."""
    ends = parse_time(meta(remote).get("deletionTimestamp"))
    return [RequeueAfter(ends + STUCK_AFTER - now)] if ends and now < ends + STUCK_AFTER else []


def fail_missing(pod: Raw, cluster: str, now: datetime) -> list[Action]:
    """The copy stood and is gone: KubeRay shall replace the worker."""
    text = f"The pod in worker cluster {cluster} was deleted or evicted there{_termination_reason(pod)}"
    return _fail_pod(pod, names.REMOTE_POD_GONE, text, now)


def _termination_reason(pod: Raw) -> str:
    """Why a copy went or goes, as it last said itself: Kueue, the kubelet and whoever evicts write a condition before they
    stop a pod."""
    said = (condition(pod, kind).get("message") for kind in ("TerminationTarget", "DisruptionTarget"))
    return next((f": {text}" for text in said if text), ".")


def _fail_pod(pod: Raw, reason: str, text: str, now: datetime) -> list[Action]:
    patch = status_mirror.failed_patch(pod, reason=reason, message=text, now=format_time(now))
    return [PatchPodStatus(pod, patch)] if patch else []
