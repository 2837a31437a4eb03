"""A running gang that stays below its minimum for `minWorkersTimeout` gives its quota back and queues again."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapter import names
from adapter.actions import EmitEvent, Plan, RequeueAfter, SetCheck, UpdatePlacementStatus
from adapter.gang import messages
from adapter.gang.gang_facts import Gang, WorkerCounts
from adapter.gang.lifecycle import decide
from adapter.gang.min_workers import is_overdue
from adapter.names import ConditionReason
from adapter.objects.placement import Placement, parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import condition
from adapter.objects.workload import parse_workload
from tests.unit.builders import at, stamp
from tests.unit.gang.test_start_timeout import E0, RUNS, W0, W1, WORK, copy_of, gang, gathered, placed, pod
from tests.unit.gang.test_unused_quota import ELASTIC, with_second_check

TIMEOUT = timedelta(seconds=60)
BELOW, STARTING = ConditionReason.BELOW_MIN_WORKERS, ConditionReason.MIN_WORKERS_STARTING
RUNNING = ConditionReason.MIN_WORKERS_RUNNING
OLD = {**E0, "metadata": {**E0["metadata"], "creationTimestamp": stamp(30)}}
_INIT = [{"name": "load", "state": {"running": {}}}]
LOADING: Raw = {**copy_of(E0), "status": {"initContainerStatuses": _INIT}}
ONE_STOPPED = gathered([OLD, RUNS, W0, W1], {"b": copy_of(RUNS)})


def recorded(reason: ConditionReason | None, since: float = 0) -> Raw:
    """A Placement whose status has the condition with this reason."""
    raw = placed()
    if reason:
        status = "True" if reason is RUNNING else "False"
        texts = {RUNNING: "At least 4 workers run.", BELOW: "Fewer than 4 workers run.",
                 STARTING: "Fewer than 4 workers have run so far."}  # fmt: skip
        raw["status"]["conditions"] = [
            {"type": names.MIN_WORKERS_RUNNING, "status": status, "reason": str(reason), "message": texts[reason],
             "lastTransitionTime": stamp(since)}
        ]  # fmt: skip
    return raw


def short_gang(reason: ConditionReason | None = BELOW, *, running: int = 3, since: float = 0, **more: Any) -> Gang:
    """A gang of four workers whose condition has this reason since then; its start timeout is 100 s."""
    counts = WorkerCounts(
        running,
        desired=more.pop("desired", 4),
        fewest=more.pop("fewest", 4),
        unknown=more.pop("unknown", 0),
        created=more.pop("created", None),
    )
    plain: Raw = {"min_workers_timeout": TIMEOUT, "worker_counts": counts, "below_minimum_since": at(-900)}
    workers = more.pop("workers", ONE_STOPPED)
    return gang(workers, recorded(reason, since), **{**plain, **more})


def checks_of(given: Gang, seconds: float) -> list[SetCheck]:
    return [action for action in decide(given, at(seconds)) if isinstance(action, SetCheck)]


def recorded_condition(given: Gang, seconds: float) -> Mapping[str, Any]:
    (write,) = [action for action in decide(given, at(seconds)) if isinstance(action, UpdatePlacementStatus)]
    return condition({"status": write.status}, names.MIN_WORKERS_RUNNING)


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="AllOrNothing needs all workers"),
        pytest.param({"same_cluster": True}, id="SameCluster needs all workers"),
        pytest.param({"running": 2, "min_workers": 3, "all_or_nothing": False}, id="BestEffort needs minWorkers"),
        pytest.param({"running": 0, "workers": None}, id="no worker has a manager pod"),
    ],
)
def test_a_gang_below_its_minimum_queues_again_after_the_timeout(more: Raw) -> None:
    given = short_gang(**more)
    assert not checks_of(given, 59)
    assert [check.state for check in checks_of(given, 60)] == [names.CHECK_RETRY]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"running": 4}, id="all workers run again"),
        pytest.param({"min_workers_timeout": None}, id="the policy has no such timeout"),
        pytest.param({"running": 3, "min_workers": 3, "all_or_nothing": False}, id="minWorkers of the workers run"),
        pytest.param({"worker_counts": None}, id="no minimum applies"),
        pytest.param({"reason": None}, id="since when is not recorded"),
        pytest.param({"reason": RUNNING}, id="the minimum ran at the last reconcile"),
        pytest.param({"running": 2, "desired": 2}, id="its RayCluster wants no more"),
        pytest.param({"running": 3, "unknown": 1}, id="the missing one may run in an unreachable cluster"),
        pytest.param({"workers": gathered([OLD, RUNS], {"a": LOADING})}, id="the missing one loads data"),
        pytest.param({"below_minimum_since": None}, id="this process has not observed it"),
        pytest.param({"workload": with_second_check(names.CHECK_PENDING)}, id="Kueue keeps the job suspended"),
    ],
)
def test_any_other_gang_goes_on(more: Raw) -> None:
    assert not checks_of(short_gang(**more), 5_000)


@pytest.mark.parametrize(
    ("timeout", "observed_since", "due"),
    [
        pytest.param(60, 300, 360, id="a new leader observes it for a minute"),
        pytest.param(20, 300, 320, id="no longer than the timeout"),
        pytest.param(600, 300, 600, id="the recorded time counts on"),
    ],
)
def test_a_process_that_starts_stops_nothing_at_once(timeout: float, observed_since: float, due: float) -> None:
    """What it reads first may be old: the manager pods of workers that became ready while no controller ran."""
    given = short_gang(min_workers_timeout=timedelta(seconds=timeout), below_minimum_since=at(observed_since))
    assert not is_overdue(given, given.placements[0], at(due - 1))
    assert is_overdue(given, given.placements[0], at(due))


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"created": at(1)}, id="KubeRay has created another RayCluster for a RayJob's next try"),
        pytest.param({"workload": replace(parse_workload(WORK), reserved_at=at(1))},
            id="Kueue has admitted it again"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reason", [BELOW, RUNNING])
def test_each_attempt_has_the_start_timeout(reason: ConditionReason, more: Raw) -> None:
    given = short_gang(reason, **more)
    assert not checks_of(given, 5_000)
    entry = recorded_condition(given, 500)
    assert (entry["reason"], entry["lastTransitionTime"]) == (STARTING, stamp(500))


def test_a_gang_without_a_ray_cluster_has_no_condition() -> None:
    """KubeRay deletes the RayCluster of a RayJob before it creates the next one."""
    assert not recorded_condition(short_gang(worker_counts=None), 20)


@pytest.mark.parametrize("reason", [BELOW, RUNNING])
def test_unknown_workers_change_no_condition(reason: ConditionReason) -> None:
    given = short_gang(reason, running=3, unknown=1)
    writes = [action for action in decide(given, at(500)) if isinstance(action, UpdatePlacementStatus)]
    assert all(condition({"status": write.status}, names.MIN_WORKERS_RUNNING)["reason"] == reason for write in writes)


def test_an_elastic_job_without_quota_for_more_workers_goes_on() -> None:
    """Its minReplicas were raised, and the manager's Kueue has not admitted the new slice yet."""
    elastic = replace(ELASTIC, status=parse_placement(recorded(BELOW)).status, wanted_workers=2)
    assert not is_overdue(short_gang(running=2, fewest=10, desired=10), elastic, at(5_000))
    assert is_overdue(short_gang(running=1, fewest=10, desired=10), elastic, at(60))


