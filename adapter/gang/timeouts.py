"""How long is waited: for a cluster to admit a share, until one that did not is asked again, and before a gang gives way?

Also when a gang looks again without having been woken. Only times are said here, and what they are up against; what is done
when one is over is decided by who asks (lifecycle.py, reserve.py, running.py, requeue.py).
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from adapter.gang import dry_run
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

# A cluster that did not admit in time is asked again after this long, twice as long after each round that was given up, up
# to EXCLUDED_FOR: long enough for another one to be tried first, short enough that a Kueue which was merely slow, or being
# restarted, is not held against it.
MIN_EXCLUSION = timedelta(seconds=15)
MAX_EXCLUSION = timedelta(seconds=60)
# With what `excluded_for` adds, and as much again for clocks of two replicas that differ a little.
EXCLUSION_LIMIT = 2 * MAX_EXCLUSION
# One that does not start workers is left out for one timeout of the policy, then two, then four, an hour by default: nodes come
# back, and a gang that needs room for something else shall not miss it for a day.
MAX_START_TIMEOUTS = 4
# How long a gang without room keeps the manager's quota although others queue behind it.
DEACTIVATE_AFTER = timedelta(seconds=10)
# How long it stays out of the queue. Kueue looks again at those behind at most a second after quota came free
# (requeueBatchPeriod of pkg/cache/queue), and may be busy. A check's Retry would not do: without a delay the quota comes
# straight back to whoever gave it up, and with one it is kept for the whole delay
# (docs/upstream.md, "Retry and the manager's quota").
INACTIVE_FOR = timedelta(seconds=5)
# How often a wait is doubled at most. Of those 10 s to 2 min 40 s: a gang that yielded often still gives way three times in
# ten minutes. Longer than any timeout that is not meant to be very long, and than EXCLUDED_FOR.
MAX_DOUBLINGS = 4
# A cluster whose Kueue says no is not waited for: the next one is decided on within five seconds of the plan. Not at once,
# since a Workload that has just gone may still be counted for a second. One that says nothing (its queue may stand still
# behind another Workload, or it may be down) has as long, and twice as long after each round that was given up: it may also
# be busy, and a gang shall not go round for ever among clusters that would all admit it a little later.
SPILL_AFTER = timedelta(seconds=4)
# How long a new attempt waits for the workers of the one before. Most end within seconds, and then their clusters are free for it as
# before. They may also take for hours, as their template says: then it goes elsewhere, or waits as any other gang does that finds no
# room, and gives way to who queues behind. From when the manager's quota came, which it keeps meanwhile: as long as it may
# keep it without room.
ENDING_TIMEOUT = DEACTIVATE_AFTER
# A safety net under the watches, not the way in which changes are noticed.
RESYNC = timedelta(seconds=30)
# A plan that comes out as before writes nothing, and so wakes nobody: whoever asked for it looks again by himself. By then
# a write, if there was one, has come back by its watch.
SOON = timedelta(seconds=1)
# Nobody tells us that a Secret or ConfigMap was created: we may read them by name, and neither list nor watch.
MISSING_OBJECTS_RETRY = timedelta(seconds=5)
RESERVE_RETRY = timedelta(seconds=2)  # after which a share that was refused is asked for again, within its deadline


def last_admissions(gang: Gang, current: Placement) -> dict[str, datetime]:
    """The clusters that have admitted a share of the last plan, and when they did last: of many they admit one after the other."""
    found: dict[str, datetime] = {}
    for one in gang.reservations_of(current, filter(current.is_from_last_plan, current.active_shares)).values():
        if one and one.admitted and one.reserved_at:
            found[one.cluster] = max(one.reserved_at, found.get(one.cluster, one.reserved_at))
    return found


def round_timeout(
    gang: Gang,
    current: Placement,
    reservations: Mapping[Share, Reservation | None],
    admitting_clusters: Mapping[str, datetime],
) -> timedelta:
    """How long a round may take, by what stands for the shares that it asks for: those that preempt, once they are asked for, have as
    long again as the others had; and clusters that are `busy` with it (`answering`) are not taken for ones that say nothing: they have
    the whole timeout after each share that they admit, so that a job of hundreds is not given up while it is being let in.

    A round is given up before they are asked for when the others take too long: asked for at the last moment, they would
    preempt somebody for a round that is then given up.
    """
    if any(share.preempts and found for share, found in reservations.items()):
        return gang.policy.reservation_timeout * 2  # whatever Kueue says first: its victims' quota is yet to come free
    waiting = [found for found in reservations.values() if found and not found.admitted]
    # Its cluster has refused a copy since the plan.
    refused = any(found is None and dry_run.denied_reason(gang, share) for share, found in reservations.items())
    if refused or any(found.no_fit for found in waiting):
        return min(SPILL_AFTER, gang.policy.reservation_timeout)
    if any(found.is_unprocessed and found.cluster not in admitting_clusters for found in waiting):
        return min(_doubled_wait(SPILL_AFTER, current.failed_rounds), gang.policy.reservation_timeout)
    filling = [admitting_clusters[found.cluster] for found in waiting if found.is_unprocessed]
    return _filling_timeout(gang, current, max(filling)) if filling else gang.policy.reservation_timeout


def _filling_timeout(gang: Gang, current: Placement, last: datetime) -> timedelta:
    """How long a round may take of which the last share was admitted at that time, by the clock of its cluster: quota that waits for the
    others is kept from everybody else, so no longer than twice the timeout at first, and twice as long after each round that was given up.
    """
    since = last - current.planned_at if current.planned_at else timedelta(0)
    return min(
        max(since, timedelta(0)) + gang.policy.reservation_timeout,
        _doubled_wait(gang.policy.reservation_timeout * 2, current.failed_rounds),
    )


def exclusion_duration(current: Placement) -> timedelta:
    """How long a cluster that did not admit is not asked again: from EXCLUDED_FIRST to EXCLUDED_FOR, and up to a quarter longer.

    By the gang: those that failed together shall not all come back in the same second.
    """
    longer = 1 + zlib.crc32(f"{current.uid}/{current.round}".encode()) % 26 / 100
    return min(_doubled_wait(MIN_EXCLUSION, current.failed_rounds), MAX_EXCLUSION) * longer


def start_timeout_exclusion(timeout: timedelta, current: Placement) -> timedelta:
    """How long a cluster is left out that did not start a worker within `timeout`: for as long, and longer each time, so that
    a worker does not go to and fro between clusters that have no node for it."""
    return min(_doubled_wait(timeout, current.start_timeouts), timeout * MAX_START_TIMEOUTS)


def current_exclusions(current: Placement | None, now: datetime, start_timeout: timedelta) -> tuple[Exclusion, ...]:
    """The clusters that are not asked now: those of earlier rounds and those that made the last one fail. One that is said to be
    left out for longer than any is was written by a clock that went ahead of ours, and is asked; `start_timeout` is the policy's."""
    latest = now + max(EXCLUSION_LIMIT, MAX_START_TIMEOUTS * start_timeout)
    listed = (*current.exclusions, *current.blocked) if current else ()
    return tuple({e.cluster: e for e in listed if now < e.until <= latest}.values())


