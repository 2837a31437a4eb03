"""Workers that are not ready for so long that Kueue is about to evict their whole share, or their whole job.

With `waitForPodsReady`, on by default since Kueue 0.19, a worker cluster's Kueue evicts a group Workload when one of
its pods is not ready for the timeout. That would stop the workers beside it, which compute. So the pods that are not
ready are failed before, all of a share at once: Kueue then sees only ready pods, and its time begins again
(docs/upstream.md, "The clock of waitForPodsReady"). worker/create_pod.py creates no pod on the share until Kueue has
seen that.

A share without a ready worker is left to Kueue: nothing computes there. So is a pod that is being deleted and does not
end, because its node may still run it. The manager's Kueue counts for the whole job; that can only be reported.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, RequeueAfter, emit_event, fail_pod
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import end_of_wait
from adapter.objects.placement import Placement
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import (
    Raw,
    condition,
    is_condition_true,
    key_of,
    meta,
    parse_time,
)
from adapter.objects.worker_pod import is_deleting, slot_share
from adapter.objects.workload import Workload

# How long a job may be starting before its user is warned that the manager's Kueue counts.
_WARN_AFTER = timedelta(minutes=10)


def replace_unready_workers(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Fail the unready workers of shares that Kueue is about to evict; KubeRay creates other pods for them."""
    if gang.pods.workers is None:
        return []
    reservations = gang.reservations_of(placement, placement.active_shares).values()
    counting = [r for r in reservations if r and r.pods_ready_due and r.cluster not in gang.clusters.unreachable]
    clocks = gang.clusters.clocks
    due = [r for r in counting if r.is_pods_ready_due(clocks.time_in(r.cluster, now))]
    due_times = [clocks.manager_time(r.cluster, r.pods_ready_due) for r in counting if r.pods_ready_due]
    later = [due_at - now for due_at in due_times if due_at > now]
    return [
        *(action for reservation in due for action in _replace(gang, workload, reservation)),
        *([RequeueAfter(min(later))] if later else []),
    ]


def warn_of_eviction(gang: Gang, workload: Workload, missing: int, now: datetime) -> list[Action]:
    """Report that the manager's Kueue stops a running job if its pods do not become ready; `missing` lack a slot.

    KubeRay calls a RayCluster ready once all of its pods are ready, and keeps it so
    (kuberay:ray-operator/controllers/ray/utils/util.go, CheckAllPodsRunning). Until then Kueue counts.
    """
    since = workload.pods_unready_since
    if since is None or gang.pods.workers is None:
        return []
    remaining = end_of_wait(since, _WARN_AFTER, now) - now
    if not missing and remaining > timedelta(0):
        return [RequeueAfter(remaining)]
    text = _eviction_text(missing, is_elastic=workload.elastic)
    return emit_event(workload.job, names.EventReason.PODS_NOT_READY, text, warning=True)


def _eviction_text(missing: int, *, is_elastic: bool) -> str:
    noun = "worker waits" if missing == 1 else "workers wait"
    state = f"{missing} {noun} for capacity." if missing else "Not all pods of the job are ready."
    advice = (
        "submit a job that can run with fewer workers as an elastic job, with" if not is_elastic else "start it with"
    )
    remedy = (
        f" To let it run with fewer workers, {advice} the fewest replicas that it needs, and scale it up once it runs."
    )
    return (
        f"{state} The manager's Kueue stops the whole job unless all of its pods are ready within "
        "waitForPodsReady.timeout of its admission, by default 30 min."
        f"{remedy if missing else ''}"
    )


def _unready_pods(gang: Gang, reservation: Reservation) -> list[Raw]:
    """The manager pods of a share to fail; none if no pod of the share is ready."""
    pairs = _pods_of_share(gang, reservation)
    if not any(is_condition_true(remote_pod, "Ready") for _, remote_pod in pairs):
        return []
    return [pod for pod, remote_pod in pairs if _was_unready(remote_pod, reservation.pods_ready_due)]


def _pods_of_share(gang: Gang, reservation: Reservation) -> Sequence[tuple[Raw, Raw]]:
    """The manager pods on a share whose remote pods run, each with its remote pod."""
    workers = gang.pods.workers
    if workers is None:
        return []
    pods = (pod for pod in workers.pods_with_slot if slot_share(pod) == reservation.key)
    pairs = ((pod, workers.remote_pods.get(key_of(pod))) for pod in pods)
    return [(pod, remote_pod) for pod, remote_pod in pairs if remote_pod and not is_deleting(remote_pod)]


def _was_unready(remote_pod: Raw, due: datetime | None) -> bool:
    """Whether a pod is not ready and was not when its share became due: one that fails a probe for a moment stays."""
    if is_condition_true(remote_pod, "Ready"):
        return False
    changed = condition(remote_pod, "Ready").get("lastTransitionTime") or meta(remote_pod).get("creationTimestamp")
    since = parse_time(changed)
    return since is None or due is None or since <= due


def _replace(gang: Gang, workload: Workload, reservation: Reservation) -> list[Action]:
    pods = _unready_pods(gang, reservation)
    if not pods:
        return []
    count = len(pods)
    noun = "worker was" if count == 1 else "workers were"
    minutes = reservation.pods_ready_timeout.total_seconds() / 60
    text = (
        f"{count} {noun} not ready in worker cluster {reservation.cluster}, whose Kueue stops all workers of a share "
        f"when one of them is not ready for {minutes:g} min, so those that are not ready are created again."
    )
    return [
        *emit_event(workload.job, names.EventReason.READINESS_TIMEOUT, text, warning=True),
        *(fail_pod(pod, names.REMOTE_POD_NOT_READY, text) for pod in pods),
    ]
