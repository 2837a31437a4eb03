"""The scheduling order of waiting gangs: which are planned before a given one, and which hold capacity.

Priority comes first, then age. Among gangs of the same minute the one that requests more CPU is first: a small gang
fits into the rest. A gang that does not fit blocks no other. But a gang that has waited long holds the capacity that it
could use, or a stream of small gangs would starve it.

That capacity may never suffice, so the hold pauses now and then. Holds grow with the wait, until a hold outlasts any
job that ends, and the gang fits. All gangs pause when the one that waited longest does, or several holding gangs would
alternate.

The age of a gang that Kueue queued again after a check's Retry or PodsReadyTimeout counts from then, as in Kueue's
queue, and so do its holds. Otherwise a gang that can never run would take the same capacity again before the younger
ones, for ever.

A running gang that lacks workers waits, too: it lost them, they must leave a drained cluster, they did not start in
time, or it started with fewer. Its age is its job's, and its holds count from when the workers began to wait. A running
elastic job may grow without an end. So its age counts from when it last gained a worker: it is first once, and then
behind all that wait.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from adapter import names
from adapter.admission import size_limits
from adapter.names import ReasonCode
from adapter.objects import pod_requests
from adapter.objects.placement import MAX_SHARES, Placement
from adapter.objects.rayjob import JobObject, is_running
from adapter.objects.unstructured import Key, Raw
from adapter.objects.workload import PodSet, Workload

# How long a gang waits before it holds capacity: several times the 30 s after which a round is withdrawn, so that any
# gang uses capacity which comes and goes. Half as long cost a crowd of minute-long gangs four percent of its quota
# (make gangs).
STARVED_AFTER = timedelta(minutes=10)
# Gangs of one such interval count as equally old: a crowd that is submitted at once takes seconds to arrive.
SAME_AGE_WITHIN = timedelta(minutes=1)
# The length of a pause: longer than the 2 min 40 s for which a gang without capacity may keep the manager's quota
# (gang/timeouts.py, MAX_DOUBLINGS), so that gangs that queue for it can use a pause.
HOLD_PAUSE = timedelta(minutes=3)
# The first interval between two pauses. Its hold of twelve minutes outlasts the small jobs whose stream starves a large
# one. While capacity is held for nothing, the gangs behind lose four fifths of the time.
HOLD_PERIOD = timedelta(minutes=15)
# How many gangs before it, in planning order, a plan deducts: of its own namespace, and of each other one. A deduction
# takes milliseconds, which all other plans wait for. A gang beyond these is planned in its turn all the same; until
# then, capacity is not kept for it.
MOST_OWN_BEFORE, MOST_OTHERS_BEFORE = 500, 100
# How many times as many gangs a plan looks at: one that cannot start now, as it lacks a Secret, takes no place of its
# namespace's others. To see that takes a fraction of a deduction's time.
LOOKS_PER_PLACE = 10
OrderKey = tuple[int, int, int, datetime, Key]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # start of all periods, so that pauses coincide


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """A gang with the manager's quota that lacks slots, or a deactivated gang.

    A gang that lacks slots has no share, withdraws its shares, or runs with too few.
    """

    workload: Workload
    known_not_to_fit: bool  # nothing fitted since capacity changed last
    placement: Placement | None = None  # of its present attempt
    deactivated_until: datetime | None = None  # when a deactivated gang's hold ends
    is_running: bool = False  # it keeps its shares, and waits for the missing workers
    takes_single_slots: bool = False  # one free slot suffices, so it holds no capacity
    order_key: OrderKey | None = None  # if computed already

    @property
    def key(self) -> Key:
        return self.workload.gang_key

    @property
    def waiting_since(self) -> datetime | None:
        """Since when it waits, for its holds; None if it never holds capacity."""
        if not self.is_running:
            return self.workload.queued_at
        return self.placement.waiting_since if self.placement and not self.takes_single_slots else None


def needs_plan(workload: Workload, check: str, placement: Placement | None) -> bool:
    """Whether our check is pending, and the attempt's Placement has no share or is withdrawing."""
    pending = bool(check) and workload.holds_quota and workload.checks[check].state == names.CHECK_PENDING
    return pending and (placement is None or placement.withdrawing or not placement.shares)


