"""When a head's mirror is written, and which workers stay when the head gets another address."""

from typing import Any

import pytest

from adapter import names
from adapter.actions import CreatePod, DeletePod, MirrorHead
from adapter.objects.placement import parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.specs import HeadSpec
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.rewrite import service_mirror
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.service_mirror import MirrorState
from adapter.rewrite.target import Target
from adapter.worker.dispatch import decide
from adapter.worker.worker_facts import HeadFacts, Worker
from tests.unit.builders import at, make_copy, make_meta, make_placement, make_pod, make_reservation, make_workload
from tests.unit.fact_builders import make_worker

WORK = make_workload()
PLACE_RAW = make_placement(WORK)
PLACE = parse_placement(PLACE_RAW)
NAME, SLOT = PLACE.name, "east/1/role-workers/0"
KEY = ("demo", "train-abc-head-svc")
MIRRORS, IP = HeadSpec(address="ServiceMirror"), HeadSpec()
NOTHING = MirrorState(None, ())


def target(head: HeadSpec) -> Target:
    return Target(
        cluster="east", zone="east", head=head, queue="q", manager="mgr", workload="rayjob-train",
        workload_uid="u", placement=NAME, share=f"{NAME}-1", round=1,
    )  # fmt: skip


def named(pod: Raw) -> Raw:
    env = [{"name": "FQ_RAY_IP", "value": ".".join([KEY[1], KEY[0], "svc.cluster.local"])}]
    return {**pod, "spec": {**pod["spec"], "containers": [{"name": "ray-worker", "image": "ray", "env": env}]}}


def head(address: str) -> Raw:
    return {"metadata": make_meta("head"), "spec": {"containers": [{"name": "ray"}]}, "status": {"podIP": address}}


def worker(how: HeadSpec, address: str = "10.0.0.1", *, standing: MirrorState = NOTHING, **more: Any) -> Worker:
    plain: Raw = {
        "pod": named(make_pod(placement=NAME, slot=SLOT)),
        "remote_pods": {},
        "placement": PLACE,
        "job": parse_workload(WORK).job,
        "owns_pod": True,
        "reservations": {("east", 1): parse_reservation("east", make_reservation(PLACE_RAW))},
        "targets": {"east": target(how)},
        "taken": (),
    }
    known = plain | more
    facts = HeadFacts(
        address=HeadAddress.from_pod(known["pod"], address),
        pod=head(address) if address else None,
        mirrors={"east": standing} if how.is_mirrored else {},
    )
    return make_worker(**known, head=facts)


def copy(**annotations: str) -> Raw:
    pod = make_copy(named(make_pod(placement=NAME, slot=SLOT, dispatched=True)))
    dashed = {key.replace("_", "-"): value for key, value in annotations.items()}
    pod["metadata"]["annotations"] |= {f"{names.DOMAIN}/{key}": value for key, value in dashed.items()}
    return pod


def kinds(facts: Worker) -> list[str]:
    return [type(action).__name__ for action in decide(facts, at(5))]


def test_the_mirror_is_written_before_the_first_worker_is_created() -> None:
    service, endpoint_slice, pod = decide(worker(MIRRORS), at(5))
    assert isinstance(service, MirrorHead) and service.body["kind"] == "Service"
    assert isinstance(endpoint_slice, MirrorHead) and endpoint_slice.body["kind"] == "EndpointSlice"
    assert isinstance(pod, CreatePod)
    owner = pod.body["metadata"]["ownerReferences"]
    for mirror in (service, endpoint_slice):
        assert mirror.body["metadata"]["ownerReferences"] == owner


def test_no_mirror_is_written_where_heads_are_not_mirrored() -> None:
    assert kinds(worker(IP)) == ["CreatePod"]


@pytest.mark.parametrize(
    "held_up",
    [
        pytest.param({"reservations": {}}, id="no share"),
        pytest.param(
            {"reservations": {("east", 1): parse_reservation("east", make_reservation(PLACE_RAW, deleting=True))}},
            id="the share is being deleted, with all that its anchor owns",
        ),
    ],
)
def test_no_mirror_is_written_without_a_share_that_owns_it(held_up: Raw) -> None:
    assert "MirrorHead" not in kinds(worker(MIRRORS, remote_pods={"east": copy()}, **held_up))


def test_the_mirror_is_updated_while_a_worker_exists() -> None:
    assert kinds(worker(MIRRORS, remote_pods={"east": copy()})) == ["MirrorHead", "MirrorHead", "PatchPodStatus"]


def test_unreadable_mirrors_keep_running_workers_and_fail_new_ones() -> None:
    """The forbidden write of the mirror fails the reconcile before the remote pod is created."""
    unread = MirrorState(None, (), readable=False)
    followed = copy(head="10.0.0.1", head_service=KEY[1])
    assert kinds(worker(MIRRORS, standing=unread, remote_pods={"east": followed})) == ["PatchPodStatus"]
    assert kinds(worker(MIRRORS, standing=unread)) == ["MirrorHead", "MirrorHead", "CreatePod"]


def test_unreadable_mirrors_delete_workers_with_an_earlier_head_address() -> None:
    """The mirror keeps the old address, which another head may have by now."""
    stale = copy(head="10.0.0.9", head_service=KEY[1])
    unread = MirrorState(None, (), readable=False)
    assert kinds(worker(MIRRORS, standing=unread, remote_pods={"east": stale})) == ["PatchPodStatus", "DeletePod"]


def test_a_missing_head_is_removed_from_the_mirror() -> None:
    standing = MirrorState(
        *_stored(service_mirror.mirror_writes(KEY, head("10.0.0.1"), NOTHING, target(MIRRORS), _anchor()))
    )
    (first, *_) = decide(worker(MIRRORS, "", standing=standing, remote_pods={"east": copy()}), at(5))
    assert isinstance(first, MirrorHead) and first.body["endpoints"] == []


@pytest.mark.parametrize(
    ("how", "annotations", "deleted"),
    [
        pytest.param(IP, {"head": "10.0.0.9"}, True, id="a worker with the old IP"),
        pytest.param(IP, {"head": "10.0.0.1"}, False, id="a worker with the current IP"),
        pytest.param(IP, {}, False, id="a worker with a name that other software maintains"),
        pytest.param(MIRRORS, {"head": "10.0.0.9", "head_service": KEY[1]}, False, id="a worker with a mirrored name"),
        pytest.param(MIRRORS, {"head": "10.0.0.9"}, True, id="a worker from before the cluster mirrored heads"),
        pytest.param(
            IP,
            {"head": "10.0.0.9", "head_service": KEY[1]},
            True,
            id="a worker with a name that is not mirrored any more",
        ),
    ],
)
def test_workers_deleted_when_the_head_moves(how: HeadSpec, annotations: dict[str, str], deleted: bool) -> None:
    actions = decide(worker(how, remote_pods={"east": copy(**annotations)}), at(5))
    assert any(isinstance(action, DeletePod) for action in actions) is deleted


def test_a_head_without_a_service_of_its_namespace_is_not_mirrored() -> None:
    plain = make_pod(placement=NAME, slot=SLOT)
    assert kinds(worker(MIRRORS, pod=plain)) == ["CreatePod"]


def _anchor() -> str:
    return parse_reservation("east", make_reservation(PLACE_RAW)).anchor_uid


def _stored(bodies: list[Raw]) -> tuple[Raw, list[Raw]]:
    service, *slices = ({**body, "metadata": {**body["metadata"], "resourceVersion": "3"}} for body in bodies)
    return service, slices
