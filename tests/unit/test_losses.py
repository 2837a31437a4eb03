"""When workers in a cluster out of sight count as lost, and whose turn it is to leave one that is drained."""

from datetime import timedelta
from typing import Any

import pytest

from adapter import api, facts, names
from adapter.api import dispatch_policy
from adapter.candidate import Group, Request, rest
from adapter.shell.claims import Claims
from adapter.shell.client import Unreachable
from adapter.shell.losses import Losses
from adapter.shell.slots import Slots
from tests.unit.builders import (
    at,
    make_condition,
    make_copy,
    make_placement,
    make_pod,
    make_policy,
    make_ray_cluster,
    make_worker_cluster,
    make_workload,
    stamp,
)
from tests.unit.sight import Sight, fill

Raw = dict[str, Any]
MINUTE = timedelta(minutes=1)
PLACE = make_placement(make_workload())
NAME = PLACE["metadata"]["name"]
ALL = frozenset({("east", 1), ("west", 1)})


def lost_east(since: float | None) -> Sight:
    """East is silent; its WorkerCluster says since when, if it was noted."""
    sight = Sight({"east": 8, "west": 8})
    raw = make_worker_cluster("east")
    raw["status"] |= {"lostSince": stamp(since)} if since is not None else {}
    fill(sight.home.worker_clusters, raw, make_worker_cluster("west"))
    sight.members["east"]._heard("probe", Unreachable("no answer"))
    return sight


def losses(sight: Sight) -> Losses:
    return Losses(sight.home, sight.fleet)


def test_a_cluster_counts_as_lost_from_the_first_loss_on() -> None:
    found = losses(lost_east(0))
    assert found.given_up(["east", "west"], MINUTE, at(59)) == {}
    late = found.given_up(["east", "west"], MINUTE, at(60))
    assert late.keys() == {"east"} and "cannot be seen since" in late["east"]
    silence = found.silence("east", make_pod(), MINUTE)
    assert silence and (silence.since, silence.until, silence.alive) == (at(0), at(60), None)
    assert found.silence("west", make_pod(), MINUTE) is None


def test_nobody_is_given_up_before_the_loss_is_noted() -> None:
    found = losses(lost_east(None))
    assert found.given_up(["east"], MINUTE, at(9999)) == {}
    silence = found.silence("east", make_pod(), MINUTE)
    assert silence and silence.until is None


def test_a_cluster_that_is_not_registered_any_more_is_lost_at_once() -> None:
    found = losses(lost_east(0))
    assert found.given_up(["north"], MINUTE, at(0)) == {"north": "the worker cluster is not registered any more"}


def drained(*pods: Raw, copies: tuple[Raw, ...] = (), at_once: int = 1) -> Slots:
    """East is drained; these pods are in the manager, these copies in east."""
    sight = Sight({"east": 8, "west": 8})
    east = sight.members["east"]
    east.spec = api.worker_cluster(make_worker_cluster("east", draining=True, maxUnavailable=at_once))
    replicas = {"spec": {"workerGroupSpecs": [{"replicas": len(pods)}]}}
    fill(sight.home.ray_clusters, {**make_ray_cluster(), **replicas})
    fill(sight.home.pods, *pods)
    fill(east.pods, *copies)
    return Slots(sight.home, sight.fleet, Claims())


def pod(name: str, slot: str, *, ready: bool = True) -> Raw:
    made = make_pod(name, placement=NAME, slot=slot, dispatched=True)
    made["status"]["conditions"].append(make_condition("Ready", ready))
    return made


E0, E1 = pod("a", "east/1/role-workers/0"), pod("b", "east/1/role-workers/1")
W0, W1 = pod("c", "west/1/role-workers/0"), pod("d", "west/1/role-workers/1")


@pytest.mark.parametrize(
    ("slots", "who"),
    [
        pytest.param(drained(E0, E1, W0), ["a"], id="one after the other, by name"),
        pytest.param(drained(E0, E1, W0, at_once=2), ["a"], id="no more than there are places"),
        pytest.param(drained(E0, E1, at_once=2), ["a", "b"], id="as many as may be away"),
        pytest.param(drained(E0, E1, W0, W1), [], id="nobody who has no place to go to"),
        pytest.param(drained(E0, E1, pod("c", "west/1/role-workers/0", ready=False)), [], id="not while one is away"),
        pytest.param(drained(W0), [], id="nobody of another cluster"),
    ],
)
def test_whose_turn_it_is_to_leave(slots: Slots, who: list[str]) -> None:
    place = facts.placement(PLACE)
    assert [facts.key_of(one)[1] for one in (E0, E1, W0, W1) if slots.moves(one, place, ALL)] == who


def test_nobody_leaves_while_another_one_is_on_its_way() -> None:
    copy = make_copy(E0, deleting=True)
    copy["metadata"]["labels"][names.PLACEMENT_LABEL] = NAME
    slots, place = drained(E0, E1, W0, copies=(copy,)), facts.placement(PLACE)
    assert not any(slots.moves(one, place, ALL) for one in (E0, E1))


def test_nobody_leaves_before_the_last_one_was_made_anew() -> None:
    """KubeRay has deleted the pod, and has yet to make the next one."""
    slots, place = drained(E0, E1, W0), facts.placement(PLACE)
    fill(slots._home.pods, E0, E1)
    assert not any(slots.moves(one, place, ALL) for one in (E0, E1))


def test_nobody_moves_to_a_share_without_quota() -> None:
    assert not drained(E0, E1).moves(E0, facts.placement(PLACE), frozenset({("east", 1)}))


def test_what_a_gang_asks_for_beside_what_it_keeps() -> None:
    groups = tuple(Group(name, f"role-{name}", count, {}, {}) for name, count in (("a", 6), ("b", 2)))
    kept = facts.Share("east", (facts.GroupShare("a", "role-a", 1), facts.GroupShare("b", "role-b", 2)))
    left = rest(Request("demo", "ray", groups), [kept])
    assert [(group.name, group.count) for group in left.groups] == [("a", 5)]
    assert (left.gang, left.needed) == ("BestEffort", 2), "a quarter at once, rounded up"
    assert rest(Request("demo", "ray", groups, gang="SameCluster"), [kept]).needed == 5
    assert rest(Request("demo", "ray", groups), [kept, kept, kept, kept, kept, kept]).workers == 0


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, "Replace"),
        ({"gang": "SameCluster"}, "Restart"),
        ({"gang": "BestEffort", "minWorkers": 1}, "Replace"),
        ({"gang": "SameCluster", "onShareLost": "Replace"}, "Replace"),
        ({"onShareLost": "Restart"}, "Restart"),
    ],
)
def test_what_a_policy_does_when_a_share_is_lost(spec: Raw, want: str) -> None:
    assert dispatch_policy(make_policy(**spec)).when_share_lost == want
