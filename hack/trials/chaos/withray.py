"""Checks that a job with real Ray ends well while faults strike. The struck gangs are on fake nodes and compute
nothing.

What is killed, cut and restored is under this job too. Restarts of its processes by Ray are reported, not judged: a
long fault may cost one. Judged is that no worker runs twice, and that the job ends with every node and actor there.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hack.lab.base.progress import LabError, step
from hack.testbed import actors
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import NAMESPACE, Job
from hack.trials.outages import Outages
from hack.trials.sampler import CopySampler

_NAME = "chaos-ray"
# Ray gives a node up after a minute, and its replacement takes as long on a busy machine.
_PATIENCE = 120.0


@contextmanager
def beside(fleet: Clusters, outages: Outages) -> Iterator[None]:
    """Run it within the context; raises LabError at the end if it did not end well, else reports Ray's own account.

    `outages` are noted by those who cause them.
    """
    job = Job(fleet, _NAME)
    try:
        with step(f"RayJob {_NAME}: until its actors answer"):
            actors.submit(job)
        with CopySampler(list(fleet.workers.values()), NAMESPACE, outages) as sampler:
            yield
            wait(lambda: actors.seen(job).alive == job.workers, _PATIENCE, "every Ray node is there", job.dump)
            found = actors.end(job)
        _judge(job, found["alive"], sampler.lives.doubled())
        kept = sum(first[:2] == last[:2] for first, last in zip(found["first"], found["last"], strict=True))
        print(
            f"RayJob {_NAME}: SUCCEEDED, {found['asked']} answers of each of {job.workers} actors, {kept} as they began"
        )
    finally:
        job.delete()


def _judge(job: Job, alive: list[str], doubled: list[str]) -> None:
    if doubled or len(alive) != job.workers:
        raise LabError(f"{len(alive)} Ray nodes for {job.workers} workers; {doubled or 'no worker ran twice'}.")
