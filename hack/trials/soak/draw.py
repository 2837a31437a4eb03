"""Which jobs come when? Small ones, drawn from a seed over the whole time, so that some overlap; pure but for that."""

import random
from dataclasses import dataclass

_SHORTEST, _LONGEST = (
    5.0,
    20.0,
)  # seconds that a job runs once it is ready: many short lives are what may leave something behind
_FEWEST, _MOST = 2, 4  # workers: with the strategy Spread, every job is in both clusters
_LAST = 30.0  # seconds: none comes so shortly before the end


@dataclass(frozen=True, slots=True)
class Job:
    """A RayCluster that is submitted `at` so many seconds, and deleted some seconds after its last worker was ready."""

    name: str
    workers: int
    at: float
    seconds: float


def jobs(count: int, seconds: float, seed: int) -> list[Job]:
    """Draw so many jobs over so many seconds, in the order in which they come; the first one comes at once."""
    chance = random.Random(seed)
    times = sorted(chance.uniform(0, max(0.0, seconds - _LAST)) for _ in range(count - 1))
    return [
        Job(f"job-{number:04}", chance.randint(_FEWEST, _MOST), at, chance.uniform(_SHORTEST, _LONGEST))
        for number, at in enumerate([0.0, *times][:count])
    ]
