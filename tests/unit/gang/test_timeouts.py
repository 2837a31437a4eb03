"""Times that another process wrote are believed as far as they may be: its clock may have gone ahead, by an hour say."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from adapter.actions import Action, Reactivate, RequeueAfter, UpdatePlacementStatus
from adapter.gang import requeue
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.gang.timeouts import current_exclusions, last_admissions, round_started_at
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from adapter.shell.observe.transient_state import TransientState
from tests.unit.bounded import soon
from tests.unit.builders import at, make_placement, make_reservation, make_workload
from tests.unit.fact_builders import with_facts
from tests.unit.stores import Sight, fill, make_ray_job

WORK = make_workload()
HOUR = 3600.0


@pytest.mark.parametrize(
    ("planned", "first_seen", "now", "want"),
    [
        pytest.param(0, at(0), 5, 0, id="when it was planned, by the process that asks"),
        pytest.param(0, at(20), 25, 0, id="also if another one did, and who asks came later"),
        pytest.param(HOUR, at(20), 25, 20, id="since it was seen, if it was planned by a clock that went ahead"),
        pytest.param(HOUR, None, 25, 25, id="since now, if nobody knows when it was seen"),
        pytest.param(2, at(1), 5, 1, id="a second of difference costs a second"),
    ],
)
def test_since_when_a_round_is_waited_for(planned: float, first_seen: datetime | None, now: float, want: float) -> None:
    assert round_started_at(parse_placement(make_placement(WORK, planned=planned)), first_seen, at(now)) == at(want)


@pytest.mark.parametrize("latest", [0, 9_999])
def test_which_clusters_answer_is_read_in_one_pass_of_whatever_many_shares(latest: int) -> None:
    """It is asked at every look while a large job is let in."""
    times = {number: at(9_999 if number == latest else number % 9) for number in range(10_000)}
    shares: Raw = {
        str(number): SimpleNamespace(cluster="east", admitted=True, reserved_at=when) for number, when in times.items()
    }
    waits: Raw = {"w": SimpleNamespace(cluster="west", admitted=False, reserved_at=at(5)), "n": None}
    gang = cast(Gang, SimpleNamespace(reservations_of=lambda *_: {**shares, **waits}))
    with soon():
        assert last_admissions(gang, parse_placement(make_placement(WORK))) == {"east": at(9_999)}


def test_a_round_whose_plan_says_no_time_is_waited_for_since_it_was_seen() -> None:
    raw = make_placement(WORK)
    del raw["spec"]["plannedAt"]
    assert round_started_at(parse_placement(raw), at(3), at(5)) == at(3)


def test_a_round_that_a_clock_ahead_has_planned_is_withdrawn_in_time() -> None:
    """Who leads now counts from its own first look, and not from the hour that comes."""
    sight = Sight({"east": 8, "west": 8})
    place, job = make_placement(WORK, planned=HOUR), make_ray_job()
    job["metadata"]["uid"] = "uid-of-job"
    fill(sight.manager.ray_jobs, job)
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.placements, place)
    for name, member in sight.members.items():
        fill(member.workloads, make_reservation(place, admitted=name == "west", message="preempting 1 workload"))

    def looked(seconds: float) -> bool:
        seen = sight.facts.gang_observer.facts(("demo", "rayjob-train"), at(seconds))
        actions = decide(with_facts(seen, rejection=""), at(seconds))  # for its template, which says too little
        return any(isinstance(one, UpdatePlacementStatus) and one.status.get("withdrawnRound") == 1 for one in actions)

    assert [looked(seconds) for seconds in (0, 29, 31)] == [False, False, True]


def test_when_a_round_was_seen_first_is_remembered_for_it_alone() -> None:
    memory, first, second = (
        TransientState(),
        parse_placement(make_placement(WORK)),
        parse_placement(make_placement(WORK, round=2)),
    )
    assert [memory.round_first_seen(one, at(n)) for n, one in enumerate((first, first, second, second))] == [
        at(0),
        at(0),
        at(2),
        at(2),
    ]
    memory.keep_only([], [], [])
    assert memory.round_first_seen(second, at(9)) == at(9), "a Placement that is gone is forgotten"


def test_of_each_share_that_was_not_admitted_its_own_round_is_remembered() -> None:
    raw = make_placement(WORK, round=3, placedRound=1)
    for number, share in enumerate(raw["spec"]["shares"], 1):
        share["round"] = number
    memory = TransientState()
    assert memory.rounds_first_seen(parse_placement(raw), at(1)) == {2: at(1), 3: at(1)}
    raw["spec"]["round"] = 4
    assert memory.rounds_first_seen(parse_placement(raw), at(5)) == {2: at(1), 4: at(5)}
    assert memory.round_first_seen(parse_placement(raw), at(6)) == at(5)


@pytest.mark.parametrize(
    ("until", "left_out"),
    [
        pytest.param(4, False, id="it is over"),
        pytest.param(60, True, id="it goes on"),
        pytest.param(80, True, id="as long as any does"),
        pytest.param(HOUR, False, id="longer than any does: by a clock that went ahead"),
    ],
)
@pytest.mark.parametrize("what", ["excluded", "blocked"])
def test_how_long_a_cluster_is_left_out(what: str, until: float, left_out: bool) -> None:
    given: Raw = {what: {"east": until}}
    place = parse_placement(make_placement(WORK, **given))
    assert bool(current_exclusions(place, at(5), timedelta(seconds=10))) is left_out
    assert current_exclusions(place, at(5), timedelta(minutes=30)) or until < 5, (
        "where workers may take so long to start"
    )


@pytest.mark.parametrize(
    ("yielded", "want"),
    [
        pytest.param(3, RequeueAfter(timedelta(seconds=3)), id="it stays out for a moment"),
        pytest.param(0, Reactivate, id="the moment is over"),
        pytest.param(HOUR, Reactivate, id="it left by a clock that went ahead"),
    ],
)
def test_who_stepped_aside_comes_back(yielded: float, want: Action | type) -> None:
    work = parse_workload(make_workload(active=False, yielded=yielded))
    assert requeue.reactivate(work, at(5)) == [Reactivate(work) if want is Reactivate else want]
