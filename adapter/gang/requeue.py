"""What does a gang do that finds no room: it waits, gives the manager's quota to those who queue behind, and queues again?

It holds nothing in the worker clusters meanwhile. How long it keeps what it has is said in timeouts.py; who among those that
wait has the first word on room that comes free is not asked here (planning/ordering.py).
"""

from datetime import datetime, timedelta

from adapter.actions import Action, LookAgain, Plan, Rejoin, Yield, say
from adapter.gang import messages
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import AWAY, RESYNC, SOON, excluded, gives_way_at, may_fit
from adapter.objects.placement import Placement
from adapter.objects.workload import Workload


def wait(gang: Gang, work: Workload, current: Placement, now: datetime) -> list[Action]:
    """Look again when something changed, and give way to those who queue behind."""
    live = excluded(current, now, gang.start_timeout)
    if may_fit(gang, current, live, now):
        return [Plan(work, current, live), LookAgain(SOON)]
    reason = current.explanation
    if given := give_way(gang, work, reason, now):
        return given
    turns = [now + RESYNC, *(one.until for one in live)]
    turns += [at] if (at := gives_way_at(gang, work, now)) else []
    turns += [gang.settles] if gang.settles else []
    body = messages.waiting(current, now)
    return [
        *messages.record(current, body),
        *messages.pending(gang, work, reason),
        *say(work.job, "Waiting", reason),
        LookAgain(min(turns) - now),
    ]


def give_way(gang: Gang, work: Workload, reason: str, now: datetime) -> list[Action]:
    """Leave the queue, if somebody waits for our place in it and it is time; the reason is said to the user."""
    at = gives_way_at(gang, work, now)
    if at is None or now < at:
        return []
    text = f"Gave the manager's quota to those who queue behind, and queued again. {reason}"
    return [*say(work.job, "Yielded", text), Yield(work)]


def rejoin(work: Workload, now: datetime) -> list[Action]:
    """Put back what we took out of the queue ourselves, after AWAY."""
    if work.active or work.deactivated_at is None:
        return []
    left = work.deactivated_at + AWAY - now
    # More than AWAY is left only by a clock that went ahead of ours, by an hour perhaps.
    return [LookAgain(left)] if timedelta(0) < left <= 2 * AWAY else [Rejoin(work)]
