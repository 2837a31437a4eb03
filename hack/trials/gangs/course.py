"""Runs a crowd of gangs on a stage: submits all at once, ends each when it has run, and notes the times.

A RayCluster cannot end by itself on fake nodes: it is deleted its drawn time after all of its workers were ready, as a
job that ends takes its cluster with it. The sampler records reservations.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import yaml

from adapter import names
from adapter.objects.unstructured import label
from hack.testbed.clusters import condition, wait
from hack.testbed.stage import Stage, ray_cluster
from hack.trials.gangs.draw import Gang


@dataclass
class Course:
    """When each gang was ready, and when its end was asked for: monotonic seconds."""

    stage: Stage
    gangs: Sequence[Gang]
    begun: float = 0.0
    ready: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def run(self, patience: float, dump: Callable[[], str] | None = None) -> None:
        """Submit, and wait until all have ended and nothing is reserved; raises LabError after `patience` seconds."""
        objects = [ray_cluster(g.name, self.stage.name, {"workers": g.workers}, str(g.cpu)) for g in self.gangs]
        self.begun = time.monotonic()
        self.stage.manager.apply(yaml.safe_dump_all(objects))
        with ThreadPoolExecutor(max_workers=2) as enders:
            wait(lambda: self._step(enders), patience, "every gang has run", lambda: self._dump(dump))
        wait(lambda: not self.stage.reserving(), patience, "all quota is free again", dump)

    def alive(self, at: float) -> list[Gang]:
        """The gangs that were submitted and not ended at a moment."""
        return [gang for gang in self.gangs if self.ended.get(gang.name, at + 1) > at]

    def _step(self, enders: ThreadPoolExecutor) -> bool:
        now, ready = time.monotonic(), self.ready_workers()
        for gang in self.gangs:
            if ready[gang.name] == gang.workers:
                self.ready.setdefault(gang.name, now)
            if gang.name not in self.ended and now - self.ready.get(gang.name, now) >= gang.seconds:
                self.ended[gang.name] = now
                enders.submit(self.stage.manager.delete, "raycluster", gang.name, self.stage.name, wait=False)
        return len(self.ended) == len(self.gangs)

    def ready_workers(self) -> Counter[str]:
        """How many workers of each RayCluster are ready, as the manager sees them."""
        pods = (pod for pod in self.stage.workers() if condition(pod, "Ready").get("status") == "True")
        return Counter(label(pod, names.RAY_GCS_CLUSTER_LABEL) for pod in pods)

    def _dump(self, more: Callable[[], str] | None) -> str:
        left = [
            f"{gang.name} ({gang.workers} workers) {self._said(gang)}"
            for gang in self.gangs
            if gang.name not in self.ended
        ]
        return "\n".join(["", *left, more() if more else ""])

    def _said(self, gang: Gang) -> str:
        status = self.stage.placement(gang.name).get("status") or {}
        return f"{status.get('state') or 'no placement'}: {status.get('reason') or ''}"
