"""How do jobs come and go on a stage? Submits each at its time, and deletes it when it has run, as a job that ends does."""

import contextlib
import time
from collections.abc import Sequence

from hack.lab.base.progress import LabError
from hack.testbed.clusters import wait
from hack.testbed.reader import Unreachable
from hack.testbed.stage import Stage
from hack.trials.gangs.course import Course
from hack.trials.soak.draw import Job

_PAUSE = 0.5  # seconds between two looks: jobs run for 5 and more
_PATIENCE = 300.0  # for the last ones, and for all that is left of them


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
            with contextlib.suppress(Unreachable):  # no answer: the next look may have one
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
