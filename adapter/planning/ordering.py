"""Whose turn is it: who waits for room, which of them are planned before a given one, and who of those holds room back from it?

Priority first, then age; of those that came in the same minute whoever asks for more CPU first, since a small one
fits into what is left and a large one does not. A gang that does not fit holds nobody up, for idle room helps no one; but one that has waited
long keeps what it could use, or a stream of small gangs would starve a large one for ever. What it waits for may never
leave, though: now and then it pauses, and those behind may use what is free. The holds between grow as long as it has
waited, so longer than any job that ends, and in one of them room gathers until it fits. The pauses are everybody's: when
the gang pauses that waits longest, all do, or several that hold room back would take turns at it.
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

# Long enough that room which comes and goes is used by whoever fits, and several times the 30 s in which a reservation is
# given up and tried elsewhere: half as long cost a crowd of minute-long gangs four percent of its quota (make gangs). Short
# enough that a person who waits sees the queue move within a coffee break.
STARVED_AFTER = timedelta(minutes=10)
# Nobody minds to wait a minute longer than another, and a crowd that is submitted at once takes some seconds to arrive.
SAME_AGE_WITHIN = timedelta(minutes=1)
# Outlasts the 2 min 40 s for which a gang without room may keep the manager's quota (gang/timeouts.py, DOUBLINGS), so that
# those who still queue for that have some of a pause, too.
HOLD_PAUSE = timedelta(minutes=3)
# From one pause to the next at first. The hold between is twelve minutes: it outlasts small jobs, the stream that starves a
# large one, and while room is kept for nothing those behind lose four fifths of the time, not all of it.
HOLD_PERIOD = timedelta(minutes=15)
OrderKey = tuple[int, int, int, datetime, Key]  # to sort by
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # periods are counted from here for every gang, so that pauses meet


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang that holds the manager's quota and no share, or gives back those that it had; or that stepped aside just now."""

    workload: Workload
    known_not_to_fit: bool  # planned since room changed last: nothing fitted
    placement: Placement | None = None  # of its present attempt, which says whom it does not ask now
    deactivated_until: datetime | None = None  # when one that stepped aside keeps nothing any more
    is_scale_up: bool = False  # it runs, and waits for more workers only
    order_key: OrderKey | None = None  # where it was reckoned already

    @property
    def key(self) -> Key:
        return self.workload.gang_key


def needs_plan(workload: Workload, check: str, placement: Placement | None) -> bool:
    """Whether a gang is to be planned: it holds the manager's quota, our `check` on it is pending, and of its attempt's Placement
    it has no share, or is giving back those that it had."""
    pending = bool(check) and workload.holds_quota and workload.checks[check].state == names.CHECK_PENDING
    return pending and (placement is None or placement.withdrawing or not placement.shares)


def needs_scale_up(workload: Workload, check: str, placement: Placement | None) -> bool:
    """Whether an elastic job that runs is to be planned, for it has fewer places than it wants: it takes what fits in its turn,
    and as it takes even one place it holds nothing back. With as many shares as it may have it takes nothing."""
    if not (check and workload.elastic and workload.holds_quota and workload.checks[check].state == names.CHECK_READY):
        return False
    if placement is None or len(placement.shares) >= MAX_SHARES:
        return False
    return sum(share.workers for share in placement.active_shares) < placement.wanted_workers


def deactivated_gang(
    noted_workload: Workload, until: datetime, current_workload: Workload | None, check: str, now: datetime
) -> WaitingGang | None:
    """A gang that left the manager's queue for a moment, as it was `noted` then: it takes nothing, but keeps what it gathered.

    Its Workload now, `current`, does not show the flavors any more, nor a check that is limited to some of them, nor, once
    it is back in the queue, that it had left it. None when it is over, or holds quota under our `check` again.
    """
    if current_workload is None or current_workload.uid != noted_workload.uid or current_workload.deleting:
        return None
    back = current_workload.holds_quota and check
    return None if back or now >= until else WaitingGang(noted_workload, known_not_to_fit=True, deactivated_until=until)


