"""A bench fails at a missed goal; a lenient run fails only at a broken promise and ignores noise."""

import argparse
import math
import re
from types import SimpleNamespace

import pytest

from hack.bench import __main__ as bench
from hack.bench import promises, verdicts
from hack.bench.promises import BROKEN, MET, MISSED, UNKNOWN, Found, Promise, Row
from hack.lab.base.progress import LabError
from hack.testbed.figures import Value

MOST, LEAST = Promise("the time", 100.0, 400.0), Promise("the pace", 0.8, 0.5)


@pytest.mark.parametrize(
    ("promise", "value", "verdict"),
    [
        pytest.param(MOST, 100.0, MET, id="at the goal"),
        pytest.param(MOST, 101.0, MISSED, id="just missed"),
        pytest.param(MOST, 400.0, MISSED, id="at the margin"),
        pytest.param(MOST, 401.0, BROKEN, id="beyond the margin"),
        pytest.param(LEAST, 0.8, MET, id="a minimum: at the goal"),
        pytest.param(LEAST, 0.79, MISSED, id="a minimum: just missed"),
        pytest.param(LEAST, 0.5, MISSED, id="a minimum: at the margin"),
        pytest.param(LEAST, 0.49, BROKEN, id="a minimum: beyond the margin"),
        pytest.param(LEAST, 2.0, MET, id="a minimum: better than the goal"),
        pytest.param(MOST, math.nan, UNKNOWN, id="not measured"),
    ],
)
def test_a_promise_is_met_missed_or_broken(promise: Promise, value: float, verdict: str) -> None:
    row = Row("walk", "", promise, value)
    assert row.verdict == verdict
    assert promise.meets(value) is (verdict == MET)
    assert bool(row.complaint()) is (verdict != MET)
    assert bool(row.complaint(lenient=True)) is (verdict in (BROKEN, UNKNOWN))


def test_a_missed_goal_shows_the_promise() -> None:
    missed, broken, unknown = (Row("walk", "4 workers", MOST, value) for value in (128.0, 512.0, math.nan))
    assert verdicts.sentences([missed, broken, unknown], lenient=False) == [
        "MISSED: walk, 4 workers: the time is 128, shall be at most 100",
        "BROKEN: walk, 4 workers: the time is 512, shall be at most 100, and counts as broken beyond 400",
        "BROKEN: walk, 4 workers: the time was not measured",
    ]
    assert len(verdicts.sentences([missed, broken, unknown], lenient=True)) == 2


def test_each_figure_is_beside_its_goal() -> None:
    (row,) = promises.rows("walk", "4 workers", {"pace": 0.75, "pace_min": 0.5, "pace_max": 1.0}, {"pace": LEAST})
    once = Row("walk", "", MOST, 90.0)
    lines = [re.split(r"\s{2,}", line) for line in verdicts.table([row, once]).splitlines()]
    assert lines[1:] == [
        ["walk, 4 workers: the pace", "at least 0.8", "0.75 (0.5 to 1)", "missed"],
        ["walk: the time", "at most 100", "90", "met"],
    ]
    assert verdicts.table([]) == ""


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param({}, "", id="kept"),
        pytest.param({"ratio": 0.63}, "", id="the worst figures of a busy lab"),
        pytest.param({"ratio": 0.4}, "the pace against the floor's is 0.4", id="half the pace"),
        pytest.param(
            {"ours_manager": 6.0}, "our requests to the manager per pod is 6", id="twice the requests to the manager"
        ),
        pytest.param(
            {"ours_workers": 8.0},
            "our requests to worker clusters per pod is 8",
            id="requests to the worker clusters",
        ),
    ],
)
def test_dispatch(changed: dict[str, Value], want: str) -> None:
    row: dict[str, Value] = {"ratio": 0.8, "ours_manager": 2.0, "ours_workers": 1.0, "cpu_ms": 9.0, "gone_ratio": 2.0}
    row |= changed
    said = broken(promises.rows("dispatch", "100 pods", row, promises.DISPATCH))
    assert [want in one for one in said] == ([True] if want else [])


