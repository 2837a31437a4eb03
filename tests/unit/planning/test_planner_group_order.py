"""Kueue admits the groups of a share by role, each in one flavor, in the quota that earlier groups left.

A plan that divides a gang in another order may promise a cluster what its Kueue does not admit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.placement import GroupShare, Share
from adapter.objects.unstructured import Raw
from adapter.planning.offers import Offers
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.planner import GangPlan, charge_shares, plan, plan_with_preemption
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor
from tests.unit.quota.rooms import admits, charge

FLAVORS = ("first", "second", "third")


def cluster(name: str, *cores: int) -> Candidate:
    """A cluster whose queue has so many cores in each of its flavors."""
    rows: list[Raw] = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(amount)}]}
        for flavor, amount in zip(FLAVORS, cores, strict=False)
    ]
    queue = make_cluster_queue(0, resourceGroups=[{"coveredResources": ["cpu"], "flavors": rows}])
    tree = build([queue], [], [make_flavor(row["name"]) for row in rows])
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}})


def group(name: str, count: int, cores: int, role: str) -> GroupRequest:
    return GroupRequest(name, role, count, {}, {"cpu": cores * 1000, "pods": 1})


def gang(*groups: GroupRequest, **policy: Any) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, groups, **policy)


def counts(made: GangPlan) -> dict[str, dict[str, int]]:
    return {share.cluster: {g.name: g.count for g in share.groups} for share in made.shares}


def large(role: str) -> GroupRequest:
    """It fits in the whole first flavor of `EAST` only."""
    return group("large", 1, 3, role)


def small(role: str) -> GroupRequest:
    """It fits in either flavor, and Kueue takes the first one that it may have."""
    return group("small", 2, 1, role)


THREE = (group("two", 2, 1, "b"), group("one", 1, 1, "c"), group("pair", 2, 1, "a"))
EAST = cluster("east", 3, 2)
BOTH = {"large": 1, "small": 2}
LARGE_FIRST, SMALL_FIRST = (large("a"), small("b")), (small("a"), large("b"))
WEST = cluster("west", 3)


@pytest.mark.parametrize(
    ("groups", "fleet", "want"),
    [
        pytest.param(LARGE_FIRST, [EAST], {"east": BOTH}, id="the gang fits in the user's order"),
        pytest.param(LARGE_FIRST[::-1], [EAST], {"east": BOTH}, id="the gang does not fit in the user's order"),
        pytest.param(
            SMALL_FIRST,
            [EAST, WEST],
            {"east": {"small": 2}, "west": {"large": 1}},
            id="the gang fits only when divided",
        ),
        pytest.param(
            THREE,
            [cluster("east", 4, 1)],
            {"east": {"two": 2, "one": 1, "pair": 2}},
            id="the gang fits in neither order",
        ),
        pytest.param(
            SMALL_FIRST, [EAST], {"east": BOTH}, id="nothing is sure, because Kueue's second try takes the next flavor"
        ),
    ],
)
def test_a_share_is_what_kueue_admits_in_its_own_order(
    groups: Sequence[GroupRequest], fleet: Sequence[Candidate], want: Mapping[str, Mapping[str, int]]
) -> None:
    assert counts(plan(gang(*groups), fleet)) == want


@pytest.mark.parametrize("policy", [{"mode": "SameCluster"}, {"strategy": "AvailableCapacity"}], ids=str)
def test_a_cluster_that_holds_the_gang_only_in_kueues_order_holds_it(policy: Raw) -> None:
    made = plan(gang(*LARGE_FIRST[::-1], **policy), [cluster("north", 1), EAST])
    assert counts(made) == {"east": BOTH}


def test_a_spread_is_not_given_up_for_a_sure_share() -> None:
    made = plan(gang(*SMALL_FIRST, strategy="Spread"), [EAST, cluster("west", 3, 2)])
    assert counts(made) == {"east": {"large": 1, "small": 1}, "west": {"small": 1}}


def test_a_share_lists_its_groups_in_the_users_order() -> None:
    (share,) = plan(gang(*LARGE_FIRST[::-1]), [EAST]).shares
    assert [part.name for part in share.groups] == ["small", "large"]


def test_a_share_that_fits_in_kueues_order_preempts_nothing() -> None:
    (share,) = plan_with_preemption(gang(*LARGE_FIRST[::-1]), [EAST], [EAST]).shares
    assert not share.preempts


def test_a_gang_that_an_empty_cluster_holds_only_in_kueues_order_may_wait_for_it() -> None:
    other = gang(group("other", 1, 1, "a"))
    busy = charge_shares(other, [EAST], [Share("east", (GroupShare("other", "a", 1),))])
    made = plan(gang(*LARGE_FIRST[::-1], mode="SameCluster"), busy)
    assert (made.shares, made.never_fits) == ((), False), made.sentence


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param(LARGE_FIRST[::-1], id="groups are charged by role"),
        pytest.param(
            SMALL_FIRST[::-1],
            id=("groups are charged in the user's order where they would not fit by role: Kueue finds another flavor"),
        ),
    ],
)
def test_the_quota_of_a_share_is_charged(groups: Sequence[GroupRequest]) -> None:
    request = gang(*groups)
    share = Share("east", tuple(GroupShare(g.name, g.role, g.count) for g in groups))
    (one,) = charge_shares(request, [EAST], [share])
    probe = gang(group("probe", 1, 1, "a"))
    offers = Offers(probe)
    assert offers.offer_for(one, offers.quota_path(one), probe.groups[0]).total == 0


# --- properties ------------------------------------------------------------------------------------------------------

GROUPS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=2, max_size=4)
ROOMS = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=3)


def walked(request: GangRequest, one: Candidate, share: Share) -> bool:
    """Kueue's first try, computed from the arithmetic of one podset only."""
    tree, groups = one.quota_tree, {group.name: group for group in request.groups}
    for part in sorted(share.groups, key=lambda part: part.role):
        asked = groups[part.name].request
        room = admits(tree, "team-a", asked, {}, wanted=part.count)
        if room.nominal + room.borrow < part.count:
            return False
        tree = charge(tree, "team-a", room.flavors, asked, part.count)
    return True


