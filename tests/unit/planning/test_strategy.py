"""Strategies as tables: cluster order, division of a gang, and partial gangs.

The cases with GPUs on clusters `static` and `dynamic` are known from other systems: fill and spill, fill and no spill,
the right cluster, cloud priority.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.location import Location
from adapter.objects.unstructured import Raw
from adapter.planning import planner
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.planner import GangPlan, plan
from adapter.quota.node_capacity import Node, index_nodes
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor


def cluster(
    name: str,
    cores: int,
    *,
    used: int = 0,
    lent: int = 0,
    nodes: int | None = None,
    grow: bool = False,
    zone: str = "",
    region: str = "",
) -> Candidate:
    """`lent`: cores that another queue of the cohort has to spare; `nodes`: so many of four cores."""
    queues = [make_cluster_queue(cores, used=used, cohortName="all")]
    if lent:
        queues.append(make_cluster_queue(lent, cohortName="all", name="lender"))
    tree = build(queues, [], [make_flavor()])
    there = None if nodes is None else index_nodes(Node({}, (), {"cpu": 4000, "pods": 110}) for _ in range(nodes))
    location = Location(zone or name, region)
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, location, there, grow)


def group(count: int, *, cores: int = 1, name: str = "workers", zone: str = "", region: str = "") -> GroupRequest:
    request = {"cpu": cores * 1000, "pods": 1}
    return GroupRequest(name, f"role-{name}", count, {}, request, Location(zone, region))


def counts(made: GangPlan) -> dict[str, int]:
    return {share.cluster: share.workers for share in made.shares}


@dataclass(frozen=True)
class Case:
    id: str
    request: Mapping[str, Any]
    clusters: Sequence[Candidate]
    want: Mapping[str, int]
    says: Sequence[str] = ()
    groups: Sequence[GroupRequest] = field(default_factory=lambda: [group(2)])


AVAILABLE: Raw = {"strategy": "AvailableCapacity"}
SAME: Raw = {"strategy": "AvailableCapacity", "mode": "SameCluster"}
CASES = [
    Case("the cluster with the most capacity", AVAILABLE, [cluster("a", 3), cluster("b", 9)], {"b": 2}),
    Case("the first of equal clusters", AVAILABLE, [cluster("b", 4), cluster("a", 4)], {"b": 2}),
    Case(
        "the most capacity on many small nodes",
        AVAILABLE,
        [cluster("one", 4, nodes=1), cluster("many", 90, nodes=30)],
        {"many": 2},
    ),
    Case(
        "quota without nodes is no capacity",
        AVAILABLE,
        [cluster("paper", 90, nodes=1), cluster("real", 12, nodes=3)],
        {"real": 2},
    ),
    Case(
        "a job stays in one cluster if it fits",
        AVAILABLE,
        [cluster("a", 1), cluster("b", 2)],
        {"b": 2},
        ["2 of 2 workers to b."],
    ),
    Case("fill and spill", AVAILABLE, [cluster("static", 4, used=3), cluster("dynamic", 1)],
         {"static": 1, "dynamic": 1}),
    Case(
        "existing nodes before nodes that must be added",
        AVAILABLE,
        [cluster("dynamic", 8, nodes=0, grow=True), cluster("static", 2, nodes=1)],
        {"static": 2},
    ),
    Case(
        "an autoscaler's quota counts without a node",
        AVAILABLE,
        [cluster("static", 2, used=2, nodes=1), cluster("dynamic", 2, nodes=0, grow=True)],
        {"dynamic": 2},
        ["static passed over: cpu in flavor any: 0 free of 2"],
    ),
    Case(
        "quota without a node counts for nothing",
        AVAILABLE,
        [cluster("static", 2, nodes=0)],
        {},
        ["static has capacity for 0 (it has no ready node)"],
    ),
    Case(
        "quota beyond what nodes can hold counts for nothing",
        {},
        [cluster("a", 8, nodes=1), cluster("b", 8, nodes=1)],
        {"a": 4, "b": 2},
        groups=[group(6)],
    ),
    Case("nominal in one before borrowed in another", AVAILABLE, [cluster("a", 0, lent=9), cluster("b", 2)], {"b": 2}),
    Case("nominal of all before borrowed of any", {}, [cluster("a", 1, lent=9), cluster("b", 1)], {"a": 1, "b": 1}),
    Case("borrowed where nominal ends", {}, [cluster("a", 1, lent=9), cluster("b", 1)], {"a": 3, "b": 1},
         groups=[group(4)]),
    Case("a pinned gang fills its cluster", {}, [cluster("static", 2)], {"static": 2}),
    Case("a pinned gang does not spill", {}, [cluster("static", 2, used=1)], {},
         ["2 workers needed at once, 1 fit now"]),
    Case("together or not at all", SAME, [cluster("a", 1), cluster("b", 1)], {},
         ["2 workers needed at once in one cluster, 1 fit now"]),
    Case("together where it fits", SAME, [cluster("a", 1), cluster("b", 2)], {"b": 2},
         ["2 of 2 workers to b; a passed over: cpu in flavor any: 1 free of 1"]),
    Case("together, in the policy's order", {"mode": "SameCluster"}, [cluster("a", 2), cluster("b", 9)], {"a": 2}),
    Case("together, without borrowing first", {"mode": "SameCluster"}, [cluster("a", 1, lent=9), cluster("b", 2)],
         {"b": 2}),
    Case(
        "together, more than any cluster can ever hold",
        SAME,
        [cluster("a", 3), cluster("b", 3)],
        {},
        ["Even the largest cluster, when empty, holds only 3: raise a quota or request fewer workers."],
        groups=[group(4)],
    ),
    Case(
        "a part of at least four workers",
        {"mode": "BestEffort", "min_workers": 4},
        [cluster("a", 2), cluster("b", 2)],
        {"a": 2, "b": 2},
        ["2 of 6 workers to a, 2 to b; 2 stay pending for lack of capacity."],
        groups=[group(6)],
    ),
    Case(
        "three workers are fewer than the minimum",
        {"mode": "BestEffort", "min_workers": 4},
        [cluster("a", 2), cluster("b", 1)],
        {},
        ["4 workers needed at once, 3 fit now"],
        groups=[group(6)],
    ),
    Case("a partial gang takes all if it can", {"mode": "BestEffort", "min_workers": 1}, [cluster("a", 9)], {"a": 2},
         ["2 of 2 workers to a."]),
    Case("a gang below its minimum is placed whole", {"mode": "BestEffort", "min_workers": 4}, [cluster("a", 9)],
         {"a": 2}),
    Case("even parts", {"strategy": "Spread"}, [cluster("a", 9), cluster("b", 9)], {"a": 2, "b": 2}, groups=[group(4)]),
    Case(
        "parts that leave no room for a larger group are filled in after all",
        {"strategy": "Spread"},
        [cluster("a", 6), cluster("b", 4)],
        {"a": 2, "b": 2},
        groups=[group(2, cores=2), group(2, cores=3, name="large")],
    ),
    Case(
        "a worker group in its zone",
        {},
        [cluster("a", 9, zone="z1"), cluster("b", 9, zone="z2")],
        {"a": 1, "b": 2},
        groups=[group(1, name="any"), group(2, name="near", zone="z2")],
    ),
    Case(
        "no cluster in its zone",
        {},
        [cluster("a", 9, zone="z1")],
        {},
        ["worker group workers requires zone z2, and this cluster is in zone z1"],
        groups=[group(2, zone="z2")],
    ),
    Case(
        "a worker group in its region, in the policy's order",
        {},
        [cluster("a", 9, region="us"), cluster("b", 1, region="eu"), cluster("c", 9, region="eu")],
        {"a": 1, "b": 1, "c": 1},
        groups=[group(1, name="any"), group(2, name="near", region="eu")],
    ),
    Case(
        "no cluster in its region",
        {},
        [cluster("a", 9, region="us"), cluster("b", 9)],
        {},
        [
            "a has capacity for 0 (worker group workers requires region eu, and this cluster is in region us)",
            "b has capacity for 0 (worker group workers requires region eu, and this cluster has no region)",
        ],
        groups=[group(2, region="eu")],
    ),
    Case(
        "a zone of another region",
        {},
        [cluster("a", 9, zone="z1", region="us"), cluster("b", 9, zone="z2", region="eu")],
        {},
        ["requires region eu, and this cluster is in region us", "requires zone z1, and this cluster is in zone z2"],
        groups=[group(2, zone="z1", region="eu")],
    ),
    Case(
        "a zone is not a region",
        {},
        [cluster("a", 9, zone="eu", region="us"), cluster("b", 9, zone="us", region="eu")],
        {"b": 2},
        groups=[group(2, region="eu")],
    ),
    Case(
        "the group with the fewest clusters first",
        {},
        [cluster("a", 4), cluster("b", 2)],
        {"a": 1, "b": 2},
        groups=[group(2, name="small"), group(1, cores=4, name="large")],
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_strategy(case: Case) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, tuple(case.groups), **case.request), case.clusters)
    assert counts(made) == case.want, made.sentence
    for part in case.says:
        assert part in made.sentence


def test_unneeded_clusters_are_in_the_verdicts_and_not_in_the_sentence() -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, (group(2),)), [cluster("a", 2), cluster("b", 1)])
    assert made.sentence == "2 of 2 workers to a."
    assert [(v.cluster, v.chosen, v.reason) for v in made.verdicts] == [("a", 2, ""), ("b", 0, "not needed")]


def test_verdicts_count_nominal_borrowed_and_possible_workers() -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, (group(9),)), [cluster("a", 3, used=1, lent=2)])
    (found,) = made.verdicts
    assert (found.nominal, found.borrow, found.potential, found.chosen) == (2, 2, 5, 0)


# --- capacity holds --------------------------------------------------------------------------------------------------


def test_capacity_held_for_one_gang_is_not_available_to_the_next() -> None:
    large, small = GangRequest(NAMESPACE, QUEUE, (group(4),)), GangRequest(NAMESPACE, QUEUE, (group(2),))
    fleet = [cluster("a", 2), cluster("b", 4, used=3)]
    assert plan(small, fleet).shares
    kept = planner.shares_to_hold(large, fleet)
    assert {share.cluster: share.workers for share in kept} == {"a": 2, "b": 1}
    assert not plan(small, planner.charge_shares(large, fleet, kept)).shares


def test_a_same_cluster_gang_holds_capacity_only_where_it_can_be_whole() -> None:
    large = GangRequest(NAMESPACE, QUEUE, (group(4),), mode="SameCluster")
    kept = planner.shares_to_hold(large, [cluster("a", 3), cluster("b", 4, used=3), cluster("c", 9, used=7)])
    assert {share.cluster: share.workers for share in kept} == {"c": 2}


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=40), st.integers(2, 8))
def test_a_stream_of_small_gangs_cannot_starve_a_large_one(stream: list[tuple[int, int]], size: int) -> None:
    """Each tick a small gang (workers, ticks) arrives behind a large one that waited long. Capacity is freed as
    gangs end."""
    large = GangRequest(NAMESPACE, QUEUE, (group(size),))
    running: list[tuple[int, GangRequest, GangPlan]] = []  # tick at which it ends
    rooms = {"a": size // 2, "b": size - size // 2}

    def fleet() -> list[Candidate]:
        there = [cluster(name, cores) for name, cores in rooms.items()]
        for _, request, made in running:
            there = planner.charge_shares(request, there, made.shares)
        return there

    small = GangRequest(NAMESPACE, QUEUE, (group(size),))
    running.append((4, small, plan(small, fleet())))  # at the start all is taken
    for tick, (workers, ticks) in enumerate(stream + [(1, 1)] * 5):
        running = [entry for entry in running if entry[0] > tick]
        if plan(large, fleet()).shares:
            return
        held = planner.charge_shares(large, fleet(), planner.shares_to_hold(large, fleet()))
        small = replace(large, groups=(group(min(workers, size)),))
        made = plan(small, held)
        if made.shares:
            running.append((tick + ticks, small, made))
    raise AssertionError("the large gang never had its turn")


CHECKS = {"admissionChecksStrategy": {"admissionChecks": [{"name": "provisioning"}]}}


@pytest.mark.parametrize(("spec", "placed"), [({}, {}), (CHECKS, {"a": 2})], ids=["no check", "a check"])
def test_an_admission_check_there_may_add_nodes(spec: Raw, placed: dict[str, int]) -> None:
    """Kueue admits the share when nodes have come, so today's nodes are no veto."""
    empty = cluster("a", 4, nodes=0)
    tree = build([make_cluster_queue(4, **spec)], [], [make_flavor()])
    assert counts(plan(GangRequest(NAMESPACE, QUEUE, (group(2),)), [replace(empty, quota_tree=tree)])) == placed
