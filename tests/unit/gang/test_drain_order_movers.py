"""Whose turn it is to leave a worker cluster that is drained: workers go one after the other, and only where there is a place."""

from dataclasses import replace

import pytest

from adapter.gang.drain_order import GangWorkers, pods_to_move
from adapter.objects import unstructured as facts
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import parse_workload
from tests.unit.builders import make_condition, make_copy, make_placement, make_pod, make_workload, of_service

PLACE = parse_placement(make_placement(make_workload()))
ALL = frozenset({ShareKey("east", 1), ShareKey("west", 1)})


def pod(name: str, slot: str, *, ready: bool = True, group: str = "workers", deleting: bool = False) -> Raw:
    made = make_pod(name, placement=PLACE.name, slot=slot, dispatched=True, group=group, deleting=deleting)
    made["status"]["conditions"].append(make_condition("Ready", ready))
    return made


def gathered(*pods: Raw) -> GangWorkers:
    """These workers, each with its copy, are all that the RayCluster is to have."""
    copies = {facts.key_of(one): make_copy(one) for one in pods if slot_of(one)}
    return GangWorkers(PLACE, pods, copies, {slot for one in pods if (slot := slot_of(one))}, ALL, len(pods))


def leave(gang: GangWorkers, at_once: int = 1) -> list[str]:
    """Who leaves east, by name."""
    found = pods_to_move(gang, {"east": at_once})
    assert {cluster for cluster, _ in found} <= {"east"}
    return sorted(facts.key_of(copy)[1] for _, copy in found)


E0, E1 = pod("a", "east/1/role-workers/0"), pod("b", "east/1/role-workers/1")
W0, W1 = pod("c", "west/1/role-workers/0"), pod("d", "west/1/role-workers/1")
UNREADY = pod("b", "east/1/role-workers/1", ready=False)


@pytest.mark.parametrize(
    ("pods", "at_once", "who"),
    [
        pytest.param((E0, E1, W0), 1, ["a"], id="one after the other, by name"),
        pytest.param((W0, E1, E0), 1, ["a"], id="in whichever order they are found"),
        pytest.param((E0, E1, W0), 2, ["a"], id="no more than there are places"),
        pytest.param((E0, E1), 2, ["a", "b"], id="as many as may be away"),
        pytest.param((E0, E1, W0, W1), 1, [], id="nobody who has no place to go to"),
        pytest.param((E0, E1, pod("c", "west/1/role-workers/0", ready=False)), 1, [], id="not while one is away"),
        pytest.param((E0, pod("c", "west/1/role-workers/0", deleting=True)), 1, [], id="nor while one is deleted"),
        pytest.param((W0,), 1, [], id="nobody of another cluster"),
        pytest.param((E0, pod("x", "")), 1, [], id="who has no slot is away, too"),
        # It may never be ready where it is; and it is away already.
        pytest.param((E0, UNREADY), 1, ["b"], id="who is not ready leaves first"),
        pytest.param((E0, UNREADY, W0), 2, ["b"], id="and takes the only place"),
        pytest.param((E0, UNREADY), 2, ["a", "b"], id="and costs nobody a turn"),
        # It may wait for a replica for ever: it stalls no drain, and has its turn like the others.
        pytest.param(
            (E0, E1, of_service(pod("c", "west/1/role-workers/0", ready=False))),
            1,
            ["a"],
            id="one without a replica is in place",
        ),
        pytest.param((E0, of_service(UNREADY)), 1, ["a"], id="and leaves when its turn comes"),
        pytest.param((), 1, [], id="nobody is there"),
    ],
)
def test_whose_turn_it_is_to_leave(pods: tuple[Raw, ...], at_once: int, who: list[str]) -> None:
    assert leave(gathered(*pods), at_once) == who


def test_nobody_leaves_while_another_one_is_on_its_way() -> None:
    gang = gathered(E0, E1, W0)
    going = {facts.key_of(E0): make_copy(E0, deleting=True)}
    assert leave(replace(gang, remote_pods={**gang.remote_pods, **going})) == []


def test_nobody_leaves_while_a_copy_is_gone_and_its_pod_does_not_say_so_yet() -> None:
    gang = gathered(E0, E1, W0)
    assert (
        leave(replace(gang, remote_pods={key: one for key, one in gang.remote_pods.items() if key != facts.key_of(E0)}))
        == []
    )


@pytest.mark.parametrize(
    ("desired", "who"),
    [
        pytest.param(3, [], id="KubeRay has deleted a pod, and has yet to make the next one"),
        pytest.param(2, ["a"], id="it has made all"),
        pytest.param(0, ["a"], id="it is suspended: more are there than it is to have"),
        pytest.param(9, ["a"], id="it is to have more than the Placement wants"),
    ],
)
def test_those_that_kuberay_has_yet_to_make_are_away(desired: int, who: list[str]) -> None:
    place = replace(PLACE, wanted_workers=2) if desired == 9 else PLACE
    assert leave(replace(gathered(E0, E1), placement=place, desired_workers=desired)) == who


def test_nobody_moves_to_a_share_without_quota() -> None:
    assert leave(replace(gathered(E0, E1), admitted_shares={ShareKey("east", 1)})) == []


def test_nobody_moves_to_another_cluster_that_is_drained() -> None:
    assert pods_to_move(gathered(E0, E1), {"east": 1, "west": 1}) == ()


def test_a_group_without_a_place_holds_up_no_other() -> None:
    """West has one for group b only: a worker of b leaves, though those of a come first by name."""
    work = make_workload(groups={"a": 1, "b": 1})
    place = parse_placement(make_placement(work, shares={"east": {"a": 1, "b": 1}, "west": {"b": 1}}))
    pods = [pod("one", "east/1/role-a/0", group="a"), pod("two", "east/1/role-b/0", group="b")]
    assert leave(replace(gathered(*pods), placement=place)) == ["two"]


@pytest.mark.parametrize(("elastic", "who"), [(True, ["a"]), (False, [])])
def test_who_waits_for_more_workers_holds_up_no_drain(elastic: bool, who: list[str]) -> None:
    """An elastic job may wait for hours for a worker of a group that has no room; that one is away from nowhere."""
    place = replace(PLACE, job=parse_workload(make_workload()).job) if elastic else PLACE
    gang = replace(gathered(E0, pod("x", "", group="gpu")), placement=place)
    assert leave(gang) == who