@pytest.mark.parametrize(
    ("running", "min_workers", "overdue"),
    [
        pytest.param(2, 0, False, id="its autoscaler may reduce it to minReplicas"),
        pytest.param(1, 0, True, id="fewer than minReplicas run"),
        pytest.param(1, 1, False, id="minWorkers is less than minReplicas"),
        pytest.param(1, 3, True, id="minWorkers is more than minReplicas"),
    ],
)
def test_the_minimum_of_an_elastic_job_is_its_min_replicas(running: int, min_workers: int, overdue: bool) -> None:
    elastic = replace(ELASTIC, status=parse_placement(recorded(BELOW)).status)
    given = short_gang(running=running, fewest=2, min_workers=min_workers)
    assert is_overdue(given, elastic, at(60)) is overdue


@pytest.mark.parametrize(
    ("head_ready_since", "timeout", "due"),
    [
        pytest.param(10, 60, 110, id="workerStartTimeout is longer"),
        pytest.param(10, 300, 310, id="minWorkersTimeout is longer"),
        pytest.param(-50, 60, 100, id="the head was ready before"),
    ],
)
def test_a_gang_that_starts_has_the_start_timeout_at_least(head_ready_since: float, timeout: float, due: float) -> None:
    workers = replace(ONE_STOPPED, head_ready_since=at(head_ready_since))
    given = short_gang(STARTING, workers=workers, min_workers_timeout=timedelta(seconds=timeout))
    assert not is_overdue(given, given.placements[0], at(due - 1))
    assert is_overdue(given, given.placements[0], at(due))


def test_the_time_to_start_does_not_begin_before_the_head_is_ready() -> None:
    given = short_gang(STARTING, workers=replace(ONE_STOPPED, head_ready_since=None))
    assert not is_overdue(given, given.placements[0], at(9_000))


@pytest.mark.parametrize(
    ("before", "running", "reason", "since"),
    [
        pytest.param(None, 3, STARTING, 500, id="it starts"),
        pytest.param(None, 4, RUNNING, 500, id="it runs when the policy gets the timeout"),
        pytest.param(STARTING, 4, RUNNING, 500, id="it has reached its minimum"),
        pytest.param(RUNNING, 3, BELOW, 500, id="it lost a worker"),
        pytest.param(BELOW, 4, RUNNING, 500, id="the worker is back, so the time is interrupted"),
    ],
)
def test_the_placement_records_since_when_workers_are_missing(
    before: ConditionReason | None, running: int, reason: str, since: float
) -> None:
    given = short_gang(before, running=running, min_workers_timeout=timedelta(hours=1))
    entry = recorded_condition(given, 500)
    assert (entry["reason"], entry["lastTransitionTime"]) == (reason, stamp(since))
    assert entry["status"] == ("True" if running == 4 else "False")


