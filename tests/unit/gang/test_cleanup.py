"""A share holds its cluster's quota until the last of its workers is gone there: pods go first, and are waited for."""

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
from tests.unit.builders import JOB, NAMESPACE, at, make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.fact_builders import with_facts
from tests.unit.stores import Sight, fill

WORK = make_workload()
PLACE = make_placement(WORK)
EARLIER = make_placement(WORK, attempt="earlier0")
ROLE = "role-workers"
HELD = make_reservation(PLACE, counts={ROLE: 2})
OLD = make_reservation(EARLIER, counts={ROLE: 2})
GOES = make_reservation(EARLIER, counts={ROLE: 2}, deleting=True)
RAY_JOB: Raw = {"metadata": {"name": JOB, "namespace": NAMESPACE, "uid": "uid-of-job"}}
STILL = "Workers are still ending: quota for 2 in east is held until the last of them is gone."


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
) -> Gang:
    """A gang as it is observed, with a share in east and these pods there."""
    sight = Sight({"east": 8, "west": 8})
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
        pytest.param(OLD, [], [DeleteShare(east(OLD))], id="no worker is there: the share goes"),
        pytest.param(OLD, [RUNS], [DeleteSharePods(east(OLD), (RUNS,))], id="one runs: it goes first"),
        pytest.param(OLD, [ENDS], [], id="it ends: nothing is to be done, and the quota stays"),
        pytest.param(
            OLD, [ENDS, RUNS_TOO], [DeleteSharePods(east(OLD), (RUNS_TOO,))], id="only what does not go yet is deleted"
        ),
        pytest.param(OLD, [OVER], [DeleteShare(east(OLD))], id="one that has ended needs no quota"),
        pytest.param(OLD, [copy(round_=2)], [DeleteShare(east(OLD))], id="one on another share is none of it"),
        pytest.param(OLD, [copy(PLACE)], [DeleteShare(east(OLD))], id="nor is one of another attempt"),
        pytest.param(GOES, [], [], id="a share that goes is not deleted again"),
        pytest.param(GOES, [RUNS], [DeleteSharePods(east(GOES), (RUNS,))], id="its workers go, whoever deleted it"),
    ],
)
def test_workers_go_before_their_share(share: Raw, pods: list[Raw], want: list[Action]) -> None:
    """Of a gang of which nothing is left in the manager: neither its job, nor its Workload, nor its Placement."""
    assert decide(seen(None, share, *pods), at(5)) == want


@pytest.mark.parametrize(("seconds", "want"), [(299, []), (300, [DeleteShare(east(OLD))])])
def test_a_worker_that_nobody_will_see_end_holds_no_quota_for_ever(seconds: float, want: list[Action]) -> None:
    """Its node is lost: whoever could say that it has ended is gone. Kubernetes itself waits as long for a node."""
    assert decide(seen(None, OLD, ENDS, now=seconds), at(seconds)) == want


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
def test_however_a_gang_ends_its_quota_waits_for_its_workers(work: Raw | None, pod: Raw, kind: type | None) -> None:
    actions = decide(seen(work, HELD, pod, place=PLACE, now=10), at(10))
    assert {type(action) for action in actions} & {DeleteSharePods, DeleteShare} == ({kind} if kind else set())


def test_a_share_that_a_running_gang_lost_waits_for_its_workers_too() -> None:
    """What they lost is planned anew meanwhile."""
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


def test_a_cluster_out_of_sight_tells_nothing_of_its_workers() -> None:
    sight = Sight({"east": 8})
    fill(sight.members["east"].workloads, OLD)
    sight.members["east"].on_run_failed(OSError("no answer"))
    assert decide(sight.facts.gang_observer.facts((NAMESPACE, WORK["metadata"]["name"]), at(5)), at(5)) == []


