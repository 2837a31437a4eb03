"""A cluster gets no more workers of a gang than its share, which is one object, can hold."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.location import Location
from adapter.planning.plan_request import (
    MAX_WORKERS_PER_CLUSTER,
    Candidate,
    GangMode,
    GangRequest,
    GroupRequest,
    Offer,
    Strategy,
)
from adapter.planning.planner import plan
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor

AMPLE = 100_000
BOUND = f"a plan sends at most {MAX_WORKERS_PER_CLUSTER} workers to one cluster"


def cluster(name: str, cores: int = AMPLE, zone: str = "") -> Candidate:
    tree = build([make_cluster_queue(cores)], [], [make_flavor()])
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, Location(zone or name))


def group(name: str, count: int, zone: str = "") -> GroupRequest:
    return GroupRequest(name, f"role-{name}", count, {}, {"cpu": 1000, "pods": 1}, Location(zone))


TWO = cluster("e"), cluster("w")


@pytest.mark.parametrize(
    ("groups", "fleet", "want"),
    [
        pytest.param([group("a", 4000)], TWO, {"e": {"a": 4000}}, id="as many workers as a share may have"),
        pytest.param([group("a", 4001)], TWO, {"e": {"a": 4000}, "w": {"a": 1}},
            id="one worker more than a share may have"),
        pytest.param([group("a", 1), group("b", 5000)], TWO, {"e": {"a": 1, "b": 3999}, "w": {"b": 1001}},
                     id="one learner and many actors"),
        pytest.param([group("a", 4001), group("b", 3999)], TWO, {"e": {"a": 4000}, "w": {"a": 1, "b": 3999}},
                     id="as many workers as two shares may have"),
        pytest.param([group("a", 3500, "e"), group("b", 3500, "w")], TWO, {"e": {"a": 3500}, "w": {"b": 3500}},
                     id="a group for each zone"),
        pytest.param([group("a", 6000)], [cluster("e", 500), cluster("n"), cluster("w")],
                     {"e": {"a": 500}, "n": {"a": 4000}, "w": {"a": 1500}},
                     id="a cluster with less capacity gets fewer workers"),
    ],
)  # fmt: skip
def test_workers_beyond_a_share_go_to_another_cluster(
    groups: Sequence[GroupRequest], fleet: Sequence[Candidate], want: Mapping[str, Mapping[str, int]]
) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, tuple(groups)), fleet)
    assert {share.cluster: {g.name: g.count for g in share.groups} for share in made.shares} == want


def test_the_cluster_with_the_most_capacity_is_still_chosen_first() -> None:
    asked = GangRequest(NAMESPACE, QUEUE, (group("a", 5000),), strategy="AvailableCapacity")
    made = plan(asked, [cluster("e", 4000), cluster("w", 50_000)])
    assert made.sentence == "1000 of 5000 workers to e, 4000 to w."


ZONED = group("a", 3000, "e"), group("b", 3500), group("c", 500, "e")


@pytest.mark.parametrize("strategy", ["FillInOrder", "Spread", "AvailableCapacity"])
def test_groups_without_a_zone_leave_a_zone_to_groups_that_need_it(strategy: Strategy) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, ZONED, strategy=strategy), TWO)
    assert sum(share.workers for share in made.shares) == 7000, made.sentence


@given(st.lists(st.integers(1, 6000), min_size=1, max_size=4), st.integers(1, 5))
def test_a_gang_that_fits_by_number_is_placed_in_shares_of_legal_size(counts: list[int], clusters: int) -> None:
    """Where all clusters have capacity, only the size of a share is a limit."""
    groups = tuple(group(f"g{number}", count) for number, count in enumerate(counts))
    made = plan(GangRequest(NAMESPACE, QUEUE, groups), [cluster(f"c{number}") for number in range(clusters)])
    fits = sum(counts) <= clusters * MAX_WORKERS_PER_CLUSTER
    assert sum(share.workers for share in made.shares) == (sum(counts) if fits else 0)
    assert made.never_fits is not fits
    assert all(share.workers <= MAX_WORKERS_PER_CLUSTER for share in made.shares)


@pytest.mark.parametrize(
    ("gang", "fleet", "sentence"),
    [
        (
            "AllOrNothing",
            TWO,
            f"9000 workers needed at once, 8000 fit now: e has capacity for 4000 ({BOUND}); w has capacity for 4000 "
            f"({BOUND}). Even empty clusters hold only 8000: raise a quota, add a worker cluster, or request fewer "
            "workers.",
        ),
        (
            "SameCluster",
            TWO[:1],
            f"9000 workers needed at once in one cluster, 4000 fit now: e has capacity for 4000 ({BOUND}). A plan "
            "sends at most 4000 workers to one cluster: request no more than that, or use a policy that divides the "
            "gang.",
        ),
        (
            "SameCluster",
            [cluster("e", 500)],
            "9000 workers needed at once in one cluster, 500 fit now: e has capacity for 500 (cpu in flavor any: 500 "
            "free of 500, one worker needs 1). Even the largest cluster, when empty, holds only 500: raise a quota, "
            "add a worker cluster, or request fewer workers.",
        ),
        (
            "AllOrNothing",
            [cluster("e", 4000)],
            "9000 workers needed at once, 4000 fit now: e has capacity for 4000 (cpu in flavor any: 4k free of 4k, "
            "one worker needs 1). Even empty clusters hold only 4000: raise a quota, add a worker cluster, or request "
            "fewer workers.",
        ),
    ],
    ids=[
        "the gang is divided",
        "the gang is together",
        "the gang is together, and a quota is short",
        "the gang is together, and a quota of just that size is short",
    ],
)
def test_a_gang_too_large_for_all_shares_is_reported(gang: GangMode, fleet: Sequence[Candidate], sentence: str) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, (group("a", 9000),), mode=gang), fleet)
    assert made.never_fits and not made.shares
    assert made.sentence == sentence


def test_a_best_effort_gang_gets_the_rest_later() -> None:
    made = plan(
        GangRequest(NAMESPACE, QUEUE, (group("a", 1), group("b", 5000)), mode="BestEffort", min_workers=1), TWO[:1]
    )
    assert made.sentence == "4000 of 5001 workers to e; 1001 stay pending for now."
    assert [(g.name, g.count) for g in made.shares[0].groups] == [("a", 1), ("b", 3999)]


def test_missing_capacity_is_reported_as_such() -> None:
    made = plan(
        GangRequest(NAMESPACE, QUEUE, (group("a", 5000),), mode="BestEffort", min_workers=1), [cluster("e", 500)]
    )
    assert made.sentence == "500 of 5000 workers to e; 4500 stay pending for lack of capacity."


def test_free_capacity_is_taken_before_borrowed_capacity_is_reclaimed() -> None:
    offer = Offer(nominal=2, total=9, potential=20, on_nodes=9, reclaimed=4)
    assert offer.at_most(7) == Offer(2, 7, 7, 7, reclaimed=2)
    assert offer.at_most(3) == Offer(2, 3, 3, 3, reclaimed=0)
    assert offer.at_most(20) == offer
