"""A witness must live, end, and look often enough; only the trial's own outages excuse a gap."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hack.testbed.clusters import Cluster
from hack.testbed.reader import Refused, Unreachable
from hack.trials import outages, watch
from hack.trials.outages import Outages, Span
from hack.trials.watch import LONGEST_GAP, USUAL_DELAY, Blind, Watch

EAST = Cluster("east", Path("none"))
LONG = LONGEST_GAP + 1


@pytest.mark.parametrize(
    ("span", "others", "left"),
    [
        pytest.param((0, 10), [], 10, id="no outage"),
        pytest.param((0, 10), [(2, 5)], 7, id="an outage in the middle"),
        pytest.param((0, 10), [(2, 5), (4, 6)], 6, id="overlapping outages count once"),
        pytest.param((0, 10), [(-5, 2), (8, 20)], 6, id="outages beyond both ends"),
        pytest.param((0, 10), [(-5, 20)], 0, id="an outage of the whole time"),
        pytest.param((0, 10), [(20, 30), (-9, -3)], 10, id="outages at other times"),
    ],
)
def test_the_time_without_an_outage(span: Span, others: list[Span], left: float) -> None:
    assert outages.uncovered(span, others) == left


def every(period: float, until: float, start: float = 0.0) -> list[float]:
    return [start + period * n for n in range(int((until - start) / period) + 1)]


@pytest.mark.parametrize(
    ("looks", "excused", "want"),
    [
        pytest.param(every(0.2, 60), [], "", id="frequent looks"),
        pytest.param([], [], "east was never looked at", id="no look"),
        pytest.param(
            [*every(0.2, 20), *every(0.2, 60, 20 + LONG)], [], "was not looked at for 16.0 s",
            id="a gap between two looks",
        ),
        pytest.param(
            [*every(0.2, 20), *every(0.2, 60, 20 + LONG)], [(19, 50)], "", id="a gap in the trial's own outage",
        ),
        pytest.param(
            [*every(0.2, 20), *every(0.2, 60, 20 + LONG)], [(22, 24)], "",
            id="a gap that is short apart from the outage",
        ),
        pytest.param(
            [*every(0.2, 10), *every(0.2, 60, 50)], [(10, 30)], "was not looked at for 20.0 s",
            id="a gap that is longer than the outage",
        ),
        pytest.param(every(0.2, 40), [], "was not looked at for 20.0 s", id="the looks stopped before the end"),
        pytest.param(every(0.2, 60, LONG), [], "was not looked at for 16.0 s", id="the looks began late"),
        pytest.param(
            every(USUAL_DELAY + 1, 60), [], "was looked at every 3.0 s, and shall be every 0.2",
            id="looks that are too rare",
        ),
    ],
)  # fmt: skip
def test_too_few_looks_are_reported(looks: list[float], excused: list[Span], want: str) -> None:
    said = watch.judged("east", watch.gaps(looks, (0.0, 60.0), excused), 0.2)
    assert [want in one for one in said] == ([True] if want else [])


def test_an_outage_is_of_one_cluster_and_open_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    seen = Outages()
    seen.begin("east")
    now[0] = 12.0
    seen.begin("east")
    assert seen.of("east", 15.0) == [(10.0, 15.0)] and seen.of("west", 15.0) == []
    seen.over()
    now[0] = 20.0
    seen.over()
    assert seen.of("east", 99.0) == [(10.0, 12.0)]


class Looking(Watch):
    """A witness whose look is a given function."""

    def __init__(self, does: Callable[[], object]) -> None:
        super().__init__([EAST], 0.01)
        self._does = does

    def _look(self, cluster: Cluster) -> None:
        self._does()


def fails(error: Exception) -> Callable[[], object]:
    def does() -> object:
        raise error

    return does


def wait_for(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert done()


def test_a_witness_without_gaps_reports_nothing() -> None:
    with Looking(lambda: None) as looking:
        wait_for(lambda: len(looking.looks["east"]) > 2)
    assert looking.longest_gap() < 5 and looking.missed == 0


@pytest.mark.parametrize("error", [KeyError("items"), Refused(403, "forbidden"), ValueError("no JSON")], ids=repr)
def test_a_witness_that_dies_fails_the_trial(error: Exception) -> None:
    with (
        pytest.raises(Blind, match="the watcher of east died: " + type(error).__name__),
        Looking(fails(error)) as looking,
    ):
        wait_for(lambda: looking._deaths)


def test_an_unreachable_cluster_is_a_gap_and_is_looked_at_again() -> None:
    answers: list[Callable[[], object]] = [fails(Unreachable("no answer"))] * 3
    with Looking(lambda: answers.pop()() if answers else None) as looking:
        wait_for(lambda: looking.looks["east"])
    assert looking.missed == 3


def test_a_cluster_that_is_never_reachable_proves_nothing() -> None:
    with pytest.raises(Blind, match="east was never looked at"), Looking(fails(Unreachable("no answer"))) as looking:
        wait_for(lambda: looking.missed)


def test_a_witness_that_does_not_end_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_JOIN", 0.05)
    begun, released = threading.Event(), threading.Event()

    def looks() -> None:
        begun.set()
        released.wait()

    try:
        with pytest.raises(Blind, match="has not ended"), Looking(looks):
            assert begun.wait(10)
    finally:
        released.set()


def test_an_earlier_failure_is_not_hidden() -> None:
    with pytest.raises(AssertionError, match="mine"), Looking(fails(KeyError("x"))) as looking:
        wait_for(lambda: looking._deaths)
        raise AssertionError("mine")
