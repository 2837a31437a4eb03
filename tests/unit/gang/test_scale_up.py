"""Workers that come one by one: each share of theirs is asked for, waited for, given up and given back by itself."""

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
# How a share stands in its cluster.
ADMITTED: Raw = {}
WAITS: Raw = {"admitted": False, "message": "couldn't assign flavors: insufficient quota for cpu"}
SILENT: Raw = {"admitted": False}
ENDED: Raw = {"admitted": False, "conditions": [names.EVICTED]}
STATES: Mapping[str, Raw | None] = {"admitted": ADMITTED, "waits": WAITS, "ended": ENDED, "absent": None}


def grown(*clusters: str, wanted: int = 0, **status: Any) -> tuple[Raw, Raw]:
    """A job with two workers in east that has asked for one more in each of these clusters: its slice, and its Placement."""
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
    """What is known of it; `states` is how its shares stand, by round: all that are not said are admitted."""
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
    """The shares that stay in a plan, by cluster and round."""
    return [(share.cluster, share.round) for share in only(actions, Plan).kept_shares]


BASE, FIRST, SECOND = ShareKey("east", 1), ShareKey("west", 2), ShareKey("west", 3)
TWO = grown("west", "west")


def test_each_is_asked_for_beside_what_stands() -> None:
    actions = decide(facts(TWO, {2: None, 3: None}), SOON)
    asked = [action for action in actions if isinstance(action, Reserve)]
    assert [(one.share.cluster, one.target.round, one.groups[0][1], one.starts_gang) for one in asked] == [
        ("west", 2, 1, False),
        ("west", 3, 1, False),
    ]
    assert len({one.target.share for one in asked}) == 2
    assert only(actions, UpdatePlacementStatus).status["state"] == PlacementState.RESERVING


@pytest.mark.parametrize(
    ("states", "workers", "placed"),
    [
        pytest.param({2: WAITS, 3: WAITS}, "2 of 4", 1, id="none came"),
        pytest.param({3: WAITS}, "3 of 4", 2, id="the first came"),
        pytest.param({2: WAITS}, "3 of 4", 1, id="the second came"),
        pytest.param({}, "4 of 4", 3, id="both came"),
    ],
)
def test_who_came_has_a_place_and_waits_for_nobody(states: Mapping[int, Raw], workers: str, placed: int) -> None:
    actions = decide(facts(TWO, states), SOON)
    body = only(actions, UpdatePlacementStatus).status
    assert (body["workers"], body["placedRound"]) == (workers, placed)
    assert body["state"] == (PlacementState.RESERVING if states else PlacementState.PLACED)
    assert [action.reason for action in actions if isinstance(action, EmitEvent)] == ([] if states else ["Placed"])
    assert not any(isinstance(action, Plan | Reserve) for action in actions)


def test_who_does_not_come_in_time_is_planned_anew_and_all_others_stay() -> None:
    actions = decide(facts(TWO, {3: WAITS}), LATE)
    assert kept(actions) == [BASE, FIRST]
    plan = only(actions, Plan)
    assert [(one.cluster, one.until > LATE) for one in plan.exclusions] == [("west", True)]
    assert (plan.failures, plan.lost_reason) == (1, "")
    assert "insufficient quota" in plan.exclusions[0].reason
    assert only(actions, EmitEvent).message.startswith(
        "Not admitted in time, so planned anew: 1 west; west: couldn't assign"
    )


@pytest.mark.parametrize("policy", ["Replace", "Restart"])
def test_one_that_is_preempted_is_planned_anew_whatever_the_policy(policy: str) -> None:
    for place in (TWO, grown("west", "west", placedRound=3)):
        actions = decide(facts(place, {2: ENDED}, on_share_lost=policy), SOON)
        assert kept(actions) == [BASE, SECOND]
        assert only(actions, Plan).exclusions == ()
        assert (
            only(actions, EmitEvent).message == "Workers were lost, 1 in west: its workers were stopped there: evicted."
        )


def test_what_came_together_starts_again_as_its_policy_says() -> None:
    actions = decide(facts(TWO, {1: ENDED}, on_share_lost="Restart"), SOON)
    assert only(actions, SetCheck).state == names.CHECK_RETRY


def test_those_who_are_lost_alike_are_told_of_together() -> None:
    actions = decide(facts(grown("west", "west", placedRound=3), {2: ENDED, 3: ENDED}), SOON)
    assert only(actions, EmitEvent).message.startswith("Workers were lost, 2 in west: ")


@pytest.mark.parametrize(
    ("wanted", "on", "want"),
    [
        pytest.param(3, {BASE, SECOND}, [BASE, SECOND], id="who has left gives back exactly that share"),
        pytest.param(3, {BASE, FIRST}, [BASE, FIRST], id="whoever it is"),
        pytest.param(2, {BASE}, [BASE], id="and so do both"),
        pytest.param(2, {BASE, FIRST, SECOND}, None, id="nobody is away yet"),
        pytest.param(4, {BASE, FIRST}, None, id="a worker that is made anew has its place there"),
        pytest.param(2, {FIRST, SECOND}, [FIRST, SECOND], id="what came together goes together"),
    ],
)
@pytest.mark.parametrize("states", [{}, {2: WAITS, 3: WAITS}], ids=["placed", "coming"])
def test_a_worker_that_leaves_gives_back_its_own_share(
    wanted: int, on: set[tuple[str, int]], want: list[tuple[str, int]] | None, states: Mapping[int, Raw]
) -> None:
    made = grown("west", "west", wanted=wanted)
    actions = decide(facts(made, states, shares_with_pods=frozenset(on), shares_with_manager_pods=frozenset(on)), SOON)
    plans = [action for action in actions if isinstance(action, Plan)]
    assert ([(one.cluster, one.round) for one in plans[0].kept_shares or ()] if plans else None) == want


