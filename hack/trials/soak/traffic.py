"""Submits small jobs to a stage and deletes each when it has run, as a job that ends does.

They are drawn from a seed over the whole time, so that some overlap.
"""

import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hack.lab.base.progress import LabError
from hack.testbed.clusters import wait
from hack.testbed.reader import NotThere, Unreachable
from hack.testbed.stage import Stage
from hack.trials.gangs.course import Course

# Seconds that a job runs, once ready: many short jobs are more likely to leave something behind.
_SHORTEST, _LONGEST = 5.0, 20.0
_FEWEST, _MOST = 2, 4  # workers: with the strategy Spread, every job is in both clusters
_LAST = 30.0  # seconds: none comes so shortly before the end
_PAUSE = 0.5  # seconds between two reads: jobs run for 5 and more
_PATIENCE = 300.0  # for the last ones, and for all that is left of them


@dataclass(frozen=True, slots=True)
class Job:
    """A RayCluster that is submitted `at` so many seconds, and deleted some seconds after its last worker was ready."""

    name: str
    workers: int
    at: float
    seconds: float


class Traffic:
    """`done` are the names of the jobs that were ready, ran and were deleted."""

    def __init__(self, stage: Stage, jobs: Sequence[Job]) -> None:
        self.jobs, self.done = jobs, set[str]()
        self.begun = time.monotonic()
        self._stage, self._submitted, self._ready = stage, set[str](), dict[str, float]()

    def run(self) -> None:
        """Let all come and go, and wait until nothing is left of them; raises LabError when that takes too long."""
        self.begun = time.monotonic()
        deadline = self.begun + max(job.at for job in self.jobs) + _PATIENCE
        while len(self.done) < len(self.jobs):
            with contextlib.suppress(Unreachable, NotThere):  # the next read may succeed
                self._step(time.monotonic())
            if time.monotonic() > deadline:
                late = sorted(self._submitted - self.done)
                raise LabError(
                    f"Of {len(self.jobs)} jobs {len(self.done)} are done, and these are late: {', '.join(late)}."
                )
            time.sleep(_PAUSE)
        wait(self._cleared, _PATIENCE, "nothing is left of any job")

    def _step(self, now: float) -> None:
        ready = Course(self._stage, ()).ready_workers()
        for job in self.jobs:
            if job.name not in self._submitted and now - self.begun >= job.at:
                self._stage.ray_cluster(job.name, workers=job.workers)
                self._submitted.add(job.name)
            if job.name in self.done or ready[job.name] < job.workers:
                continue
            if now - self._ready.setdefault(job.name, now) >= job.seconds:
                self._stage.manager.delete("raycluster", job.name, self._stage.name, wait=False)
                self.done.add(job.name)

    def _cleared(self) -> bool:
        here = ("rayclusters", "workloads", "placements", "pods")
        left = any(self._stage.manager.items(kind, self._stage.name) for kind in here)
        return not left and not self._stage.leftovers() and not self._stage.reserving()


def jobs(count: int, seconds: float, seed: int) -> list[Job]:
    """Draw so many jobs over so many seconds, in the order in which they come; the first one comes at once."""
    chance = random.Random(seed)
    times = sorted(chance.uniform(0, max(0.0, seconds - _LAST)) for _ in range(count - 1))
    return [
        Job(f"job-{number:04}", chance.randint(_FEWEST, _MOST), at, chance.uniform(_SHORTEST, _LONGEST))
        for number, at in enumerate([0.0, *times][:count])
    ]
