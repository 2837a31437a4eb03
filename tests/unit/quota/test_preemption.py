"""How much quota of lower-priority gangs a plan may count on, and where Kueue would not preempt."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from adapter import names
from adapter.actions import Plan
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.planner import plan_with_preemption
from adapter.quota import preemption
from adapter.quota.tree import build
from tests.unit.builders import (
    NAMESPACE,
    QUEUE,
    START,
    make_cluster_queue,
    make_condition,
    make_flavor,
    make_meta,
    make_workload,
)
from tests.unit.stores import Sight, fill, make_template

PREEMPTS: Raw = {"preemption": {"withinClusterQueue": "LowerPriority"}}
CPU = {"cpu": 1000, "pods": 1}


def share(priority: int | None, cores: int, *, queue: str = "team-a", reserved: bool = True, **usage: str) -> Raw:
    """A group Workload of ours with so many cores reserved, one podset each."""
    podset = {"name": "r", "flavors": {"cpu": "any"}, "resourceUsage": usage or {"cpu": "1"}}
    return {
        "spec": {} if priority is None else {"priority": priority},
        "status": {
            "conditions": [make_condition(names.QUOTA_RESERVED, reserved)],
            "admission": {"clusterQueue": queue, "podSetAssignments": [podset] * cores},
        },
    }


def used(found: Sequence[Mapping[str, Any]] | None) -> str | None:
    """The first queue's reserved usage, None without a queue."""
    return str(found[0]["status"]["flavorsReservation"][0]["resources"][0]["total"]) if found else None


@pytest.mark.parametrize(
    ("spec", "shares", "want"),
    [
        pytest.param(PREEMPTS, [share(1, 2)], "2", id="a share of lower priority"),
        pytest.param(PREEMPTS, [share(1, 2), share(None, 1)], "1", id="a share without a priority has 0"),
        pytest.param(PREEMPTS, [share(1, 1, cpu="250m")], "3750m", id="a share of less than a core"),
        pytest.param(PREEMPTS, [share(1, 9)], "0",
            id="usage never falls below zero, though a share may not be counted yet"),
        pytest.param(PREEMPTS, [share(5, 2)], None, id="a share of the same priority"),
        pytest.param(PREEMPTS, [share(9, 2)], None, id="a share of higher priority"),
        pytest.param(PREEMPTS, [share(1, 2, reserved=False)], None, id="a share that is evicted already"),
        pytest.param(PREEMPTS, [share(1, 2, queue="team-b")], None, id="a share in another queue"),
        pytest.param(PREEMPTS, [], None, id="no shares"),
        pytest.param({}, [share(1, 2)], None, id="Kueue's default: no preemption"),
        pytest.param({"preemption": {"withinClusterQueue": "Never"}}, [share(1, 2)], None,
            id="preemption is disabled explicitly"),
        pytest.param(
            {"preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"}}, [share(1, 2), share(5, 1)], "2",
            id="newer shares of equal priority are not counted"
        ),
    ],
)  # fmt: skip
def test_usage_without_lower_priorities(spec: Raw, shares: list[Raw], want: str | None) -> None:
    assert used(preemption.simulate_removal([make_cluster_queue(4, used=4, **spec)], shares, 5, "team-a")) == want


def test_shares_in_other_queues_of_the_cohort_stay() -> None:
    """Those are under reclaimWithinCohort and borrowWithinCohort, although their own queue preempts within itself."""
    queues = [
        make_cluster_queue(4, used=4, name=name, cohortName="all", **PREEMPTS)
        for name in ("team-a", "team-b", "team-c")
    ]
    shares = [share(1, 1), share(0, 2, queue="team-b"), share(9, 4, queue="team-c")]
    removed = {name: preemption.simulate_removal(queues, shares, 5, name) for name in ("team-a", "team-b", "team-c")}
    assert {name: [used([raw]) for raw in raws or ()] for name, raws in removed.items()} == {
        "team-a": ["3", "4", "4"],
        "team-b": ["4", "2", "4"],
        "team-c": [],
    }


def test_the_queue_is_not_modified() -> None:
    queue = make_cluster_queue(4, used=4, **PREEMPTS)
    preemption.simulate_removal([queue], [share(1, 2)], 5, "team-a")
    assert used([queue]) == "4"


