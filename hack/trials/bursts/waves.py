"""A job goes from no worker to eight and back, repeatedly: counts the requests, and checks the invariants each time."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hack.lab.base import lab as definition
from hack.testbed import audit
from hack.testbed.audit import Log, Request
from hack.testbed.clusters import wait
from hack.trials.bursts.job import NAME, PATIENCE, Job
from hack.trials.chaos.invariants import Finding

WORKERS = 8
TIMES = 3

Requests = Mapping[str, list[Request]]  # by cluster
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Half:
    """One direction: seconds from the order until all workers ran, or were gone; the requests; what was wrong then."""

    way: str
    seconds: float
    requests: Requests
    wrong: list[Finding]


def run(job: Job, found: list[Half], tell: Tell) -> None:
    """Let it go up and down, and note each half; it begins and ends without a worker."""
    logs = {cluster.name: Log(cluster.audit_log) for cluster in definition.load().clusters}
    for number in range(TIMES):
        for way, count in (("up", WORKERS), ("down", 0)):
            half = _half(job, way, count, logs)
            found.append(half)
            asked, wrong = sum(map(len, half.requests.values())) / WORKERS, len(half.wrong)
            tell(f"  wave {number + 1} {way:>4}: {half.seconds:.2f} s, {asked:.1f} requests per worker, {wrong} wrong")
            if wrong:
                tell(job.told())


def _half(job: Job, way: str, count: int, logs: Mapping[str, Log]) -> Half:
    """Requests are counted until all is well, not until all runs: what is written down later is asked for, too."""
    stage, begun = job.stage, time.monotonic()
    job.resize(count)
    done = (lambda: stage.running(count)) if count else job.gone
    wait(done, PATIENCE, f"{count} workers of {NAME} run", job.told)
    seconds = time.monotonic() - begun
    wrong = job.wrong({NAME: count})
    asked = {name: audit.about(log.take(), stage.name, without=audit.MEASURING) for name, log in logs.items()}
    return Half(way, seconds, asked, wrong)
