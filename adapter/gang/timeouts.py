"""The timeouts of a gang: for admissions, exclusions, deactivation and requeues.

Other modules act when a time is over.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from adapter.gang import dry_run
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

# How long a cluster that did not admit in time is excluded, doubled after each withdrawn round. The first exclusion is
# long enough to try another cluster, and short enough for a Kueue that was slow or restarting.
MIN_EXCLUSION = timedelta(seconds=15)
MAX_EXCLUSION = timedelta(seconds=60)
# No such exclusion ends later than this: the limit includes what `exclusion_duration` adds, and more for the clock skew
# of replicas.
EXCLUSION_LIMIT = 2 * MAX_EXCLUSION
# A cluster that does not start workers is excluded for one policy timeout, then two, then four: an hour by default. It
# is not more, because nodes come back, and a gang without other capacity must not avoid the cluster for a day.
MAX_START_TIMEOUTS = 4
# How long a worker waits whose remote pod is unstartable, if `workerStartTimeout` is longer. It is twice the default
# grace period of pods, which may still occupy a node, and enough for a kubelet's first three pulls (10 s, 20 s apart).
UNSTARTABLE_TIMEOUT = timedelta(seconds=60)
# How long a gang without capacity keeps manager quota that other gangs queue for.
DEACTIVATE_AFTER = timedelta(seconds=10)
# How long that gang stays deactivated. Kueue requeues other Workloads within a second (requeueBatchPeriod of
# pkg/cache/queue), or later when busy. A check's Retry would not do: without a delay, the quota returns to the gang
# that gave it up; with a delay, the quota is held meanwhile (docs/upstream.md, "Retry and the manager's quota").
INACTIVE_FOR = timedelta(seconds=5)
# How often a wait is doubled at most. 10 s become 2 min 40 s, so a gang is still deactivated three times in ten
# minutes. The longest wait exceeds any usual timeout, and MAX_EXCLUSION.
MAX_DOUBLINGS = 4
# How long a share may lack capacity before the gang spills. So the next cluster is chosen within five seconds of the
# plan, but not at once: a deleted Workload may still count for a second. A Kueue that reports nothing has as long,
# doubled after each withdrawn round. It may be blocked, down or busy, and a gang must not cycle among clusters that all
# admit a little later.
SPILL_AFTER = timedelta(seconds=4)
# How long after its quota reservation a new attempt waits for workers of the attempt before. Most end within seconds,
# but their template may allow hours. Then the attempt goes elsewhere, or waits like any gang without capacity. It keeps
# the quota as long as such a gang.
ENDING_TIMEOUT = DEACTIVATE_AFTER
# The interval of the resync, a safety net: watches notice changes.
RESYNC = timedelta(seconds=30)
# When a gang is requeued after a plan, because a plan without changes enqueues no key. By then the watch has delivered
# any write.
SOON = timedelta(seconds=1)
# How often missing Secrets and ConfigMaps are read again: we may get them by name, but not list or watch them.
MISSING_OBJECTS_RETRY = timedelta(seconds=5)
RESERVE_RETRY = timedelta(seconds=2)  # until a denied share is created again, within its deadline
# How long after the nominal quota of a cluster its borrowed quota is reserved. Kueue takes back first what was reserved
# last, by times of whole seconds. Of equal times it may take the share within nominal quota.
BORROWING_DELAY = timedelta(seconds=1)


def last_admissions(gang: Gang, current: Placement) -> dict[str, datetime]:
    """When each cluster last admitted a share of the last plan; shares are admitted one after the other."""
    latest: dict[str, datetime] = {}
    for reservation in gang.reservations_of(current, filter(current.is_from_last_plan, current.active_shares)).values():
        if reservation and reservation.admitted and reservation.reserved_at:
            latest[reservation.cluster] = max(
                reservation.reserved_at, latest.get(reservation.cluster, reservation.reserved_at)
            )
    return {cluster: gang.clusters.clocks.manager_time(cluster, reserved_at) for cluster, reserved_at in latest.items()}


def round_timeout(
    gang: Gang,
    current: Placement,
    reservations: Mapping[Share, Reservation | None],
    admitting_clusters: Mapping[str, datetime],
) -> timedelta:
    """How long a round may take, by the reservations of its requested shares.

    Each of `admitting_clusters` is busy, not unresponsive. It has the whole timeout after each share that it admits, so
    a job of hundreds of shares is not withdrawn meanwhile. Created preempting shares double the timeout. If the other
    shares take too long, the round is withdrawn before the preempting ones are created, so that nothing is preempted in
    vain.
    """
    waiting = [reservation for reservation in reservations.values() if reservation and not reservation.admitted]
    if any(reservation.refusal for reservation in waiting):
        return timedelta(0)  # its Kueue would ask the check again, and hold the quota meanwhile
    if any(share.preempts and reservation for share, reservation in reservations.items()):
        return gang.policy.reservation_timeout * 2  # whatever Kueue reports first: its victims still hold quota
    # Whether pods of a share have been denied since the plan.
    refused = any(
        reservation is None and dry_run.denied_reason(gang, share) for share, reservation in reservations.items()
    )
    if refused or any(reservation.no_fit for reservation in waiting):
        return min(SPILL_AFTER, gang.policy.reservation_timeout)
    if any(reservation.is_unprocessed and reservation.cluster not in admitting_clusters for reservation in waiting):
        return min(_doubled_wait(SPILL_AFTER, current.failed_rounds), gang.policy.reservation_timeout)
    filling = [admitting_clusters[reservation.cluster] for reservation in waiting if reservation.is_unprocessed]
    # A share that borrows is created after the last one that its cluster admitted.
    filling += [
        admitting_clusters[share.cluster]
        for share, reservation in reservations.items()
        if reservation is None and share.borrows and share.cluster in admitting_clusters
    ]
    return _filling_timeout(gang, current, max(filling)) if filling else gang.policy.reservation_timeout


def _filling_timeout(gang: Gang, current: Placement, last: datetime) -> timedelta:
    """The limit for a round whose last share was admitted at `last`.

    The limit is at most twice the timeout, doubled after each withdrawn round, because admitted shares hold quota that
    other gangs need.
    """
    since = last - current.planned_at if current.planned_at else timedelta(0)
    return min(
        max(since, timedelta(0)) + gang.policy.reservation_timeout,
        _doubled_wait(gang.policy.reservation_timeout * 2, current.failed_rounds),
    )


def exclusion_duration(current: Placement, *, is_refused: bool = False) -> timedelta:
    """How long a cluster that did not admit is excluded: MIN_EXCLUSION to MAX_EXCLUSION, and up to a quarter more.

    It is MAX_EXCLUSION at once where an admission check refused: Kueue's own check of ProvisioningRequests waits a
    minute before it asks again (kueue:apis/kueue/v1beta2/provisioningrequestconfig_types.go).

    The addition differs by gang, so that gangs that failed together do not all return in the same second.
    """
    factor = 1 + zlib.crc32(f"{current.uid}/{current.round}".encode()) % 26 / 100
    duration = MAX_EXCLUSION if is_refused else min(_doubled_wait(MIN_EXCLUSION, current.failed_rounds), MAX_EXCLUSION)
    return duration * factor


def start_timeout_exclusion(timeout: timedelta, current: Placement) -> timedelta:
    """How long a cluster that did not start workers is excluded: `timeout`, doubled each time.

    It is doubled so that no worker alternates between clusters without nodes.
    """
    return min(_doubled_wait(timeout, current.start_timeouts), timeout * MAX_START_TIMEOUTS)


def without_old_timeouts(current: Placement, now: datetime, start_timeout: timedelta) -> Placement:
    """The Placement of a running gang; without its start timeouts, if it was not planned since for so long.

    That is as long as the longest exclusion. So clusters of a gang that ran well count as new.
    """
    is_old = current.planned_at is not None and now >= current.planned_at + MAX_START_TIMEOUTS * start_timeout
    return replace(current, start_timeouts=0) if is_old and current.waiting_since is None else current


def current_exclusions(current: Placement | None, now: datetime, start_timeout: timedelta) -> tuple[Exclusion, ...]:
    """The exclusions of earlier rounds and of the last one.

    An exclusion that ends too late to be genuine was written by a clock that is ahead, and is ignored. `start_timeout`
    is the policy's.
    """
    latest = _latest_exclusion(now, start_timeout)
    exclusions = (*current.exclusions, *current.blocked) if current else ()
    return tuple({exclusion.cluster: exclusion for exclusion in exclusions if now < exclusion.until <= latest}.values())


def past_exclusions(workload: Workload, now: datetime, start_timeout: timedelta) -> tuple[Exclusion, ...]:
    """The exclusions of the Workload's earlier attempts; those that end too late to be genuine are ignored."""
    latest = _latest_exclusion(now, start_timeout)
    reason = "it was excluded in an earlier attempt of this job"
    until_by_cluster = workload.past_exclusions.until
    return tuple(
        Exclusion(cluster, until, reason) for cluster, until in until_by_cluster.items() if now < until <= latest
    )


