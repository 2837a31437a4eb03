"""Times that another process wrote are trusted within limits: its clock may be ahead, for example by an hour."""

from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from adapter.actions import Action, Reactivate, RequeueAfter, UpdatePlacementStatus
from adapter.gang import cleanup, requeue
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.gang.timeouts import current_exclusions, deactivates_at, end_of_wait, last_admissions, round_started_at
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from adapter.shell.observe.transient_state import TransientState
from tests.unit.bounded import soon
from tests.unit.builders import at, make_placement, make_reservation, make_workload
from tests.unit.fact_builders import make_gang, with_facts
from tests.unit.stores import Sight, fill, make_ray_job

WORK = make_workload()
HOUR = 3600.0


@pytest.mark.parametrize(
    ("planned", "now", "want"),
    [
        pytest.param(0, 5, 0, id="a round counts from its planning by this process"),
        pytest.param(0, 25, 0, id="a round counts from its planning by an earlier process"),
        pytest.param(HOUR, 25, 25, id="a round planned by a clock that is ahead counts from its first observation"),
    ],
)
def test_since_when_a_round_is_pending(planned: float, now: float, want: float) -> None:
    assert round_started_at(parse_placement(make_placement(WORK, planned=planned)), at(now)) == at(want)


@pytest.mark.parametrize("latest", [0, 9_999])
def test_waiting_clusters_are_read_in_one_pass_over_any_number_of_shares(latest: int) -> None:
    """It runs at every reconcile while a large job is admitted."""
    times = {number: at(9_999 if number == latest else number % 9) for number in range(10_000)}
    shares: Raw = {
        str(number): SimpleNamespace(cluster="east", admitted=True, reserved_at=when) for number, when in times.items()
    }
    waits: Raw = {"w": SimpleNamespace(cluster="west", admitted=False, reserved_at=at(5)), "n": None}
    clusters = SimpleNamespace(clocks=ClockOffsets())
    gang = cast(Gang, SimpleNamespace(reservations_of=lambda *_: {**shares, **waits}, clusters=clusters))
    with soon():
        assert last_admissions(gang, parse_placement(make_placement(WORK))) == {"east": at(9_999)}


def test_a_round_without_a_plan_time_counts_from_its_first_observation() -> None:
    raw = make_placement(WORK)
    del raw["spec"]["plannedAt"]
    assert round_started_at(parse_placement(raw), at(5)) == at(5)


@pytest.mark.parametrize(
    ("planned", "observed", "want"),
    [
        pytest.param(
            HOUR,
            [(0, 0), (29, 29), (31, 31)],
            [False, False, True],
            id="a clock ahead planned it; its observation counts",
        ),
        pytest.param(
            0, [(0, 0), (5, 5 - HOUR), (29, 29 - HOUR), (31, 31 - HOUR)], [False] * 3 + [True], id="a clock is put back"
        ),
        pytest.param(
            0, [(0, 0), (5, 5 + HOUR), (29, 29), (31, 31 + HOUR)], [False] * 3 + [True], id="a clock goes to and fro"
        ),
        pytest.param(-20, [(0, 0), (9, 9), (11, 11)], [False, False, True], id="an earlier process planned it"),
    ],
)
def test_a_round_is_withdrawn_in_time_whatever_the_clocks_do(
    planned: float, observed: list[tuple[float, float]], want: list[bool]
) -> None:
    assert withdrawn_at(planned, observed) == want


def withdrawn_at(planned: float, observed: list[tuple[float, float]]) -> list[bool]:
    """Whether a round that one cluster does not admit is withdrawn: by the monotonic clock and the cluster's."""
    sight = Sight({"east": 8, "west": 8})
    place, job = make_placement(WORK, planned=planned), make_ray_job()
    job["metadata"]["uid"] = "uid-of-job"
    fill(sight.manager.ray_jobs, job)
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.placements, place)
    for name, member in sight.members.items():
        fill(member.workloads, make_reservation(place, admitted=name == "west", message="preempting 1 workload"))

    def looked(monotonic: float, seconds: float) -> bool:
        sight.memory._monotonic = lambda: monotonic
        facts = sight.facts.gang_observer.facts(("demo", "rayjob-train"), at(seconds))
        actions = decide(with_facts(facts, rejection=""), at(seconds))  # for its template, which says too little
        return any(
            isinstance(action, UpdatePlacementStatus) and action.status.get("withdrawnRound") == 1 for action in actions
        )

    return [looked(*times) for times in observed]


