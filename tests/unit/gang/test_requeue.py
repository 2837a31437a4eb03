"""A gang that queued again lets jobs that were queued before it have the manager's quota, once."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from adapter.gang import requeue
from adapter.gang.timeouts import INACTIVE_FOR
from adapter.objects.workload import parse_workload
from tests.unit.builders import at, make_workload


@pytest.mark.parametrize(
    ("requeued", "reserved", "want"),
    [
        pytest.param(100, 100, True, id="in the same second"),
        pytest.param(100, 102, True, id="by a Kueue that is busy"),
        pytest.param(100, 103, False, id="after Kueue has tried the others"),
        pytest.param(160, 100, False, id="before it queued again, by a clock that was put back"),
        pytest.param(None, 100, False, id="the Workload never queued again"),
        pytest.param(100, None, False, id="the Workload has no quota"),
    ],
)
def test_has_quota_back_at_once(requeued: float | None, reserved: float | None, want: bool) -> None:
    requeued_at = None if requeued is None else at(requeued)
    workload = replace(parse_workload(make_workload(reserved=reserved)), requeued_at=requeued_at)
    assert requeue.has_quota_back_at_once(workload) is want


def test_a_gang_that_backs_off_gives_no_quota_back() -> None:
    """Kueue tried the others meanwhile, and a deactivation would reset its count of PodsReadyTimeouts."""
    raw = make_workload(reserved=101)
    raw["status"]["requeueState"] = {"count": 1}
    assert not requeue.has_quota_back_at_once(replace(parse_workload(raw), requeued_at=at(100)))


def test_the_last_time_of_the_calendar_is_read() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    assert not requeue.has_quota_back_at_once(replace(parse_workload(make_workload(reserved=100)), requeued_at=last))


def test_a_gang_that_was_deactivated_keeps_the_quota_that_it_gets_next() -> None:
    """Otherwise it would never run beside a large job that waits for more than this gang's quota."""
    assert requeue.AT_ONCE < INACTIVE_FOR, "the time of the deactivation is recorded in whole seconds"