def round_started_at(current: Placement, round_first_seen: datetime | None, now: datetime) -> datetime:
    """Since when a round is waited for: since it was planned, and no later than since this process saw it.

    The time of the plan is that of the process which led then. Where its clock went ahead, the round would be waited for by so much
    longer.
    """
    return min(moment for moment in (current.planned_at, round_first_seen, now) if moment)


def may_fit(gang: Gang, current: Placement, exclusions: Sequence[Exclusion], now: datetime) -> bool:
    """Whether a plan that found no room may find some now."""
    settled = gang.capacity.deductions_expire_at is not None and now >= gang.capacity.deductions_expire_at
    return gang.capacity.changed_since_plan or settled or len(exclusions) < len(current.exclusions)


def deactivates_at(gang: Gang, workload: Workload, now: datetime) -> datetime | None:
    """When a gang without room gives way: later each time that it did, and None while nobody waits for that."""
    if gang.capacity.quota_contended_from is None:
        return None
    return max(
        (workload.reserved_at or now) + _doubled_wait(DEACTIVATE_AFTER, workload.deactivations),
        gang.capacity.quota_contended_from,
    )


def _doubled_wait(first: timedelta, times: int) -> timedelta:
    """A wait that is twice as long each time."""
    return first * (1 << min(times, MAX_DOUBLINGS))
