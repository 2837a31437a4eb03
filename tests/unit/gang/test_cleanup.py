"""A share keeps its quota until its last worker pod in the worker cluster is gone: pods are deleted first."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from adapter import names
from adapter.actions import (
    Action,
    DeleteShare,
    DeleteSharePods,
    EmitEvent,
    Plan,
    RequeueAfter,
    SetCheck,
    UpdatePlacementStatus,
)
from adapter.gang import cleanup
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.gang.timeouts import ENDING_TIMEOUT, RESYNC
from adapter.objects.placement import PlacementState
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import (
    JOB,
    NAMESPACE,
    at,
    make_copy,
    make_placement,
    make_pod,
    make_reservation,
    make_workload,
    stamp,
)
from tests.unit.fact_builders import with_facts
from tests.unit.stores import Sight, fill, put_clock_ahead

WORK = make_workload()
PLACE = make_placement(WORK)
EARLIER = make_placement(WORK, attempt="earlier0")
ROLE = "role-workers"
HELD = make_reservation(PLACE, counts={ROLE: 2})
OLD = make_reservation(EARLIER, counts={ROLE: 2})
GOES = make_reservation(EARLIER, counts={ROLE: 2}, deleting=True)
RAY_JOB: Raw = {"metadata": {"name": JOB, "namespace": NAMESPACE, "uid": "uid-of-job"}}
STILL = "Workers are still terminating: quota for 2 in east is held until the last one has ended."


def copy(place: Raw = EARLIER, index: int = 0, round_: int = 1, **more: Any) -> Raw:
    pod = make_pod(f"worker-{index}", placement=place["metadata"]["name"], slot=f"east/{round_}/{ROLE}/{index}")
    return make_copy(pod, **more)


RUNS, RUNS_TOO, ENDS, OVER = copy(), copy(index=1), copy(deleting=True), copy(phase="Failed")


def seen(
    work: Raw | None,
    share: Raw,
    *pods: Raw,
    place: Raw | None = None,
    now: float = 5,
    east_ahead: float = 0,
) -> Gang:
    """A gang as it is observed, with a share in east and these pods there; `east_ahead`: seconds of east's clock."""
    sight = Sight({"east": 8, "west": 8})
    put_clock_ahead(sight.members["east"], east_ahead)
    fill(sight.manager.ray_jobs, RAY_JOB)
    fill(sight.manager.workloads, *([work] if work else []))
    fill(sight.manager.placements, *([place] if place else []))
    fill(sight.members["east"].workloads, share)
    fill(sight.members["east"].pods, *pods)
    return sight.facts.gang_observer.facts((NAMESPACE, WORK["metadata"]["name"]), at(now))


def east(raw: Raw) -> Reservation:
    return parse_reservation("east", raw)


@pytest.mark.parametrize(
    ("share", "pods", "want"),
    [
        pytest.param(OLD, [], [DeleteShare(east(OLD))], id="a share without workers is deleted"),
        pytest.param(OLD, [RUNS], [DeleteSharePods(east(OLD), (RUNS,))], id="a running worker is deleted first"),
        pytest.param(OLD, [ENDS], [], id="nothing is deleted while a worker ends, and the quota stays"),
        pytest.param(
            OLD,
            [ENDS, RUNS_TOO],
            [DeleteSharePods(east(OLD), (RUNS_TOO,))],
            id="only a worker that is not ending yet is deleted",
        ),
        pytest.param(OLD, [OVER], [DeleteShare(east(OLD))], id="a worker that has ended needs no quota"),
        pytest.param(OLD, [copy(round_=2)], [DeleteShare(east(OLD))], id="a worker on another share does not count"),
        pytest.param(OLD, [copy(PLACE)], [DeleteShare(east(OLD))], id="a worker of another attempt does not count"),
        pytest.param(GOES, [], [], id="a share that is being deleted is not deleted again"),
        pytest.param(
            GOES,
            [RUNS],
            [DeleteSharePods(east(GOES), (RUNS,))],
            id="the workers of a share that somebody else deleted are deleted",
        ),
    ],
)
def test_workers_go_before_their_share(share: Raw, pods: list[Raw], want: list[Action]) -> None:
    """Neither job, Workload nor Placement of the gang is left in the manager."""
    assert decide(seen(None, share, *pods), at(5)) == want


@pytest.mark.parametrize(("seconds", "want"), [(299, []), (300, [DeleteShare(east(OLD))])])
def test_a_worker_that_never_ends_holds_quota_for_a_limited_time(seconds: float, want: list[Action]) -> None:
    """Its node is lost, so nothing can report that it has ended. Kubernetes waits as long for a node."""
    assert decide(seen(None, OLD, ENDS, now=seconds), at(seconds)) == want