def cluster(name: str, used: int) -> Candidate:
    tree = build([make_cluster_queue(2, used=used)], [], [make_flavor()])
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}})


def gang(count: int) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, (GroupRequest("workers", "role", count, {}, CPU),))


def test_only_the_share_that_needs_it_preempts() -> None:
    among, freed = [cluster("east", 2), cluster("west", 0)], [cluster("east", 0), cluster("west", 0)]
    made = plan_with_preemption(gang(4), among, freed)
    assert [(s.cluster, s.workers, s.preempts) for s in made.shares] == [("east", 2, True), ("west", 2, False)]
    assert made.sentence == "2 of 4 workers to east, 2 to west; in east by preempting gangs of lower priority."


@pytest.mark.parametrize(
    ("most", "preempts"),
    [
        pytest.param(10**9, True, id="the job's own priority is higher"),
        pytest.param(2, True, id="the cap is higher than the other share's priority"),
        pytest.param(1, False, id="the cap equals the other share's priority"),
        pytest.param(-1, False, id="the cap is lower than the other share's priority"),
    ],
)
def test_a_priority_is_capped_by_the_cluster(most: int, preempts: bool) -> None:
    sight = Sight({"east": 2})
    member = sight.members["east"]
    member.spec = member.spec.model_copy(update={"max_priority": most})
    fill(member.cluster_queues, make_cluster_queue(2, used=2, **PREEMPTS))
    fill(member.workloads, {"metadata": make_meta("theirs"), **share(1, 2)})
    raw = make_workload(groups={"workers": 2})
    raw["spec"]["podSets"][1]["template"] = make_template("1")
    raw["spec"]["priority"] = 5
    body, _, _, _ = asyncio.run(sight.planning.plan_round(Plan(parse_workload(raw), None, ()), START))
    assert bool(body["spec"]["shares"]) is preempts


def test_a_gang_counts_on_no_victim_in_another_queue() -> None:
    sight = Sight({"east": 2})
    member = sight.members["east"]
    queues = [make_cluster_queue(2, used=2, name=name, cohortName="all", **PREEMPTS) for name in ("team-a", "team-b")]
    fill(member.cluster_queues, *queues)
    fill(member.workloads, {"metadata": make_meta("theirs"), **share(1, 2, queue="team-b")})
    assert sight.planning._snapshot.trees_after_preemption(["east"], 5, (NAMESPACE, QUEUE)) == {}
    fill(member.workloads, {"metadata": make_meta("ours"), **share(1, 2)})
    assert sight.planning._snapshot.trees_after_preemption(["east"], 5, (NAMESPACE, QUEUE)).keys() == {"east"}


def test_where_preemption_frees_too_little_nothing_is_placed() -> None:
    assert plan_with_preemption(gang(5), [cluster("east", 2)], [cluster("east", 0)]).shares == ()


@pytest.mark.parametrize(
    ("spec", "priority", "said"),
    [
        pytest.param(
            PREEMPTS,
            5,
            ("2 of 2 workers to east; in east by preempting gangs of lower priority."),
            id="the gang may preempt",
        ),
        pytest.param(PREEMPTS, 1, "2 workers needed at once, 0 fit now", id="the gang has no higher priority"),
        pytest.param({}, 5, "2 workers needed at once, 0 fit now", id="the queue does not preempt"),
    ],
)
def test_a_plan_preempts_only_where_nothing_else_helps(spec: Raw, priority: int, said: str) -> None:
    sight = Sight({"east": 2})
    member = sight.members["east"]
    fill(member.cluster_queues, make_cluster_queue(2, used=2, **spec))
    fill(member.workloads, {"metadata": make_meta("theirs"), **share(1, 2)})
    raw = make_workload(groups={"workers": 2})
    raw["spec"]["podSets"][1]["template"] = make_template("1")
    raw["spec"]["priority"] = priority
    planning = sight.planning
    body, _, _, _ = asyncio.run(planning.plan_round(Plan(parse_workload(raw), None, ()), START))
    assert body["spec"]["explanation"].startswith(said)
    assert [share.get("preempts") for share in body["spec"]["shares"]] == ([True] if "preempting" in said else [])
