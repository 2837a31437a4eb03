"""A gang that finds no capacity: it waits, is deactivated when others queue behind it, and is reactivated.

It holds nothing in the worker clusters meanwhile. timeouts.py says how long it keeps the manager's quota;
planning/ordering.py says in which order waiting gangs are planned.
"""

from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, Deactivate, Plan, Reactivate, RequeueAfter, emit_event
from adapter.gang import messages
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import INACTIVE_FOR, RESYNC, SOON, current_exclusions, deactivates_at, may_fit
from adapter.objects.placement import Placement
from adapter.objects.workload import Workload


def wait_for_capacity(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    """Plan again when capacity changed; else deactivate when it is time, or wait with the reason."""
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
    """Deactivate the Workload if others queue behind it and it is time; empty if not."""
    deadline = deactivates_at(gang, workload, now)
    if deadline is None or now < deadline:
        return []
    text = f"Gave the manager's quota to those who queue behind, and queued again. {reason}"
    return [*emit_event(workload.job, names.EventReason.DEACTIVATED, text), Deactivate(workload)]


def reactivate(workload: Workload, now: datetime) -> list[Action]:
    """Reactivate a Workload that we deactivated, after INACTIVE_FOR."""
    if workload.active or workload.deactivated_at is None:
        return []
    remaining = workload.deactivated_at + INACTIVE_FOR - now
    # More than INACTIVE_FOR remains only if another replica's clock is ahead of ours, possibly by an hour.
    return [RequeueAfter(remaining)] if timedelta(0) < remaining <= 2 * INACTIVE_FOR else [Reactivate(workload)]