@pytest.mark.parametrize("east_ahead", [-700, -330, 330, 700])
@pytest.mark.parametrize(("overdue", "want"), [(-300, []), (0, []), (299, []), (300, [DeleteShare(east(OLD))])])
def test_a_worker_holds_quota_as_long_whatever_its_clusters_clock(
    east_ahead: float, overdue: float, want: list[Action]
) -> None:
    """Its cluster writes the end of its grace period by its own clock."""
    ends = copy(deleting=True)
    ends["metadata"]["deletionTimestamp"] = stamp(1000 + east_ahead - overdue)
    assert decide(seen(None, OLD, ends, now=1000, east_ahead=east_ahead), at(1000)) == want


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(None, id="gone"),
        pytest.param(make_workload(deleting=True), id="being deleted"),
        pytest.param(make_workload(conditions=[names.FINISHED]), id="finished"),
        pytest.param(make_workload(conditions=[names.EVICTED]), id="evicted"),
        pytest.param(make_workload(active=False), id="deactivated"),
        pytest.param(make_workload(reserved=9), id="its next attempt"),
    ],
)
@pytest.mark.parametrize(
    ("pod", "kind"),
    [pytest.param(copy(PLACE), DeleteSharePods, id="runs"), pytest.param(copy(PLACE, deleting=True), None, id="ends")],
)
def test_the_quota_of_an_ended_gang_waits_for_its_workers(work: Raw | None, pod: Raw, kind: type | None) -> None:
    actions = decide(seen(work, HELD, pod, place=PLACE, now=10), at(10))
    assert {type(action) for action in actions} & {DeleteSharePods, DeleteShare} == ({kind} if kind else set())


def test_a_share_that_a_running_gang_lost_waits_for_its_workers() -> None:
    """The lost workers are planned again meanwhile."""
    work, place = (
        make_workload(check=names.CHECK_READY),
        make_placement(WORK, shares={"west": {"workers": 4}}, placedRound=1),
    )
    actions = decide(seen(work, HELD, copy(PLACE), place=place), at(5))
    assert DeleteSharePods(east(HELD), (copy(PLACE),)) in actions and any(
        isinstance(action, Plan) for action in actions
    )
    assert [
        action.message
        for action in actions
        if isinstance(action, EmitEvent) and action.reason == "WaitingForTermination"
    ] == [STILL]


def test_nothing_is_deleted_in_an_unreachable_cluster() -> None:
    sight = Sight({"east": 8})
    fill(sight.members["east"].workloads, OLD)
    sight.members["east"].on_run_failed(OSError("no answer"))
    assert decide(sight.facts.gang_observer.facts((NAMESPACE, WORK["metadata"]["name"]), at(5)), at(5)) == []


# --- how long a new attempt waits for ending workers ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "pods", "unreleased", "want"),
    [
        pytest.param(
            5, [ENDS], {}, timedelta(seconds=5), id="a new attempt waits for a moment, in which most workers end"
        ),
        pytest.param(11, [ENDS], {}, timedelta(0), id="a new attempt does not wait longer: workers may end for hours"),
        pytest.param(11, [], {}, RESYNC, id="a new attempt waits for a share without workers, which goes at once"),
        pytest.param(
            5,
            [ENDS],
            {east(OLD).uid: "no right"},
            timedelta(0),
            id="a new attempt does not wait for a share that cannot be deleted",
        ),
    ],
)
def test_how_long_a_new_attempt_waits(
    seconds: float, pods: list[Raw], unreleased: Mapping[str, str], want: timedelta
) -> None:
    gang = with_facts(seen(WORK, OLD, *pods), deletion_denials=unreleased)
    assert gang.workload and timedelta(seconds=10) == ENDING_TIMEOUT
    assert cleanup.leftover_wait(gang, gang.workload, gang.shares.reservations, at(seconds)) == want


def test_a_gang_that_waits_for_ending_workers_says_so_on_its_check() -> None:
    actions = decide(seen(WORK, OLD, ENDS), at(5))
    assert [type(action) for action in actions] == [SetCheck, RequeueAfter]
    assert isinstance(actions[0], SetCheck) and (actions[0].state, actions[0].message) == (names.CHECK_PENDING, STILL)


def test_a_retry_that_kueue_has_not_acted_on_is_not_overwritten() -> None:
    actions = decide(seen(make_workload(check=names.CHECK_RETRY), OLD, ENDS), at(5))
    assert [type(action) for action in actions] == [RequeueAfter]


