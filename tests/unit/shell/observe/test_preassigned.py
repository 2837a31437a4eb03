"""Which pods own their template slots by the stores, and how their gang observes those that do not."""

from typing import Any

import pytest

from adapter import names
from adapter.actions import AssignSlot
from adapter.objects import specs
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.objects.worker_pod import Slot, has_template_slot, slot_of
from adapter.shell.kube.client import Unreachable
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from adapter.worker.dispatch import decide
from tests.unit.builders import (
    at,
    make_copy,
    make_placement,
    make_pod,
    make_ray_cluster,
    make_reservation,
    make_worker_cluster,
    make_workload,
    stamp,
)
from tests.unit.stores import Sight, fill

WORK = make_workload(check=names.CHECK_READY)
PLACE_RAW = make_placement(WORK, placedRound=1)
PLACE, NAME = parse_placement(PLACE_RAW), PLACE_RAW["metadata"]["name"]
LISTED = "east/1/role-workers/2 west/1/role-workers/2"
EAST0, EAST1, WEST0, WEST1 = (
    Slot(ShareKey(cluster, 1), "role-workers", index) for cluster in ("east", "west") for index in (0, 1)
)


def came(name: str, index: int, **more: Any) -> dict[str, Any]:
    """A pod with a number, a minute and a half younger than this process's lead."""
    pod = make_pod(name, placement=NAME, index=str(index), listed=LISTED, **more)
    pod["metadata"]["creationTimestamp"] = stamp(90)
    return pod


def copy_of(pod: Raw, slot: Slot) -> dict[str, Any]:
    copy = make_copy(dict(pod))
    copy["metadata"]["labels"][names.PLACEMENT_LABEL] = NAME
    copy["metadata"]["annotations"][names.SLOT_ANNOTATION] = str(slot)
    return copy


def sight(*pods: Raw, east: list[Raw] | None = None, west: list[Raw] | None = None) -> Sight:
    """A gang in two clusters, of which this process leads since START."""
    found = Sight({"east": 8, "west": 8})
    found.memory.start_leading(at(0), [])
    fill(found.manager.worker_clusters, make_worker_cluster("east"), make_worker_cluster("west"))
    fill(found.manager.workloads, WORK)
    fill(found.manager.placements, PLACE_RAW)
    fill(found.manager.ray_clusters, make_ray_cluster())
    fill(found.manager.pods, *map(dict, pods))
    for name, copies in (("east", east or []), ("west", west or [])):
        fill(found.members[name].workloads, make_reservation(PLACE_RAW))
        fill(found.members[name].pods, *map(dict, copies))
    return found


def silence(found: Sight, cluster: str) -> None:
    found.members[cluster]._note_error("probe", Unreachable("no answer"))


A, B = came("a", 0), came("b", 2)
OLD = came("old", 2, deleting=True)
OUT = [came("x", 2, dispatched=True, phase="Failed"), came("y", 3, dispatched=True, phase="Failed")]


def facts(found: Sight, pod: Raw) -> tuple[Slot | None, frozenset[Slot]]:
    """Which slot a pod has, and which of the plan are taken, as its own look sees them."""
    seen = found.facts.worker_observer.facts(key_of(pod))
    assert seen.pod
    return slot_of(seen.pod), frozenset(slot for slot in (EAST0, EAST1, WEST0, WEST1) if slot in seen.slots.taken)


def test_a_pod_owns_its_template_slot() -> None:
    found = sight(A, B)
    assert facts(found, A) == (EAST0, frozenset()), "and nobody asks who has the others"
    assert facts(found, B) == (WEST0, frozenset())
    assert not found.facts.worker_observer.facts(key_of(B)).slots.lost_template_slot


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(sight(B, OLD), id="its predecessor still exists"),
        pytest.param(sight(B, west=[copy_of(OLD, WEST0)]), id="its predecessor's remote pod still exists"),
        pytest.param(sight(B, came("other", 2)), id="KubeRay reused the replica index"),
        pytest.param(
            sight(B, make_pod("other", placement=NAME, slot=WEST0)), id="another pod has it as a written slot"
        ),
    ],
)
def test_a_template_slot_held_by_another_pod_is_not_owned(found: Sight) -> None:
    slot, taken = facts(found, B)
    assert (slot, WEST0 in taken) == (None, True)
    assert found.facts.worker_observer.facts(key_of(B)).slots.lost_template_slot


def test_a_pod_that_waits_for_any_slot_does_not_retry() -> None:
    """All of a group may wait so, and each look reads the slots of all."""
    given_up = make_placement(WORK, shares={"west": {"workers": 2}}, placedRound=1)
    holders = [make_pod(f"w{index}", placement=NAME, slot=slot) for index, slot in enumerate((WEST0, WEST1))]
    found = sight(A, *holders)
    fill(found.manager.placements, given_up)
    seen = found.facts.worker_observer.facts(key_of(A))
    assert seen.pod and (slot_of(seen.pod), seen.slots.lost_template_slot) == (None, False)
    assert decide(seen, at(100)) == []


