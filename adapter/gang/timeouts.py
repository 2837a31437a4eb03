"""The timeouts of a gang: for admissions, exclusions, deactivation and requeues.

This file has only times and their reasons. lifecycle.py, reserve.py, running.py and requeue.py act when a time is over.
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from adapter.gang import dry_run
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

# A cluster that did not admit in time is excluded for this long, and twice as long after each withdrawn round, up to
# MAX_EXCLUSION. That is long enough to try another cluster first. It is short enough if a Kueue was merely slow or
# restarting.
MIN_EXCLUSION = timedelta(seconds=15)
MAX_EXCLUSION = timedelta(seconds=60)
# With what `exclusion_duration` adds, and as much again because clocks of two replicas differ a little.
EXCLUSION_LIMIT = 2 * MAX_EXCLUSION
# A cluster that does not start workers is excluded for one timeout of the policy, then two, then four: an hour by
# default. Nodes come back, and a gang that has no other capacity must not avoid the cluster for a day.
MAX_START_TIMEOUTS = 4
# How long a gang without capacity keeps the manager's quota although others queue behind it.
DEACTIVATE_AFTER = timedelta(seconds=10)
# How long it stays deactivated. Kueue requeues those behind at most a second after quota came free (requeueBatchPeriod
# of pkg/cache/queue), and may be busy. A check's Retry would not do. Without a delay, the quota returns at once to the
# gang that gave it up. With a delay, the quota is held for all of the delay (docs/upstream.md,
# "Retry and the manager's quota").
INACTIVE_FOR = timedelta(seconds=5)
# The maximum number of doublings of a wait. The 10 s become 2 min 40 s: a gang that was deactivated often is still
# deactivated three times in ten minutes. The longest wait exceeds any usual timeout, and MAX_EXCLUSION.
MAX_DOUBLINGS = 4
# A cluster whose Kueue reports that the share does not fit is not waited for: within five seconds of the plan the next
# cluster is chosen. It is not chosen at once, since a Workload that was just deleted may still count for a second. A
# cluster whose Kueue reports nothing has as long, and twice as long after each withdrawn round. Its queue may be
# blocked by another Workload, or it may be down. It may also be busy, and a gang must not cycle among clusters that
# would all admit it a little later.
SPILL_AFTER = timedelta(seconds=4)
# How long a new attempt waits for the workers of the one before, from when the manager's quota was reserved. Most
# workers end within seconds, and then the attempt may use their clusters. Their template may allow hours. Then the
# attempt goes elsewhere, or waits like any gang without capacity and is deactivated when others queue behind it. The
# attempt keeps the manager's quota meanwhile, as long as it may keep it without capacity.
ENDING_TIMEOUT = DEACTIVATE_AFTER
# A safety net: changes are noticed by watches.
RESYNC = timedelta(seconds=30)
# A plan without changes writes nothing and so enqueues no key: its gang requeues itself. By then the watch has
# delivered a write, if there was one.
SOON = timedelta(seconds=1)
# We are not notified when a Secret or ConfigMap is created: we may get them by name, but neither list nor watch them.
MISSING_OBJECTS_RETRY = timedelta(seconds=5)
RESERVE_RETRY = timedelta(seconds=2)  # a share that was denied is created again after this, within its deadline


def last_admissions(gang: Gang, current: Placement) -> dict[str, datetime]:
    """The clusters that have admitted shares of the last plan, and when they last did: shares are admitted one after
    the other."""
    latest: dict[str, datetime] = {}
    for reservation in gang.reservations_of(current, filter(current.is_from_last_plan, current.active_shares)).values():
        if reservation and reservation.admitted and reservation.reserved_at:
            latest[reservation.cluster] = max(
                reservation.reserved_at, latest.get(reservation.cluster, reservation.reserved_at)
            )
    return latest


def round_timeout(
    gang: Gang,
    current: Placement,
    reservations: Mapping[Share, Reservation | None],
    admitting_clusters: Mapping[str, datetime],
) -> timedelta:
    """How long a round may take, by the reservations of its requested shares.

    If a preempting share has been created, the round has twice the timeout. Clusters in `admitting_clusters` are busy
    and not unresponsive: each has the whole timeout after each share that it admits. So a job of hundreds of shares is
    not withdrawn while it is being admitted. If other shares take too long, the round is withdrawn before preempting
    shares are created. Created at the last moment, they would preempt others for a round that is then withdrawn.
    """
    if any(share.preempts and reservation for share, reservation in reservations.items()):
        return gang.policy.reservation_timeout * 2  # whatever Kueue reports first: its victims still hold quota
    waiting = [reservation for reservation in reservations.values() if reservation and not reservation.admitted]
    # Its cluster has denied a remote pod since the plan.
    refused = any(
        reservation is None and dry_run.denied_reason(gang, share) for share, reservation in reservations.items()
    )
    if refused or any(reservation.no_fit for reservation in waiting):
        return min(SPILL_AFTER, gang.policy.reservation_timeout)
    if any(reservation.is_unprocessed and reservation.cluster not in admitting_clusters for reservation in waiting):
        return min(_doubled_wait(SPILL_AFTER, current.failed_rounds), gang.policy.reservation_timeout)
    filling = [admitting_clusters[reservation.cluster] for reservation in waiting if reservation.is_unprocessed]
    return _filling_timeout(gang, current, max(filling)) if filling else gang.policy.reservation_timeout


def _filling_timeout(gang: Gang, current: Placement, last: datetime) -> timedelta:
    """How long a round may take whose last share was admitted at `last`, by the clock of that share's cluster.

    Admitted shares hold quota that others need. So the round has at most twice the timeout, doubled after each
    withdrawn round.
    """
    since = last - current.planned_at if current.planned_at else timedelta(0)
    return min(
        max(since, timedelta(0)) + gang.policy.reservation_timeout,
        _doubled_wait(gang.policy.reservation_timeout * 2, current.failed_rounds),
    )


def exclusion_duration(current: Placement) -> timedelta:
    """How long a cluster that did not admit is excluded: from MIN_EXCLUSION to MAX_EXCLUSION, and up to a quarter
    longer.

    The addition depends on the gang, so that gangs that failed together do not all return in the same second.
    """
    factor = 1 + zlib.crc32(f"{current.uid}/{current.round}".encode()) % 26 / 100
    return min(_doubled_wait(MIN_EXCLUSION, current.failed_rounds), MAX_EXCLUSION) * factor


def start_timeout_exclusion(timeout: timedelta, current: Placement) -> timedelta:
    """How long a cluster is excluded that did not start a worker within `timeout`.

    It is excluded for that timeout, doubled each time, so that a worker does not alternate between clusters without
    nodes.
    """
    return min(_doubled_wait(timeout, current.start_timeouts), timeout * MAX_START_TIMEOUTS)


def current_exclusions(current: Placement | None, now: datetime, start_timeout: timedelta) -> tuple[Exclusion, ...]:
    """The clusters that are excluded now: by earlier rounds, and because they made the last round fail.

    An exclusion that ends later than any can was written by a clock that is ahead of ours, and is ignored.
    `start_timeout` is the policy's.
    """
    latest = now + max(EXCLUSION_LIMIT, MAX_START_TIMEOUTS * start_timeout)
    exclusions = (*current.exclusions, *current.blocked) if current else ()
    return tuple({exclusion.cluster: exclusion for exclusion in exclusions if now < exclusion.until <= latest}.values())


def round_started_at(current: Placement, round_first_seen: datetime | None, now: datetime) -> datetime:
    """Since when a round is waited for: since it was planned, but at most since this process first saw it.

    The leader of that time wrote when it was planned. If its clock was ahead, the wait would be longer by the
    difference.
    """
    return min(moment for moment in (current.planned_at, round_first_seen, now) if moment)


def may_fit(gang: Gang, current: Placement, exclusions: Sequence[Exclusion], now: datetime) -> bool:
    """Whether a plan that found no capacity may find some now."""
    deductions_expired = gang.capacity.deductions_expire_at is not None and now >= gang.capacity.deductions_expire_at
    return gang.capacity.changed_since_plan or deductions_expired or len(exclusions) < len(current.exclusions)


def deactivates_at(gang: Gang, workload: Workload, now: datetime) -> datetime | None:
    """When a gang without capacity is deactivated, later each time; None while no other gang queues for its quota."""
    if gang.capacity.quota_contended_from is None:
        return None
    return max(
        (workload.reserved_at or now) + _doubled_wait(DEACTIVATE_AFTER, workload.deactivations),
        gang.capacity.quota_contended_from,
    )


def _doubled_wait(first: timedelta, times: int) -> timedelta:
    """The wait, doubled once for each of `times`."""
    return first * (1 << min(times, MAX_DOUBLINGS))
