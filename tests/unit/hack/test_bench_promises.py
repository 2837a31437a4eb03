"""A bench fails where a promise is broken by far, says which, and is silent about what is merely noise."""

import argparse
import math
from types import SimpleNamespace

import pytest

from hack.bench import __main__ as bench
from hack.bench import promises
from hack.bench.promises import Found, Promise
from hack.lab.base.progress import LabError
from hack.testbed.figures import Value

MOST, LEAST = Promise("the time", 100.0, 400.0), Promise("the pace", 0.8, 0.5)


@pytest.mark.parametrize(
    ("promise", "value", "met", "broken"),
    [
        pytest.param(MOST, 100.0, True, False, id="at the goal"),
        pytest.param(MOST, 101.0, False, False, id="missed, and told"),
        pytest.param(MOST, 400.0, False, False, id="at the margin"),
        pytest.param(MOST, 401.0, False, True, id="broken"),
        pytest.param(LEAST, 0.8, True, False, id="at least: the goal"),
        pytest.param(LEAST, 0.5, False, False, id="at least: the margin"),
        pytest.param(LEAST, 0.49, False, True, id="at least: broken"),
        pytest.param(LEAST, 2.0, True, False, id="at least: better than promised"),
        pytest.param(MOST, math.nan, False, True, id="not measured"),
    ],
)
def test_a_promise_is_met_missed_or_broken(promise: Promise, value: float, met: bool, broken: bool) -> None:
    assert promise.meets(value) is met
    assert bool(promise.complaint("bench", value)) is broken


def test_a_broken_promise_says_what_was_promised() -> None:
    assert (
        MOST.complaint("walk", 512.0) == "walk: the time is 512, shall be at most 100, and counts as broken beyond 400"
    )
    assert LEAST.complaint("walk", math.nan) == "walk: the pace was not measured"


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param({}, "", id="kept"),
        pytest.param({"ratio": 0.63}, "", id="the worst that was ever seen on a busy lab"),
        pytest.param({"ratio": 0.4}, "the pace against the floor's is 0.4", id="half of the pace"),
        pytest.param(
            {"ours_manager": 6.0}, "our requests to the manager per pod is 6", id="asks the manager twice as much"
        ),
        pytest.param({"ours_workers": 8.0}, "our requests to worker clusters per pod is 8", id="asks the clusters"),
    ],
)
def test_dispatch(changed: dict[str, Value], want: str) -> None:
    row: dict[str, Value] = {"ratio": 0.8, "ours_manager": 2.0, "ours_workers": 1.0, "cpu_ms": 9.0, "gone_ratio": 2.0}
    row |= changed
    said = promises.complaints("dispatch of 100 pods", row, promises.DISPATCH)
    assert [want in one for one in said] == ([True] if want else [])


@pytest.mark.parametrize("slow", ["FillInOrder", "Spread", "SameCluster, too large", "keep room for one too many"])
def test_every_kind_of_decision_is_judged(slow: str) -> None:
    decisions = dict.fromkeys(["FillInOrder", "Spread", "SameCluster, too large", "keep room for one too many"], 90.0)
    assert promises.planner(decisions, {"pods": 1.0}) == []
    (said,) = promises.planner({**decisions, slow: 500.0}, {"pods": 1.0})
    assert said.startswith(f"planner, {slow}: milliseconds of a decision is 500")


def test_no_dimension_may_be_worse_than_linear() -> None:
    assert promises.planner({}, {"pods": 2.2, "clusters": 1.0}) == [], "linear, with noise"
    (said,) = promises.planner({}, {"pods": 1.0, "clusters": 4.0})
    assert said.startswith("planner, clusters: the factor of a doubled dimension is 4")


def reserved(workers: int, clusters: int, ready: float) -> dict[str, Value]:
    return {"workers": workers, "clusters": clusters, "ready_s": ready}


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param([reserved(8, 2, 0.4), reserved(512, 2, 0.9)], [], id="as fast"),
        pytest.param([reserved(8, 2, 0.1), reserved(512, 2, 1.5)], [], id="short times are chance"),
        pytest.param(
            [reserved(512, 2, 9.0), reserved(8, 2, 0.4)], ["reserve over 2 clusters"], id="grows with the gang"
        ),
        pytest.param([reserved(8, 2, 0.4), reserved(64, 5, 9.0)], [], id="other numbers of clusters are not compared"),
        pytest.param([reserved(8, 2, 0.4), reserved(512, 2, math.nan)], ["reserve over 2 clusters"], id="never ready"),
    ],
)
def test_a_large_gang_is_reserved_as_fast(rows: list[dict[str, Value]], want: list[str]) -> None:
    said = promises.growth(rows)
    assert len(said) == len(want) and all(one.startswith(about) for one, about in zip(said, want, strict=True))


@pytest.mark.parametrize(
    ("found", "status"),
    [
        pytest.param(Found(["BENCH fast ms=1"]), 0, id="kept"),
        pytest.param(Found(["BENCH fast ms=9"], ["fast: it is slow"]), 1, id="broken"),
        pytest.param(LabError("no lab"), 1, id="not measured"),
    ],
)
def test_the_status_says_whether_promises_are_kept(
    found: Found | LabError, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(asked: argparse.Namespace) -> Found:
        if isinstance(found, LabError):
            raise found
        return found

    fast = SimpleNamespace(NAME="fast", HELP="", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(bench, "_BENCHES", {"fast": fast})
    assert bench.main(["fast"]) == status
    if isinstance(found, Found):
        *lines, last = capsys.readouterr().out.splitlines()
        assert last == ("BROKEN: fast: it is slow" if found.broken else "BENCH fast ms=1")
        assert found.lines[0] in [*lines, last]
