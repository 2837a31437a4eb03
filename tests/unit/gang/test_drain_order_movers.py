"""The order in which workers leave a drained worker cluster: only as many as there are free slots elsewhere."""

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
    """All workers that the RayCluster wants, each with its remote pod."""
    copies = {facts.key_of(pod): make_copy(pod) for pod in pods if slot_of(pod)}
    return GangWorkers(PLACE, pods, copies, {slot for pod in pods if (slot := slot_of(pod))}, ALL, len(pods))


def leave(gang: GangWorkers, at_once: int = 1) -> list[str]:
    """Names of the pods that leave east."""
    found = pods_to_move(gang, {"east": at_once})
    assert {cluster for cluster, _ in found} <= {"east"}
    return sorted(facts.key_of(copy)[1] for _, copy in found)


E0, E1 = pod("a", "east/1/role-workers/0"), pod("b", "east/1/role-workers/1")
W0, W1 = pod("c", "west/1/role-workers/0"), pod("d", "west/1/role-workers/1")
UNREADY = pod("b", "east/1/role-workers/1", ready=False)


@pytest.mark.parametrize(
    ("pods", "at_once", "who"),
    [
        pytest.param((E0, E1, W0), 1, ["a"], id="the first by name leaves"),
        pytest.param((W0, E1, E0), 1, ["a"], id="the order of observation does not matter"),
        pytest.param((E0, E1, W0), 2, ["a"], id="no more leave than there are free slots"),
        pytest.param((E0, E1), 2, ["a", "b"], id="as many leave as maxUnavailable allows"),
        pytest.param((E0, E1, W0, W1), 1, [], id="without a free slot elsewhere none leaves"),
        pytest.param(
            (E0, E1, pod("c", "west/1/role-workers/0", ready=False)),
            1,
            [],
            id="none leaves while another worker is not ready",
        ),
        pytest.param(
            (E0, pod("c", "west/1/role-workers/0", deleting=True)),
            1,
            [],
            id="none leaves while another worker is deleted",
        ),
        pytest.param((W0,), 1, [], id="workers of other clusters stay"),
        pytest.param((E0, pod("x", "")), 1, [], id="a worker without a slot counts as unavailable"),
        # A worker that is not ready may never be ready there, and is unavailable already.
        pytest.param((E0, UNREADY), 1, ["b"], id="a worker that is not ready leaves first"),
        pytest.param((E0, UNREADY, W0), 2, ["b"], id="a worker that is not ready takes the only free slot"),
        pytest.param(
            (E0, UNREADY), 2, ["a", "b"], id="a worker that is not ready does not count against maxUnavailable"
        ),
        # A Serve worker without a replica may wait for one for ever: it does not stall the drain, and leaves in order.
        pytest.param(
            (E0, E1, of_service(pod("c", "west/1/role-workers/0", ready=False))),
            1,
            ["a"],
            id="a Serve worker without a replica counts as available",
        ),
        pytest.param((E0, of_service(UNREADY)), 1, ["a"], id="a Serve worker without a replica leaves in order"),
        pytest.param((), 1, [], id="no workers"),
    ],
)
def test_which_workers_leave(pods: tuple[Raw, ...], at_once: int, who: list[str]) -> None:
    assert leave(gathered(*pods), at_once) == who


def test_no_worker_leaves_while_another_remote_pod_is_deleted() -> None:
    gang = gathered(E0, E1, W0)
    going = {facts.key_of(E0): make_copy(E0, deleting=True)}
    assert leave(replace(gang, remote_pods={**gang.remote_pods, **going})) == []


def test_no_worker_leaves_while_a_remote_pod_is_gone_and_its_manager_pod_is_not_updated() -> None:
    gang = gathered(E0, E1, W0)
    assert (
        leave(
            replace(
                gang, remote_pods={key: remote for key, remote in gang.remote_pods.items() if key != facts.key_of(E0)}
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("desired", "who"),
    [
        pytest.param(3, [], id="none leaves while KubeRay has a pod to replace"),
        pytest.param(2, ["a"], id="one leaves when KubeRay has created all pods"),
        pytest.param(0, ["a"], id="one leaves a suspended job, which has more pods than it wants"),
        pytest.param(9, ["a"], id="one leaves a job that wants more workers than its Placement"),
    ],
)
def test_pods_that_kuberay_has_not_made_yet_count_as_unavailable(desired: int, who: list[str]) -> None:
    place = replace(PLACE, wanted_workers=2) if desired == 9 else PLACE
    assert leave(replace(gathered(E0, E1), placement=place, desired_workers=desired)) == who


def test_no_worker_moves_to_a_share_without_quota() -> None:
    assert leave(replace(gathered(E0, E1), admitted_shares={ShareKey("east", 1)})) == []


def test_no_worker_moves_to_another_drained_cluster() -> None:
    assert pods_to_move(gathered(E0, E1), {"east": 1, "west": 1}) == ()


def test_a_group_without_a_free_slot_does_not_block_another_group() -> None:
    """West has a slot for group b only: a worker of b leaves, though the workers of a come first by name."""
    work = make_workload(groups={"a": 1, "b": 1})
    place = parse_placement(make_placement(work, shares={"east": {"a": 1, "b": 1}, "west": {"b": 1}}))
    pods = [pod("one", "east/1/role-a/0", group="a"), pod("two", "east/1/role-b/0", group="b")]
    assert leave(replace(gathered(*pods), placement=place)) == ["two"]


@pytest.mark.parametrize(("elastic", "who"), [(True, ["a"]), (False, [])])
def test_an_unplaced_worker_of_an_elastic_job_does_not_block_a_drain(elastic: bool, who: list[str]) -> None:
    """It may wait for capacity for hours. It has left no cluster."""
    place = replace(PLACE, job=parse_workload(make_workload()).job) if elastic else PLACE
    gang = replace(gathered(E0, pod("x", "", group="gpu")), placement=place)
    assert leave(gang) == who
