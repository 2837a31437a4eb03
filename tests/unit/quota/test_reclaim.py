"""Borrowed quota: how much of it can be reclaimed, when a plan counts on it, and that such a share is asked for
last."""

from collections.abc import Sequence
from typing import Any

import pytest

from adapter.actions import Reserve, UpdatePlacementStatus
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.gang.reserve import RESERVED_LAST
from adapter.objects.placement import parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.planner import plan
from adapter.quota.node_capacity import Node, index_nodes
from adapter.quota.tree import QuotaTree, build, demand_for_pods, flavor_capacity, queue_path
from tests.unit.builders import (
    CHECK,
    NAMESPACE,
    QUEUE,
    at,
    make_cluster_queue,
    make_flavor,
    make_placement,
    make_reservation,
    make_target,
    make_workload,
)
from tests.unit.fact_builders import make_gang

RECLAIM: Raw = {"preemption": {"reclaimWithinCohort": "Any"}}
CPU = {"cpu": 1000, "pods": 1}


def tree(cores: int, *, used: int = 0, others: int = 0, lent: int = 0, **spec: Any) -> QuotaTree:
    """Team a's queue, in one cohort with team b's, which has `others` cores of its own and uses `lent` beyond them."""
    mine = make_cluster_queue(cores, used=used, cohortName="all", **spec)
    theirs = make_cluster_queue(others, used=others + lent, cohortName="all", name="team-b")
    return build([mine, theirs], [], [make_flavor()])


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(tree(4, lent=4, **RECLAIM), 4, id="all quota was borrowed"),
        pytest.param(tree(4, used=1, lent=3, **RECLAIM), 3, id="quota that the queue uses itself is not borrowed"),
        pytest.param(tree(4, **RECLAIM), 4, id="free quota counts as well"),
        pytest.param(tree(4, lent=4), 0, id="a queue that does not reclaim"),
        pytest.param(
            tree(4, lent=4, preemption={"reclaimWithinCohort": "LowerPriority"}), 0,
            id="a queue that reclaims from lower priorities only, which are unknown"
        ),
        pytest.param(tree(4, lent=4, stopPolicy="Hold", **RECLAIM), 0, id="a stopped queue"),
    ],
)  # fmt: skip
def test_reclaimable(given: QuotaTree, want: int) -> None:
    found = flavor_capacity(
        demand_for_pods(given, "team-a", CPU, {}, None), queue_path(given, "team-a")
    ).reclaimable_fit(9)
    assert (found.nominal, dict(found.flavors)) == (want, {"cpu": "any"} if want else {})


def cluster(name: str, given: QuotaTree, *, nodes: int | None = None) -> Candidate:
    """`nodes`: so many of one core."""
    there = None if nodes is None else index_nodes(Node({}, (), {"cpu": 1000, "pods": 110}) for _ in range(nodes))
    return Candidate(name, "", given, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, nodes=there)


def gang(count: int, **policy: Any) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, (GroupRequest("workers", "role", count, {}, CPU),), **policy)


def test_free_capacity_elsewhere_is_taken_before_borrowed_capacity_is_reclaimed() -> None:
    made = plan(gang(2), [cluster("east", tree(2, lent=2, **RECLAIM)), cluster("west", tree(2))])
    assert [(s.cluster, s.workers, s.preempts) for s in made.shares] == [("west", 2, False)]


def test_only_the_share_that_needs_it_preempts() -> None:
    made = plan(gang(4), [cluster("east", tree(2, lent=2, **RECLAIM)), cluster("west", tree(2))])
    assert [(s.cluster, s.workers, s.preempts) for s in made.shares] == [("east", 2, True), ("west", 2, False)]
    assert made.sentence == "2 of 4 workers to east, 2 to west; in east by taking back quota that others borrowed."


def test_a_cluster_that_can_reclaim_enough_holds_a_same_cluster_gang() -> None:
    made = plan(gang(2, mode="SameCluster"), [cluster("east", tree(2, lent=2, **RECLAIM)), cluster("west", tree(1))])
    assert [(s.cluster, s.workers, s.preempts) for s in made.shares] == [("east", 2, True)]