def test_a_recorded_shortage_is_written_once_and_reconciled_in_time() -> None:
    """The other actions go on meanwhile."""
    actions = decide(short_gang(), at(20))
    writes = [action for action in actions if isinstance(action, UpdatePlacementStatus)]
    assert all(condition({"status": write.status}, names.MIN_WORKERS_RUNNING)["lastTransitionTime"] == stamp(0)
               for write in writes)  # fmt: skip
    assert RequeueAfter(timedelta(seconds=40)) in actions


def test_lost_workers_are_planned_again_in_the_meantime() -> None:
    given = short_gang(reservations=())
    assert any(isinstance(action, Plan) for action in decide(given, at(20)))
    assert checks_of(given, 60)


def test_a_policy_without_the_timeout_writes_no_condition_and_removes_an_old_one() -> None:
    assert condition({"status": parse_placement(recorded(BELOW)).status}, names.MIN_WORKERS_RUNNING)
    assert not recorded_condition(short_gang(min_workers_timeout=None), 20)
    with_timeout, without = short_gang(None), short_gang(None, min_workers_timeout=None)
    assert decide(without, at(20)) != decide(with_timeout, at(20))
    assert decide(without, at(20)) == decide(gang(ONE_STOPPED), at(20))


def test_an_unreadable_policy_changes_nothing() -> None:
    given = short_gang(min_workers_timeout=None, clusters=())
    writes = [action for action in decide(given, at(20)) if isinstance(action, UpdatePlacementStatus)]
    assert all(condition({"status": write.status}, names.MIN_WORKERS_RUNNING) for write in writes)


@pytest.mark.parametrize(
    ("status_of", "stays"),
    [
        pytest.param(lambda placement: messages.placed_status(placement, at(1)), True, id="it runs"),
        pytest.param(lambda placement: messages.reserving_status(placement, {}, at(1)), True, id="it gets more shares"),
        pytest.param(lambda placement: messages.no_quota_status(placement, at(1)), False, id="Kueue suspended it"),
        pytest.param(lambda placement: messages.ended_status(placement, at(1)), False, id="it has ended"),
    ],
)
def test_the_condition_ends_with_the_run(status_of: Any, stays: bool) -> None:
    placement: Placement = parse_placement(recorded(BELOW))
    status = status_of(placement)
    assert bool(condition({"status": status}, names.MIN_WORKERS_RUNNING)) is stays
    assert condition({"status": status}, names.PLACED)


def test_the_message_says_what_is_missing_and_what_happens() -> None:
    workers = gathered([E0, pod("b", ""), W0], desired_workers=4)
    given = short_gang(workers=workers, running=1)
    (check,) = checks_of(given, 60)
    (event,) = [action for action in decide(given, at(60)) if isinstance(action, EmitEvent)]
    text = (
        "Fewer than 4 workers of the job ran for 60s, and 1 runs now (2 east, 2 west): 1 without a slot, because no "
        "cluster has capacity; 1 not ready in east, it was not scheduled, 0/3 nodes are available; 1 without a manager "
        "pod. The job gives its capacity back and queues again, because its DispatchPolicy has spec.minWorkersTimeout. "
        "It starts again when there is capacity for the workers that it needs."
    )
    assert check.message == text
    assert (event.reason, event.message, event.warning) == (names.EventReason.MIN_WORKERS_TIMEOUT, text, True)


@pytest.mark.parametrize(
    ("more", "clusters"),
    [
        pytest.param({}, {"east"}, id="its worker did not run for half of the time"),
        pytest.param({"draining": frozenset({"east"})}, set(), id="its cluster is drained"),
        pytest.param({"workers": replace(ONE_STOPPED, head_ready_since=None)}, set(), id="its head is not ready"),
        pytest.param({"workers": replace(ONE_STOPPED, head_ready_since=at(31))}, set(), id="its head was lost"),
        pytest.param({"since": 0, "workers": gathered([pod("a", ""), RUNS, W0, W1])}, set(), id="it has no slot"),
    ],
)
def test_the_next_attempt_leaves_out_the_clusters_whose_workers_did_not_run(more: Raw, clusters: set[str]) -> None:
    (check,) = checks_of(short_gang(**more), 60)
    assert (set(check.past_exclusions.until) if check.past_exclusions else set()) == clusters


def test_a_worker_that_was_just_created_does_not_blame_its_cluster() -> None:
    fresh = {**E0, "metadata": {**E0["metadata"], "creationTimestamp": stamp(31)}}
    (check,) = checks_of(short_gang(workers=gathered([fresh, RUNS, W0, W1])), 60)
    assert check.past_exclusions is None