# --- who waits for it ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "pods", "unreleased", "want"),
    [
        pytest.param(5, [ENDS], {}, timedelta(seconds=5), id="for a moment, in which most workers end"),
        pytest.param(11, [ENDS], {}, timedelta(0), id="no longer: they may end for hours"),
        pytest.param(11, [], {}, RESYNC, id="for a share without workers, which goes at once"),
        pytest.param(5, [ENDS], {east(OLD).uid: "no right"}, timedelta(0), id="not for what will not be removed"),
    ],
)
def test_how_long_a_new_attempt_waits(
    seconds: float, pods: list[Raw], unreleased: Mapping[str, str], want: timedelta
) -> None:
    gang = with_facts(seen(WORK, OLD, *pods), deletion_denials=unreleased)
    assert gang.workload and timedelta(seconds=10) == ENDING_TIMEOUT
    assert cleanup.leftover_wait(gang, gang.workload, gang.shares.reservations, at(seconds)) == want


def test_who_waits_for_workers_to_end_says_so_on_its_check() -> None:
    actions = decide(seen(WORK, OLD, ENDS), at(5))
    assert [type(action) for action in actions] == [SetCheck, RequeueAfter]
    assert isinstance(actions[0], SetCheck) and (actions[0].state, actions[0].message) == (names.CHECK_PENDING, STILL)


def test_what_kueue_has_yet_to_act_on_is_not_overwritten() -> None:
    actions = decide(seen(make_workload(check=names.CHECK_RETRY), OLD, ENDS), at(5))
    assert [type(action) for action in actions] == [RequeueAfter]


def test_who_waited_long_enough_is_planned_beside_them() -> None:
    """Their quota counts as taken, for their share stands."""
    actions = decide(with_facts(seen(WORK, OLD, ENDS), rejection=""), at(11))
    assert [action.message for action in actions if isinstance(action, EmitEvent)] == [STILL]
    assert any(isinstance(action, Plan) for action in actions)


@pytest.mark.parametrize(
    ("pods", "said"),
    [
        pytest.param([copy(PLACE, deleting=True)], True, id="one ends"),
        pytest.param(
            [copy(PLACE), copy(PLACE, 1, deleting=True)], True, id="the same sentence for two of them: one write"
        ),
        pytest.param([], False, id="the last one is gone"),
    ],
)
def test_the_record_of_a_job_that_ended_says_where_workers_still_end(pods: list[Raw], said: bool) -> None:
    gang = seen(make_workload(conditions=[names.FINISHED]), HELD, *pods, place=PLACE)
    (record,) = [action for action in decide(gang, at(5)) if isinstance(action, UpdatePlacementStatus)]
    assert str(record.status["reason"]).endswith(STILL) is said and record.status["state"] == PlacementState.ENDED


# --- a share that another plan made ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "placed", "counts", "wanted"),
    [
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 2}, True, id="as planned"),
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 3}, False, id="more workers: the plan was overwritten by one that came late"),
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 1}, False, id="fewer"),
        pytest.param(names.CHECK_PENDING, 0, {"another": 2}, False, id="of another group"),
        pytest.param(names.CHECK_PENDING, 0, {ROLE: 2, "another": 1}, False, id="of one group more"),
        pytest.param(names.CHECK_PENDING, 1, {ROLE: 3}, False, id="not running yet, though the record says placed"),
        pytest.param(names.CHECK_READY, 1, {ROLE: 3}, True, id="it runs: workers are on it, whoever edited the Placement"),
        pytest.param(names.CHECK_READY, 0, {ROLE: 3}, True, id="it runs, and its record is yet to say so"),
        pytest.param(names.CHECK_PENDING, 0, {}, True, id="nothing is known of its counts"),
    ],
)  # fmt: skip
def test_a_share_stands_for_what_is_planned(check: str, placed: int, counts: dict[str, int], wanted: bool) -> None:
    place = make_placement(WORK, placedRound=placed)
    gang = seen(make_workload(check=check), make_reservation(place, counts=counts), place=place)
    assert (cleanup.unwanted_shares(gang) == ()) is wanted


def test_one_that_does_not_goes_before_another_of_its_name_is_asked_for() -> None:
    share = make_reservation(PLACE, counts={ROLE: 3})
    assert decide(seen(WORK, share, place=PLACE), at(1)) == [DeleteShare(east(share)), RequeueAfter(RESYNC)]
