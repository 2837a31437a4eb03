"""A job that waits for another admission check has not started, so the loss of a share does not queue it again."""

from dataclasses import replace

import pytest

from adapter import names
from adapter.actions import EmitEvent, Plan, SetCheck
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.reservation import parse_reservation
from adapter.objects.workload import AdmissionCheckState, parse_workload
from tests.unit.builders import at, make_reservation
from tests.unit.gang.test_uncreated_workers import PLACED, WORK, gang

LOST = replace(
    parse_reservation("east", make_reservation(PLACED)),
    admitted=False,
    reserved_at=None,
    eviction_message="Exceeded the PodsReady timeout",
)


def lost_share(approval: str, on_share_lost: str) -> Gang:
    workload = parse_workload(WORK)
    checks = {**workload.checks, "approval": AdmissionCheckState(approval, "", ())}
    return gang(
        None,
        workload=replace(workload, checks=checks),
        reservations=(LOST, parse_reservation("west", make_reservation(PLACED))),
        shares_with_remote_pods=frozenset(),
        on_share_lost=on_share_lost,
    )


@pytest.mark.parametrize("on_share_lost", ["Replace", "Restart"])
def test_a_lost_share_is_planned_again_without_retry(on_share_lost: str) -> None:
    """Kueue resets all checks after Retry: an approval that takes longer than its timeout would never end."""
    actions = decide(lost_share(names.CHECK_PENDING, on_share_lost), at(1801))
    assert not any(isinstance(action, SetCheck | EmitEvent) for action in actions)
    (plan,) = [action for action in actions if isinstance(action, Plan)]
    assert [share.cluster for share in plan.kept_shares or ()] == ["west"]


def test_a_job_that_runs_restarts_as_its_policy_says() -> None:
    actions = decide(lost_share(names.CHECK_READY, "Restart"), at(1801))
    assert [action.state for action in actions if isinstance(action, SetCheck)] == [names.CHECK_RETRY]