@pytest.mark.parametrize(("nodes", "want"), [(2, {"east": 2}), (1, {})])
def test_nothing_is_reclaimed_for_a_pod_that_no_node_could_hold(nodes: int, want: dict[str, int]) -> None:
    made = plan(gang(2), [cluster("east", tree(2, lent=2, **RECLAIM), nodes=nodes)])
    assert {share.cluster: share.workers for share in made.shares} == want


def test_no_more_is_reclaimed_than_is_not_free_elsewhere() -> None:
    """West has three cores to borrow: one pod in east is preempted, not four."""
    west = build(
        [make_cluster_queue(0, cohortName="all"), make_cluster_queue(3, cohortName="all", name="team-b")],
        [],
        [make_flavor()],
    )
    made = plan(gang(4), [cluster("east", tree(4, lent=4, **RECLAIM)), cluster("west", west)])
    assert [(s.cluster, s.workers, s.preempts) for s in made.shares] == [("east", 1, True), ("west", 3, False)]


def test_where_reclaiming_is_too_little_the_message_speaks_of_free_quota() -> None:
    made = plan(gang(9), [cluster("east", tree(2, lent=2, **RECLAIM)), cluster("west", tree(2))])
    assert not made.shares
    assert "9 workers needed at once, 2 fit now" in made.sentence


# --- the order in which shares are asked for -------------------------------------------------------------------------

WORK = make_workload()


def round_(*standing: str, admitted: Sequence[str] = ()) -> Gang:
    """A round whose east share preempts and whose west share does not."""
    raw = make_placement(WORK)
    raw["spec"]["shares"][0]["preempts"] = True
    held = tuple(parse_reservation(c, make_reservation(raw, admitted=c in admitted)) for c in standing)
    return make_gang(
        workload=parse_workload(WORK),
        check=CHECK,
        placements=(parse_placement(raw),),
        reservations=held,
        targets={cluster: make_target(cluster) for cluster in ("east", "west")},
    )


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(round_(), ["west"], id="the share that does not preempt is asked for first"),
        pytest.param(round_("west"), [], id="no other share is asked for while the first is not admitted"),
        pytest.param(round_("west", admitted=["west"]), ["east"], id="the share that preempts is asked for last"),
        pytest.param(round_("west", "east", admitted=["west"]), [], id="both shares are asked for"),
    ],
)
def test_a_share_that_preempts_is_asked_for_last(given: Gang, want: list[str]) -> None:
    assert [a.share.cluster for a in decide(given, at(3)) if isinstance(a, Reserve)] == want


def test_a_share_that_was_not_asked_for_is_not_blamed() -> None:
    given = round_("west")
    assert not [a for a in decide(given, at(3)) if isinstance(a, UpdatePlacementStatus) and "blocked" in a.status]
    (given_up,) = (a for a in decide(given, at(4)) if isinstance(a, UpdatePlacementStatus))
    assert [entry["cluster"] for entry in given_up.status["blocked"]] == ["west"]
    (waits,) = (a for a in decide(given, at(3)) if isinstance(a, UpdatePlacementStatus))
    assert RESERVED_LAST.text in waits.status["reason"]


@pytest.mark.parametrize(
    ("given", "seconds", "withdrawn"),
    [
        pytest.param(round_("west", admitted=["west"]), 31, True,
            id="a share that preempts is not asked for without time left"),
        pytest.param(round_("west", "east", admitted=["west"]), 59, False,
            id="a share that preempts has the full timeout once it is asked for"),
        pytest.param(round_("west", "east", admitted=["west"]), 60, True,
            id="a share that preempts has no more than the timeout"),
    ],
)  # fmt: skip
def test_a_share_that_preempts_is_not_asked_for_at_the_last_moment(
    given: Gang, seconds: float, withdrawn: bool
) -> None:
    """After a pause of the controller, or with slow clusters: a round that is about to be withdrawn must cost no
    pod."""
    actions = decide(given, at(seconds))
    assert not [a for a in actions if isinstance(a, Reserve)]
    assert any("withdrawnRound" in a.status for a in actions if isinstance(a, UpdatePlacementStatus)) is withdrawn