def wants_capacity(placement: Raw, draining: Collection[str]) -> bool:
    """Whether a gang that was planned wants room: it holds no share, or too few, or must leave a cluster that is drained.

    Asked of the raw Placement: of each at every change of room, and to read one whole takes three times as long.
    """
    spec = placement.get("spec") or {}
    stays = (share for share in spec.get("shares") or () if share.get("cluster") not in draining)
    held = sum(int(group.get("count") or 0) for share in stays for group in share.get("groups") or ())
    return held < int(spec.get("wanted") or 0)


def with_job_age(workload: Workload, job: JobObject) -> Workload:
    """An elastic job's Workload as old as its job, which stood in the queue long before it grew; of any other it is the Workload's own.

    Its first slice, which is as old, may be deleted long before it.
    """
    if not (workload.elastic and workload.job and job.uid == workload.job.uid and job.created and workload.created_at):
        return workload
    return replace(workload, created_at=min(job.created, workload.created_at))


def order_key(workload: Workload) -> OrderKey:
    """The order in which gangs are planned, as a key to sort by: the only one there is.

    Kueue's own order is priority, then age (pkg/cache/queue baseCompareFunc, workload.Ordering). Two things differ: size comes
    before age within SAME_AGE, and age is always the Workload's (`aged`), since one that we took out of the queue and put back is as
    old as before.
    """
    created = workload.created_at or _EPOCH
    try:
        size = sum(map(_total_cpu, workload.podsets))
    except ValueError:  # whoever plans it says so; it must be in nobody's way
        size = 0
    return -(workload.priority or 0), (created - _EPOCH) // SAME_AGE_WITHIN, -size, created, workload.key


def _total_cpu(podset: PodSet) -> int:
    """Of one that is too long to be added up, at every plan and for all in the queue, nothing: it is refused, or a head."""
    if not size_limits.has_bounded_requests(podset.template):
        return 0
    return podset.count * pod_requests.pod_requests(podset.template.get("spec") or {}).get("cpu", 0)


def gangs_before(
    workload: Workload, waiting: Iterable[WaitingGang], own_order_key: OrderKey | None = None
) -> list[WaitingGang]:
    """The other gangs whose turn comes before this one's, in their order."""
    mine, others = (
        own_order_key or order_key(workload),
        ((one.order_key or order_key(one.workload), one) for one in waiting if one.key != workload.gang_key),
    )
    return [one for _, one in sorted((pair for pair in others if pair[0] < mine), key=lambda pair: pair[0])]


def may_take_or_hold(gang: WaitingGang, now: datetime) -> bool:
    """Whether a gang may take room from those behind it, or keeps some. Most of a long queue do neither: when they were planned
    last nothing fitted."""
    return not gang.known_not_to_fit or holds_capacity_until(gang, now) is not None


def is_starved(workload: Workload, now: datetime) -> bool:
    """Whether a gang has waited long enough to keep room from those behind it: asked of a whole crowd before anything else is."""
    return workload.created_at is not None and now - workload.created_at > STARVED_AFTER


def holds_capacity_until(gang: WaitingGang, now: datetime) -> datetime | None:
    """Until when a gang that does not fit keeps what it could use from those behind it; None: it keeps nothing now.

    Also between a change of room and its own next look: whoever is planned in that moment would else take all that it
    gathered.
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
    """The first period, from this one on, that begins with a pause: every one, every second, every fourth as it waits."""
    while period % (step := _pause_interval(created, period)):
        period += step - period % step
    return period


def _pause_interval(created: datetime, period: int) -> int:
    """From how many periods one begins with a pause: half of those waited by then, so no hold outlasts the wait before it.

    A power of two: whoever waited longer pauses only where those who waited less do. A large gang in a cluster whose other
    jobs run for hours would miss it: with every hold as long as the first, none would outlast those jobs, and it would starve.
    """
    waited = (_period_start(period) - created) // HOLD_PERIOD
    return 1 << (max(waited // 2, 1).bit_length() - 1)


def _period_start(period: int) -> datetime:
    return _EPOCH + period * HOLD_PERIOD
