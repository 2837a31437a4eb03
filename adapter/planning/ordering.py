"""The scheduling order of waiting gangs: which of them are planned before a given one, and which hold capacity.

Priority comes first, then age. Among gangs of the same minute the one that requests more CPU is first, since a small
gang fits into what is left and a large one does not. A gang that does not fit blocks no other gang, for idle capacity
helps nobody. But one that has waited long holds the capacity that it could use, or a stream of small gangs would starve
a large one.

What such a gang waits for may never become free. So now and then its hold pauses, and those behind may use what is
free. The holds grow with the time that the gang has waited. So one of them outlasts any job that ends, and capacity
gathers in it until the gang fits. All gangs pause together, when the one pauses that has waited longest. Otherwise
several holding gangs would alternate.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.admission import size_limits
from adapter.objects import pod_requests
from adapter.objects.placement import MAX_SHARES, Placement
from adapter.objects.rayjob import JobObject
from adapter.objects.unstructured import Key, Raw
from adapter.objects.workload import PodSet, Workload

# Long enough that capacity which comes and goes is used by any gang that fits. Several times the 30 s after which a
# reservation is withdrawn and tried elsewhere: half as long cost a crowd of minute-long gangs four percent of its quota
# (make gangs). Short enough that a person who waits sees the queue move within a coffee break.
STARVED_AFTER = timedelta(minutes=10)
# A difference of a minute is acceptable to users, and a crowd that is submitted at once takes some seconds to arrive.
SAME_AGE_WITHIN = timedelta(minutes=1)
# Longer than the 2 min 40 s for which a gang without capacity may keep the manager's quota (gang/timeouts.py,
# MAX_DOUBLINGS), so that gangs that still queue for that quota can use a pause, too.
HOLD_PAUSE = timedelta(minutes=3)
# The time from one pause to the next at first. The hold between is twelve minutes. It outlasts small jobs, whose stream
# starves a large one. While capacity is held for nothing, those behind lose four fifths of the time, not all of it.
HOLD_PERIOD = timedelta(minutes=15)
OrderKey = tuple[int, int, int, datetime, Key]  # a sort key
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # all gangs count their periods from here, so that their pauses coincide


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang that holds the manager's quota and has no share or withdraws its shares, or that was just deactivated."""

    workload: Workload
    known_not_to_fit: bool  # planned since capacity changed last, and nothing fitted
    placement: Placement | None = None  # of its present attempt, with its exclusions
    deactivated_until: datetime | None = None  # when a deactivated gang stops holding capacity
    is_scale_up: bool = False  # it runs, and only waits for more workers
    order_key: OrderKey | None = None  # if it is computed already

    @property
    def key(self) -> Key:
        return self.workload.gang_key


def needs_plan(workload: Workload, check: str, placement: Placement | None) -> bool:
    """Whether a gang must be planned.

    It holds the manager's quota, our `check` on it is pending, and the Placement of its attempt has no share or is
    withdrawing.
    """
    pending = bool(check) and workload.holds_quota and workload.checks[check].state == names.CHECK_PENDING
    return pending and (placement is None or placement.withdrawing or not placement.shares)


def needs_scale_up(workload: Workload, check: str, placement: Placement | None) -> bool:
    """Whether a running elastic job must be planned, because it has fewer slots than workers.

    It takes what fits when it is planned. It holds no capacity, since it takes even one slot. With the maximum number
    of shares it takes nothing.
    """
    if not (check and workload.elastic and workload.holds_quota and workload.checks[check].state == names.CHECK_READY):
        return False
    if placement is None or len(placement.shares) >= MAX_SHARES:
        return False
    return sum(share.workers for share in placement.active_shares) < placement.wanted_workers


def deactivated_gang(
    noted_workload: Workload, until: datetime, current_workload: Workload | None, check: str, now: datetime
) -> WaitingGang | None:
    """A deactivated gang as it was recorded before: it takes nothing, but holds the capacity that it gathered.

    Its current Workload does not show its flavors any more, nor a check that is limited to some of them. Once it is
    reactivated, it does not show that it was deactivated. None if the gang has ended, or holds quota under our `check`
    again.
    """
    if current_workload is None or current_workload.uid != noted_workload.uid or current_workload.deleting:
        return None
    is_back = current_workload.holds_quota and check
    return (
        None if is_back or now >= until else WaitingGang(noted_workload, known_not_to_fit=True, deactivated_until=until)
    )


