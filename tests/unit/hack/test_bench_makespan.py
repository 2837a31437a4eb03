"""The makespan's bench: tasks whose halves differ, one job against two, and each job in its clusters."""

import ast
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hack.bench import makespan
from hack.bench.makespan import TASKS, Ran
from hack.bench.promises import MAKESPAN, MET
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Clusters
from hack.testbed.rayjob import Job

SPANNING = Ran(34.0, {"east": 20, "west": 28})
HEAVY, LIGHT = Ran(61.0, {"east": 24}), Ran(7.0, {"west": 24})


def greedy(tasks: Sequence[float], workers: int) -> float:
    """The time that these workers take if each free worker takes the next task."""
    free = [0.0] * workers
    for seconds in tasks:
        first = free.index(min(free))
        free[first] += seconds
    return max(free)


def test_the_goal_is_reachable_and_not_trivial() -> None:
    heavy, light = makespan.halves()
    assert [*heavy, *light] == [*TASKS]
    by_hand = max(greedy(half, 2) for half in (heavy, light))
    assert greedy(TASKS, 4) / by_hand == pytest.approx(0.55)
    assert greedy(light, 2) < by_hand / 5, "the halves are skewed"


def test_the_longer_of_two_jobs_counts() -> None:
    values = makespan.outcome(SPANNING, LIGHT, HEAVY)
    assert (values["by_hand_s"], values["ideal_s"]) == (61, 33)
    assert values["ratio"] == pytest.approx(34 / 61)
    assert MAKESPAN["ratio"].verdict(float(values["ratio"])) == MET


def test_the_table_shows_where_tasks_ran() -> None:
    lines = makespan.table(SPANNING, HEAVY, LIGHT).splitlines()
    assert lines[1].split(maxsplit=5)[-1] == "20 in east and 28 in west"


def test_the_program_compiles_and_has_the_tasks() -> None:
    text = makespan.program([1.5, 2.0], 2)
    ast.parse(text)
    assert "for seconds in [1.5, 2.0]]" in text and "len(workers()) < 2" in text and '"rayspan.dev/cluster"' in text


class Stand(SimpleNamespace):
    """The events of jobs in order; a job's result is given by its name."""

    said: list[str]
    results: dict[str, Any]

    def job(self, fleet: Clusters, name: str, workers: int) -> Job:
        def noted(what: str) -> Any:
            return lambda *_: self.said.append(f"{what} {name.removeprefix('bench-makespan')}".strip())

        ran = self.results[name.removeprefix("bench-makespan").lstrip("-")]
        made = SimpleNamespace(
            name=name, workers=workers, dump=str, output=lambda: "Not all workers joined.",
            submit=noted("submit"), delete=noted("delete"), wait_until_gone=noted("gone"),
            placement=lambda: {"status": {"state": "Placed"}},
            wait_for_end=lambda: "SUCCEEDED" if ran else "FAILED",
            result=lambda: {"seconds": ran.seconds, "tasks": ran.tasks},
        )  # fmt: skip
        return cast(Job, made)


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    made = Stand(said=[], results={"": SPANNING, "heavy": HEAVY, "light": LIGHT})
    monkeypatch.setattr(makespan, "Job", made.job)
    return made


NOBODY = cast(Clusters, None)


def test_all_jobs_are_deleted_before_one_is_awaited(stand: Stand) -> None:
    """Waiting for an empty namespace would wait for the other job too."""
    assert makespan._by_hand(NOBODY) == (HEAVY, LIGHT)
    gone = ["delete -light", "delete -heavy", "gone -light", "gone -heavy"]
    assert stand.said == [*gone, "submit -heavy", "submit -light", *gone]


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        pytest.param(
            {"heavy": None},
            "bench-makespan-heavy has ended as FAILED: Not all workers joined.",
            id="a failed job",
        ),
        pytest.param(
            {"light": Ran(7.0, {"east": 24})},
            "the halves ran in east and east",
            id="both halves in one cluster",
        ),
        pytest.param({"heavy": SPANNING}, "the halves ran in east and west and west", id="a half spans clusters"),
    ],
)
def test_an_invalid_measurement_is_reported_and_leaves_nothing(
    stand: Stand, results: dict[str, Any], complaint: str
) -> None:
    stand.results |= results
    with pytest.raises(LabError, match=complaint):
        makespan._by_hand(NOBODY)
    assert stand.said[-4:] == ["delete -light", "delete -heavy", "gone -light", "gone -heavy"]


def test_the_spanning_job_must_span(stand: Stand) -> None:
    assert makespan._spanning(NOBODY) == SPANNING
    stand.results[""] = HEAVY
    with pytest.raises(LabError, match="ran in east, and was to run in two clusters"):
        makespan._spanning(NOBODY)
