"""An admission check of a worker cluster refuses a share: the cluster is left at once, and is not asked again soon."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import Action, EmitEvent, Plan, UpdatePlacementStatus
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import at, make_condition, make_placement, make_reservation, make_workload
from tests.unit.gang.test_elastic import only
from tests.unit.gang.test_lifecycle import gang as lifecycle_gang
from tests.unit.gang.test_scale_up import BASE, TWO, facts, kept

WORK = make_workload()
PLACE = make_placement(WORK, shares={"east": {"workers": 2}, "west": {"workers": 2}})
EVICTED = 'Evicted due to AdmissionCheck in Retry state: "nodes" (Out of capacity.)'
REFUSED = "AdmissionCheck nodes there is Rejected: Out of capacity"
PENDING = "AdmissionCheck nodes there is Pending: in 5 min"
ADVICE = "set spec.reservationTimeout of the DispatchPolicy to longer than the check takes"
SOON, LATE = at(1), at(30)


def check(state: str, message: str = "") -> Raw:
    return {"name": "nodes", "state": state, "message": message}


def share(state: str, message: str = "", **more: Any) -> Raw:
    """A share with quota, whose check has this state."""
    made = make_reservation(PLACE, admitted=False, checks=[check(state, message)], **more)
    made["status"]["conditions"] = [make_condition(names.QUOTA_RESERVED), *made["status"]["conditions"][1:]]
    return made


@pytest.mark.parametrize(
    ("raw", "text", "refusal"),
    [
        pytest.param(share("Pending", "in 5 min."), PENDING, "", id="the check is pending"),
        pytest.param(share("Pending"), "AdmissionCheck nodes there is Pending", "", id="without a message"),
        pytest.param(share("Ready"), "", "", id="the check is ready"),
        pytest.param(share("Rejected", "Out of capacity."), REFUSED, REFUSED, id="the check rejects"),
        pytest.param(
            share("Retry", "Later."), "AdmissionCheck nodes there is Retry: Later",
            "AdmissionCheck nodes there is Retry: Later", id="the check asks for a retry",
        ),
        pytest.param(
            share("Pending", "Reset.", refused=EVICTED), "AdmissionCheck nodes there is Pending: Reset", EVICTED,
            id="Kueue has evicted it, and its check starts again",
        ),
        pytest.param(
            share("Pending", conditions=[names.EVICTED]), "AdmissionCheck nodes there is Pending", "",
            id="it is evicted for another reason",
        ),
    ],
)  # fmt: skip
def test_what_a_check_answers(raw: Raw, text: str, refusal: str) -> None:
    found = parse_reservation("east", raw)
    assert (found.checks_text, found.refusal) == (text, refusal)


def test_a_deactivated_share_was_refused() -> None:
    """Kueue deactivates what a check rejects."""
    raw = share("Pending", refused=EVICTED, active=False)
    raw["status"]["conditions"][-1]["reason"] = "DeactivatedDueToAdmissionCheck"
    assert parse_reservation("east", raw).refusal == EVICTED


def gang(east: Raw, west: Raw | None = None) -> Gang:
    return lifecycle_gang(WORK, [PLACE], {"east": east, "west": west or make_reservation(PLACE)})


def blocked(actions: list[Action]) -> dict[str, str]:
    """The clusters that a withdrawn round excludes, with the reasons."""
    status = only(actions, UpdatePlacementStatus).status
    return {entry["cluster"]: entry["reason"] for entry in status.get("blocked") or ()}


OVER = share("Pending", refused=EVICTED, active=False)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(share("Rejected", "Out of capacity."), id="Kueue has not evicted it yet"),
        pytest.param(share("Pending", refused=EVICTED), id="it is evicted, and its quota held until the next try"),
        pytest.param(OVER, id="it is deactivated"),
    ],
)
def test_a_refused_share_takes_its_round_back_at_once(raw: Raw) -> None:
    """It is not created again by the same plan, which would ask the check again and again."""
    actions = decide(gang(raw), SOON)
    assert set(blocked(actions)) == {"east"} and blocked(actions)["east"].startswith("refused a share: ")
    event = only(actions, EmitEvent)
    assert event.reason == names.EventReason.RESERVATION_TIMEOUT
    assert event.message.startswith("An admission check refused a share, so every share is deleted; east: ")
    assert "Out of capacity" in event.message


def test_a_cluster_that_has_not_answered_is_not_excluded_with_the_one_that_refused() -> None:
    assert set(blocked(decide(gang(OVER, share("Pending")), SOON))) == {"east"}


def test_a_share_waits_for_its_check_and_says_so() -> None:
    status = only(decide(gang(share("Pending", "in 5 min.")), SOON), UpdatePlacementStatus).status
    assert status["reason"] == f"Reserving quota for workers: 2 east, 2 west; east: {PENDING}."
    assert status["conditions"][0]["reason"] == names.ReasonCode.CHECK_PENDING


def test_a_check_that_takes_longer_than_the_policy_waits_is_named_with_the_field() -> None:
    actions = decide(gang(share("Pending", "in 5 min.")), LATE)
    assert blocked(actions) == {"east": f"did not admit in time: {PENDING}; {ADVICE}"}


def test_a_refused_share_of_one_worker_is_planned_again_elsewhere() -> None:
    """Kueue has evicted it, but it was never admitted: no worker was lost."""
    plan_facts = facts(TWO, {2: None, 3: None})
    reservations = {(found.cluster, found.round): found for found in facts(TWO, {}).shares.reservations}
    refused = replace(reservations["west", 3], admitted=False, eviction_message=EVICTED, refusal=EVICTED)
    shares = (reservations["east", 1], reservations["west", 2], refused)
    actions = decide(replace(plan_facts, shares=replace(plan_facts.shares, reservations=shares)), SOON)
    plan = only(actions, Plan)
    assert kept(actions) == [BASE, ("west", 2)]
    assert [(exclusion.cluster, exclusion.reason) for exclusion in plan.exclusions] == [
        ("west", f"refused a share: {EVICTED}")
    ]
    assert only(actions, EmitEvent).message.startswith("Refused, so planned again: 1 west; west: Evicted due to")


def test_a_cluster_whose_check_takes_a_running_share_back_is_left() -> None:
    """As where the nodes of a ProvisioningRequest are revoked."""
    lost = {**OVER, "status": {**OVER["status"], "conditions": OVER["status"]["conditions"][1:]}}
    placed = {**PLACE, "status": {"placedRound": PLACE["spec"]["round"]}}
    running = lifecycle_gang(
        make_workload(check=names.CHECK_READY), [placed], {"east": lost, "west": make_reservation(PLACE)}
    )
    plan = only(decide(running, SOON), Plan)
    assert [share.cluster for share in plan.kept_shares or ()] == ["west"]
    assert [exclusion.cluster for exclusion in plan.exclusions] == ["east"]
    assert f"its workers were stopped there: {EVICTED}" in plan.lost_reason