def past_start_timeouts(workload: Workload, now: datetime, start_timeout: timedelta) -> int:
    """How often workers did not start in time in earlier attempts; 0 once the last exclusion is long over."""
    past, memory = workload.past_exclusions, MAX_START_TIMEOUTS * start_timeout
    is_recent = any(
        now < until + memory for until in past.until.values() if until <= _latest_exclusion(now, start_timeout)
    )
    return past.start_timeouts if is_recent else 0


def _latest_exclusion(now: datetime, start_timeout: timedelta) -> datetime:
    return now + max(EXCLUSION_LIMIT, MAX_START_TIMEOUTS * start_timeout)


def round_started_at(current: Placement, now: datetime) -> datetime:
    """When the wait for a round began, as its first observation shows; now if it was planned by a clock ahead.

    The observer then measures the wait by the monotonic clock (`ShareFacts.round_started_at`).
    """
    return min(current.planned_at or now, now)


def may_fit(gang: Gang, current: Placement, exclusions: Sequence[Exclusion], now: datetime) -> bool:
    """Whether a plan that found no capacity may find some now."""
    deductions_expired = gang.capacity.deductions_expire_at is not None and now >= gang.capacity.deductions_expire_at
    return gang.capacity.changed_since_plan or deductions_expired or len(exclusions) < len(current.exclusions)


def deactivates_at(gang: Gang, workload: Workload, now: datetime) -> datetime | None:
    """When a gang without capacity is deactivated, later each time; None while no other gang queues for its quota."""
    if gang.capacity.quota_contended_from is None:
        return None
    return max(
        end_of_wait(workload.reserved_at or now, _doubled_wait(DEACTIVATE_AFTER, workload.deactivations), now),
        gang.capacity.quota_contended_from,
    )


def end_of_wait(since: datetime, duration: timedelta, now: datetime) -> datetime:
    """When a wait that began at `since` is over.

    `since` may come from a clock that was ahead, by an hour for example. So the wait is over now if more than twice its
    duration would remain.
    """
    end = since + duration
    return end if end - now <= 2 * duration else now


def _doubled_wait(first: timedelta, times: int) -> timedelta:
    return first * (1 << min(times, MAX_DOUBLINGS))