def wants_capacity(placement: Raw, draining: Collection[str]) -> bool:
    """Whether a planned gang wants capacity: it has no share, or too few, or must leave a drained cluster.

    It takes the raw Placement, since it is asked for each at every change of capacity, and parsing takes three times as
    long.
    """
    spec = placement.get("spec") or {}
    shares = (share for share in spec.get("shares") or () if share.get("cluster") not in draining)
    slots = sum(int(group.get("count") or 0) for share in shares for group in share.get("groups") or ())
    return slots < int(spec.get("wanted") or 0)


def with_job_age(workload: Workload, job: JobObject) -> Workload:
    """An elastic job's Workload with the age of its job; any other Workload unchanged.

    The job queued long before it grew. Its first slice, which is as old, may be deleted long before the job.
    """
    if not (workload.elastic and workload.job and job.uid == workload.job.uid and job.created and workload.created_at):
        return workload
    return replace(workload, created_at=min(job.created, workload.created_at))


def order_key(workload: Workload) -> OrderKey:
    """The sort key of the order in which gangs are planned.

    Kueue's own order is priority, then age (pkg/cache/queue baseCompareFunc, workload.Ordering). Two things differ.
    Size comes before age within SAME_AGE_WITHIN. And age is always the Workload's (`with_job_age`), since a Workload
    that we deactivated and reactivated is as old as before.
    """
    created = workload.created_at or _EPOCH
    try:
        size = sum(map(_total_cpu, workload.podsets))
    except ValueError:  # the plan reports that; the gang must be in no other gang's way
        size = 0
    return -(workload.priority or 0), (created - _EPOCH) // SAME_AGE_WITHIN, -size, created, workload.key


def _total_cpu(podset: PodSet) -> int:
    """The CPU requests of a podset; 0 if its requests exceed the size limits.

    Adding those up, at every plan and for the whole queue, would take too long. Such a podset is rejected, or is a
    head.
    """
    if not size_limits.has_bounded_requests(podset.template):
        return 0
    return podset.count * pod_requests.pod_requests(podset.template.get("spec") or {}).get("cpu", 0)


def gangs_before(
    workload: Workload, waiting: Iterable[WaitingGang], own_order_key: OrderKey | None = None
) -> list[WaitingGang]:
    """The other gangs that are planned before this one, in their order."""
    own_key, keyed = (
        own_order_key or order_key(workload),
        ((gang.order_key or order_key(gang.workload), gang) for gang in waiting if gang.key != workload.gang_key),
    )
    return [gang for _, gang in sorted((pair for pair in keyed if pair[0] < own_key), key=lambda pair: pair[0])]


def may_take_or_hold(gang: WaitingGang, now: datetime) -> bool:
    """Whether a gang may take or hold capacity that those behind it could use.

    Most gangs of a long queue do neither: nothing fitted when they were planned last.
    """
    return not gang.known_not_to_fit or holds_capacity_until(gang, now) is not None


def is_starved(workload: Workload, now: datetime) -> bool:
    """Whether a gang has waited long enough to hold capacity; a cheap check before all others."""
    return workload.created_at is not None and now - workload.created_at > STARVED_AFTER


def holds_capacity_until(gang: WaitingGang, now: datetime) -> datetime | None:
    """Until when a gang that does not fit holds the capacity that it could use; None if it holds none now.

    It also holds it between a change of capacity and its own next plan. Otherwise a gang planned in that moment would
    take all that it gathered.
    """
    created = gang.workload.created_at
    if gang.is_scale_up or created is None or not is_starved(gang.workload, now):
        return None
    period = (now - _EPOCH) // HOLD_PERIOD
    if now < _period_start(period) + HOLD_PAUSE and _next_pause(created, period) == period:
        return None
    pause = _period_start(_next_pause(created, period + 1))
    return min(pause, gang.deactivated_until or pause)


def _next_pause(created: datetime, period: int) -> int:
    """The first period, from this one on, that begins with a pause.

    As the gang waits, that is every period, then every second, then every fourth.
    """
    while period % (step := _pause_interval(created, period)):
        period += step - period % step
    return period


def _pause_interval(created: datetime, period: int) -> int:
    """Every how many periods one begins with a pause.

    It is half of the periods waited by then, so that no hold outlasts the wait before it. It is a power of two, so that
    a gang that waited longer pauses only when those that waited less do. With holds of constant length, none would
    outlast jobs that run for hours, and a large gang in their cluster would starve.
    """
    waited = (_period_start(period) - created) // HOLD_PERIOD
    return 1 << (max(waited // 2, 1).bit_length() - 1)


def _period_start(period: int) -> datetime:
    return _EPOCH + period * HOLD_PERIOD