def test_the_beginning_of_the_wait_is_remembered_per_round() -> None:
    seconds = 0.0
    memory = TransientState(lambda: seconds)
    unplanned = {number: make_placement(WORK, round=number) for number in (1, 2)}
    for raw in unplanned.values():
        del raw["spec"]["plannedAt"]
    for number, want in ((1, 0), (1, 0), (2, 2), (2, 2)):
        assert memory.round_started_at(parse_placement(unplanned[number]), at(seconds)) == at(want)
        seconds += 1
    memory.keep_only([], [], [], [])
    seconds = 9.0
    assert memory.round_started_at(parse_placement(unplanned[2]), at(9)) == at(9), "a deleted Placement is forgotten"


def test_the_beginning_of_each_share_not_admitted_is_remembered() -> None:
    seconds = 1.0
    raw = make_placement(WORK, round=3, placedRound=1)
    del raw["spec"]["plannedAt"]
    for number, share in enumerate(raw["spec"]["shares"], 1):
        share["round"] = number
    memory = TransientState(lambda: seconds)
    assert memory.rounds_started_at(parse_placement(raw), at(1)) == {2: at(1), 3: at(1)}
    raw["spec"]["round"], seconds = 4, 5.0
    assert memory.rounds_started_at(parse_placement(raw), at(5)) == {2: at(1), 4: at(5)}
    seconds = 6.0
    assert memory.round_started_at(parse_placement(raw), at(6)) == at(5)


@pytest.mark.parametrize(
    ("until", "left_out"),
    [
        pytest.param(4, False, id="an exclusion has ended"),
        pytest.param(60, True, id="an exclusion lasts"),
        pytest.param(80, True, id="an exclusion lasts as long as any can"),
        pytest.param(HOUR, False, id="an exclusion by a clock that is ahead is cut"),
    ],
)
@pytest.mark.parametrize("what", ["excluded", "blocked"])
def test_how_long_a_cluster_is_excluded(what: str, until: float, left_out: bool) -> None:
    given: Raw = {what: {"east": until}}
    place = parse_placement(make_placement(WORK, **given))
    assert bool(current_exclusions(place, at(5), timedelta(seconds=10))) is left_out
    assert current_exclusions(place, at(5), timedelta(minutes=30)) or until < 5, (
        "where workers may take so long to start"
    )


@pytest.mark.parametrize(
    ("yielded", "want"),
    [
        pytest.param(3, RequeueAfter(timedelta(seconds=3)), id="a deactivated gang stays so for a moment"),
        pytest.param(0, Reactivate, id="a deactivated gang is reactivated after the moment"),
        pytest.param(HOUR, Reactivate, id="a gang deactivated by a clock that is ahead is reactivated"),
    ],
)
def test_a_deactivated_gang_is_reactivated(yielded: float, want: Action | type) -> None:
    work = parse_workload(make_workload(active=False, yielded=yielded))
    assert requeue.reactivate(work, at(5)) == [Reactivate(work) if want is Reactivate else want]


@pytest.mark.parametrize(
    ("since", "want"),
    [
        pytest.param(0, 10, id="a wait ends after its duration"),
        pytest.param(7, 17, id="a few seconds of clock difference are waited for"),
        pytest.param(HOUR, 5, id="a wait that another clock began in an hour is over"),
    ],
)
def test_a_wait_by_another_clock_takes_twice_its_duration_at_most(since: float, want: float) -> None:
    assert end_of_wait(at(since), timedelta(seconds=10), at(5)) == at(want)


def test_a_gang_whose_quota_was_reserved_by_a_clock_ahead_is_deactivated_in_time() -> None:
    """Kueue writes when it reserved quota, by the clock of its own node."""
    work = parse_workload(make_workload(reserved=HOUR))
    gang = make_gang(workload=work, quota_contended_from=at(0))
    assert deactivates_at(gang, work, at(5)) == at(5)
    assert cleanup.leftover_wait(gang, work, [], at(5)) == timedelta(0)


@pytest.mark.parametrize(
    ("ahead", "want"),
    [
        pytest.param(0, at(9), id="a cluster with the manager's time admitted a share at that time"),
        pytest.param(600, at(9 - 600), id="a cluster ahead of the manager admitted it earlier"),
    ],
)
def test_admissions_count_by_the_managers_clock(ahead: float, want: datetime) -> None:
    place = make_placement(WORK, shares={"east": {"workers": 4}})
    reservation = replace(parse_reservation("east", make_reservation(place)), reserved_at=at(9))
    clocks = ClockOffsets({"east": timedelta(seconds=ahead)})
    gang = make_gang(reservations=(reservation,), clocks=clocks)
    assert last_admissions(gang, parse_placement(place)) == {"east": want}
