"""The crowd's bench measures the cost of a change in plans and reads; both are equal on any machine."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from adapter.admission import job_validation
from adapter.shell.clusters import manager_cache as managers
from adapter.shell.clusters import worker_cache as members
from adapter.shell.observe import dispatch_policies
from hack.bench import crowdinput
from hack.bench.crowd import Stand
from hack.bench.crowdinput import Size

SIZE = Size(gangs=12, clusters=3, queues=10)


@pytest.fixture
def stand() -> Stand:
    return Stand(crowdinput.make(SIZE))


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts expensive reads."""
    found = Counter[str]()

    def counted(module: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            found[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    for module, name in (
        (managers, "parse_workload"),
        (managers, "parse_placement"),
        (dispatch_policies, "policy_of_check"),
        (job_validation, "workload_rejection"),
        (members, "build"),
    ):
        counted(module, name)
    return found


async def test_a_round_costs_one_plan_for_each_gang_and_reads_each_thing_once(
    stand: Stand, counts: Counter[str]
) -> None:
    assert (await stand.after(stand.come)).plans == SIZE.gangs
    assert len(stand.crowd.manager.placements) == SIZE.gangs
    counts.clear()
    assert (await stand.after(lambda: stand.uses("team-1", 1))).plans == SIZE.gangs
    most = {
        "parse_workload": 2 * SIZE.gangs,
        "parse_placement": 3 * SIZE.gangs,
        "policy_of_check": 1,
        "workload_rejection": 2 * SIZE.gangs,
        "build": 1,
    }
    assert not counts - Counter(most), "twice for what a plan itself has changed"


async def test_another_cohort_tree_costs_nothing(stand: Stand, counts: Counter[str]) -> None:
    await stand.after(stand.come)
    counts.clear()
    assert (await stand.after(lambda: stand.uses(crowdinput.APART, 1))).plans == 0
    assert not counts


async def test_a_new_gang_replans_no_other(stand: Stand) -> None:
    await stand.after(stand.come)
    assert (await stand.after(stand.one_more)).plans == 1
