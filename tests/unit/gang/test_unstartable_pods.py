"""Which remote pods wait for a change of their cluster, and since when."""

from typing import Any

import pytest

from adapter import names
from adapter.gang.drain_order import GangWorkers
from adapter.gang.unstartable_pods import unstartable_pods
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of, uid_of
from adapter.objects.worker_pod import slot_of
from adapter.shell.observe.transient_state import TransientState
from tests.unit.builders import (
    START,
    at,
    make_condition,
    make_copy,
    make_placement,
    make_pod,
    make_reservation,
    make_workload,
)
from tests.unit.fact_builders import make_gang
from tests.unit.stores import Sight, fill, make_member

WORK = make_workload(check=names.CHECK_READY)
PLACED = make_placement(WORK, placedRound=1, state=PlacementState.PLACED)
PLACEMENT = parse_placement(PLACED)
POD = make_pod("a", placement=PLACEMENT.name, slot="east/1/role-workers/0", dispatched=True)
UID = uid_of(POD)
SCHEDULED = make_condition("PodScheduled")
NO_NODE = make_condition("PodScheduled", False, reason="Unschedulable", message="0/3 nodes are available.")
GATED = make_condition("PodScheduled", False, reason="SchedulingGated")


def remote(*conditions: Raw, annotations: Raw | None = None, **status: Any) -> Raw:
    pod = make_copy(POD, phase="Pending")
    pod["metadata"]["annotations"] = {**pod["metadata"]["annotations"], **(annotations or {})}
    pod["status"] |= {"conditions": list(conditions), **status}
    return pod


def waits(reason: str, field: str = "containerStatuses") -> Raw:
    status: dict[str, Any] = {field: [{"name": "ray", "state": {"waiting": {"reason": reason}}}]}
    return remote(SCHEDULED, **status)


@pytest.mark.parametrize(
    ("remote_pod", "clusters", "is_unstartable"),
    [
        pytest.param(remote(NO_NODE), {}, True, id="no node takes it, and its cluster cannot grow"),
        pytest.param(remote(NO_NODE), {"growing": frozenset({"east"})}, False, id="its cluster can grow"),
        pytest.param(remote(NO_NODE), {"growing": frozenset({"west"})}, True, id="another cluster can grow"),
        pytest.param(remote(NO_NODE, annotations={names.PROVISIONING_REQUEST_ANNOTATION: "request"}), {}, False,
            id="an autoscaler provides its nodes"),
        pytest.param(remote(NO_NODE, nominatedNodeName="n"), {}, False, id="the scheduler preempts pods for it"),
        pytest.param(remote(NO_NODE), {"unreachable": {"east": "is unreachable"}}, False,
            id="its cluster is unreachable"),
        pytest.param(remote(GATED), {}, False, id="its Kueue has not removed the gate yet"),
        pytest.param(remote(), {}, False, id="no scheduler has seen it yet"),
        pytest.param(remote(SCHEDULED), {}, False, id="it has a node"),
        pytest.param(waits("ErrImagePull"), {}, True, id="its image was not pulled"),
        pytest.param(waits("ImagePullBackOff"), {}, True, id="its image is pulled again later"),
        pytest.param(waits("ImagePullBackOff"), {"growing": frozenset({"east"})}, True,
            id="more nodes do not help a missing image"),
        pytest.param(waits("InvalidImageName", "initContainerStatuses"), {}, True,
            id="an init container has a malformed image"),
        pytest.param(waits("CreateContainerConfigError"), {}, True, id="a Secret or ConfigMap is missing there"),
        pytest.param(waits("ContainerCreating"), {}, False, id="its image is being pulled"),
        pytest.param(waits("PodInitializing"), {}, False, id="an init container runs"),
        pytest.param(waits("CrashLoopBackOff"), {}, False, id="a restart may help a container that ended"),
        pytest.param(None, {}, False, id="it has no remote pod"),
        pytest.param(remote(SCHEDULED, containerStatuses=[7, {"state": "?"}, {"state": {"waiting": {"reason": []}}}]),
            {}, False, id="a hostile cluster writes what no kubelet does"),
    ],
)  # fmt: skip
def test_which_remote_pod_waits_for_a_change_of_its_cluster(
    remote_pod: Raw | None, clusters: Raw, is_unstartable: bool
) -> None:
    remote_pods = {key_of(POD): remote_pod} if remote_pod else {}
    workers = GangWorkers(PLACEMENT, [POD], remote_pods, {slot_of(POD)} - {None}, (), 1)  # type: ignore[arg-type]
    assert unstartable_pods(make_gang(workers=workers, **clusters)) == ([UID] if is_unstartable else [])


def test_a_gang_whose_workers_are_ready_has_no_unstartable_pod() -> None:
    assert unstartable_pods(make_gang(workers=None)) == []


def test_the_first_observation_is_remembered_until_the_pod_may_start_for_a_minute() -> None:
    seconds = 0.0
    memory = TransientState(lambda: seconds)
    observations: list[tuple[float, list[str], dict[str, float]]] = [
        (1, ["a"], {"a": 1}), (5, ["a", "b"], {"a": 1, "b": 5}), (6, ["b"], {"b": 5}),
        (7, ["a", "b"], {"a": 1, "b": 5}),
        (8, [], {}), (66, ["b"], {"b": 5}), (125, [], {}), (185, ["b"], {"b": 185}),
    ]  # fmt: skip
    for seconds, uids, since in observations:
        expected = {uid: at(first) for uid, first in since.items()}
        assert memory.waiting_since("start", PLACEMENT, uids, at(seconds)) == expected
    memory.keep_only([], [], [], [])
    seconds = 190
    assert memory.waiting_since("start", PLACEMENT, ["b"], at(190)) == {"b": at(190)}, (
        "a deleted Placement is forgotten"
    )


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_a_clock_that_is_put_back_or_forward_changes_no_wait(ahead: float) -> None:
    seconds = 0.0
    memory = TransientState(lambda: seconds)
    memory.waiting_since("start", PLACEMENT, ["a"], at(0))
    seconds = 30.0
    assert memory.waiting_since("start", PLACEMENT, ["a"], at(30 + ahead)) == {"a": at(ahead)}


@pytest.mark.parametrize("can_grow", [False, True])
def test_the_observer_reads_since_when_no_node_takes_a_pod(can_grow: bool) -> None:
    sight = Sight({"east": 9, "west": 9})
    sight.members["east"].spec = make_member("east", 9, canGrow=can_grow).spec
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.placements, PLACED)
    fill(sight.manager.pods, POD)
    for cluster in ("east", "west"):
        fill(sight.members[cluster].workloads, make_reservation(PLACED))
    fill(sight.members["east"].pods, remote(NO_NODE))
    for seconds in (3.0, 8.0):
        sight.memory._monotonic = lambda seconds=seconds: seconds  # type: ignore[misc]
        since = sight.facts.gang_observer.facts(key_of(WORK), at(seconds)).pods.unstartable_since
        assert since == ({} if can_grow else {UID: at(3)})
    fill(sight.members["east"].pods, remote(SCHEDULED))
    assert sight.facts.gang_observer.facts(key_of(WORK), START).pods.unstartable_since == {}