def test_one_that_came_is_left_alone_when_its_cluster_falls_silent() -> None:
    """Also before it was noted down that it came: a copy is made of nobody else."""
    gone = facts(TWO, {2: None, 3: WAITS}, unreachable={"west": "cannot be seen"})
    gone = with_facts(
        gone, shares_with_remote_pods=frozenset({FIRST}), shares_with_live_manager_pods=frozenset({FIRST, SECOND})
    )
    assert kept(decide(gone, at(31))) == [BASE, FIRST]


@pytest.mark.parametrize(("states", "seconds"), [({2: SILENT, 3: SILENT}, 4), ({3: SILENT}, 30)])
def test_a_cluster_that_admits_one_after_the_other_has_its_time(states: Mapping[int, Raw], seconds: float) -> None:
    """It says nothing yet of those whose turn is to come; one that says nothing at all is left after four seconds."""
    assert "Plan" not in kinds(decide(facts(TWO, states), at(seconds - 1)))
    assert kept(decide(facts(TWO, states), at(seconds))) == [BASE, *([FIRST] if len(states) == 1 else [])]


def _filling(seconds: float, given_up: int = 0) -> tuple[tuple[Raw, Raw], Mapping[int, Raw | None]]:
    """A cluster that admitted one after so many seconds, and says nothing of the next one yet."""
    work, place = grown("west", "west")
    place["spec"]["givenUp"] = given_up
    return (work, place), {2: {"reserved": seconds}, 3: SILENT}


@pytest.mark.parametrize(
    ("admitted", "given_up", "until"),
    [
        pytest.param(0, 0, 30, id="its timeout"),
        pytest.param(20, 0, 50, id="and the same after each that it admits"),
        pytest.param(40, 0, 60, id="but twice its timeout at most"),
        pytest.param(100, 1, 120, id="twice as long once it was given up"),
        pytest.param(-3600, 0, 30, id="a clock that is behind takes nothing away"),
        pytest.param(3600, 0, 60, id="and one that is ahead gives no more than that"),
    ],
)
def test_one_that_goes_on_admitting_is_not_given_up(admitted: float, given_up: int, until: float) -> None:
    made, states = _filling(admitted, given_up)
    assert "Plan" not in kinds(decide(facts(made, states), at(until - 1)))
    assert "Plan" in kinds(decide(facts(made, states), at(until)))


def test_more_workers_are_planned_while_others_still_come() -> None:
    made = grown("west", "west", wanted=6)
    actions = decide(facts(made, {2: WAITS, 3: None}, changed_since_plan=True), SOON)
    assert kept(actions) == [BASE, FIRST, SECOND]
    assert only(actions, Reserve).target.round == 3, "which nobody waits for"


def together(states: Mapping[int, Raw | None]) -> Gang:
    """One that still comes by itself when others, on the share of round 3, are asked for as a whole."""
    work, place = grown("west", "east")
    del place["spec"]["shares"][2]["single"]
    place["spec"]["since"] = 3
    return facts((work, place), states)


def test_a_round_is_not_noted_as_placed_while_somebody_comes_by_itself() -> None:
    """Whoever is of a round that was placed, and has no quota, counts as lost."""
    for waits in (WAITS, SILENT):
        body = only(decide(together({2: waits}), SOON), UpdatePlacementStatus).status
        assert (body["state"], body.get("placedRound")) == (PlacementState.RESERVING, None)
    assert only(decide(together({}), SOON), UpdatePlacementStatus).status["placedRound"] == 3


def test_who_comes_by_itself_is_asked_for_beside_a_round() -> None:
    actions = decide(together({2: None, 3: WAITS}), SOON)
    assert [one.target.round for one in actions if isinstance(one, Reserve)] == [2]


def test_a_later_plan_gives_nobody_who_comes_more_time() -> None:
    """A job that grows every second is planned every second: a cluster that says nothing would be asked again and again."""
    work, place = grown("west", "west")
    place["spec"]["plannedAt"] = stamp(3)
    found = facts((work, place), {2: SILENT, 3: SILENT})
    seen = {2: at(0), 3: at(3)}
    assert "Plan" not in kinds(decide(with_facts(found, first_seen_by_round=seen, round_first_seen=at(3)), at(3)))
    assert kept(decide(with_facts(found, first_seen_by_round=seen, round_first_seen=at(3)), at(5))) == [BASE, SECOND]


def test_one_that_preempts_is_asked_for_at_once_and_has_twice_the_time() -> None:
    work, place = grown("west", "west")
    for entry in place["spec"]["shares"][1:]:
        entry["preempts"] = True
    assert [
        one.target.round for one in decide(facts((work, place), {2: WAITS, 3: None}), SOON) if isinstance(one, Reserve)
    ] == [3]
    assert kinds(decide(facts((work, place), {2: WAITS, 3: WAITS}), at(59))) == ["UpdatePlacementStatus"]
    assert kept(decide(facts((work, place), {2: WAITS}), at(60))) == [BASE, SECOND]


def test_an_older_placement_has_none_and_is_read_as_ever() -> None:
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
def test_nobody_who_runs_is_touched_and_nothing_is_held_for_nobody(
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
    left = {(one.cluster, one.round) for one in plans[0].kept_shares or ()} if plans else set(keys.values())
    assert BASE in left and came & occupied <= left
    empty = left - occupied
    assert not empty or 2 + len(left) - 1 <= wanted, "no share is kept that nobody is on or needs"
    assert not {("west", number) for number, state in enumerate(states, 2) if state == "ended"} & left
    assert not any(isinstance(action, SetCheck) for action in actions)
