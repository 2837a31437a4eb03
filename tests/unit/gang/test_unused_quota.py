"""A running gang that holds quota without a remote pod queues again after the start timeout."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import EmitEvent, RequeueAfter, SetCheck
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.gang.unused_quota import has_unused_quota, is_overdue
from adapter.objects.placement import PlacementState, ShareKey, parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.objects.workload import Workload, parse_workload
from adapter.shell.observe.transient_state import TransientState
from tests.unit.builders import (
    CHECK,
    START,
    at,
    make_condition,
    make_meta,
    make_placement,
    make_pod,
    make_reservation,
    make_workload,
)
from tests.unit.fact_builders import make_gang, with_facts
from tests.unit.stores import Sight, fill

WORK = make_workload(check=names.CHECK_READY)
PLACED = make_placement(WORK, placedRound=1, state=PlacementState.PLACED)
PLACEMENT = parse_placement(PLACED)
PODS = [make_pod("a", placement=PLACEMENT.name, slot="east/1/role-workers/0")]
NO_NODE = make_condition("PodScheduled", False, reason="Unschedulable", message="0/3 nodes are available.")


def head_pod(*conditions: Raw, **status: Any) -> Raw:
    return {"metadata": make_meta("head"), "status": {"conditions": list(conditions), **status}}


def workers_with(head: Raw | None, desired: int = 4) -> GangWorkers:
    return GangWorkers(PLACEMENT, PODS, {}, (), (), desired, head=head)


def reservations(**more: Any) -> tuple[Any, ...]:
    return tuple(parse_reservation(cluster, make_reservation(PLACED, **more)) for cluster in ("east", "west"))


def gang(**more: Any) -> Gang:
    """A gang that runs, all of whose shares are admitted, and that has no remote pod."""
    facts: Raw = {
        "workload": parse_workload(WORK),
        "check": CHECK,
        "placements": (PLACEMENT,),
        "reservations": reservations(),
        "workers": workers_with(head_pod(NO_NODE)),
    }
    return make_gang(**{**facts, **more})


def with_second_check(state: str) -> Workload:
    workload = parse_workload(WORK)
    return replace(workload, checks={**workload.checks, "approval": replace(workload.checks[CHECK], state=state)})


ELASTIC = replace(PLACEMENT, job=parse_workload(WORK).job)


@pytest.mark.parametrize(
    ("more", "is_unused"),
    [
        pytest.param({}, True, id="a gang without a remote pod has unused quota"),
        pytest.param({"workers": None}, True, id="a gang without a manager pod has unused quota"),
        pytest.param({"shares_with_remote_pods": frozenset({ShareKey("east", 1)})}, False,
            id="a gang with one remote pod uses its quota"),
        pytest.param({"reservations": reservations(admitted=False)}, False,
            id="a share holds no quota before admission"),
        pytest.param({"unreachable": {"west": "is unreachable"}}, False,
            id="a gang with a share in an unreachable cluster cannot be observed"),
        pytest.param({"unreachable": {"north": "is unreachable"}}, True,
            id="an unreachable cluster without a share of the gang does not count"),
        pytest.param({"workers": workers_with(None, desired=0)}, False, id="a RayCluster may want no workers"),
        pytest.param({"workload": parse_workload(make_workload(check=names.CHECK_PENDING))}, False,
            id="a gang that waits does not run"),
        pytest.param({"placements": ()}, False, id="a gang without a Placement has no shares"),
        pytest.param({"workload": with_second_check(names.CHECK_PENDING)}, False,
            id="Kueue keeps a job suspended while another check is pending"),
        pytest.param({"workload": with_second_check(names.CHECK_READY)}, True, id="all checks are ready"),
        pytest.param({"placements": (ELASTIC,), "workers": replace(workers_with(None), head_ready_since=START)}, False,
            id="the head of an elastic job works"),
        pytest.param({"placements": (ELASTIC,)}, True, id="the head of an elastic job finds no node"),
        pytest.param({"workers": replace(workers_with(None), head_ready_since=START, was_complete=True)}, False,
            id="the head works, and the job ran with all workers before"),
        pytest.param({"workers": replace(workers_with(None), was_complete=True)}, True,
            id="the job ran with all workers before, and its head finds no node"),
        pytest.param({"workers": replace(workers_with(None), head_ready_since=START)}, True,
            id="the head works, and the job never ran with all workers"),
    ],
)  # fmt: skip
def test_which_gang_has_unused_quota(more: Raw, is_unused: bool) -> None:
    assert has_unused_quota(gang(**more)) is is_unused


HEAD_WAITS = {"containerStatuses": [{"name": "ray-head", "state": {"waiting": {"reason": "ErrImagePull"}}}]}
SCHEDULED = make_condition("PodScheduled")


@pytest.mark.parametrize(
    ("workers", "reason"),
    [
        pytest.param(workers_with(head_pod(NO_NODE)),
            "the head pod head is not ready: it was not scheduled, 0/3 nodes are available",
            id="the head has no node"),
        pytest.param(workers_with(head_pod(SCHEDULED, **HEAD_WAITS)),
            "the head pod head is not ready: its container ray-head waits, ErrImagePull", id="the head has no image"),
        pytest.param(workers_with(head_pod(SCHEDULED)),
            "the head pod head is not ready: it has a node, but its readiness probe fails", id="the head is not ready"),
        pytest.param(workers_with(head_pod(make_condition("Ready"))),
            "the events of the job with reason WorkerFailing say why its remote pods are not created",
            id="the remote pods cannot be created"),
        pytest.param(workers_with(None), "the manager cluster has no head pod of the job. KubeRay's events on the "
            "RayCluster say why", id="the head does not exist"),
        pytest.param(None, "the manager cluster has no manager pod of them. KubeRay's events on the RayCluster say "
            "why it creates none; a ResourceQuota of the namespace, for example, must allow the pods of all workers",
            id="the manager pods do not exist"),
    ],
)  # fmt: skip
def test_a_gang_with_unused_quota_queues_again_with_the_reason(workers: GangWorkers | None, reason: str) -> None:
    overdue = gang(workers=workers, quota_unused_since=at(0))
    text = (
        f"No worker of the job was created in a worker cluster within 900s (2 east, 2 west): {reason}. The job gives "
        "its capacity back and queues again."
    )
    event, check = [action for action in decide(overdue, at(900)) if not isinstance(action, RequeueAfter)]
    assert isinstance(event, EmitEvent) and isinstance(check, SetCheck)
    assert (event.reason, event.message) == (names.EventReason.START_TIMEOUT, text)
    assert (check.state, check.message) == (names.CHECK_RETRY, text)


def test_before_the_start_timeout_the_gang_waits_and_is_reconciled_in_time() -> None:
    actions = decide(gang(quota_unused_since=at(0)), at(899))
    assert not any(isinstance(action, SetCheck) for action in actions)
    assert min(action.delay for action in actions if isinstance(action, RequeueAfter)) == at(900) - at(899)


def test_a_gang_with_used_quota_is_left_alone() -> None:
    actions = decide(with_facts(gang(), quota_unused_since=None), at(9000))
    assert not any(isinstance(action, SetCheck) for action in actions)


def test_the_first_observation_of_unused_quota_is_remembered_until_a_remote_pod_exists() -> None:
    seconds = 0.0
    memory = TransientState(lambda: seconds)
    for seconds, is_unused, since in ((1, True, 1), (5, True, 1), (6, False, None), (65, False, None), (66, True, 66)):
        expected = None if since is None else at(since)
        assert memory.quota_unused_since(PLACEMENT, is_unused, at(seconds)) == expected
    memory.keep_only([], [], [], [])
    seconds = 9
    assert memory.quota_unused_since(PLACEMENT, True, at(9)) == at(9), "a deleted Placement is forgotten"


def test_a_wait_goes_on_after_a_moment_with_a_remote_pod() -> None:
    """KubeRay deletes a replica that lacks a host, and creates it again without end."""
    seconds, memory = 0.0, TransientState(lambda: seconds)
    for seconds in range(0, 900, 25):
        is_unused = seconds % 50 == 0
        since = memory.quota_unused_since(PLACEMENT, is_unused, at(seconds))
        assert since == (at(0) if is_unused else None)


@pytest.mark.parametrize("ahead", [-3600, 3600])
def test_a_clock_that_is_put_back_or_forward_changes_no_wait_for_a_remote_pod(ahead: float) -> None:
    seconds = 0.0
    memory = TransientState(lambda: seconds)
    for seconds, now in ((0, 0), (5, 5 + ahead), (899, 899), (901, 901 + ahead)):
        since = memory.quota_unused_since(PLACEMENT, True, at(now))
        assert is_overdue(gang(quota_unused_since=since), at(now)) is (seconds >= 900)


def test_the_observer_reads_since_when_quota_is_unused() -> None:
    sight = Sight({"east": 9, "west": 9})
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.placements, PLACED)
    observer = sight.facts.gang_observer
    assert observer.facts(key_of(WORK), START).pods.quota_unused_since is None, "no share is observed"
    for cluster in ("east", "west"):
        fill(sight.members[cluster].workloads, make_reservation(PLACED))
    sight.memory._monotonic = lambda: 3.0
    assert observer.facts(key_of(WORK), at(3)).pods.quota_unused_since == at(3)
    sight.memory._monotonic = lambda: 8.0
    assert observer.facts(key_of(WORK), at(8)).pods.quota_unused_since == at(3)
