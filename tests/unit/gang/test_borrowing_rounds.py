"""Shares that borrow: reserved after what is nominal in their cluster, lost and placed again without the others."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapter import names
from adapter.actions import Plan, RequeueAfter, Reserve, SetCheck, UpdatePlacementStatus
from adapter.gang import reserve
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from tests.unit import builders as make
from tests.unit.builders import CHECK, at, make_placement, make_reservation, make_target, make_workload
from tests.unit.fact_builders import make_gang, with_facts

WORK, READY = make_workload(), make_workload(check=names.CHECK_READY)
PLACED = {"state": PlacementState.PLACED, "placedRound": 3}


def share(cluster: str, count: int, **more: Any) -> Raw:
    return {"cluster": cluster, "groups": [{"name": "workers", "role": "role-workers", "count": count}], **more}


def placement(*shares: Raw, **status: Any) -> Raw:
    raw = make_placement(WORK, round=3, **status)
    return {**raw, "spec": {**raw["spec"], "shares": list(shares)}}


EAST, LENT1, LENT2 = share("east", 2), share("east", 1, borrows=True, round=1), share("east", 1, borrows=True, round=2)
WEST_LENT = share("west", 1, borrows=True, round=2)
BOTH = (EAST, LENT1, LENT2)


def gang(work: Raw, raw: Raw, standing: Mapping[str, Iterable[Raw]], **more: Any) -> Gang:
    place = parse_placement(raw)
    return make_gang(
        workload=parse_workload(work),
        check=CHECK,
        placements=(place,),
        targets={s.cluster: make_target(s.cluster) for s in place.shares},
        reservations=tuple(parse_reservation(cluster, found) for cluster, many in standing.items() for found in many),
        reservation_timeout=timedelta(seconds=30),
        **more,
    )


def held(raw: Raw, number: int, **more: Any) -> Raw:
    return make_reservation(raw, round=number, **more)


def checked(raw: Raw) -> Raw:
    """The share has quota, and an admission check there is pending."""
    conditions = [entry for entry in raw["status"]["conditions"] if entry["type"] != names.ADMITTED]
    return {**raw, "status": {"conditions": conditions}}


FRESH = placement(*BOTH)
MIXED = placement(EAST, LENT1, WEST_LENT)


@pytest.mark.parametrize(
    ("raw", "standing", "seconds", "want"),
    [
        pytest.param(FRESH, {}, 1, {("east", 3)}, id="first what is nominal"),
        pytest.param(FRESH, {"east": [held(FRESH, 3, admitted=False)]}, 2, set(), id="the nominal share waits"),
        pytest.param(FRESH, {"east": [held(FRESH, 3, reserved=1)]}, 1, set(), id="it was admitted in this second"),
        pytest.param(
            FRESH, {"east": [held(FRESH, 3, reserved=1)]}, 2, {("east", 1), ("east", 2)}, id="then all that borrow"
        ),
        pytest.param(
            FRESH,
            {"east": [checked(held(FRESH, 3, reserved=1))]},
            2,
            {("east", 1), ("east", 2)},
            id="its admission checks run beside those of all that borrow",
        ),
        pytest.param(
            FRESH,
            {"east": [held(FRESH, 3, reserved=1), held(FRESH, 1, admitted=False)]},
            3,
            {("east", 2)},
            id="a crash between two writes",
        ),
        pytest.param(
            FRESH,
            {"east": [held(FRESH, 3, reserved=3600)]},
            2,
            {("east", 1), ("east", 2)},
            id="a clock that is ahead delays nothing",
        ),
        pytest.param(MIXED, {}, 1, {("east", 3), ("west", 2)}, id="a cluster without nominal quota waits for nobody"),
    ],
)
def test_borrowed_quota_is_reserved_after_nominal_quota(
    raw: Raw, standing: Mapping[str, list[Raw]], seconds: float, want: set[tuple[str, int]]
) -> None:
    actions = decide(gang(WORK, raw, standing), at(seconds))
    place = parse_placement(raw)
    reserved = {place.share_key(action.share) for action in actions if isinstance(action, Reserve)}
    assert {tuple(key) for key in reserved} == want
    assert {action.target.share for action in actions if isinstance(action, Reserve)} == {
        f"{place.name}-{number}" for _, number in want
    }


def test_it_is_decided_again_when_the_borrowing_shares_are_due() -> None:
    actions = decide(gang(WORK, FRESH, {"east": [held(FRESH, 3, reserved=1)]}), at(1))
    assert min(action.delay for action in actions if isinstance(action, RequeueAfter)) == timedelta(seconds=1)


def test_a_round_is_not_over_before_its_borrowing_shares_are_created() -> None:
    """Its nominal share was admitted at the end of the timeout."""
    waits = gang(WORK, FRESH, {"east": [held(FRESH, 3, reserved=30)]})
    assert not any(
        isinstance(action, UpdatePlacementStatus) and action.status.get("withdrawnRound")
        for action in decide(waits, at(30.5))
    )
    created = [action for action in decide(waits, at(31)) if isinstance(action, Reserve)]
    assert len(created) == 2


def test_a_gang_without_borrowing_shares_is_not_decided_again_for_them() -> None:
    whole = placement(EAST, share("west", 1))
    actions = decide(gang(WORK, whole, {"east": [held(whole, 3, reserved=1)]}), at(1))
    assert not [a for a in actions if isinstance(a, RequeueAfter) and a.delay == timedelta(seconds=1)]


def test_the_gang_starts_when_all_of_its_shares_are_admitted() -> None:
    standing = [held(FRESH, 3), held(FRESH, 1), held(FRESH, 2, admitted=False)]
    waits = decide(gang(WORK, FRESH, {"east": standing}), at(2))
    assert not any(isinstance(action, SetCheck) and action.state == names.CHECK_READY for action in waits)
    standing[2] = held(FRESH, 2)
    (check,) = (
        action for action in decide(gang(WORK, FRESH, {"east": standing}), at(2)) if isinstance(action, SetCheck)
    )
    assert check.state == names.CHECK_READY
    slots = check.podset_updates[0]["annotations"][names.SLOTS_ANNOTATION]
    assert slots == "east/3/role-workers/2 east/1/role-workers/1 east/2/role-workers/1"


def test_a_round_that_is_given_up_keeps_no_borrowing_share() -> None:
    standing = [held(FRESH, 3), held(FRESH, 1), held(FRESH, 2, admitted=False, message="insufficient quota")]
    (update,) = (
        a for a in decide(gang(WORK, FRESH, {"east": standing}), at(9)) if isinstance(a, UpdatePlacementStatus)
    )
    withdrawn = {**FRESH, "status": dict(update.status)}
    assert parse_placement(withdrawn).active_shares == ()
    assert update.status["withdrawnRound"] == 3 and [row["cluster"] for row in update.status["blocked"]] == ["east"]


def test_shares_that_are_not_requested_yet_block_nobody() -> None:
    late = gang(WORK, MIXED, {"east": [held(MIXED, 3, admitted=False)], "west": [held(MIXED, 2)]})
    (update,) = (a for a in decide(late, at(99)) if isinstance(a, UpdatePlacementStatus))
    assert "created after" not in str(update.status["blocked"])


RUNS = placement(*BOTH, **PLACED)
ALL = {"east": [held(RUNS, 3), held(RUNS, 1), held(RUNS, 2)]}
EVICTED = make.make_condition(names.EVICTED, message="Preempted to accommodate a workload")


def evicted(raw: Raw) -> Raw:
    return {**raw, "status": {"conditions": [EVICTED]}}


def test_a_reclaim_costs_the_share_that_it_takes() -> None:
    taken = {"east": [held(RUNS, 3), held(RUNS, 1), evicted(held(RUNS, 2))]}
    (plan,) = (action for action in decide(gang(READY, RUNS, taken), at(5)) if isinstance(action, Plan))
    assert plan.kept_shares == parse_placement(RUNS).shares[:2]
    assert "1 in east" in plan.lost_reason


def test_a_restored_placement_without_status_knows_that_its_shares_were_placed() -> None:
    """Otherwise a lost share would be requested again, and its timeout would delete the shares that run."""
    restored = placement(*BOTH)
    assert parse_placement(restored).implied_placed_round == 3
    taken = {"east": [held(restored, 3), held(restored, 1), evicted(held(restored, 2))]}
    (plan,) = (action for action in decide(gang(READY, restored, taken), at(500)) if isinstance(action, Plan))
    assert plan.kept_shares is not None and [share.workers for share in plan.kept_shares] == [2, 1]


def test_lost_workers_are_placed_in_a_further_round_of_borrowing_shares() -> None:
    again = placement(EAST | {"round": 3}, LENT1, share("east", 1, borrows=True, round=4), **PLACED)
    again["spec"] |= {"since": 4, "round": 4}
    waits = gang(READY, again, {"east": [held(again, 3), held(again, 1)]})
    (reserved,) = (action for action in decide(waits, at(5)) if isinstance(action, Reserve))
    assert (reserved.target.share, reserved.starts_gang) == (f"{again['metadata']['name']}-4", False)
    place = parse_placement(again)
    assert [place.is_from_last_plan(share) for share in place.shares] == [False, False, True]
    done = with_facts(waits, reservations=(*waits.shares.reservations, parse_reservation("east", held(again, 4))))
    (update,) = (action for action in decide(done, at(5)) if isinstance(action, UpdatePlacementStatus))
    assert update.status["placedRound"] == 4


def test_a_borrowing_share_without_an_earlier_one_is_just_not_created() -> None:
    place = parse_placement(MIXED)
    facts = gang(WORK, MIXED, {})
    reasons = reserve.blocked_shares(facts, facts.reservations_of(place, place.shares))
    assert [reason.code for reason in reasons.values()] == [
        names.ReasonCode.SHARE_NOT_CREATED,
        names.ReasonCode.BORROWING_DEFERRED,
        names.ReasonCode.SHARE_NOT_CREATED,
    ]
    assert replace(place.shares[1], borrows=False) != place.shares[1]
