"""When workers in a cluster out of sight count as lost, and whose turn it is to leave one that is drained."""

from datetime import timedelta
from typing import Any

import pytest

from adapter import names
from adapter.objects import raw as facts
from adapter.objects import specs
from adapter.objects.placement import placement
from adapter.objects.specs import dispatch_policy
from adapter.objects.workerpod import share_key
from adapter.shell.clusters.remote import FIRST_LISTS
from adapter.shell.kube.client import Unreachable
from adapter.shell.observe.losses import Losses, _newest
from adapter.shell.observe.slots import Claims, Slots
from tests.unit.builders import (
    NAMESPACE,
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
from tests.unit.stores import Sight, fill

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
    sight.members["east"]._note("probe", Unreachable("no answer"))
    return sight


def losses(sight: Sight, **nodes: bool) -> Losses:
    """The head of the pods' RayCluster was asked, and hears from these nodes."""
    found = Losses(sight.home, sight.fleet)
    found._alive[NAMESPACE, "train-abc"] = nodes, 0.0
    return found


def test_a_cluster_counts_as_lost_from_the_first_loss_on() -> None:
    found = losses(lost_east(0))
    assert found.given_up(["east", "west"], MINUTE, at(59)) == {}
    late = found.given_up(["east", "west"], MINUTE, at(60))
    assert late.keys() == {"east"} and "cannot be seen since" in late["east"]
    silence = found.silence("east", make_pod(), MINUTE)
    assert silence and (silence.since, silence.until, silence.alive) == (at(0), at(60), None)
    assert found.silence("west", make_pod(), MINUTE) is None


def test_nobody_is_given_up_before_ray_was_asked() -> None:
    """A controller that has just started knows nothing of what an earlier one heard."""
    found = Losses(*(lambda sight: (sight.home, sight.fleet))(lost_east(0)))
    silence = found.silence("east", make_pod(), MINUTE)
    assert silence and (silence.since, silence.until) == (at(0), None)


def test_nobody_is_given_up_while_a_cluster_is_read_for_the_first_time() -> None:
    """It may have come back while nobody looked."""
    sight = lost_east(0)
    sight.members["east"]._note("probe", Unreachable(FIRST_LISTS))
    assert losses(sight).given_up(["east"], MINUTE, at(9999)) == {}


def test_an_answer_outlives_a_question_that_fails() -> None:
    known = {"10.0.0.1": True}
    assert _newest(None, (known, 5.0), 60.0) == (known, 5.0)
    assert _newest(None, (known, 5.0), 66.0) == ({}, 0.0)
    assert _newest({}, (known, 5.0), 6.0) == ({}, 6.0)
    assert _newest(None, None, 6.0) == ({}, 0.0)


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
    east.spec = specs.worker_cluster(make_worker_cluster("east", draining=True, maxUnavailable=at_once))
    replicas = {"spec": {"workerGroupSpecs": [{"groupName": "workers", "replicas": len(pods)}]}}
    fill(sight.home.ray_clusters, {**make_ray_cluster(), **replicas})
    fill(sight.home.pods, *pods)
    names_of = {facts.key_of(copy) for copy in copies}
    there = [one for one in pods if share_key(facts.annotation(one, names.SLOT_ANNOTATION))[0] == "east"]
    fill(east.pods, *copies, *(copied(one) for one in there if facts.key_of(one) not in names_of))
    fill(sight.members["west"].pods, *(copied(one) for one in pods if one not in there))
    return Slots(sight.home, sight.fleet, Claims())


def copied(one: Raw) -> Raw:
    copy = make_copy(one)
    copy["metadata"]["labels"][names.PLACEMENT_LABEL] = NAME
    return copy


def leave(slots: Slots, admitted: frozenset[tuple[str, int]] = ALL) -> list[str]:
    return sorted(facts.key_of(copy)[1] for _, copy in slots.movers(placement(PLACE), admitted))


def pod(name: str, slot: str, *, ready: bool = True, group: str = "workers") -> Raw:
    made = make_pod(name, placement=NAME, slot=slot, dispatched=True, group=group)
    made["metadata"]["labels"][names.CLUSTER_LABEL] = slot.split("/")[0]
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
    assert leave(slots) == who


def test_nobody_leaves_while_another_one_is_on_its_way() -> None:
    copy = make_copy(E0, deleting=True)
    copy["metadata"]["labels"][names.PLACEMENT_LABEL] = NAME
    assert leave(drained(E0, E1, W0, copies=(copy,))) == []


def test_nobody_leaves_while_a_copy_is_gone_and_its_pod_does_not_say_so_yet() -> None:
    slots = drained(E0, E1, W0)
    fill(slots._fleet.members()["east"].pods, copied(E1))
    assert leave(slots) == []


def test_nobody_leaves_before_the_last_one_was_made_anew() -> None:
    """KubeRay has deleted the pod, and has yet to make the next one."""
    slots = drained(E0, E1, W0)
    fill(slots._home.pods, E0, E1)
    assert leave(slots) == []


def test_nobody_moves_to_a_share_without_quota() -> None:
    assert leave(drained(E0, E1), frozenset({("east", 1)})) == []


def test_a_group_without_a_place_holds_up_no_other() -> None:
    """West has one for group b only: a worker of b leaves, though those of a come first by name."""
    place = make_placement(make_workload(groups={"a": 1, "b": 1}), shares={"east": {"a": 1, "b": 1}, "west": {"b": 1}})
    place["metadata"]["name"] = NAME
    pods = [pod("one", "east/1/role-a/0", group="a"), pod("two", "east/1/role-b/0", group="b")]
    slots = drained(*pods)
    assert [facts.key_of(copy)[1] for _, copy in slots.movers(placement(place), ALL)] == ["two"]


def test_who_is_not_ready_leaves_first_and_costs_nobody_a_turn() -> None:
    """It may never be ready where it is; and it is away already."""
    assert leave(drained(E0, pod("b", "east/1/role-workers/1", ready=False))) == ["b"]
    assert leave(drained(E0, pod("b", "east/1/role-workers/1", ready=False), at_once=2)) == ["a", "b"]


def test_a_suspended_or_raised_group_is_reckoned_as_kuberay_does() -> None:
    slots = drained(E0, E1)
    for group, who in (({"minReplicas": 4}, []), ({"replicas": 2, "suspend": True}, ["a"]), ({"replicas": 2}, ["a"])):
        raw = {**make_ray_cluster(), "spec": {"workerGroupSpecs": [{"groupName": "Workers", **group}]}}
        fill(slots._home.ray_clusters, raw)
        assert leave(slots) == who, group


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


@pytest.mark.parametrize(
    ("spec", "restarts"), [({}, False), ({"gang": "SameCluster"}, True), ({"onShareLost": "Restart"}, True)]
)
def test_a_worker_knows_whether_its_gang_starts_again(spec: Raw, restarts: bool) -> None:
    sight = Sight({"east": 8}, **spec)
    work = make_workload(check=names.CHECK_READY)
    pod = make_pod(placement=NAME, slot="east/1/role-workers/0")
    fill(sight.home.workloads, work)
    fill(sight.home.placements, PLACE)
    fill(sight.home.pods, pod)
    assert sight.observer.workers.facts(facts.key_of(pod), sight.memory).restarts is restarts
