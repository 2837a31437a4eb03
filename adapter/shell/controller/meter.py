"""What do the metrics learn from an action that was done?

Durations are counted from the creation of the manager's pod, by the manager's clock and ours: a worker cluster's clock may be
wrong. Nothing is remembered for it, so a restart loses no sample.
"""

from datetime import datetime

from adapter.actions import Action, CreatePod, DeletePod, PatchStatus, Record
from adapter.objects.raw import Raw, meta, moment
from adapter.objects.workerpod import slot_of
from adapter.shell import metrics
from adapter.worker import dispatch

_ORPHANS = {dispatch.POD_GONE: metrics.POD_GONE, dispatch.SLOT_ELSEWHERE: metrics.SLOT_ELSEWHERE}


def done(action: Action, cluster: str, now: datetime) -> None:
    """Count an action that was done; `cluster` is the worker cluster that it waited for, empty for the manager."""
    metrics.ACTIONS.labels(type(action).__name__, cluster).inc()
    match action:
        case CreatePod():
            _dispatched(action.pod, cluster, metrics.CREATED, now)
        case PatchStatus() if (action.body.get("status") or {}).get("phase") == "Running":  # it holds what changes only
            _dispatched(action.pod, slot_of(action.pod).split("/")[0], metrics.RUNNING, now)
        case DeletePod() if action.why in _ORPHANS:
            metrics.ORPHANS.labels(cluster, _ORPHANS[action.why]).inc()
        case Record():
            _recorded(action)


def _dispatched(pod: Raw, cluster: str, stage: str, now: datetime) -> None:
    created = moment(meta(pod).get("creationTimestamp"))
    if created:
        metrics.DISPATCH.labels(cluster, stage).observe(max(0.0, (now - created).total_seconds()))


def _recorded(action: Record) -> None:
    if action.status.get("withdrawnRound") != action.placement.round or action.placement.withdrawing:
        return
    metrics.ROLLBACKS.inc()
    for blocker in action.status.get("blocked") or ():
        metrics.SPILLS.labels(blocker["cluster"]).inc()
