"""Judges whether memory grew with the jobs, and whether more is open than before. Pure: samples and readings in."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hack.trials.soak.reading import Reading

# Kilobytes of growth for each job that count as the allocator's noise. All that we hold of a job is made of raw
# objects: one retained pod of KubeRay's, of 6 kB as JSON, is 28 kB as dicts, and a small job has six of them in all
# clusters, beside its Workload, its Placement and its shares. So less growth means that no object of every job is
# retained. At this pace the 300 MB that the Deployment's limit leaves would last for 15 000 jobs.
MOST_KB_PER_JOB = 20.0
# Neighbouring samples repeat each other: memory moves in steps and stays there. Twelve means over some minutes each are
# nearly independent, and enough for the slope's error.
_BLOCKS = 12
_SURE = 2.0  # standard errors: the true slope is farther away once in twenty times
_WARM_UP = 1 / 3  # of the time: caches, pools and the allocator's own arenas fill first


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at a moment: seconds since the first job, jobs done by then, kilobytes."""

    at: float
    jobs: int
    rss: float


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth by the unit of x; the true one is within `error` nineteen times in twenty. Both are nan of too little."""

    value: float
    error: float


def warm(samples: Sequence[Sample]) -> list[Sample]:
    """Those after the warm-up."""
    last = max((sample.at for sample in samples), default=0.0)
    return [sample for sample in samples if sample.at >= last * _WARM_UP]


def per_job(samples: Sequence[Sample]) -> Slope:
    """Kilobytes for each job that was done after the warm-up."""
    return slope([(sample.jobs, sample.rss) for sample in warm(samples)])


def per_hour(samples: Sequence[Sample]) -> Slope:
    """Kilobytes an hour after the warm-up."""
    return slope([(sample.at / 3600, sample.rss) for sample in warm(samples)])


def slope(points: Sequence[tuple[float, float]]) -> Slope:
    """The straight line through the means of blocks of points, by least squares."""
    means = list(_means(points))
    if len(means) < 3:
        return Slope(math.nan, math.nan)
    x0, y0 = (statistics.fmean(column) for column in zip(*means, strict=True))
    width = sum((x - x0) ** 2 for x, _ in means)
    if width == 0:
        return Slope(math.nan, math.nan)
    value = sum((x - x0) * (y - y0) for x, y in means) / width
    rest = sum((y - y0 - value * (x - x0)) ** 2 for x, y in means)
    return Slope(value, _SURE * math.sqrt(rest / (len(means) - 2) / width))


def complaints(begin: Reading, end: Reading, memory: Slope) -> list[str]:
    """A sentence for each thing that leaked, or of which it cannot be told; none means that nothing did."""
    return [
        *_differences("tasks", begin.tasks, end.tasks),
        *_differences("watches", begin.watches, end.watches),
        *_memory(memory),
    ]


def _means(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    for number in range(_BLOCKS):
        block = points[len(points) * number // _BLOCKS : len(points) * (number + 1) // _BLOCKS]
        if block:
            x, y = (statistics.fmean(column) for column in zip(*block, strict=True))
            yield x, y


def _differences(what: str, begin: Mapping[str, int], end: Mapping[str, int]) -> Iterator[str]:
    for name in sorted({*begin, *end}):
        before, after = begin.get(name, 0), end.get(name, 0)
        if before != after:
            how = "are left over" if after > before else "are lost"
            yield (
                f"{what} {name}: {before} before the first job, {after} after the last one is gone: "
                f"{abs(after - before)} {how}."
            )


def _memory(slope: Slope) -> Iterator[str]:
    grew = f"Memory grew by {slope.value:.1f} ± {slope.error:.1f} KB with each job"
    if math.isnan(slope.value):
        yield "Too few jobs were done after the warm-up to tell how memory grows: run more of them."
    elif slope.value > MOST_KB_PER_JOB:
        yield f"{grew}, and may by {MOST_KB_PER_JOB:.0f}."
    elif slope.error > MOST_KB_PER_JOB:
        yield f"{grew}, which is too uncertain to be judged by {MOST_KB_PER_JOB:.0f} KB: run more jobs."