def is_admitted(workload: Workload, check: str) -> bool:
    """Whether our check lets the job run."""
    return bool(check) and workload.holds_quota and workload.checks[check].state == names.CHECK_READY


def lacks_slots(
    workload: Workload, placement: Placement | None, draining: Collection[str], unusable_slots: Mapping[str, int]
) -> bool:
    """Whether a running gang has fewer usable slots than workers in one of its worker groups.

    Slots in drained clusters are not usable, nor are `unusable_slots` of each group, where workers did not start in
    time.
    """
    if placement is None or (placement.job and len(placement.shares) >= MAX_SHARES):
        return False
    slots = Counter[str]()
    for share in placement.active_shares:
        slots.update({group.name: group.count if share.cluster not in draining else 0 for group in share.groups})
    slots.subtract(unusable_slots)
    return _lacks_group_slots(
        slots, placement.wanted_workers, ((group.name, group.count) for group in workload.podsets)
    )


def _lacks_group_slots(slots: Counter[str], wanted_workers: int, podsets: Iterable[tuple[str, int]]) -> bool:
    """Whether a worker group has more workers than slots.

    `slots` has the groups with a share, `podsets` also the head and groups that are not placed. `wanted_workers` counts
    all groups to place. So a group without a share shows as workers that no other group has.
    """
    counts = {name: count for name, count in podsets if name in slots}
    placed_workers = sum(min(count, slots[name]) for name, count in counts.items())
    return placed_workers < wanted_workers or any(count > slots[name] for name, count in counts.items())


def deactivated_gang(
    noted_workload: Workload, until: datetime, current_workload: Workload | None, check: str, now: datetime
) -> WaitingGang | None:
    """A deactivated gang as it was recorded before; None if it has ended, or holds quota under our `check` again.

    It holds the capacity that it gathered. Its current Workload shows neither its flavors nor a check limited to some
    of them. Once reactivated, the Workload does not show that it was deactivated.
    """
    if current_workload is None or current_workload.uid != noted_workload.uid or current_workload.deleting:
        return None
    is_back = current_workload.holds_quota and check
    return (
        None if is_back or now >= until else WaitingGang(noted_workload, known_not_to_fit=True, deactivated_until=until)
    )


def wants_capacity(placement: Raw, workload: Raw | None, draining: Collection[str]) -> bool:
    """Whether a planned gang has no share, or too few for one of its worker groups, or must leave a drained cluster.

    This runs for each Placement at every change of capacity; parsing the Placement takes three times as long.
    """
    spec = placement.get("spec") or {}
    slots = Counter[str]()
    for share in spec.get("shares") or ():
        is_usable = share.get("cluster") not in draining
        for group in share.get("groups") or ():
            slots[str(group.get("name"))] += int(group.get("count") or 0) if is_usable else 0
    wanted_workers = int(spec.get("wanted") or 0)
    if workload is None or slots.total() < wanted_workers:
        return slots.total() < wanted_workers
    podsets = (workload.get("spec") or {}).get("podSets") or ()
    counts = ((str(podset.get("name") or ""), int(podset.get("count") or 0)) for podset in podsets)
    return _lacks_group_slots(slots, wanted_workers, counts)


def with_age_in_order(workload: Workload, job: JobObject, placement: Placement | None) -> Workload:
    """An elastic job's Workload with its age in the scheduling order.

    While the job waits for its start, that is the job's age, since the first slice may be deleted. While the job runs,
    the age counts from the last plan that gained workers, or from the slice that wants more.
    """
    if not (workload.elastic and workload.job and workload.created_at):
        return workload
    if placement and is_running(workload.job, job):
        return replace(workload, created_at=placement.waiting_since or workload.created_at)
    if job.uid != workload.job.uid or job.created is None:
        return workload
    return replace(workload, created_at=min(job.created, workload.created_at))


