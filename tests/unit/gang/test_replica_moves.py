"""The hosts of a replica leave a drained cluster together, and move together when one of them does not start."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.actions import PatchPodStatus
from adapter.gang import start_timeout
from adapter.gang.drain_order import GangWorkers, free_slots, pods_to_move
from adapter.objects import unstructured as facts
from adapter.objects.placement import Share, ShareKey, parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import slot_cluster, slot_of
from adapter.objects.workload import parse_workload
from tests.unit.builders import CHECK, at, make_condition, make_copy, make_placement, make_pod, make_workload, stamp
from tests.unit.fact_builders import make_gang

WORK = make_workload(check=names.CHECK_READY)
RAW = make_placement(WORK, shares={"east": {"workers": 4}, "west": {"workers": 4}}, placedRound=1, state="Placed")
for share in RAW["spec"]["shares"]:
    share["groups"][0]["hosts"] = 2
PLACE = parse_placement(RAW)
ALL = frozenset({ShareKey("east", 1), ShareKey("west", 1)})


def host(name: str, slot: str, *, ready: bool = True, deleting: bool = False) -> Raw:
    """The pod `a1` is the host 1 of the replica `a`."""
    pod = make_pod(name, placement=PLACE.name, slot=slot and f"{slot[0]}", dispatched=bool(slot), deleting=deleting)
    pod["metadata"]["annotations"][names.SLOT_ANNOTATION] = slot and f"{slot[:4]}/1/role-workers/{slot[4]}"
    pod["metadata"]["labels"] |= {names.RAY_REPLICA_NAME_LABEL: name[0], names.RAY_HOST_INDEX_LABEL: name[1]}
    pod["status"]["conditions"].append(make_condition("Ready", ready))
    return pod


def gathered(pods: Sequence[Raw], going: Sequence[str] = (), **more: Any) -> GangWorkers:
    """These workers, with their remote pods; `going` are deleted there."""
    copies = {facts.key_of(pod): _copy(pod, pod["metadata"]["name"] in going) for pod in pods if slot_of(pod)}
    plain: Raw = {"admitted_shares": ALL, "desired_workers": len(pods), "head_ready_since": at(-50)}
    taken = {slot for pod in pods if (slot := slot_of(pod))}
    return GangWorkers(
        **{"placement": PLACE, "pods": pods, "remote_pods": copies, "taken_slots": taken, **plain, **more}
    )


def _copy(pod: Raw, deleting: bool) -> Raw:
    copy = make_copy(pod, phase="Pending", deleting=deleting)
    copy["metadata"]["creationTimestamp"] = stamp(0)
    copy["spec"], copy["status"]["conditions"] = {}, []
    return copy


A, B = [host("a0", "east0"), host("a1", "east1")], [host("b0", "east2"), host("b1", "east3")]
B_LATE = host("b0", "east2", ready=False)
C, D = [host("c0", "west0"), host("c1", "west1")], [host("d0", "west2"), host("d1", "west3")]


@pytest.mark.parametrize(
    ("pods", "going", "at_once", "who"),
    [
        pytest.param([*A, *B], [], 1, ["a0", "a1"], id="both hosts leave, although one worker may be unavailable"),
        pytest.param([*A, *B], [], 3, ["a0", "a1", "b0", "b1"], id="two replicas leave"),
        pytest.param([*A, *B, *C], [], 9, ["a0", "a1"], id="one replica finds free slots"),
        pytest.param([*A, *C, *D[:1]], [], 9, [], id="a single free slot is none for a replica"),
        pytest.param([*A, *C, *D], [], 9, [], id="no free slots"),
        pytest.param([*A, B_LATE, B[1]], [], 1, ["b0", "b1"], id="a replica with a late host leaves first"),
        pytest.param([*A, *B], ["a0"], 1, ["a1"], id="one host is ending, and the other follows"),
        pytest.param([A[0], host("a1", "")], [], 9, ["a0"], id="the other host has no slot"),
    ],
)  # fmt: skip
def test_replicas_leave_a_drained_cluster_as_a_whole(
    pods: list[Raw], going: list[str], at_once: int, who: list[str]
) -> None:
    moved = pods_to_move(gathered(pods, going), {"east": at_once})
    assert sorted(facts.key_of(copy)[1] for _, copy in moved) == who


@pytest.mark.parametrize(
    ("pods", "at_once", "who"),
    [
        pytest.param([A[0], B[0], *C], 9, ["a0"], id="two halves, and free slots for one replica"),
        pytest.param([A[0], *B, *C], 1, ["a0"], id="a half is no worker that serves, and leaves before a whole one"),
        pytest.param([A[0], *B, *C, *D], 9, [], id="a half waits for all slots of a replica, too"),
        pytest.param([A[0], host("a1", "west0"), *D], 9, ["a0"], id="its own other half is in the only block"),
        pytest.param(
            [A[0], host("a1", "west0"), host("c1", "west1"), *D], 9, [], id="the block has another's host, too"
        ),
        pytest.param([A[0], host("a1", "west5"), *C, *D], 9, [], id="its other half has no planned slot"),
    ],
)
def test_half_a_replica_leaves_for_the_slots_of_a_whole_one(pods: list[Raw], at_once: int, who: list[str]) -> None:
    """KubeRay has yet to create the other hosts, and creates whole replicas."""
    place = replace(PLACE, wanted_workers=6)
    moved = pods_to_move(gathered(pods, placement=place, desired_workers=6), {"east": at_once})
    assert sorted(facts.key_of(copy)[1] for _, copy in moved) == who


def test_half_a_replica_does_not_leave_for_its_other_half_on_a_share_without_quota() -> None:
    gang = gathered([A[0], host("a1", "west0"), *D], admitted_shares={ShareKey("east", 1)})
    assert pods_to_move(gang, {"east": 9}) == ()


# Where the hosts of a replica are at first: a cluster, no slot, or not created. Block n is the replica's own.
WHERE = st.sampled_from([
    ("east", "east"), ("west", "west"), ("east", ""), ("east", None), ("west", ""), ("west", None),
    ("east", "west"), ("west", "east"), ("", ""),
])  # fmt: skip


@given(st.lists(st.tuples(WHERE, st.booleans(), st.booleans()), min_size=1, max_size=3), st.integers(1, 4))
def test_a_drain_ends_whatever_is_half_placed(
    replicas: list[tuple[tuple[str, str | None], bool, bool]], at_once: int
) -> None:
    """West has slots for all replicas. KubeRay replaces a replica of which a host left, as a whole."""
    pods = [
        host(f"{'abc'[number]}{index}", where and f"{where}{2 * number + index}", ready=is_ready)
        for number, (places, *ready) in enumerate(replicas)
        for index, (where, is_ready) in enumerate(zip(places, ready, strict=True))
        if where is not None
    ]
    for _ in range(2 * len(replicas) + 1):
        pods = _after_a_step(pods, len(replicas), at_once)
    assert {slot_cluster(pod) for pod in pods} == {"west"}


def _after_a_step(pods: list[Raw], replicas: int, at_once: int) -> list[Raw]:
    """What leaves east, leaves at once; then the hosts without a slot get those of a free block in west."""
    size = 2 * replicas
    place = replace(PLACE, wanted_workers=size, shares=tuple(_resized(share, size) for share in PLACE.shares))
    workers = gathered(pods, placement=place, desired_workers=size)
    leaving = {facts.key_of(copy)[1] for _, copy in pods_to_move(workers, {"east": at_once})}
    in_east = {pod["metadata"]["name"] for pod in pods if slot_cluster(pod) == "east"}
    moved = {name[0] for name in leaving}
    assert leaving == {name for name in in_east if name[0] in moved}, "the hosts of a replica leave together"
    stays = [pod for pod in pods if pod["metadata"]["name"][0] not in moved]
    new = [host(f"{name}{index}", "") for name in sorted(moved) for index in range(2)]
    return _with_slots([*stays, *new], replicas)


def _with_slots(pods: list[Raw], replicas: int) -> list[Raw]:
    """Hosts join the block of their replica in west, or a free one; those in west get ready, and are all created."""
    by_name = dict[str, list[Raw]]()
    for pod in pods:
        by_name.setdefault(pod["metadata"]["name"][0], []).append(pod)
    blocks = {
        name: slot.index // 2
        for name, hosts in by_name.items()
        for slot in map(slot_of, hosts)
        if slot and slot.cluster == "west"
    }
    after = list[Raw]()
    for name, hosts in by_name.items():
        if any(slot_cluster(pod) == "east" for pod in hosts):
            after += hosts
            continue
        free = (block for block in range(replicas) if block not in blocks.values())
        block = blocks[name] if name in blocks else blocks.setdefault(name, next(free))
        after += [host(f"{name}{index}", f"west{2 * block + index}") for index in range(2)]
    return after


def _resized(share: Share, size: int) -> Share:
    return replace(share, groups=tuple(replace(part, count=size) for part in share.groups))


def test_free_slots_are_those_of_whole_replicas() -> None:
    assert free_slots(gathered([*A, *C, *D[:1]]), ["east"]) == {"workers": 0}
    assert free_slots(gathered([*A, *C]), ["east"]) == {"workers": 2}


def late(pods: Sequence[Raw], seconds: float = 150) -> start_timeout.StartTimeouts:
    found = start_timeout.find_late_workers(gang(pods), PLACE, at(seconds))
    assert found.late_pods
    return found


def gang(pods: Sequence[Raw]) -> Any:
    return make_gang(
        workload=parse_workload(WORK),
        check=CHECK,
        placements=(PLACE,),
        workers=gathered(pods),
        start_timeout=timedelta(seconds=100),
    )


A_LATE = [host("a0", "east0", ready=False), A[1]]


def test_all_slots_of_a_replica_with_a_late_host_are_unusable() -> None:
    """KubeRay replaces the host that runs as well, so the plan looks for two slots."""
    assert late([*A_LATE, *B]).unusable_slots == {ShareKey("east", 1): {"workers": 2}}


@pytest.mark.parametrize(
    ("pods", "who"),
    [
        pytest.param([*A_LATE, *C], ["a0"], id="there are two free slots elsewhere"),
        pytest.param([*A_LATE, *C, *D[:1]], [], id="one free slot is too few"),
        pytest.param([*A_LATE, *C, host("e0", ""), host("e1", "")], [], id="another replica waits for these"),
        pytest.param(
            [A_LATE[0], host("a1", "east1", ready=False), *C], ["a0", "a1"], id="both are late, and two slots are free"
        ),
        pytest.param([A_LATE[0], host("a1", ""), *C], ["a0"], id="the other host has no slot yet"),
    ],
)
def test_a_late_host_is_failed_if_its_whole_replica_may_move(pods: list[Raw], who: list[str]) -> None:
    failed = start_timeout.fail_late_pods(gang(pods), late(pods), at(150))
    assert sorted(facts.key_of(action.pod)[1] for action in failed if isinstance(action, PatchPodStatus)) == who