def drawn(shapes: Sequence[tuple[int, int]], roles: Sequence[int]) -> list[GroupRequest]:
    return [group(f"g{at}", count, cores, str(roles[at])) for at, (count, cores) in enumerate(shapes)]


@given(GROUPS, ROOMS, st.permutations(range(4)))
def test_kueue_admits_what_the_planner_takes_for_sure(
    shapes: list[tuple[int, int]], rooms: list[list[int]], roles: list[int]
) -> None:
    request = gang(*drawn(shapes, roles))
    for at, cores in enumerate(rooms):
        one = cluster(f"c{at}", *cores)
        share = Share(one.name, tuple(GroupShare(g.name, g.role, g.count) for g in request.groups))
        offers = Offers(request)
        admitted = offers.admits_share(one, offers.quota_path(one), {g.name: g.count for g in request.groups})
        assert admitted is walked(request, one, share)


@given(GROUPS, ROOMS, st.permutations(range(4)))
def test_a_same_cluster_gang_waits_nowhere_where_kueue_admits_it(
    shapes: list[tuple[int, int]], rooms: list[list[int]], roles: list[int]
) -> None:
    """Whatever order the user wrote the groups in."""
    request = gang(*drawn(shapes, roles), mode="SameCluster")
    fleet = [cluster(f"c{at}", *cores) for at, cores in enumerate(rooms)]
    whole = tuple(GroupShare(g.name, g.role, g.count) for g in request.groups)
    if any(walked(request, candidate, Share(candidate.name, whole)) for candidate in fleet):
        assert [share.groups for share in plan(request, fleet).shares] == [whole]