def order_key(workload: Workload) -> OrderKey:
    """The sort key of the scheduling order.

    Kueue's order is priority, then age (pkg/cache/queue baseCompareFunc, workload.Ordering).

    Here size comes before age within SAME_AGE_WITHIN, and our deactivation leaves the Workload its age.
    """
    since = workload.queued_at or _EPOCH
    try:
        size = sum(map(_total_cpu, workload.podsets))
    except ValueError:  # the plan reports that
        size = 0
    return -(workload.priority or 0), (since - _EPOCH) // SAME_AGE_WITHIN, -size, since, workload.key


def _total_cpu(podset: PodSet) -> int:
    """The CPU that a podset requests; 0 above the size limits, whose sums would take too long at every plan."""
    if not size_limits.has_bounded_requests(podset.template):
        return 0
    return podset.count * pod_requests.pod_requests(podset.template.get("spec") or {}).get("cpu", 0)


def gangs_before(
    workload: Workload, waiting: Iterable[WaitingGang], own_order_key: OrderKey | None = None
) -> list[WaitingGang]:
    own_key, keyed = (
        own_order_key or order_key(workload),
        ((gang.order_key or order_key(gang.workload), gang) for gang in waiting if gang.key != workload.gang_key),
    )
    return [gang for _, gang in sorted((pair for pair in keyed if pair[0] < own_key), key=lambda pair: pair[0])]


class NamespacePlaces:
    """Which gangs a plan of `own_namespace` deducts: no tenant's plans cost what another tenant submits."""

    def __init__(self, own_namespace: str) -> None:
        self._own_namespace = own_namespace
        self._taken, self._looks = Counter[str](), Counter[str]()

    def has_free_place(self, gang: WaitingGang) -> bool:
        """Whether to look at a gang, which counts as a look."""
        namespace = gang.workload.namespace
        places = MOST_OWN_BEFORE if namespace == self._own_namespace else MOST_OTHERS_BEFORE
        if self._taken[namespace] >= places or self._looks[namespace] >= places * LOOKS_PER_PLACE:
            return False
        self._looks[namespace] += 1
        return True

    def take_place(self, gang: WaitingGang) -> None:
        self._taken[gang.workload.namespace] += 1


def may_take_or_hold(gang: WaitingGang, now: datetime) -> bool:
    """Whether a gang may take or hold capacity that those behind it could use; in a long queue most gangs do not.

    A gang that does not fit even into empty clusters holds nothing.
    """
    if not gang.known_not_to_fit:
        return True
    never_fits = gang.placement is not None and gang.placement.code is ReasonCode.NEVER_FITS
    return not never_fits and holds_capacity_until(gang, now) is not None


def is_starved(waiting_since: datetime | None, now: datetime) -> bool:
    return waiting_since is not None and now - waiting_since > STARVED_AFTER


def holds_capacity_until(gang: WaitingGang, now: datetime) -> datetime | None:
    """Until when a gang that does not fit holds the capacity that it could use; None if it holds none now.

    It holds that capacity also between a change of capacity and its next plan, or a gang planned in that moment would
    take the capacity.
    """
    since = gang.waiting_since
    if since is None or not is_starved(since, now):
        return None
    period = (now - _EPOCH) // HOLD_PERIOD
    if now < _period_start(period) + HOLD_PAUSE and _next_pause(since, period) == period:
        return None
    pause = _period_start(_next_pause(since, period + 1))
    return min(pause, gang.deactivated_until or pause)


def _next_pause(since: datetime, period: int) -> int:
    while period % (step := _pause_interval(since, period)):
        period += step - period % step
    return period


def _pause_interval(since: datetime, period: int) -> int:
    """After how many periods a gang's hold pauses again: 1, then 2, 4, ... as the gang waits.

    It is at most half of the periods waited, so that no hold outlasts the wait before it. It is a power of two, so that
    a gang that waited longer pauses only when gangs that waited less pause, too. Holds of constant length would not
    outlast jobs that run for hours.
    """
    waited = (_period_start(period) - since) // HOLD_PERIOD
    return 1 << (max(waited // 2, 1).bit_length() - 1)


def _period_start(period: int) -> datetime:
    return _EPOCH + period * HOLD_PERIOD
