"""A gang that finds no capacity: it waits, is deactivated when other gangs queue behind it, and is reactivated.

timeouts.py says how long it keeps the manager's quota; planning/ordering.py orders waiting gangs.
"""

from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, Deactivate, Plan, Reactivate, RequeueAfter, emit_event
from adapter.gang import messages
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import INACTIVE_FOR, RESYNC, SOON, current_exclusions, deactivates_at, end_of_wait, may_fit
from adapter.objects.placement import Placement
from adapter.objects.workload import Workload

# A Workload that has its quota back so soon after it was queued again got it at once: Kueue tries an evicted Workload
# immediately, and those that did not fit a second later (requeueBatchPeriod of kueue:pkg/cache/queue). It is less than
# INACTIVE_FOR, so that a deactivated gang does not give its quota back a second time.
AT_ONCE = timedelta(seconds=3)


def wait_for_capacity(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Plan again if capacity changed, deactivate when it is time, or wait."""
    exclusions = current_exclusions(placement, now, gang.policy.start_timeout)
    if may_fit(gang, placement, exclusions, now):
        return [Plan(workload, placement, exclusions), RequeueAfter(SOON)]
    reason = placement.explanation
    if deactivated := deactivate(gang, workload, reason, now):
        return deactivated
    deadlines = (deactivates_at(gang, workload, now), gang.capacity.deductions_expire_at)
    times = [now + RESYNC, *(exclusion.until for exclusion in exclusions), *filter(None, deadlines)]
    return [
        *messages.update_status(placement, messages.waiting_status(placement, now)),
        *messages.set_pending(gang, workload, reason),
        *emit_event(workload.job, names.EventReason.WAITING, reason),
        RequeueAfter(min(times) - now),
    ]


def deactivate(gang: Gang, workload: Workload, reason: str, now: datetime) -> list[Action]:
    """Deactivate the Workload if it is time and other gangs queue behind it."""
    deadline = deactivates_at(gang, workload, now)
    if deadline is None or now < deadline:
        return []
    text = f"Released the manager's quota for the jobs queued behind it, and queued again. {reason}"
    return [*emit_event(workload.job, names.EventReason.DEACTIVATED, text), Deactivate(workload)]


def has_quota_back_at_once(workload: Workload) -> bool:
    """Whether Kueue reserved a Workload's quota again before it tried the Workloads that had not fitted.

    False for one that backs off: Kueue tried the others meanwhile, and a deactivation would reset its backoff. False
    also for a time of queueing after the reservation: Kueue's clock was put back, or somebody wrote the annotation.
    """
    requeued_at, reserved_at = workload.requeued_at, workload.reserved_at
    if requeued_at is None or reserved_at is None or workload.backs_off:
        return False
    return timedelta(0) <= reserved_at - requeued_at < AT_ONCE


def let_earlier_jobs_first(workload: Workload) -> list[Action]:
    """Deactivate a Workload that took its quota back before those queued before it were tried."""
    text = (
        "Released the manager's quota for jobs that were queued before it, and queued again. Kueue gave the quota back "
        "to it before it tried them."
    )
    return [*emit_event(workload.job, names.EventReason.DEACTIVATED, text), Deactivate(workload)]


def reactivate(workload: Workload, now: datetime) -> list[Action]:
    """Reactivate a Workload INACTIVE_FOR after we deactivated it."""
    if workload.active or workload.deactivated_at is None:
        return []
    remaining = end_of_wait(workload.deactivated_at, INACTIVE_FOR, now) - now
    return [RequeueAfter(remaining)] if remaining > timedelta(0) else [Reactivate(workload)]
