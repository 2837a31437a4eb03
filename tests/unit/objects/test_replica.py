"""The slots that the hosts of a replica take: one block of one share, in whatever order the pods come."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.placement import Placement, parse_placement, placement_manifest
from adapter.objects.replica import (
    count_free_slots,
    host_index,
    leaves_replica,
    mismatch_reason,
    open_slots,
    replica_key,
    replica_name,
)
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import label
from adapter.objects.worker_pod import Slot, has_template_slot, is_planned_slot, list_slots
from tests.unit.builders import make_placement, make_pod, make_workload


def placement(hosts: int = 2, **counts: int) -> Placement:
    raw = make_placement(make_workload(), shares={name: {"workers": n} for name, n in (counts or {"east": 4}).items()})
    for share in raw["spec"]["shares"]:
        share["groups"][0] |= {"hosts": hosts} if hosts > 1 else {}
    return parse_placement(raw)


def host(replica: str = "w-a", index: object = 0, **more: Any) -> Raw:
    pod = make_pod(f"{replica}-{index}", uid=f"u-{replica}-{index}", placement=placement().name, **more)
    pod["metadata"]["labels"] |= {names.RAY_REPLICA_NAME_LABEL: replica, names.RAY_HOST_INDEX_LABEL: str(index)}
    return pod


def slot(text: str) -> Slot:
    parsed = Slot.parse(text)
    assert parsed
    return parsed


E = [slot(f"east/1/role-workers/{index}") for index in range(4)]
W = [slot(f"west/1/role-workers/{index}") for index in range(4)]
BOTH = placement(east=2, west=4)


@pytest.mark.parametrize(
    ("pod", "taken", "joined", "want"),
    [
        pytest.param(host(), [], None, [E[0], W[0], W[2]], id="the first host of a replica may take any block"),
        pytest.param(host(index=1), [], None, [E[1], W[1], W[3]], id="the second host takes the second slot"),
        pytest.param(host(index=1), [E[0]], E[0], [E[1]], id="beside the first host"),
        pytest.param(host(), [W[3]], W[3], [W[2]], id="beside the second host"),
        pytest.param(host(), [E[1]], None, [W[0], W[2]], id="not beside another replica"),
        pytest.param(host(index=1), [E[0], E[1]], E[0], [], id="waits for its slot, and takes no other"),
        pytest.param(host(index=2), [], None, [], id="more hosts than planned"),
        pytest.param(host(index="x"), [], None, [], id="a label that is no number"),
        pytest.param(host(index="9" * 5000), [], None, [], id="a label of thousands of digits"),
        pytest.param(make_pod("plain"), [], None, [], id="a worker without labels"),
        pytest.param(host(group="other"), [], None, [], id="another group"),
    ],
)
def test_the_slots_that_a_host_may_take(pod: Raw, taken: list[Slot], joined: Slot | None, want: list[Slot]) -> None:
    assert list(open_slots(BOTH, pod, taken, joined)) == want


def test_workers_of_one_host_take_any_free_slot() -> None:
    plain = placement(hosts=1, east=2, west=1)
    assert list(open_slots(plain, make_pod("plain"), [E[0]], None)) == [E[1], W[0]]
    assert list(open_slots(plain, host(), [], None)) == [], "a replica would be divided"


def test_hosts_have_no_template_slot() -> None:
    """They have one replica index between them."""
    listed = list_slots(placement(hosts=1), "workers")
    assert listed and list_slots(placement(), "workers") == ""
    assert has_template_slot(make_pod("plain", index="0", listed=listed))
    assert not has_template_slot(host(index=0, listed=listed) | {})
    forged = host()
    forged["metadata"]["labels"][names.RAY_REPLICA_INDEX_LABEL] = "0"
    forged["metadata"]["annotations"][names.SLOTS_ANNOTATION] = listed
    assert not has_template_slot(forged)


def test_a_host_apart_from_its_replica_leaves_its_slot() -> None:
    assert not leaves_replica(BOTH, host(), None, E[0])
    assert not leaves_replica(BOTH, host(), E[1], None)
    assert not leaves_replica(BOTH, host(), W[2], W[3])
    assert leaves_replica(BOTH, host(), W[1], W[2]), "another block"
    assert leaves_replica(BOTH, host(), E[0], W[0]), "another cluster"


def test_free_slots_are_counted_by_whole_blocks() -> None:
    (share,) = placement(east=4).shares
    (part,) = share.groups
    assert [count_free_slots(placement(), share, part, taken) for taken in ([], E[:1], E[1:3], E[:2])] == [4, 2, 0, 2]


def test_why_a_pod_can_take_no_slot_of_the_plan() -> None:
    fine = (BOTH, host(index=1)), (placement(hosts=1), make_pod("a")), (BOTH, host(group="other", index=7))
    assert [mismatch_reason(*one) for one in fine] == ["", "", ""]
    assert "turn on KubeRay's feature gate RayMultiHostIndexing" in mismatch_reason(BOTH, make_pod("a"))
    assert "do not change numOfHosts" in mismatch_reason(BOTH, host(index=2))
    assert "do not change numOfHosts" in mismatch_reason(placement(hosts=1), host())


def test_a_pod_of_one_host_is_a_replica_of_its_own() -> None:
    assert replica_key(make_pod("a")) != replica_key(make_pod("b"))
    assert replica_key(host(index=0)) == replica_key(host(index=1)) != replica_key(host("w-b", 0))
    assert (replica_name(host()), host_index(host(index=3)), host_index(make_pod("a"))) == ("w-a", 3, None)


def test_the_record_of_hosts_is_read_back() -> None:
    written = placement_manifest(BOTH, None, "check", ())["spec"]["shares"]
    assert [group for share in written for group in share["groups"]] == [
        {"name": "workers", "role": "role-workers", "count": count, "hosts": 2} for count in (2, 4)
    ]
    single = placement_manifest(placement(hosts=1), None, "check", ())["spec"]["shares"][0]["groups"][0]
    assert "hosts" not in single, "as earlier versions wrote it"


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.booleans()), max_size=60)


@given(STEPS, st.integers(2, 4), st.integers(0, 3), st.integers(0, 3))
def test_replicas_are_never_divided(steps: list[tuple[int, int, bool]], hosts: int, east: int, west: int) -> None:
    """Pods come and go in any order, each choosing as dispatch does; KubeRay gives a new replica a new name."""
    place = placement(hosts=hosts, **{n: c * hosts for n, c in (("east", east), ("west", west)) if c})
    if not place.shares or not east + west:
        return
    held: dict[tuple[str, int], Slot] = {}
    born = defaultdict[int, int](int)
    for number, index, leaves in steps:
        name = f"w-{number}-{born[number]}"
        if leaves:
            held = {key: slot for key, slot in held.items() if key[0] != name}
            born[number] += 1
        elif index < hosts and (name, index) not in held:
            pod = host(name, index)
            joined = next((slot for (other, _), slot in held.items() if other == name), None)
            if free := next(open_slots(place, pod, set(held.values()), joined), None):
                assert is_planned_slot(place, pod, free)
                held[name, index] = free
    assert len(set(held.values())) == len(held), "two pods on one slot"
    blocks = {(name, slot.share, slot.index // hosts) for (name, _), slot in held.items()}
    assert len(blocks) == len({name for name, _ in held}) == len({block[1:] for block in blocks})
    assert all(slot.index % hosts == index for (_, index), slot in held.items())
    assert label(host(), names.RAY_REPLICA_NAME_LABEL)
