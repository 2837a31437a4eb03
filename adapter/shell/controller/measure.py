"""How many worker pods and tasks are there now? Counted when somebody asks, so nothing has to be kept up to date."""

import asyncio
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from adapter.objects.raw import Raw
from adapter.objects.workerpod import slot_of
from adapter.shell.clusters.manager import Home


class Census(Collector):
    """A collector for the registry of one controller; it is asked within the controller's own loop."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def describe(self) -> list[GaugeMetricFamily]:
        """The names without the numbers: the registry asks before there is a loop."""
        return [_pods(), _tasks()]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        pods, tasks = _pods(), _tasks()
        for (cluster, phase), number in Counter(map(self._where, self._home.pods)).items():
            pods.add_metric([cluster, phase], number)
        for coroutine, number in Counter(map(_coroutine, asyncio.all_tasks())).items():
            tasks.add_metric([coroutine], number)
        yield pods
        yield tasks

    def _where(self, pod: Raw) -> tuple[str, str]:
        """The pod's cluster and phase; users may write anything into an annotation, so only a registered cluster counts."""
        cluster = slot_of(pod).split("/")[0]
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        return cluster if self._home.worker_clusters.named(cluster) else "", phase


def _pods() -> GaugeMetricFamily:
    text = "Worker pods of the manager by the cluster that their slot is in (empty: none yet) and the phase that they show."
    return GaugeMetricFamily("rayspan_pods", text, labels=["cluster", "phase"])


def _tasks() -> GaugeMetricFamily:
    text = "Tasks in the controller's loop, by what they run: a number that only grows is a leak."
    return GaugeMetricFamily("rayspan_tasks", text, labels=["coroutine"])


def _coroutine(task: "asyncio.Task[object]") -> str:
    return str(getattr(task.get_coro(), "__qualname__", "unknown"))