def test_a_template_slot_with_a_pending_assignment_is_not_owned() -> None:
    found, assignments = sight(B), PendingAssignments()
    slots = SlotObserver(found.manager, found.fleet, assignments, found.memory)
    assert slot_of(slots.effective_pod(PLACE, B)) == WEST0
    given: list[Any] = [AssignSlot(A, "west", WEST0)]
    assignments.add(given)
    assert slot_of(slots.effective_pod(PLACE, B)) is None
    assert slots.has_unplaced_pod(PLACE), "its gang sees it at once, too"
    assignments.remove(given)
    assert not slots.has_unplaced_pod(PLACE)


def test_a_template_slot_with_the_own_remote_pod_is_owned() -> None:
    assert facts(sight(B, came("other", 2), west=[copy_of(B, WEST0)]), B)[0] == WEST0


def test_no_template_slot_is_owned_in_a_draining_cluster_and_its_share_is_empty() -> None:
    found = sight(B)
    slots = SlotObserver(found.manager, found.fleet, PendingAssignments(), found.memory)
    assert slots.occupied_shares(PLACE) == {("west", 1)}
    found.members["west"].spec = specs.parse_worker_cluster(make_worker_cluster("west", draining=True))
    assert facts(found, B)[0] is None
    assert slots.occupied_shares(PLACE) == set(), "else the share would wait for who waits for another"


def test_a_replaced_worker_of_an_unreachable_cluster_waits_for_another_slot() -> None:
    """Ray lost the workers there. KubeRay reuses their indexes for pods without remote pods, so the share is lost."""
    found = sight(*OUT, B, west=[copy_of(pod, slot) for pod, slot in zip(OUT, (WEST0, WEST1), strict=True)])
    silence(found, "west")
    assert facts(found, B)[0] is None
    gang = found.facts.gang_observer.facts((WORK["metadata"]["namespace"], WORK["metadata"]["name"]), at(99))
    assert (gang.pods.has_unplaced_workers, ("west", 1) in gang.pods.shares_with_live_manager_pods) == (True, False)


@pytest.mark.parametrize(
    ("leads", "pods", "sent"),
    [
        pytest.param(0, [], [uid_of(B)], id="this process created its remote pod"),
        pytest.param(0, [uid_of(B)], [], id="an earlier leader may have: the pod existed then"),
        pytest.param(120, [], [], id="an earlier leader may have, by the age of the pod"),
    ],
)
def test_a_pod_that_may_have_a_remote_pod_keeps_its_template_slot(
    leads: float, pods: list[str], sent: list[str]
) -> None:
    """A second copy elsewhere would be a worker too many."""
    found = sight(B)
    found.memory.start_leading(at(leads), pods)
    found.memory.sent_pods |= set(sent)
    silence(found, "west")
    assert facts(found, B)[0] == WEST0
    gang = found.facts.gang_observer.facts((WORK["metadata"]["namespace"], WORK["metadata"]["name"]), at(99))
    assert (gang.pods.has_unplaced_workers, ("west", 1) in gang.pods.shares_with_live_manager_pods) == (False, True)


def test_a_pod_with_an_unanswered_create_keeps_its_slot_in_a_draining_cluster() -> None:
    """A request that timed out may be done all the same: sent elsewhere, the worker would be there twice."""
    found = sight(B)
    slots = SlotObserver(found.manager, found.fleet, PendingAssignments(), found.memory)
    found.members["west"].spec = specs.parse_worker_cluster(make_worker_cluster("west", draining=True))
    assert slots.occupied_shares(PLACE) == set()
    found.memory.unanswered_pods.add(uid_of(B))
    assert slots.occupied_shares(PLACE) == {("west", 1)}, "its gang sees it at once, too"
    seen = found.facts.worker_observer.facts(key_of(B))
    assert seen.pod and (slot_of(seen.pod), seen.creation.unanswered) == (WEST0, True)


def test_taken_slots_are_computed_only_for_pods_that_may_get_another() -> None:
    """All of a large gang's are not read for each of its pods, but where it must choose, or may choose a better one."""
    found, other = sight(A, B), make_placement(WORK, excluded={"west": 60})
    fill(found.manager.placements, other)
    assert facts(found, B) == (WEST0, frozenset({EAST0}))
    assert facts(sight(A, B, make_pod("new", placement=NAME)), make_pod("new"))[1] == {EAST0, WEST0}


def test_transient_state_is_dropped_with_its_pod() -> None:
    found = sight(A)
    for known in (found.memory.sent_pods, found.memory.unanswered_pods):
        known |= {uid_of(A), "another"}
    found.memory.keep_only([], [uid_of(A)], [], [])
    assert found.memory.sent_pods == found.memory.unanswered_pods == {uid_of(A)}
    assert has_template_slot(A)