@pytest.mark.parametrize("slow", ["FillInOrder", "Spread", "SameCluster, too large", "keep room for one too many"])
def test_every_kind_of_decision_is_judged(slow: str) -> None:
    decisions = dict.fromkeys(["FillInOrder", "Spread", "SameCluster, too large", "keep room for one too many"], 90.0)
    assert broken(promises.planner(decisions, {"pods": 1.0})) == []
    (said,) = broken(promises.planner({**decisions, slow: 500.0}, {"pods": 1.0}))
    assert said.startswith(f"planner, {slow}: milliseconds of a decision is 500")


def test_no_dimension_may_be_worse_than_linear() -> None:
    assert broken(promises.planner({}, {"pods": 2.2, "clusters": 1.0})) == [], "linear, with noise"
    (said,) = broken(promises.planner({}, {"pods": 1.0, "clusters": 4.0}))
    assert said.startswith("planner, clusters: the factor of a doubled dimension is 4")


def broken(rows: list[Row]) -> list[str]:
    return [said for row in rows if (said := row.complaint(lenient=True))]


def reserved(workers: int, clusters: int, ready: float) -> dict[str, Value]:
    return {"workers": workers, "clusters": clusters, "ready_s": ready}


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param([reserved(8, 2, 0.4), reserved(512, 2, 0.9)], [], id="equal times"),
        pytest.param([reserved(8, 2, 0.1), reserved(512, 2, 1.5)], [], id="short times vary by chance"),
        pytest.param(
            [reserved(512, 2, 9.0), reserved(8, 2, 0.4)],
            ["reserve, over 2 clusters"],
            id="times that grow with the gang",
        ),
        pytest.param(
            [reserved(8, 2, 0.4), reserved(64, 5, 9.0)],
            [],
            id="different numbers of clusters are not compared",
        ),
        pytest.param([reserved(8, 2, 0.4), reserved(512, 2, math.nan)], ["reserve, over 2 clusters"], id="never ready"),
    ],
)
def test_a_large_gang_is_reserved_as_fast_as_a_small_one(rows: list[dict[str, Value]], want: list[str]) -> None:
    said = broken(promises.growth(rows))
    assert len(said) == len(want) and all(one.startswith(about) for one, about in zip(said, want, strict=True))


SLOW, TOO_SLOW = Found(["BENCH fast ms=9"], [Row("fast", "", MOST, 101.0)]), Row("fast", "", MOST, 401.0)


@pytest.mark.parametrize(
    ("found", "how", "status", "told"),
    [
        pytest.param(Found(["BENCH fast ms=1"], [Row("fast", "", MOST, 1.0)]), [], 0, "", id="kept"),
        pytest.param(SLOW, [], 1, "MISSED: fast: the time is 101, shall be at most 100", id="missed"),
        pytest.param(SLOW, ["--lenient"], 0, "", id="missed, on a busy machine"),
        pytest.param(
            Found(["BENCH fast ms=99"], [TOO_SLOW]),
            ["--lenient"],
            1,
            "BROKEN: fast: the time is 401, shall be at most 100, and counts as broken beyond 400",
            id="beyond the margin",
        ),
        pytest.param(LabError("no lab"), [], 1, "", id="not measured"),
    ],
)
def test_the_status_says_whether_goals_are_met(
    found: Found | LabError,
    how: list[str],
    status: int,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(asked: argparse.Namespace) -> Found:
        if isinstance(found, LabError):
            raise found
        return found

    fast = SimpleNamespace(NAME="fast", HELP="", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(bench, "_BENCHES", {"fast": fast})
    assert bench.main(["fast", *how]) == status
    if isinstance(found, Found):
        said = capsys.readouterr().out.splitlines()
        assert said[-1] == (told or found.lines[0])
        assert found.lines[0] in said
        assert [row.verdict for row in found.rows] == [line.split()[-1] for line in said if line.startswith("fast: ")]
