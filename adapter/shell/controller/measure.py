"""What do the metrics learn: from an action that was done, and of the worker pods that there are when somebody asks?

Durations are counted from the creation of the manager's pod, by the manager's clock and ours: a worker cluster's clock may be
wrong. Nothing is remembered for it, so a restart loses no sample and nothing has to be kept up to date. The tasks in the loop are
counted for whoever suspects a leak: the soak judges by them (hack/trials/soak), and docs/metrics.md has an alert on them.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from adapter.actions import Action, CreatePod, DeletePod, PatchStatus, Record
from adapter.objects.raw import Raw, meta, moment
from adapter.objects.workerpod import slot_of
from adapter.shell import metrics
from adapter.shell.clusters.manager import Manager
from adapter.shell.guard import each
from adapter.worker import dispatch

_ORPHANS = {dispatch.POD_GONE: metrics.POD_GONE, dispatch.SLOT_ELSEWHERE: metrics.SLOT_ELSEWHERE}


class Census(Collector):
    """A collector for the registry of one controller; it is asked within the controller's own loop."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def describe(self) -> list[GaugeMetricFamily]:
        """The names without the numbers: the registry asks before there is a loop."""
        return [_pods(), _tasks()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        pods, tasks = _pods(), _tasks()
        where = (found for _, found in each("census", self._manager.pods, self._where))
        for (cluster, phase), number in Counter(where).items():
            pods.add_metric([cluster, phase], number)
        for coroutine, number in Counter(map(_coroutine, asyncio.all_tasks())).items():
            tasks.add_metric([coroutine], number)
        yield pods
        yield tasks

    def _where(self, pod: Raw) -> tuple[str, str]:
        """The pod's cluster and phase; users may write anything into an annotation, so only a registered cluster counts."""
        cluster = slot_of(pod).split("/")[0]
        phase = str((pod.get("status") or {}).get("phase") or "Pending")
        return cluster if self._manager.worker_clusters.named(cluster) else "", phase


def _pods() -> GaugeMetricFamily:
    text = "Worker pods of the manager by the cluster that their slot is in (empty: none yet) and the phase that they show."
    return GaugeMetricFamily("rayspan_pods", text, labels=["cluster", "phase"])


def _tasks() -> GaugeMetricFamily:
    text = "Tasks in the controller's loop, by what they run: a number that only grows is a leak."
    return GaugeMetricFamily("rayspan_tasks", text, labels=["coroutine"])


def _coroutine(task: "asyncio.Task[object]") -> str:
    return str(getattr(task.get_coro(), "__qualname__", "unknown"))


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
