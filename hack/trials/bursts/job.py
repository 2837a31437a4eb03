"""The elastic RayCluster of this trial: submitted, resized, and checked.

It is resized as Ray's autoscaler does, which does not run on fake nodes: replicas are patched, and the leaving workers
are named in that write. The invariants are those of the trial of faults (hack/trials/chaos/invariants.py).
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from adapter import names
from adapter.objects.unstructured import Raw, label
from hack.testbed.clusters import condition, wait
from hack.testbed.reader import Unreachable
from hack.testbed.stage import Stage
from hack.trials.chaos import invariants, snapshot
from hack.trials.chaos.invariants import Finding

NAME = "burst"
GROUP = "workers"
MOST = 64  # workers
PATIENCE = 120.0  # seconds for a change of size: fifty workers take twenty on two cores
_WELL = 60.0  # seconds for the books to be right: the project's promise
_LOOKS = 2  # successive reads without a finding: the lists of one read are not of one instant
_PAUSE = 0.2


@dataclass(frozen=True)
class Job:
    """The only job of a stage."""

    stage: Stage

    def submit(self) -> None:
        """Submit it without a worker, and wait until its head is ready."""
        self.stage.ray_cluster(NAME, workers=0, groups={GROUP: 0}, elastic=MOST, least=0, autoscaled=True)
        wait(self._started, PATIENCE, f"the head of {NAME} is ready", self.told)

    def resize(self, count: int) -> list[str]:
        """Patch its replicas, and name the leaving workers, none where it grows. Returns these."""
        going = sorted(pod["metadata"]["name"] for pod in self.stage.workers())[count:]
        self.stage.scale(NAME, 0, count, without=going)
        return going

    def end(self) -> None:
        """Delete it, and do not wait until it is gone."""
        self.stage.manager.delete("raycluster", NAME, self.stage.name, wait=False)

    def gone(self) -> bool:
        """Whether no worker is left, nor a copy of one."""
        return not self.stage.workers() and not any(self.stage.remote().values())

    def wrong(self, wanted: Mapping[str, int]) -> list[Finding]:
        """Its faults after a while, by its desired number of workers; empty as soon as there are none."""
        deadline, well = time.monotonic() + _WELL, 0
        while True:
            found = self._findings(wanted)
            well = 0 if found else well + 1
            if well == _LOOKS or time.monotonic() > deadline:
                return found
            time.sleep(_PAUSE)

    def told(self) -> str:
        """All that there is of it."""
        return snapshot.text(snapshot.take(self.stage, {}))

    def _findings(self, wanted: Mapping[str, int]) -> list[Finding]:
        with suppress(Unreachable):
            seen = snapshot.take(self.stage, wanted)
            return [*invariants.never(seen), *invariants.findings(seen), *self._held(len(wanted))]
        return [Finding(invariants.LAB, "an API server does not answer")]

    def _held(self, jobs: int) -> list[Finding]:
        """Each job must hold the manager's quota by exactly one slice."""
        queue = self.stage.manager.get("clusterqueues", self.stage.name)
        held = int((queue.get("status") or {}).get("reservingWorkloads") or 0)
        said = f"the manager's ClusterQueue shows {held} Workloads that hold quota, and there shall be {jobs}"
        return [] if held == jobs else [Finding(invariants.LEDGER, said)]

    def _started(self) -> bool:
        heads = self.stage.manager.items("pods", self.stage.name, f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD}")
        return any(condition(head, "Ready").get("status") == "True" for head in heads)


def workers_of(workload: Raw) -> int:
    """For how many of its workers a Workload of the job is, or for how many a share of it."""
    podsets = (workload.get("spec") or {}).get("podSets") or ()
    ours = bool(label(workload, names.MANAGER_LABEL))
    return sum(int(one.get("count") or 0) for one in podsets if ours or one.get("name") == GROUP)
