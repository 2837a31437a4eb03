"""Single-worker shares: each is asked for, waited for, withdrawn and deleted by itself."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.actions import Action, EmitEvent, Plan, Reserve, SetCheck, UpdatePlacementStatus
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.placement import PlacementState, ShareKey
from adapter.objects.placement import parse_placement as read_placement
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import at, make_reservation, stamp
from tests.unit.fact_builders import with_facts
from tests.unit.gang.test_elastic import PLACED, chain_of, gang, kinds, only, slice_of

SOON, LATE = at(1), at(5)  # a cluster that does not admit is waited for for four seconds
# The state of a share in its cluster.
ADMITTED: Raw = {}
WAITS: Raw = {"admitted": False, "message": "couldn't assign flavors: insufficient quota for cpu"}
SILENT: Raw = {"admitted": False}
ENDED: Raw = {"admitted": False, "conditions": [names.EVICTED]}
STATES: Mapping[str, Raw | None] = {"admitted": ADMITTED, "waits": WAITS, "ended": ENDED, "absent": None}


def grown(*clusters: str, wanted: int = 0, **status: Any) -> tuple[Raw, Raw]:
    """A job with two workers in east that asked for one more in each of these clusters: its slice and its Placement."""
    work = slice_of(2, workers=wanted or 2 + len(clusters), check=names.CHECK_READY)
    place = chain_of(work, round=1 + len(clusters), **{**PLACED, "state": PlacementState.RESERVING, **status})
    group = {"name": "workers", "role": "role-workers", "count": 1}
    place["spec"]["since"] = 2
    place["spec"]["shares"][0]["round"] = 1
    place["spec"]["shares"] += [
        {"cluster": cluster, "groups": [group], "round": number, "single": True}
        for number, cluster in enumerate(clusters, 2)
    ]
    return work, place


def facts(made: tuple[Raw, Raw], states: Mapping[int, Raw | None], **more: Any) -> Gang:
    """The facts of the gang; `states` are the states of its shares by round, admitted by default."""
    work, place = made
    found = list[Reservation]()
    for entry in place["spec"]["shares"]:
        state = states.get(entry["round"], ADMITTED)
        if state is not None:
            found.append(parse_reservation(entry["cluster"], make_reservation(place, round=entry["round"], **state)))
    keys = frozenset((entry["cluster"], entry["round"]) for entry in place["spec"]["shares"])
    return with_facts(
        gang(work, place, **{"shares_with_pods": keys, "shares_with_manager_pods": keys, **more}),
        reservations=tuple(found),
    )


def kept(actions: list[Action]) -> list[tuple[str, int]]:
    """The shares that a plan keeps, by cluster and round."""
    return [(share.cluster, share.round) for share in only(actions, Plan).kept_shares]


BASE, FIRST, SECOND = ShareKey("east", 1), ShareKey("west", 2), ShareKey("west", 3)
TWO = grown("west", "west")


def test_each_single_worker_share_is_asked_for_beside_the_standing_ones() -> None:
    actions = decide(facts(TWO, {2: None, 3: None}), SOON)
    asked = [action for action in actions if isinstance(action, Reserve)]
    assert [
        (request.share.cluster, request.target.round, request.groups[0][1], request.starts_gang) for request in asked
    ] == [
        ("west", 2, 1, False),
        ("west", 3, 1, False),
    ]
    assert len({request.target.share for request in asked}) == 2
    assert only(actions, UpdatePlacementStatus).status["state"] == PlacementState.RESERVING


@pytest.mark.parametrize(
    ("states", "workers", "placed"),
    [
        pytest.param({2: WAITS, 3: WAITS}, "2 of 4", 1, id="no share is admitted"),
        pytest.param({3: WAITS}, "3 of 4", 2, id="the first share is admitted"),
        pytest.param({2: WAITS}, "3 of 4", 1, id="the second share is admitted"),
        pytest.param({}, "4 of 4", 3, id="both shares are admitted"),
    ],
)
def test_an_admitted_single_worker_share_waits_for_no_other(
    states: Mapping[int, Raw], workers: str, placed: int
) -> None:
    actions = decide(facts(TWO, states), SOON)
    body = only(actions, UpdatePlacementStatus).status
    assert (body["workers"], body["placedRound"]) == (workers, placed)
    assert body["state"] == (PlacementState.RESERVING if states else PlacementState.PLACED)
    assert [action.reason for action in actions if isinstance(action, EmitEvent)] == ([] if states else ["Placed"])
    assert not any(isinstance(action, Plan | Reserve) for action in actions)


def test_a_share_that_is_not_admitted_in_time_is_planned_again_alone() -> None:
    actions = decide(facts(TWO, {3: WAITS}), LATE)
    assert kept(actions) == [BASE, FIRST]
    plan = only(actions, Plan)
    assert [(exclusion.cluster, exclusion.until > LATE) for exclusion in plan.exclusions] == [("west", True)]
    assert (plan.failures, plan.lost_reason) == (1, "")
    assert "insufficient quota" in plan.exclusions[0].reason
    assert only(actions, EmitEvent).message.startswith(
        "Not admitted in time, so planned again: 1 west; west: couldn't assign"
    )


@pytest.mark.parametrize(
    ("states", "wanted", "want"),
    [
        pytest.param({}, 4, True, id="all workers have a slot since the job is smaller"),
        pytest.param({}, 5, False, id="a worker lacks a slot"),
        pytest.param({3: WAITS}, 4, False, id="a share is not admitted yet"),
    ],
)
def test_the_wait_for_more_workers_ends_when_a_job_wants_fewer(
    states: Mapping[int, Raw], wanted: int, want: bool
) -> None:
    work, place = grown("west", "west", wanted=wanted)
    waits = work, {**place, "spec": {**place["spec"], "waitingSince": stamp(0)}}
    assert any(isinstance(action, Plan) for action in decide(facts(waits, states), SOON)) is want


@pytest.mark.parametrize("policy", ["Replace", "Restart"])
def test_a_preempted_single_worker_share_is_planned_again_whatever_the_policy(policy: str) -> None:
    for place in (TWO, grown("west", "west", placedRound=3)):
        actions = decide(facts(place, {2: ENDED}, on_share_lost=policy), SOON)
        assert kept(actions) == [BASE, SECOND]
        assert only(actions, Plan).exclusions == ()
        assert (
            only(actions, EmitEvent).message == "Workers were lost, 1 in west: its workers were stopped there: evicted."
        )


def test_shares_that_were_placed_together_start_again_as_the_policy_says() -> None:
    actions = decide(facts(TWO, {1: ENDED}, on_share_lost="Restart"), SOON)
    assert only(actions, SetCheck).state == names.CHECK_RETRY


def test_shares_lost_for_the_same_reason_are_reported_together() -> None:
    actions = decide(facts(grown("west", "west", placedRound=3), {2: ENDED, 3: ENDED}), SOON)
    assert only(actions, EmitEvent).message.startswith("Workers were lost, 2 in west: ")


@pytest.mark.parametrize(
    ("wanted", "on", "want"),
    [
        pytest.param(3, {BASE, SECOND}, [BASE, SECOND], id="the second worker has left, and its share is deleted"),
        pytest.param(3, {BASE, FIRST}, [BASE, FIRST], id="the first worker has left, and its share is deleted"),
        pytest.param(2, {BASE}, [BASE], id="both workers have left, and their shares are deleted"),
        pytest.param(2, {BASE, FIRST, SECOND}, None, id="no worker has left yet"),
        pytest.param(4, {BASE, FIRST}, None, id="a worker that is being replaced keeps its slot"),
        pytest.param(2, {FIRST, SECOND}, [FIRST, SECOND], id="shares that were placed together go together"),
    ],
)
@pytest.mark.parametrize("states", [{}, {2: WAITS, 3: WAITS}], ids=["placed", "coming"])
def test_a_worker_that_leaves_frees_its_own_share(
    wanted: int, on: set[tuple[str, int]], want: list[tuple[str, int]] | None, states: Mapping[int, Raw]
) -> None:
    made = grown("west", "west", wanted=wanted)
    actions = decide(facts(made, states, shares_with_pods=frozenset(on), shares_with_manager_pods=frozenset(on)), SOON)
    plans = [action for action in actions if isinstance(action, Plan)]
    assert ([(share.cluster, share.round) for share in plans[0].kept_shares or ()] if plans else None) == want


def test_an_admitted_share_survives_an_unreachable_cluster() -> None:
    """Also before its admission was noted: remote pods exist only on admitted shares."""
    gone = facts(TWO, {2: None, 3: WAITS}, unreachable={"west": "is unreachable"})
    gone = with_facts(
        gone, shares_with_remote_pods=frozenset({FIRST}), shares_with_live_manager_pods=frozenset({FIRST, SECOND})
    )
    assert kept(decide(gone, at(31))) == [BASE, FIRST]


@pytest.mark.parametrize(("states", "seconds"), [({2: SILENT, 3: SILENT}, 4), ({3: SILENT}, 30)])
def test_a_cluster_that_admits_shares_one_after_the_other_has_its_time(
    states: Mapping[int, Raw], seconds: float
) -> None:
    """It says nothing yet of the later ones. A cluster that says nothing at all is given up after four seconds."""
    assert "Plan" not in kinds(decide(facts(TWO, states), at(seconds - 1)))
    assert kept(decide(facts(TWO, states), at(seconds))) == [BASE, *([FIRST] if len(states) == 1 else [])]


def _filling(seconds: float, given_up: int = 0) -> tuple[tuple[Raw, Raw], Mapping[int, Raw | None]]:
    """A cluster that admitted one share after so many seconds, and says nothing of the next one yet."""
    work, place = grown("west", "west")
    place["spec"]["givenUp"] = given_up
    return (work, place), {2: {"reserved": seconds}, 3: SILENT}


@pytest.mark.parametrize(
    ("admitted", "given_up", "until"),
    [
        pytest.param(0, 0, 30, id="a cluster has its timeout"),
        pytest.param(20, 0, 50, id="a cluster has its timeout again after each admission"),
        pytest.param(40, 0, 60, id="a cluster has at most twice its timeout"),
        pytest.param(100, 1, 120, id="a cluster has twice as long after it was given up"),
        pytest.param(-3600, 0, 30, id="a clock that is behind shortens nothing"),
        pytest.param(3600, 0, 60, id="a clock that is ahead gives at most twice the timeout"),
    ],
)
def test_a_cluster_that_keeps_admitting_is_not_given_up(admitted: float, given_up: int, until: float) -> None:
    made, states = _filling(admitted, given_up)
    assert "Plan" not in kinds(decide(facts(made, states), at(until - 1)))
    assert "Plan" in kinds(decide(facts(made, states), at(until)))


def test_more_workers_are_planned_while_shares_are_pending() -> None:
    made = grown("west", "west", wanted=6)
    actions = decide(facts(made, {2: WAITS, 3: None}, changed_since_plan=True), SOON)
    assert kept(actions) == [BASE, FIRST, SECOND]
    assert only(actions, Reserve).target.round == 3, "which nobody waits for"


def together(states: Mapping[int, Raw | None]) -> Gang:
    """A pending single-worker share beside a round, on the share of round 3, that is asked for as a whole."""
    work, place = grown("west", "east")
    del place["spec"]["shares"][2]["single"]
    place["spec"]["since"] = 3
    return facts((work, place), states)


def test_a_round_is_not_noted_as_placed_while_a_single_worker_share_is_pending() -> None:
    """A share of a placed round that has no quota would count as lost."""
    for waits in (WAITS, SILENT):
        body = only(decide(together({2: waits}), SOON), UpdatePlacementStatus).status
        assert (body["state"], body.get("placedRound")) == (PlacementState.RESERVING, None)
    assert only(decide(together({}), SOON), UpdatePlacementStatus).status["placedRound"] == 3


def test_a_single_worker_share_is_asked_for_beside_a_round() -> None:
    actions = decide(together({2: None, 3: WAITS}), SOON)
    assert [action.target.round for action in actions if isinstance(action, Reserve)] == [2]


def test_a_later_plan_gives_a_pending_share_no_more_time() -> None:
    """A job that grows every second is planned every second: a cluster that says nothing would be asked for ever."""
    work, place = grown("west", "west")
    place["spec"]["plannedAt"] = stamp(3)
    found = facts((work, place), {2: SILENT, 3: SILENT})
    seen = {2: at(0), 3: at(3)}
    assert "Plan" not in kinds(decide(with_facts(found, started_at_by_round=seen, round_started_at=at(3)), at(3)))
    assert kept(decide(with_facts(found, started_at_by_round=seen, round_started_at=at(3)), at(5))) == [BASE, SECOND]


def test_a_share_that_preempts_is_asked_for_at_once_and_has_twice_the_time() -> None:
    work, place = grown("west", "west")
    for entry in place["spec"]["shares"][1:]:
        entry["preempts"] = True
    assert [
        action.target.round
        for action in decide(facts((work, place), {2: WAITS, 3: None}), SOON)
        if isinstance(action, Reserve)
    ] == [3]
    assert kinds(decide(facts((work, place), {2: WAITS, 3: WAITS}), at(59))) == ["UpdatePlacementStatus"]
    assert kept(decide(facts((work, place), {2: WAITS}), at(60))) == [BASE, SECOND]


def test_a_placement_of_an_older_version_has_no_single_worker_shares() -> None:
    _, place = grown("west", "west")
    del place["spec"]["since"]
    for entry in place["spec"]["shares"]:
        entry.pop("single", None)
    found = read_placement(place)
    assert not any(share.single_worker for share in found.shares)
    assert [found.is_from_last_plan(share) for share in found.shares] == [False, False, True]


@given(
    states=st.lists(st.sampled_from(sorted(STATES)), min_size=1, max_size=5),
    wanted=st.integers(2, 8),
    on=st.sets(st.integers(1, 6)),
    seconds=st.integers(0, 40),
    room=st.booleans(),
)
def test_running_workers_keep_their_shares_and_no_share_is_kept_for_nobody(
    states: list[str], wanted: int, on: set[int], seconds: int, room: bool
) -> None:
    made = grown(*["west"] * len(states), wanted=wanted)
    keys = {number: ("west", number) for number in range(2, 2 + len(states))} | {1: BASE}
    occupied = frozenset(keys[number] for number in on if number in keys) | {BASE}
    found = facts(
        made,
        {number: STATES[state] for number, state in enumerate(states, 2)},
        shares_with_pods=occupied,
        shares_with_manager_pods=occupied,
        changed_since_plan=room,
    )
    actions = decide(found, at(seconds))
    came = {("west", number) for number, state in enumerate(states, 2) if state == "admitted"}
    plans = [action for action in actions if isinstance(action, Plan)]
    left = {(share.cluster, share.round) for share in plans[0].kept_shares or ()} if plans else set(keys.values())
    assert BASE in left and came & occupied <= left
    empty = left - occupied
    assert not empty or 2 + len(left) - 1 <= wanted, "no share is kept that nobody is on or needs"
    assert not {("west", number) for number, state in enumerate(states, 2) if state == "ended"} & left
    assert not any(isinstance(action, SetCheck) for action in actions)
