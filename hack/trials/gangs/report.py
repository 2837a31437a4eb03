"""Reports how well quota was used, and whether a gang waited beside free capacity. Pure: samples and a course in."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hack.testbed import figures
from hack.trials.gangs.course import Course
from hack.trials.gangs.draw import Gang, best
from hack.trials.sampler import QUOTA_PERIOD, Sample

TURN = 2.0  # seconds of free capacity between two gangs: to notice it, to plan, to reserve and to be admitted


@dataclass(frozen=True, slots=True)
class Use:
    """CPU seconds while work was pending: `used` by gangs that had not ended, and what a packing `could` have used.

    Of the difference, `late` was still held by gangs that had ended; the rest stood free.
    """

    used: float
    could: float
    late: float = 0.0

    @property
    def percent(self) -> float:
        return figures.ratio(self.used, self.could) * 100

    @property
    def late_percent(self) -> float:
        return figures.ratio(self.late, self.could) * 100


def use(course: Course, samples: Sequence[Sample], capacity: int) -> Use:
    """Compare reservations with the best packing, at each instant from the first gang to the last one that waited.

    At each instant the packing may hold any gangs that have not ended, whatever ran before: no scheduler can do better.
    What an ended gang still holds does not count.
    """
    used = could = late = 0.0
    for at, held in _instants(samples, course.begun):
        alive = {gang.name: gang.needs for gang in course.alive(at)}
        now = sum(min(held.get(name, 0.0), needs) for name, needs in alive.items())
        if now < sum(alive.values()):
            most = best(alive.values(), capacity)
            used += now * QUOTA_PERIOD
            could += most * QUOTA_PERIOD
            late += min(most - now, sum(held.values()) - now) * QUOTA_PERIOD
    return Use(used, could, late)


def stood_free(course: Course, samples: Sequence[Sample], clusters: int, capacity: int) -> tuple[float, float]:
    """CPU seconds that were free until the last gang held its own, and their most if none waits beside capacity for it.

    While a gang waits, the free capacity may be too small for it by a worker, and in each cluster by less than one
    worker more. The rest is free only during handovers: `TURN` for each gang, and once for the whole fleet, before the
    first.
    """
    instants = list(_instants(samples, course.begun))
    began = {gang.name: next(at for at, held in instants if held.get(gang.name)) for gang in course.gangs}
    waited = [sum(held.values()) for at, held in instants if at < max(began.values())]
    slack = max((gang.workers - 1) * gang.cpu + clusters * (gang.cpu - 1) for gang in course.gangs)
    turns = (capacity + sum(gang.needs for gang in course.gangs)) * TURN
    return (capacity * len(waited) - sum(waited)) * QUOTA_PERIOD, slack * len(waited) * QUOTA_PERIOD + turns


def _instants(samples: Sequence[Sample], begun: float) -> Iterator[tuple[float, dict[str, float]]]:
    """CPUs that each job held over all clusters, every tenth of a second: each cluster's last sample counts."""
    ordered = sorted((sample for sample in samples if sample.at >= begun), key=lambda sample: sample.at)
    last: dict[str, Sample] = {}
    due = begun
    for sample in ordered:
        while due < sample.at:
            held: dict[str, float] = {}
            for seen in last.values():
                for job, milli in seen.jobs.items():
                    held[job] = held.get(job, 0.0) + milli / 1000
            yield due, held
            due += QUOTA_PERIOD
        last[sample.cluster] = sample


def table(course: Course) -> str:
    """Every gang: size, when it was ready, and when it ended, in seconds after all were submitted."""
    ordered = sorted(course.gangs, key=lambda gang: course.ready.get(gang.name, math.inf))
    rows = [
        (g.name, g.workers, g.cpu, _since(course, course.ready, g), _since(course, course.ended, g)) for g in ordered
    ]
    return figures.table(("gang", "workers", "cpu each", "ready s", "ended s"), rows)


def _since(course: Course, times: Mapping[str, float], gang: Gang) -> float:
    return times.get(gang.name, math.nan) - course.begun


def last_line(course: Course, samples: Sequence[Sample], used: Use) -> str:
    """Finished, over-committed samples, quota use."""
    over = sum(bool(sample.beyond) for sample in samples)
    return (
        f"finished {len(course.ended)} of {len(course.gangs)} gangs, over-committed samples {over} of {len(samples)}, "
        f"quota use {used.percent:.1f} % of the best packing while work was pending "
        f"({used.late_percent:.1f} % still held by gangs that had ended)"
    )
