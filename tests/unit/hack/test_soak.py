"""The judge of `make soak`: which growth is real, and which tasks and watches are left over."""

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.trials.soak import judge, reading, traffic
from hack.trials.soak.judge import Sample, Slope
from hack.trials.soak.reading import Reading

QUIET = Reading(80_000, 45, {"follow": 31, "Engine._resync": 1}, {"east/pods": 1, "manager/pods": 2})
FLAT = Slope(1.0, 0.5)


def soak(*, per_job: float, noise: float = 0, warm_up: float = 0) -> list[Sample]:
    """Half an hour with 200 jobs, sampled every three seconds; `warm_up` KB are added in the first five minutes."""
    chance = random.Random(7)
    return [
        Sample(
            3.0 * n,
            n // 3,
            80_000 + per_job * (n // 3) + min(n / 100, 1) * warm_up + chance.uniform(-noise, noise),
        )
        for n in range(600)
    ]


@pytest.mark.parametrize("per_job", [0, 3, 25])
def test_growth_is_found_behind_the_warm_up_and_the_noise(per_job: float) -> None:
    found = judge.per_job(soak(per_job=per_job, noise=300, warm_up=20_000))
    assert found.value == pytest.approx(per_job, abs=2)
    assert found.error < 2
    hourly = judge.per_hour(soak(per_job=per_job, noise=300, warm_up=20_000))
    assert hourly.value == pytest.approx(per_job * 400, abs=800)


def test_steps_are_not_mistaken_for_many_facts() -> None:
    """A hundred equal samples on either side of one step of a megabyte are two facts, not two hundred."""
    steps = [replace(one, rss=80_000 + (1000 if one.at > 1200 else 0)) for one in soak(per_job=0)]
    assert judge.per_job(steps).error > 2


@given(st.floats(-50, 50), st.floats(-1e5, 1e5), st.integers(12, 400))
def test_a_straight_line_is_its_own_slope(value: float, begin: float, count: int) -> None:
    found = judge.slope([(float(x), begin + value * x) for x in range(count)])
    assert found.value == pytest.approx(value, abs=1e-4)
    assert found.error == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("points", [[], [(1.0, 2.0)], [(1.0, 2.0), (2.0, 3.0)], [(1.0, float(y)) for y in range(50)]])
def test_too_little_gives_no_slope(points: list[tuple[float, float]]) -> None:
    assert "Too few jobs" in "".join(judge.complaints(QUIET, QUIET, judge.slope(points)))


@pytest.mark.parametrize(
    ("memory", "end", "want"),
    [
        pytest.param(FLAT, {}, [], id="no growth"),
        pytest.param(Slope(-30, 2), {}, [], id="less memory than before"),
        pytest.param(
            FLAT, {"rss": 99_000, "fds": 60}, [], id="momentary connections and memory are not judged",
        ),
        pytest.param(
            Slope(21, 2), {}, ["Memory grew by 21.0 ± 2.0 KB with each job, and may by 20."], id="growing memory",
        ),
        pytest.param(Slope(5, 21), {}, ["too uncertain"], id="growth that is too uncertain"),
        pytest.param(
            FLAT, {"tasks": {"follow": 32, "Engine._resync": 1}}, ["tasks follow: 31 before the first job, 32"],
            id="a leftover task",
        ),
        pytest.param(
            FLAT,
            {"tasks": {"follow": 31, "Engine._resync": 1, "_one": 2}},
            ["tasks _one: 0 before the first job, 2 after the last one is gone: 2 are left over."],
            id="tasks of a new kind",
        ),
        pytest.param(
            FLAT, {"watches": {"manager/pods": 2}}, ["watches east/pods: 1 before the first job, 0"],
            id="a lost watch",
        ),
    ],
)  # fmt: skip
def test_leftovers_are_reported(memory: Slope, end: Mapping[str, Any], want: list[str]) -> None:
    found = judge.complaints(QUIET, replace(QUIET, **end), memory)
    assert len(found) == len(want)
    assert all(part in said for part, said in zip(want, found, strict=True))


def test_short_changes_do_not_count() -> None:
    """A key in one reading of three, and a watch that reconnects in another, change no median."""
    busy = replace(QUIET, tasks={**QUIET.tasks, "_one": 4})
    between = replace(QUIET, watches={"manager/pods": 2})
    assert reading.median([QUIET, busy, between]) == QUIET


def test_metrics_are_read() -> None:
    text = """
# TYPE rayspan_tasks gauge
rayspan_tasks{coroutine="follow"} 31.0
rayspan_tasks{coroutine="RequestHandler.start"} 2.0
# TYPE rayspan_watches gauge
rayspan_watches{cluster="east",kind="pods"} 1.0
rayspan_watches{cluster="",kind="pods"} 2.0
rayspan_watches{cluster="west",kind="pods"} 0.0
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 8.192e+07
# TYPE process_open_fds gauge
process_open_fds 45.0
"""
    assert reading.parse(text) == replace(QUIET, tasks={"follow": 31})


def test_jobs_arrive_over_the_whole_time_and_overlap() -> None:
    found = traffic.jobs(200, 1800, seed=7)
    assert found == traffic.jobs(200, 1800, seed=7) != traffic.jobs(200, 1800, seed=8)
    assert len({job.name for job in found}) == 200
    assert found[0].at == 0 and 1700 < found[-1].at < 1800
    assert {job.workers for job in found} == {2, 3, 4}
    assert any(later.at < job.at + job.seconds for job, later in itertools.pairwise(found))
    assert len(traffic.jobs(1, 10, seed=7)) == 1
