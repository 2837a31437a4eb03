"""What a waiting gang would borrow takes nothing from another ClusterQueue's own nominal quota."""

from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.workload import parse_workload
from adapter.planning import ordering, rounds
from adapter.planning.ordering import WaitingGang
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.rounds import PlanRequest, RemainingCapacity
from adapter.quota import tree
from tests.unit.builders import START, at, make_cluster_queue, make_flavor, make_workload

LONG_AGO = -ordering.STARVED_AFTER.total_seconds() - 60
TEAMS = ("a", "b", "c")


def request(team: str, workers: int) -> PlanRequest:
    group = GroupRequest("workers", "role", workers, {}, {"cpu": 1000, "pods": 1})
    return PlanRequest(GangRequest(team, "q", (group,)), ("east",))


def gang(team: str, number: int = 0, *, planned: bool = True, created: float = LONG_AGO) -> WaitingGang:
    workload = parse_workload(make_workload(name=f"{team}-{number}"))
    return WaitingGang(replace(workload, namespace=team, created_at=at(created)), planned)


def east(*cluster_queues: dict[str, Any]) -> Candidate:
    queues = {(team, "q"): (f"cq-{team}", "") for team in TEAMS}
    return Candidate("east", "", tree.build(cluster_queues, [], [make_flavor()]), queues, {team: {} for team in TEAMS})


def queue(team: str, cores: int, *, used: int = 0, **spec: Any) -> dict[str, Any]:
    return make_cluster_queue(cores, used=used, name=f"cq-{team}", cohortName="all", **spec)


def placed(candidate: Candidate, ahead: list[tuple[WaitingGang, PlanRequest]], own: PlanRequest) -> int:
    remaining = reduce(
        lambda left, pair: rounds.capacity_after(pair[0], pair[1], left, START), ahead, RemainingCapacity([candidate])
    )
    return sum(share.workers for share in rounds.plan_gang(own, remaining).plan.shares)


RECLAIMS: dict[str, Any] = {"preemption": {"reclaimWithinCohort": "LowerPriority"}}
STARVED = (gang("a"), request("a", 20))


@pytest.mark.parametrize(
    ("queues", "ahead", "own", "workers"),
    [
        pytest.param([queue("a", 10, used=10), queue("b", 10)], [STARVED], request("b", 4), 4,
            id="a starved gang holds what it could borrow, and the owner uses it"),
        pytest.param([queue("a", 10, used=10), queue("b", 10, **RECLAIMS)], [STARVED], request("b", 10), 10,
            id="and all of it, whatever the owner's preemption"),
        pytest.param([queue("a", 10), queue("b", 10)], [(gang("a", planned=False), request("a", 20))], request("b", 4),
            4, id="a gang before it that would fit by borrowing takes nothing from the owner"),
        pytest.param([queue("a", 10, used=10), queue("b", 10), queue("c", 5, used=5)], [STARVED], request("c", 4), 0,
            id="who would borrow, too, waits behind the starved gang"),
        pytest.param([queue("a", 10, used=10), queue("b", 10), queue("c", 10)], [STARVED], request("b", 14), 0,
            id="so does an owner, for all beyond its own quota"),
        pytest.param([queue("a", 20, used=10), queue("b", 10)], [STARVED], request("a", 1), 0,
            id="a starved gang holds its own queue's nominal quota"),
        pytest.param([queue("a", 20, used=5), queue("b", 10)], [(gang("a"), request("a", 18)), STARVED],
            request("b", 10), 10, id="two starved gangs of a queue"),
        pytest.param([queue("a", 10, used=10), queue("b", 10)],
            [STARVED, (gang("b", planned=False), request("b", 8))], request("b", 4), 0,
            id="an owner's gang before it has taken the owner's quota"),
    ],
)  # fmt: skip
def test_a_waiting_gang_borrows_from_no_owner(
    queues: list[dict[str, Any]], ahead: list[tuple[WaitingGang, PlanRequest]], own: PlanRequest, workers: int
) -> None:
    assert placed(east(*queues), ahead, own) == workers


GANGS = st.lists(st.tuples(st.sampled_from("ac"), st.integers(1, 30), st.booleans()), max_size=5)
LIMITS = st.fixed_dictionaries({}, optional={"borrowingLimit": st.integers(0, 12), "lendingLimit": st.integers(0, 12)})
QUEUE = st.tuples(st.integers(0, 12), st.integers(0, 12), LIMITS)


@given(st.tuples(QUEUE, QUEUE, QUEUE), GANGS, st.integers(1, 12))
def test_an_owner_gets_its_own_quota_whatever_waits_in_other_queues(
    queues: tuple[tuple[int, int, dict[str, int]], ...], ahead: list[tuple[str, int, bool]], workers: int
) -> None:
    """As long as no queue's Workloads use more than its nominal quota, which would be Kueue's own to reclaim."""
    raws = []
    for team, (cores, used, limits) in zip(TEAMS, queues, strict=True):
        raw = queue(team, cores, used=min(used, cores))
        for row in raw["spec"]["resourceGroups"][0]["flavors"][0]["resources"]:
            row.update({field: str(amount) for field, amount in limits.items()})
        raws.append(raw)
    cores, used, _ = queues[1]
    waiting = [(gang(team, n, planned=planned), request(team, count)) for n, (team, count, planned) in enumerate(ahead)]
    own = min(workers, cores - min(used, cores))
    if own:
        assert placed(east(*raws), waiting, request("b", own)) == own
