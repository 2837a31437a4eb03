"""Which slot a host of a replica gets, from the facts about the replica's other hosts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import Action, AssignSlot, CreatePod, EmitEvent
from adapter.objects.placement import Share, parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import parse_workload
from adapter.rewrite.head_address import HeadAddress
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from adapter.worker.dispatch import decide
from adapter.worker.worker_facts import HeadFacts
from tests.unit.builders import at, make_meta, make_placement, make_pod, make_workload
from tests.unit.fact_builders import make_worker
from tests.unit.stores import Sight, fill
from tests.unit.worker.test_dispatch import ADMITTED, EAST, HEAD, SEEN, WEST

WORK = make_workload()
RAW = make_placement(WORK, shares={"east": {"workers": 4}, "west": {"workers": 2}})
for raw_share in RAW["spec"]["shares"]:
    raw_share["groups"][0]["hosts"] = 2
PLACE = parse_placement(RAW)
E = [Slot(EAST, "role-workers", index) for index in range(4)]
W = [Slot(WEST, "role-workers", index) for index in range(2)]


def host(name: str, slot: Slot | None = None, *, dispatched: bool = False) -> Raw:
    """`a1` is the host 1 of the replica `a`."""
    pod = make_pod(name, uid=f"u-{name}", placement=PLACE.name, slot=slot or "", dispatched=dispatched)
    pod["metadata"]["labels"] |= {names.RAY_REPLICA_NAME_LABEL: name[0], names.RAY_HOST_INDEX_LABEL: name[1]}
    return pod


def decided(pod: Raw, **given: Any) -> list[Action]:
    head = HeadFacts(HeadAddress.from_pod(pod, HEAD), pod=None, mirrors={})
    plain: Raw = {"placement": PLACE, "job": parse_workload(WORK).job, "owns_pod": True, "reservations": ADMITTED}
    return decide(make_worker(pod=pod, head=head, **{**plain, "targets": SEEN, "taken": (), **given}), at(5))


def slot_given(actions: Sequence[Action]) -> Slot | None:
    return next((action.slot for action in actions if isinstance(action, AssignSlot)), None)


@pytest.mark.parametrize(
    ("pod", "given", "want"),
    [
        pytest.param(host("a1"), {}, E[1], id="the first host that comes takes a free block"),
        pytest.param(host("a0"), {"taken": [E[1]]}, E[2], id="a block with another replica is not free"),
        pytest.param(host("a0"), {"taken": [W[1]], "joined": W[1]}, W[0], id="the next host joins it"),
        pytest.param(host("a0"), {"taken": [W[0], W[1]], "joined": W[1]}, None, id="its slot is not free yet"),
        pytest.param(host("a0"), {"joined": E[1], "draining": {"east"}}, None, id="its cluster takes no new pods"),
        pytest.param(host("a0"), {"draining": {"east"}}, W[0], id="a new replica avoids a drained cluster"),
        pytest.param(host("a0", E[0]), {"taken": [W[1]], "joined": W[1]}, W[0], id="apart from its replica"),
        pytest.param(host("b1", E[1]), {"taken": [E[0]], "yields_block": True}, E[3], id="in another's block"),
        pytest.param(
            host("b1", E[1]), {"taken": [E[0], E[2], W[0]], "yields_block": True}, None, id="no other block is free"
        ),
    ],
)
def test_the_slot_that_a_host_gets(pod: Raw, given: Raw, want: Slot | None) -> None:
    actions = decided(pod, **given)
    assert slot_given(actions) == want
    assert not any(isinstance(action, CreatePod) for action in actions), "nothing before it has its slot"


def test_a_host_beside_its_replica_keeps_its_slot() -> None:
    assert [type(action) for action in decided(host("a0", W[0]), joined=W[1])] == [CreatePod]


def test_a_host_with_a_remote_pod_stays_where_it_is() -> None:
    assert slot_given(decided(host("a0", E[0], dispatched=True), joined=W[1])) is None


def test_a_worker_without_kuberays_labels_gets_no_remote_pod_and_an_event() -> None:
    (event,) = decided(make_pod(placement=PLACE.name))
    assert isinstance(event, EmitEvent) and event.reason == names.EventReason.WORKER_FAILING
    assert "turn on KubeRay's feature gate RayMultiHostIndexing" in event.message


@pytest.mark.parametrize(
    ("others", "want"),
    [
        pytest.param([], None, id="no other host"),
        pytest.param([host("a1")], None, id="another host without a slot"),
        pytest.param([host("a1", W[1])], W[1], id="the slot of another host"),
        pytest.param([host("b1", W[1])], None, id="another replica"),
        pytest.param([host("a2", E[0]), host("a1", W[1])], W[1], id="the first of the hosts"),
        pytest.param([host("a2", E[0], dispatched=True), host("a1", W[1])], E[0], id="the one with a remote pod"),
    ],
)
def test_the_host_that_a_replica_follows(others: list[Raw], want: Slot | None) -> None:
    assert observer(host("a0"), *others).joined_slot(PLACE, host("a0")) == want


def observer(*pods: Raw, assignments: PendingAssignments | None = None) -> SlotObserver:
    sight = Sight({"east": 1, "west": 1})
    fill(sight.manager.pods, *pods)
    return SlotObserver(sight.manager, sight.fleet, assignments or PendingAssignments(), sight.memory)


def test_hosts_in_two_places_follow_one_of_them() -> None:
    """Two writers may have given them slots apart."""
    first, second = host("a0", E[0]), host("a1", W[1])
    assert observer(first, second).joined_slot(PLACE, first) is None
    assert observer(first, second).joined_slot(PLACE, second) == E[0]


@pytest.mark.parametrize(
    ("pod", "other", "yields"),
    [
        pytest.param(host("b1", E[1]), host("a0", E[0]), True, id="the first by name stays"),
        pytest.param(host("a0", E[0]), host("b1", E[1]), False, id="and the other one goes"),
        pytest.param(host("a0", E[0]), host("b1", E[1], dispatched=True), True, id="a bound host stays"),
        pytest.param(host("b1", E[1]), host("b0", E[0]), False, id="its own replica"),
        pytest.param(host("b1", E[1]), host("a0", E[2]), False, id="the next block"),
        pytest.param(host("b1"), host("a0", E[0]), False, id="without a slot"),
    ],
)
def test_one_of_two_replicas_in_a_block_yields_it(pod: Raw, other: Raw, yields: bool) -> None:
    assert observer(pod, other).yields_block(PLACE, pod) is yields


def test_a_slot_that_is_being_written_counts() -> None:
    assignments = PendingAssignments()
    assignments.add([AssignSlot(host("a1"), "west", W[1])])
    assert observer(host("a0"), host("a1"), assignments=assignments).joined_slot(PLACE, host("a0")) == W[1]


def test_a_worker_of_one_host_follows_none() -> None:
    assert observer(make_pod("x", placement=PLACE.name)).joined_slot(PLACE, make_pod("x", placement=PLACE.name)) is None


def test_forged_labels_of_a_group_of_single_hosts_cost_no_search() -> None:
    single = replace(PLACE, shares=tuple(_with_single_hosts(share) for share in PLACE.shares))
    forged = observer(host("a0"), host("a1", W[1]))
    assert forged.joined_slot(PLACE, host("a0")) == W[1]
    assert forged.joined_slot(single, host("a0")) is None


def owned(pod: Raw) -> Raw:
    """A pod of the job's RayCluster."""
    pod["metadata"]["ownerReferences"] = [{"kind": "RayCluster", "name": "pi", "uid": "u-cluster", "controller": True}]
    pod["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL] = "pi"
    return pod


@pytest.mark.parametrize(
    ("pods", "says"),
    [
        pytest.param([], "", id="no pod yet"),
        pytest.param([owned(make_pod("x", placement=PLACE.name))], "group workers lack the label", id="no labels"),
        pytest.param(
            [owned(make_pod("x", placement=PLACE.name)), owned(host("a0"))], "", id="one of its pods has the labels"
        ),
        pytest.param([make_pod("x", placement=PLACE.name)], "", id="a pod of somebody else"),
        pytest.param(
            [owned(make_pod("x", placement=PLACE.name)), host("a0")],
            "group workers lack the label",
            id="labels of somebody else's pod",
        ),
        pytest.param([owned(make_pod("x", placement=PLACE.name, group="other"))], "", id="another group"),
    ],
)
def test_hosts_that_kuberay_does_not_label(pods: list[Raw], says: str) -> None:
    job = parse_workload(WORK).job
    assert job is not None
    sight = Sight({"east": 1, "west": 1})
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.ray_clusters, {"metadata": {**make_meta("pi", uid="u-cluster"), **owned_by(job.uid)}})
    fill(sight.manager.pods, *pods)
    text = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory).unlabelled_hosts(PLACE)
    assert says in text and bool(text) == bool(says)


def owned_by(uid: str) -> Raw:
    return {"ownerReferences": [{"kind": "RayJob", "name": "job", "uid": uid, "controller": True}]}


def _with_single_hosts(share: Share) -> Share:
    return replace(share, groups=tuple(replace(part, hosts=1) for part in share.groups))
