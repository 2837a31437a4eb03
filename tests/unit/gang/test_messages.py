"""Each state of a Placement is told whole: state, how many are held, where, why, and a condition whose time is kept."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, cast

import pytest

from adapter.gang import messages as explain
from adapter.names import ReasonCode
from adapter.objects.placement import GroupShare, Placement, parse_placement
from adapter.objects.reason import Reason
from tests.unit.builders import at, make_placement, make_workload, stamp

WORK = make_workload()
ROUND1 = parse_placement(make_placement(WORK))
NO_ROOM = parse_placement(make_placement(WORK, shares={}, explanation="4 workers needed at once, 2 fit now."))
PLAN = "2 of 4 workers to east, 2 of 4 workers to west."
SHORT = {"east": Reason(ReasonCode.QUOTA_PENDING, "cpu is short")}
SILENT = Reason(ReasonCode.SHARE_NOT_CREATED, "")
LATE = Reason(ReasonCode.RESERVATION_TIMEOUT, "Not admitted within 30s")
UNSEEN = Reason(ReasonCode.CLUSTER_UNREACHABLE, "cannot be seen since 03:04:05 UTC: no answer in time")


def reserving(place: Placement, blocked: Mapping[str, Reason], now: datetime) -> explain.PlacementStatus:
    """What is said of a round of which these clusters have not admitted their share."""
    asked = {share.cluster: share for share in place.shares}
    return explain.reserving_status(place, {asked[cluster]: why for cluster, why in blocked.items()}, now)


@dataclass(frozen=True)
class Case:
    id: str
    given: explain.PlacementStatus
    state: str
    workers: str
    where: str
    reason: str
    placed: str = "False"
    code: str = ""  # the reason of the condition; empty: the state


CASES = [
    Case(
        "a gang that waits quotes its plan",
        explain.waiting_status(NO_ROOM, at(5)),
        "Waiting",
        "0 of 4",
        "",
        "4 workers needed at once, 2 fit now.",
    ),
    Case(
        "a gang of which nothing is admitted yet",
        reserving(ROUND1, {"east": SILENT, "west": SILENT}, at(5)),
        "Reserving",
        "0 of 4",
        "2 east, 2 west",
        "Reserving quota for workers: 2 east, 2 west.",
        code="ShareNotCreated",
    ),
    Case(
        "a gang that waits for one cluster says what that one says",
        reserving(ROUND1, SHORT, at(5)),
        "Reserving",
        "2 of 4",
        "2 east, 2 west",
        "Reserving quota for workers: 2 east, 2 west; east: cpu is short.",
        code="QuotaPending",
    ),
    Case(
        "a placed gang quotes its plan",
        explain.placed_status(ROUND1, at(5)),
        "Placed",
        "4 of 4",
        "2 east, 2 west",
        PLAN,
        "True",
    ),
    Case(
        "a gang that runs with a share lost is still placed",
        explain.degraded_status(ROUND1, SHORT, {}, at(5)),
        "Placed",
        "2 of 4",
        "2 east, 2 west",
        "2 east, 2 west; the share in east is not admitted now: cpu is short.",
        "True",
        code="QuotaPending",
    ),
    Case(
        "a loss without a reason is told without one",
        explain.degraded_status(ROUND1, {"east": SILENT}, {}, at(5)),
        "Placed",
        "2 of 4",
        "2 east, 2 west",
        "2 east, 2 west; the share in east is not admitted now.",
        "True",
        code="ShareNotCreated",
    ),
    Case(
        "a cluster that cannot be seen is no loss, and is told so",
        explain.degraded_status(ROUND1, {"east": UNSEEN}, {"east": UNSEEN.text}, at(5)),
        "Unknown",
        "2 of 4",
        "2 east, 2 west",
        "2 east, 2 west; what runs in east is left running: cannot be seen since 03:04:05 UTC: no answer in time.",
        "Unknown",
        code="ClusterUnreachable",
    ),
    Case(
        "a lost share beside a cluster that cannot be seen is told apart from it",
        explain.degraded_status(ROUND1, {**SHORT, "west": UNSEEN}, {"west": UNSEEN.text, "north": "n"}, at(5)),
        "Unknown",
        "0 of 4",
        "2 east, 2 west",
        "2 east, 2 west; the share in east is not admitted now: cpu is short; "
        "what runs in west is left running: cannot be seen since 03:04:05 UTC: no answer in time.",
        "Unknown",
        code="QuotaPending",
    ),
    Case(
        "a gang that is withdrawn holds nothing that counts",
        explain.withdrawing_status(ROUND1, {"east": "cpu is short"}, LATE, at(60), at(5)),
        "Withdrawing",
        "0 of 4",
        "2 east, 2 west",
        "Not admitted within 30s, so every share is given back; east: cpu is short.",
        code="ReservationTimeout",
    ),
    Case(
        "a cluster that said nothing is quoted so",
        explain.withdrawing_status(ROUND1, {"west": ""}, LATE, at(60), at(5)),
        "Withdrawing",
        "0 of 4",
        "2 east, 2 west",
        "Not admitted within 30s, so every share is given back; west: its Kueue did not answer.",
        code="ReservationTimeout",
    ),
    Case(
        "a gang that ended keeps where it was",
        explain.ended_status(ROUND1, at(5)),
        "Ended",
        "0",
        "2 east, 2 west",
        PLAN,
    ),
]


WAITING_CODES = [
    pytest.param(replace(NO_ROOM, code=ReasonCode.NEVER_FITS), "NeverFits", id="it would not fit if nothing else ran"),
    pytest.param(replace(NO_ROOM, code=ReasonCode.INSUFFICIENT_CAPACITY), "InsufficientCapacity", id="others hold it"),
    pytest.param(NO_ROOM, "Waiting", id="no code is written"),
]


@pytest.mark.parametrize(("place", "code"), WAITING_CODES)
def test_a_gang_that_waits_has_the_code_of_its_plan(place: Placement, code: str) -> None:
    (condition,) = cast(list[dict[str, str]], explain.waiting_status(place, at(5))["conditions"])
    assert condition["reason"] == code


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_status(case: Case) -> None:
    condition = {
        "type": "Placed",
        "status": case.placed,
        "reason": case.code or case.state,
        "message": case.reason,
        "lastTransitionTime": stamp(5),
    }
    assert {
        key: value for key, value in case.given.items() if key not in ("withdrawnRound", "placedRound", "blocked")
    } == {
        "state": case.state,
        "workers": case.workers,
        "where": case.where,
        "reason": case.reason,
        "conditions": [condition],
    }


def test_a_reason_that_is_a_sentence_already_gets_no_second_full_stop() -> None:
    status = reserving(ROUND1, {"east": Reason(ReasonCode.QUOTA_PENDING, "The ClusterQueue is stopped.")}, at(5))
    assert str(status["reason"]).endswith("The ClusterQueue is stopped.")


def test_several_shares_of_one_cluster_are_told_of_once() -> None:
    single = replace(ROUND1.shares[0], groups=(GroupShare("workers", "r", 1),), single_worker=True)
    place = replace(ROUND1, shares=tuple(replace(single, round=number) for number in (1, 2, 3)), round=3)
    status = explain.reserving_status(place, {place.shares[1]: SILENT, place.shares[2]: SHORT["east"]}, at(5))
    assert (status["workers"], status["reason"]) == (
        "1 of 4",
        "Reserving quota for workers: 3 east; east: cpu is short.",
    )


def test_a_withdrawal_names_its_round_and_its_blockers_for_the_next_plan() -> None:
    status = explain.withdrawing_status(ROUND1, {"east": "cpu is short", "west": ""}, LATE, at(60), at(5))
    assert status["withdrawnRound"] == 1
    assert status["blocked"] == [
        {"cluster": "east", "until": stamp(60), "reason": "did not admit in time: cpu is short"},
        {"cluster": "west", "until": stamp(60), "reason": "did not admit in time"},
    ]
    read = parse_placement({**make_placement(WORK), "status": status})
    assert read.withdrawing
    assert [(e.cluster, e.until) for e in read.blocked] == [("east", at(60)), ("west", at(60))]


def told(status: explain.PlacementStatus) -> Placement:
    return parse_placement({**make_placement(WORK), "status": status})


def transition(status: explain.PlacementStatus) -> object:
    conditions: Any = status["conditions"]
    return conditions[0]["lastTransitionTime"]


def test_the_time_of_a_condition_is_that_of_its_change() -> None:
    placed = explain.placed_status(ROUND1, at(5))
    lost = explain.degraded_status(told(placed), SHORT, {}, at(50))
    ended = explain.ended_status(told(lost), at(70))
    again = explain.ended_status(told(ended), at(90))
    assert [transition(status) for status in (placed, lost, ended, again)] == [stamp(5), stamp(5), stamp(70), stamp(70)]


def test_what_is_told_already_comes_out_the_same() -> None:
    """So that the decision sees no difference and writes nothing."""
    placed, asked = explain.placed_status(ROUND1, at(5)), reserving(ROUND1, SHORT, at(5))
    running = explain.degraded_status(told(placed), {"east": UNSEEN}, {"east": UNSEEN.text}, at(7))
    assert explain.placed_status(told(placed), at(99)) == placed
    assert reserving(told(asked), SHORT, at(99)) == asked
    assert explain.degraded_status(told(running), {"east": UNSEEN}, {"east": UNSEEN.text}, at(99)) == running


def test_where_lists_all_groups_of_a_cluster_as_one_number() -> None:
    shares: dict[str, dict[str, int]] = {"east": {"workers": 2, "gpu": 1}, "west": {"workers": 1}}
    raw = make_placement(make_workload(groups={"workers": 3, "gpu": 1}), shares=shares)
    assert explain.describe_placement(parse_placement(raw)) == "3 east, 1 west"


def test_a_condition_of_somebody_elses_is_not_taken_for_ours() -> None:
    """Its time is not ours to continue."""
    raw = make_placement(WORK, conditions=[{"type": "Other", "status": "True", "lastTransitionTime": stamp()}])
    assert transition(explain.placed_status(parse_placement(raw), at(5))) == stamp(5)
