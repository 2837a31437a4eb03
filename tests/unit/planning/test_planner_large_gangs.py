"""Has one cluster no more workers of a gang than its share there, which is one object, can hold?"""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, zone or name)


def group(name: str, count: int, zone: str = "") -> GroupRequest:
    return GroupRequest(name, f"role-{name}", count, {}, {"cpu": 1000, "pods": 1}, zone)


TWO = cluster("e"), cluster("w")


@pytest.mark.parametrize(
    ("groups", "fleet", "want"),
    [
        pytest.param([group("a", 4000)], TWO, {"e": {"a": 4000}}, id="as many as there may be"),
        pytest.param([group("a", 4001)], TWO, {"e": {"a": 4000}, "w": {"a": 1}}, id="one more"),
        pytest.param([group("a", 1), group("b", 5000)], TWO, {"e": {"a": 1, "b": 3999}, "w": {"b": 1001}},
                     id="one learner and many who play"),
        pytest.param([group("a", 4001), group("b", 3999)], TWO, {"e": {"a": 4000}, "w": {"a": 1, "b": 3999}},
                     id="just as many as two clusters may have"),
        pytest.param([group("a", 3500, "e"), group("b", 3500, "w")], TWO, {"e": {"a": 3500}, "w": {"b": 3500}},
                     id="a group for each zone"),
        pytest.param([group("a", 6000)], [cluster("e", 500), cluster("n"), cluster("w")],
                     {"e": {"a": 500}, "n": {"a": 4000}, "w": {"a": 1500}}, id="where there is less room, less"),
    ],
)  # fmt: skip
def test_the_rest_goes_elsewhere(
    groups: Sequence[GroupRequest], fleet: Sequence[Candidate], want: Mapping[str, Mapping[str, int]]
) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, tuple(groups)), fleet)
    assert {share.cluster: {g.name: g.count for g in share.groups} for share in made.shares} == want


def test_the_cluster_with_the_most_room_is_still_the_first_choice() -> None:
    asked = GangRequest(NAMESPACE, QUEUE, (group("a", 5000),), strategy="AvailableCapacity")
    made = plan(asked, [cluster("e", 4000), cluster("w", 50_000)])
    assert made.sentence == "1000 of 5000 workers to e, 4000 to w."


ZONED = group("a", 3000, "e"), group("b", 3500), group("c", 500, "e")


@pytest.mark.parametrize("strategy", ["FillInOrder", "Spread", "AvailableCapacity"])
def test_who_may_go_anywhere_leaves_a_zone_to_those_who_may_not(strategy: Strategy) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, ZONED, strategy=strategy), TWO)
    assert sum(share.workers for share in made.shares) == 7000, made.sentence


@given(st.lists(st.integers(1, 6000), min_size=1, max_size=4), st.integers(1, 5))
def test_whatever_fits_by_number_is_placed_and_no_share_is_too_large(counts: list[int], clusters: int) -> None:
    """Where there is room for all, the bound alone decides."""
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
            f"9000 workers needed at once, 8000 fit now: e has room for 4000 ({BOUND}); w has room for 4000 ({BOUND}). "
            "Even empty clusters hold only 8000: raise a quota, add a worker cluster, or ask for fewer workers.",
        ),
        (
            "SameCluster",
            TWO[:1],
            f"9000 workers needed at once in one cluster, 4000 fit now: e has room for 4000 ({BOUND}). "
            "Even to an empty cluster a plan sends no more than 4000: ask for so many, or by a policy that divides the gang.",
        ),
        (
            "SameCluster",
            [cluster("e", 500)],
            "9000 workers needed at once in one cluster, 500 fit now: e has room for 500 (cpu in flavor any: 500 free of 500, one worker needs 1). "
            "Even the largest cluster, empty, holds only 500: raise a quota, add a worker cluster, or ask for fewer workers.",
        ),
        (
            "AllOrNothing",
            [cluster("e", 4000)],
            "9000 workers needed at once, 4000 fit now: e has room for 4000 (cpu in flavor any: 4k free of 4k, one worker needs 1). "
            "Even empty clusters hold only 4000: raise a quota, add a worker cluster, or ask for fewer workers.",
        ),
    ],
    ids=["divided", "together", "together, and a quota is short", "a quota that is just as large is what is short"],
)
def test_what_fits_nowhere_is_told(gang: GangMode, fleet: Sequence[Candidate], sentence: str) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, (group("a", 9000),), mode=gang), fleet)
    assert made.never_fits and not made.shares
    assert made.sentence == sentence


def test_who_may_start_with_a_part_gets_the_rest_later() -> None:
    made = plan(
        GangRequest(NAMESPACE, QUEUE, (group("a", 1), group("b", 5000)), mode="BestEffort", min_workers=1), TWO[:1]
    )
    assert made.sentence == "4000 of 5001 workers to e; 1001 stay pending for now."
    assert [(g.name, g.count) for g in made.shares[0].groups] == [("a", 1), ("b", 3999)]


def test_want_of_room_is_called_so() -> None:
    made = plan(
        GangRequest(NAMESPACE, QUEUE, (group("a", 5000),), mode="BestEffort", min_workers=1), [cluster("e", 500)]
    )
    assert made.sentence == "500 of 5000 workers to e; 4500 stay pending for want of room."


def test_what_is_free_goes_before_what_is_taken_back() -> None:
    offer = Offer(nominal=2, total=9, potential=20, on_nodes=9, reclaimed=4)
    assert offer.at_most(7) == Offer(2, 7, 7, 7, reclaimed=2)
    assert offer.at_most(3) == Offer(2, 3, 3, 3, reclaimed=0)
    assert offer.at_most(20) == offer
