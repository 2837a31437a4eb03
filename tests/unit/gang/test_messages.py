"""The status of a Placement in each state: workers, clusters, reason, and a condition that keeps its time."""

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
UNSEEN = Reason(ReasonCode.CLUSTER_UNREACHABLE, "is unreachable since 03:04:05 UTC: no answer in time")


def reserving(place: Placement, blocked: Mapping[str, Reason], now: datetime) -> explain.PlacementStatus:
    """The status of a round whose share these clusters have not admitted."""
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
        "a gang without an admitted share",
        reserving(ROUND1, {"east": SILENT, "west": SILENT}, at(5)),
        "Reserving",
        "0 of 4",
        "2 east, 2 west",
        "Reserving quota for workers: 2 east, 2 west.",
        code="ShareNotCreated",
    ),
    Case(
        "a gang that waits for one cluster quotes its reason",
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
        "an unreachable cluster is reported and is no loss",
        explain.degraded_status(ROUND1, {"east": UNSEEN}, {"east": UNSEEN.text}, at(5)),
        "Unknown",
        "2 of 4",
        "2 east, 2 west",
        "2 east, 2 west; workers in east are left running: the cluster is unreachable since 03:04:05 UTC: no "
        "answer in time.",
        "Unknown",
        code="ClusterUnreachable",
    ),
    Case(
        "a lost share and an unreachable cluster are reported separately",
        explain.degraded_status(ROUND1, {**SHORT, "west": UNSEEN}, {"west": UNSEEN.text, "north": "n"}, at(5)),
        "Unknown",
        "0 of 4",
        "2 east, 2 west",
        "2 east, 2 west; the share in east is not admitted now: cpu is short; workers in west are left running: the "
        "cluster is unreachable since 03:04:05 UTC: no answer in time.",
        "Unknown",
        code="QuotaPending",
    ),
    Case(
        "a withdrawn gang counts no held quota",
        explain.withdrawing_status(ROUND1, {"east": "cpu is short"}, LATE, at(60), at(5)),
        "Withdrawing",
        "0 of 4",
        "2 east, 2 west",
        "Not admitted within 30s, so every share is deleted; east: cpu is short.",
        code="ReservationTimeout",
    ),
    Case(
        "a cluster that gave no reason",
        explain.withdrawing_status(ROUND1, {"west": ""}, LATE, at(60), at(5)),
        "Withdrawing",
        "0 of 4",
        "2 east, 2 west",
        "Not admitted within 30s, so every share is deleted; west: its Kueue did not answer.",
        code="ReservationTimeout",
    ),
    Case(
        "an ended gang keeps its clusters",
        explain.ended_status(ROUND1, at(5)),
        "Ended",
        "0",
        "2 east, 2 west",
        PLAN,
    ),
]


WAITING_CODES = [
    pytest.param(
        replace(NO_ROOM, code=ReasonCode.NEVER_FITS), "NeverFits", id="the gang would not fit if nothing else ran"
    ),
    pytest.param(
        replace(NO_ROOM, code=ReasonCode.INSUFFICIENT_CAPACITY),
        "InsufficientCapacity",
        id="other gangs hold the capacity",
    ),
    pytest.param(NO_ROOM, "Waiting", id="the Placement has no reason code"),
]


@pytest.mark.parametrize(("place", "code"), WAITING_CODES)
def test_a_waiting_gang_has_the_reason_code_of_its_plan(place: Placement, code: str) -> None:
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


def test_a_reason_that_ends_in_a_full_stop_gets_no_second_one() -> None:
    status = reserving(ROUND1, {"east": Reason(ReasonCode.QUOTA_PENDING, "The ClusterQueue is stopped.")}, at(5))
    assert str(status["reason"]).endswith("The ClusterQueue is stopped.")


def test_several_shares_of_one_cluster_are_reported_once() -> None:
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


def test_a_condition_has_the_time_of_its_last_change() -> None:
    placed = explain.placed_status(ROUND1, at(5))
    lost = explain.degraded_status(told(placed), SHORT, {}, at(50))
    ended = explain.ended_status(told(lost), at(70))
    again = explain.ended_status(told(ended), at(90))
    assert [transition(status) for status in (placed, lost, ended, again)] == [stamp(5), stamp(5), stamp(70), stamp(70)]


def test_an_unchanged_status_comes_out_the_same() -> None:
    """So the decision sees no difference and writes nothing."""
    placed, asked = explain.placed_status(ROUND1, at(5)), reserving(ROUND1, SHORT, at(5))
    running = explain.degraded_status(told(placed), {"east": UNSEEN}, {"east": UNSEEN.text}, at(7))
    assert explain.placed_status(told(placed), at(99)) == placed
    assert reserving(told(asked), SHORT, at(99)) == asked
    assert explain.degraded_status(told(running), {"east": UNSEEN}, {"east": UNSEEN.text}, at(99)) == running


def test_where_adds_up_all_groups_of_a_cluster() -> None:
    shares: dict[str, dict[str, int]] = {"east": {"workers": 2, "gpu": 1}, "west": {"workers": 1}}
    raw = make_placement(make_workload(groups={"workers": 3, "gpu": 1}), shares=shares)
    assert explain.describe_placement(parse_placement(raw)) == "3 east, 1 west"


def test_a_foreign_condition_is_not_taken_for_ours() -> None:
    """Its time is not continued."""
    raw = make_placement(WORK, conditions=[{"type": "Other", "status": "True", "lastTransitionTime": stamp()}])
    assert transition(explain.placed_status(parse_placement(raw), at(5))) == stamp(5)
