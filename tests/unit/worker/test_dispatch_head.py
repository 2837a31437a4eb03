"""When is a head's mirror written, and which workers stay when the head moves: by the way in which each of them finds it."""

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
    made = make_copy(named(make_pod(placement=NAME, slot=SLOT, dispatched=True)))
    said = {key.replace("_", "-"): value for key, value in annotations.items()}
    made["metadata"]["annotations"] |= {f"{names.DOMAIN}/{key}": value for key, value in said.items()}
    return made


def kinds(facts: Worker) -> list[str]:
    return [type(action).__name__ for action in decide(facts, at(5))]


def test_the_name_resolves_before_the_first_worker_is_made() -> None:
    service, each, pod = decide(worker(MIRRORS), at(5))
    assert isinstance(service, MirrorHead) and service.body["kind"] == "Service"
    assert isinstance(each, MirrorHead) and each.body["kind"] == "EndpointSlice"
    assert isinstance(pod, CreatePod)
    owner = pod.body["metadata"]["ownerReferences"]
    assert service.body["metadata"]["ownerReferences"] == each.body["metadata"]["ownerReferences"] == owner


def test_where_heads_are_not_mirrored_nothing_is_written() -> None:
    assert kinds(worker(IP)) == ["CreatePod"]


@pytest.mark.parametrize(
    "held_up",
    [
        pytest.param({"reservations": {}}, id="no share stands"),
        pytest.param(
            {"reservations": {("east", 1): parse_reservation("east", make_reservation(PLACE_RAW, deleting=True))}},
            id="its share goes, and what its anchor owns with it",
        ),
    ],
)
def test_without_a_share_there_is_no_owner_for_it(held_up: Raw) -> None:
    assert "MirrorHead" not in kinds(worker(MIRRORS, remote_pods={"east": copy()}, **held_up))


def test_it_is_kept_true_while_a_worker_is_there() -> None:
    assert kinds(worker(MIRRORS, remote_pods={"east": copy()})) == ["MirrorHead", "MirrorHead", "PatchPodStatus"]


def test_where_mirrors_may_not_be_read_what_runs_is_left_alone_and_who_comes_new_is_told() -> None:
    """He is told by the try, which is refused; the copy is made after it, and so it is not."""
    unread = MirrorState(None, (), readable=False)
    followed = copy(head="10.0.0.1", head_service=KEY[1])
    assert kinds(worker(MIRRORS, standing=unread, remote_pods={"east": followed})) == ["PatchPodStatus"]
    assert kinds(worker(MIRRORS, standing=unread)) == ["MirrorHead", "MirrorHead", "CreatePod"]


def test_where_mirrors_may_not_be_read_nobody_dials_the_address_of_a_head_that_moved() -> None:
    """The mirror says the old one for ever, which may be somebody else's head by now."""
    stale = copy(head="10.0.0.9", head_service=KEY[1])
    unread = MirrorState(None, (), readable=False)
    assert kinds(worker(MIRRORS, standing=unread, remote_pods={"east": stale})) == ["PatchPodStatus", "DeletePod"]


def test_a_head_that_is_gone_is_taken_out_though_no_worker_could_be_made() -> None:
    standing = MirrorState(
        *_stored(service_mirror.mirror_writes(KEY, head("10.0.0.1"), NOTHING, target(MIRRORS), _anchor()))
    )
    (first, *_) = decide(worker(MIRRORS, "", standing=standing, remote_pods={"east": copy()}), at(5))
    assert isinstance(first, MirrorHead) and first.body["endpoints"] == []


@pytest.mark.parametrize(
    ("how", "made_with", "goes"),
    [
        pytest.param(IP, {"head": "10.0.0.9"}, True, id="it dials the old IP"),
        pytest.param(IP, {"head": "10.0.0.1"}, False, id="it dials this IP"),
        pytest.param(IP, {}, False, id="it dials a name that others keep true"),
        pytest.param(MIRRORS, {"head": "10.0.0.9", "head_service": KEY[1]}, False, id="its name follows"),
        pytest.param(MIRRORS, {"head": "10.0.0.9"}, True, id="it was made before the cluster mirrored heads"),
        pytest.param(IP, {"head": "10.0.0.9", "head_service": KEY[1]}, True, id="nobody keeps its name true any more"),
    ],
)
def test_who_stays_when_the_head_moves(how: HeadSpec, made_with: dict[str, str], goes: bool) -> None:
    decided = decide(worker(how, remote_pods={"east": copy(**made_with)}), at(5))
    assert any(isinstance(action, DeletePod) for action in decided) is goes


def test_a_head_without_a_service_of_its_namespace_is_not_mirrored() -> None:
    plain = make_pod(placement=NAME, slot=SLOT)
    assert kinds(worker(MIRRORS, pod=plain)) == ["CreatePod"]


def _anchor() -> str:
    return parse_reservation("east", make_reservation(PLACE_RAW)).anchor_uid


def _stored(bodies: list[Raw]) -> tuple[Raw, list[Raw]]:
    service, *slices = ({**body, "metadata": {**body["metadata"], "resourceVersion": "3"}} for body in bodies)
    return service, slices
