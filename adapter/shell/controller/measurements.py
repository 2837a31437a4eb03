"""What do the metrics learn: from an action that was done, and of the pods, gangs and clusters that there are when somebody asks?

Durations are counted from the creation of the manager's pod, by the manager's clock and ours: a worker cluster's clock may be
wrong. Nothing is remembered for it, so a restart loses no sample and nothing has to be kept up to date. The tasks in the loop are
counted for whoever suspects a leak: the soak judges by them (hack/trials/soak), and docs/metrics.md has an alert on them.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from adapter import names
from adapter.actions import Action, CreatePod, DeletePod, PatchStatus, Record, SetCheck
from adapter.admission import condition_patches
from adapter.objects.unstructured import Raw, condition, key_of, meta, moment
from adapter.objects.worker_pod import is_preassigned, placement_key, slot_cluster, without_unplanned_slot
from adapter.shell import metrics
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.supervise import each
from adapter.worker import dispatch

_Labels = tuple[str, ...]
_STATES = (names.WAITING, names.RESERVING, names.WITHDRAWING, names.PLACED, names.UNKNOWN, names.ENDED)
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")  # Kubernetes'; no API server refuses another one
_ORPHANS = {dispatch.POD_GONE: metrics.POD_GONE, dispatch.SLOT_ELSEWHERE: metrics.SLOT_ELSEWHERE}


class Census(Collector):
    """A collector for the registry of one controller; it is asked within the controller's own loop."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def describe(self) -> list[GaugeMetricFamily]:
        """The names without the numbers: the registry asks before there is a loop."""
        return [_pods(), _placements(), _reasons(), _token_ends(), _tasks()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield _counted(_pods(), self._read(self._manager.pods, self._where))
        yield _counted(_placements(), self._read(self._manager.placements, _state))
        yield _counted(_reasons(), self._read(self._manager.worker_clusters, _reason))
        yield self._ends(_token_ends())
        yield _counted(_tasks(), map(_coroutine, asyncio.all_tasks()))

    def _read(self, objects: Iterable[Raw], read: Callable[[Raw], _Labels]) -> Iterator[_Labels]:
        return (found for _, found in each("census", objects, read))

    def _ends(self, family: GaugeMetricFamily) -> GaugeMetricFamily:
        for cluster, end in each("census", self._manager.worker_clusters, self._manager.token_end):
            if end:
                family.add_metric([key_of(cluster)[1]], end.timestamp())
        return family

    def _where(self, pod: Raw) -> _Labels:
        """The pod's cluster and phase; users may write anything into an annotation, so only a registered cluster counts."""
        found = self._manager.placements.get(placement_key(pod)) if is_preassigned(pod) else None
        cluster = slot_cluster(without_unplanned_slot(pod, self._manager.place(found) if found else None))
        phase = str((pod.get("status") or {}).get("phase") or "Pending")
        known = phase if phase in _PHASES else metrics.OTHER  # a worker cluster says it, and it is mirrored as it is
        return cluster if self._manager.worker_clusters.named(cluster) else "", known


def _pods() -> GaugeMetricFamily:
    text = "Worker pods of the manager by the cluster that their slot is in (empty: none yet) and the phase that they show."
    return GaugeMetricFamily("rayspan_pods", text, labels=["cluster", "phase"])


def _tasks() -> GaugeMetricFamily:
    text = "Tasks in the controller's loop, by what they run: a number that only grows is a leak."
    return GaugeMetricFamily("rayspan_tasks", text, labels=["coroutine"])


def _placements() -> GaugeMetricFamily:
    text = "Gangs by the state of their Placement; those that Ended are records of what was."
    return GaugeMetricFamily("rayspan_placements", text, labels=["state"])


def _reasons() -> GaugeMetricFamily:
    text = "1 with the reason that each WorkerCluster's condition Connected has, whatever its status is."
    return GaugeMetricFamily("rayspan_cluster_reason", text, labels=["cluster", "reason"])


def _token_ends() -> GaugeMetricFamily:
    text = "Unix time in seconds at which the token ends by which a worker cluster is reached; none where no Secret of ours says it."
    return GaugeMetricFamily("rayspan_cluster_token_expiry_timestamp_seconds", text, labels=["cluster"])


def _counted(family: GaugeMetricFamily, found: Iterable[_Labels]) -> GaugeMetricFamily:
    for labels, number in Counter(found).items():
        family.add_metric(labels, number)
    return family


def _state(placement: Raw) -> _Labels:
    state = str((placement.get("status") or {}).get("state") or names.WAITING)
    return (state if state in _STATES else metrics.OTHER,)


def _reason(cluster: Raw) -> _Labels:
    reason = str(condition(cluster, names.CONNECTED).get("reason") or "")
    return key_of(cluster)[1], reason if reason in ("", *condition_patches.REASONS) else metrics.OTHER


def _coroutine(task: "asyncio.Task[object]") -> _Labels:
    return (str(getattr(task.get_coro(), "__qualname__", "unknown")),)


def done(action: Action, cluster: str, now: datetime) -> None:
    """Count an action that was done; `cluster` is the worker cluster that it waited for, empty for the manager."""
    metrics.ACTIONS.labels(type(action).__name__, cluster).inc()
    match action:
        case CreatePod():
            _dispatched(action.pod, cluster, metrics.CREATED, now)
        case PatchStatus() if (action.body.get("status") or {}).get("phase") == "Running":  # it holds what changes only
            _dispatched(action.pod, slot_cluster(action.pod), metrics.RUNNING, now)
        case PatchStatus() if (action.body.get("status") or {}).get("phase") == "Failed":
            _lost(action)
        case DeletePod() if action.why in _ORPHANS:
            metrics.ORPHANS.labels(cluster, _ORPHANS[action.why]).inc()
        case Record():
            _recorded(action)
        case SetCheck() if action.state == names.CHECK_READY:
            _ready(action, now)


def _dispatched(pod: Raw, cluster: str, stage: str, now: datetime) -> None:
    created = moment(meta(pod).get("creationTimestamp"))
    if created:
        metrics.DISPATCH.labels(cluster, stage).observe(max(0.0, (now - created).total_seconds()))


def _lost(action: PatchStatus) -> None:
    """Its slot may be forged, and its reason is the copy's own where we gave none."""
    reason = action.body["status"].get("reason")
    known = reason if reason in names.LOSSES else metrics.OTHER
    metrics.LOSSES.labels(metrics.named(slot_cluster(action.pod)), known).inc()


def _ready(action: SetCheck, now: datetime) -> None:
    """Once for each attempt: the check may be written again while it is Ready."""
    reserved, before = action.workload.reserved_at, action.workload.checks.get(action.check)
    if reserved and not (before and before.state == names.CHECK_READY):
        metrics.READY.observe(max(0.0, (now - reserved).total_seconds()))


def _recorded(action: Record) -> None:
    if action.status.get("withdrawnRound") != action.placement.round or action.placement.withdrawing:
        return
    metrics.ROLLBACKS.inc()
    for blocker in action.status.get("blocked") or ():
        metrics.SPILLS.labels(blocker["cluster"]).inc()