def test_a_gang_that_waited_long_enough_is_planned_beside_ending_workers() -> None:
    """The quota of the ending workers counts as taken, because their share stands."""
    actions = decide(with_facts(seen(WORK, OLD, ENDS), rejection=""), at(11))
    assert [action.message for action in actions if isinstance(action, EmitEvent)] == [STILL]
    assert any(isinstance(action, Plan) for action in actions)


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        pytest.param([copy(PLACE, deleting=True)], True, id="one worker ends"),
        pytest.param(
            [copy(PLACE), copy(PLACE, 1, deleting=True)],
            True,
            id="two ending workers give the same sentence: one write",
        ),
        pytest.param([], False, id="the last worker is gone"),
    ],
)
def test_the_placement_of_an_ended_job_says_where_workers_still_end(pods: list[Raw], said: bool) -> None:
    gang = seen(make_workload(conditions=[names.FINISHED]), HELD, *pods, place=PLACE)
    (record,) = [action for action in decide(gang, at(5)) if isinstance(action, UpdatePlacementStatus)]
    assert str(record.status["reason"]).endswith(STILL) is said and record.status["state"] == PlacementState.ENDED


# --- a share that does not match the plan ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "placed", "counts", "wanted"),
    [
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 2}, True, id="as many workers as planned"),
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 3}, False,
            id="more workers than planned: a late plan overwrote the plan"),
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 1}, False, id="fewer workers than planned"),
        pytest.param(names.CHECK_PENDING, 0, {"another": 2}, False, id="workers of another group"),
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 2, "another": 1}, False, id="workers of a further group"),
        pytest.param(names.CHECK_PENDING, 1, {ROLE: 3}, False,
            id="the record says placed, but the gang does not run yet"),
        pytest.param(names.CHECK_READY, 1, {ROLE: 3}, True,
            id="workers of a running gang stay, whoever edited the Placement"),
        pytest.param(names.CHECK_READY, 0, {ROLE: 3}, True, id="the gang runs, and its record does not say so yet"),
        pytest.param(names.CHECK_PENDING, 0, {}, True, id="the share's counts are unknown"),
    ],
)  # fmt: skip
def test_a_share_stands_for_what_is_planned(check: str, placed: int, counts: dict[str, int], wanted: bool) -> None:
    place = make_placement(WORK, placedRound=placed)
    gang = seen(make_workload(check=check), make_reservation(place, counts=counts), place=place)
    assert (cleanup.unwanted_shares(gang) == ()) is wanted


def test_a_running_gang_does_not_adopt_a_share_with_other_counts_for_a_plan_that_it_has_yet_to_place() -> None:
    """The share is of a deleted Placement, and its cluster was unreachable when the next one was planned."""
    work, share = make_workload(check=names.CHECK_READY), make_reservation(PLACE, counts={ROLE: 3})
    later = {**PLACE, "spec": {**PLACE["spec"], "since": 1}}
    assert cleanup.unwanted_shares(seen(work, share, place=later)) == (east(share),)
    assert cleanup.unwanted_shares(seen(work, HELD, place=later)) == ()


RUNNING = make_workload(check=names.CHECK_READY)
NAME = PLACE["metadata"]["name"]


@pytest.mark.parametrize(
    ("pods", "last_round"),
    [
        pytest.param([], 2, id="the last round of a share"),
        pytest.param([make_pod(placement=NAME, slot=f"west/3/{ROLE}/0")], 3,
            id="the round of a worker whose cluster is unreachable"),
        pytest.param([make_pod(placement=NAME, index="0", listed=f"west/4/{ROLE}/1")], 4,
            id="the round of a template slot"),
        pytest.param([make_pod(placement="another", slot=f"west/5/{ROLE}/0")], 2,
            id="no round of another Placement's worker"),
        pytest.param([make_pod(placement=NAME, slot=f"west/999999999/{ROLE}/0")], 2, id="no forged round"),
    ],
)  # fmt: skip
def test_a_placement_that_follows_a_deleted_one_begins_after_all_rounds_in_use(
    pods: list[Raw], last_round: int
) -> None:
    sight = Sight({"east": 8})
    fill(sight.manager.workloads, RUNNING)
    fill(sight.manager.ray_jobs, RAY_JOB)
    fill(sight.manager.pods, *pods)
    fill(sight.members["east"].workloads, make_reservation(PLACE, round=2, counts={ROLE: 2}))
    gang = sight.facts.gang_observer.facts((NAMESPACE, RUNNING["metadata"]["name"]), at(5))
    (plan,) = [action for action in decide(gang, at(5)) if isinstance(action, Plan)]
    assert (plan.last_round, plan.kept_shares) == (last_round, ())
    body = asyncio.run(sight.planning.plan_round(plan, at(5))).body
    assert (body["spec"]["round"], body["spec"]["since"]) == (last_round + 1, last_round + 1)


def test_a_share_that_differs_from_the_plan_is_deleted_before_it_is_asked_for_again() -> None:
    share = make_reservation(PLACE, counts={ROLE: 3})
    assert decide(seen(WORK, share, place=PLACE), at(1)) == [DeleteShare(east(share)), RequeueAfter(RESYNC)]
