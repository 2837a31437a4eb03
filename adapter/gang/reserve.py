"""The shares of a round: they are created, waited for, and admitted or withdrawn as a whole.

Shares of earlier rounds stay. planning/planner.py plans the round, and timeouts.py limits its time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, RequeueAfter, Reserve, SetCheck, UpdatePlacementStatus, emit_event
from adapter.gang import dry_run, messages
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import (
    BORROWING_DELAY,
    RESERVE_RETRY,
    end_of_wait,
    exclusion_duration,
    last_admissions,
    round_started_at,
    round_timeout,
)
from adapter.objects import worker_pod
from adapter.objects.placement import Placement, Share
from adapter.objects.reason import Reason
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload
from adapter.relay import relay_network

RESERVED_LAST = Reason(
    names.ReasonCode.PREEMPTION_DEFERRED,
    "its share is created after all others are admitted, because it requires preemption",
)
BORROWS_LATER = Reason(
    names.ReasonCode.BORROWING_DEFERRED,
    "its share is created after those within nominal quota, so that Kueue takes borrowed quota back first",
)
NOT_CREATED = Reason(names.ReasonCode.SHARE_NOT_CREATED, "")
_REFUSED = Reason(names.ReasonCode.CHECK_REFUSED, "An admission check refused a share")
_SLOW_CHECK = "set spec.reservationTimeout of the DispatchPolicy to longer than the check takes"
_DEFERRED = (RESERVED_LAST.code, BORROWS_LATER.code)


def reserve_round(
    gang: Gang, workload: Workload, placement: Placement, shares: Sequence[Share], ready: bool, now: datetime
) -> list[Action]:
    """Create the missing shares of a round, and admit the gang when all are admitted; `ready` if the gang runs.

    A round with a share in a cluster that is drained is withdrawn, and planned without it. A vanished share is created
    again by the same plan. Shares that borrow are created after the others of their
    cluster, so that a reclaim takes them first. Shares that preempt are created last, so that a round withdrawn before
    that stops no running pod.
    """
    reservations = gang.reservations_of(placement, shares)
    if drained := [share.cluster for share in shares if share.cluster in gang.clusters.draining]:
        return _withdraw_drained(gang, workload, placement, drained[0], ready, now)
    blocked = blocked_shares(gang, reservations)
    if not blocked:
        return _admit(gang, workload, placement, ready, now)
    may_preempt = all(share.preempts for share in blocked)
    borrow_at = _borrowing_times(gang, reservations, now)
    absent = (
        share
        for share, reservation in reservations.items()
        if reservation is None and (may_preempt if share.preempts else _may_create(share, borrow_at, now))
    )
    creations = create_shares(gang, workload, placement, absent, ready)
    deferred = {share.cluster for share, reservation in reservations.items() if reservation is None and share.borrows}
    requeue_at = [at for cluster, at in borrow_at.items() if at and at > now and cluster in deferred]
    return [
        *_wait_or_withdraw(gang, workload, placement, blocked, reservations, creations, ready, now),
        *([RequeueAfter(min(requeue_at) - now)] if requeue_at else []),
    ]


def _may_create(share: Share, borrow_at: Mapping[str, datetime | None], now: datetime) -> bool:
    if not share.borrows:
        return True
    at = borrow_at.get(share.cluster, now)
    return at is not None and at <= now


def _borrowing_times(
    gang: Gang, reservations: Mapping[Share, Reservation | None], now: datetime
) -> dict[str, datetime | None]:
    """When shares that borrow may be created, by cluster; None while one that does not borrow has no quota there.

    Kueue takes back first what reserved quota last. So admission checks of the shares run at one time.
    """
    times = dict[str, datetime | None]()
    for share, reservation in reservations.items():
        if share.borrows or share.preempts:
            continue
        at = _borrowing_time(gang, reservation, now) if reservation and not reservation.deleting else None
        earlier = times.get(share.cluster, at)
        times[share.cluster] = max(at, earlier) if at and earlier else None
    return times


def _borrowing_time(gang: Gang, reservation: Reservation, now: datetime) -> datetime | None:
    if reservation.reserved_at is None:
        return now if reservation.admitted else None
    since = gang.clusters.clocks.manager_time(reservation.cluster, reservation.reserved_at)
    return end_of_wait(since, BORROWING_DELAY, now)


def create_shares(
    gang: Gang, workload: Workload, placement: Placement, shares: Iterable[Share], ready: bool
) -> list[Action]:
    return [
        _create_share(gang, workload, placement, share, ready)
        for share in shares
        if share.cluster in gang.clusters.targets
        and _has_groups(workload, share)
        and not dry_run.denied_reason(gang, share)
    ]


def _has_groups(workload: Workload, share: Share) -> bool:
    """Whether the Workload has a share's groups. If a Placement edited by hand names others, its round times out."""
    return {group.name for group in share.groups} <= {podset.name for podset in workload.podsets}


def _create_share(gang: Gang, workload: Workload, placement: Placement, share: Share, ready: bool) -> Reserve:
    templates = {podset.name: podset.template for podset in workload.podsets}
    results = {group.name: gang.dry_runs.results.get((share.cluster, group.name)) for group in share.groups}
    target = gang.clusters.targets[share.cluster]
    return Reserve(
        placement=placement,
        share=share,
        target=replace(target, share=placement.name_of_share(share), round=placement.round_of(share)),
        groups=tuple((group.name, group.count, templates[group.name]) for group in share.groups),
        priority=workload.priority,
        starts_gang=not ready,
        dry_run_templates={
            name: result.reserved_template for name, result in results.items() if result and result.reserved_template
        },
    )


def _wait_or_withdraw(
    gang: Gang,
    workload: Workload,
    placement: Placement,
    blocked: Mapping[Share, Reason],
    reservations: Mapping[Share, Reservation | None],
    creations: Sequence[Action],
    ready: bool,
    now: datetime,
) -> list[Action]:
    """Wait for the blocked shares, or withdraw the round after its timeout; the next plan excludes their clusters."""
    timeout = round_timeout(gang, placement, reservations, last_admissions(gang, placement))
    deadline = (gang.shares.round_started_at or round_started_at(placement, now)) + timeout
    if now >= deadline:
        status = _withdrawn_status(placement, blocked, timeout, now)
        pending = [] if ready else messages.set_pending(gang, workload, str(status["reason"]))
        return [
            UpdatePlacementStatus(placement, status),
            *pending,
            *emit_event(workload.job, names.EventReason.RESERVATION_TIMEOUT, str(status["reason"])),
        ]
    status = messages.reserving_status(placement, blocked, now)
    pending = [] if ready else messages.set_pending(gang, workload, str(status["reason"]))
    delay = min(deadline - now, RESERVE_RETRY) if creations else deadline - now
    return [*creations, *messages.update_status(placement, status), *pending, RequeueAfter(delay)]


def _withdraw_drained(
    gang: Gang, workload: Workload, placement: Placement, cluster: str, ready: bool, now: datetime
) -> list[Action]:
    """Give the round up before workers start: they could not be created there, or would have to move at once."""
    cause = Reason(names.ReasonCode.CLUSTER_DRAINING, f"Workers leave worker cluster {cluster}")
    status = messages.withdrawing_status(placement, {}, cause, now, now)
    pending = [] if ready else messages.set_pending(gang, workload, str(status["reason"]))
    return [UpdatePlacementStatus(placement, status), *pending]


def _start_warnings(gang: Gang, workload: Workload) -> list[Action]:
    warnings = {
        names.EventReason.RESTARTS_ON_SHARE_LOSS: gang.job.start_warning,
        names.EventReason.REFERS_TO_MANAGER: gang.job.portability_warning,
    }
    return [
        event
        for reason, warning in warnings.items()
        if warning
        for event in emit_event(workload.job, reason, warning, warning=True)
    ]


def _admit(gang: Gang, workload: Workload, placement: Placement, ready: bool, now: datetime) -> list[Action]:
    """Record the round as placed, and let Kueue admit the gang."""
    status = messages.placed_status(placement, now)
    reason = str(status["reason"])
    actions: list[Action] = list(messages.update_status(placement, status))
    if not ready:
        actions += _start_warnings(gang, workload)
        updates = podset_locks(gang, placement.name, placement)
        reservations = tuple(sorted(gang.shares.reservations, key=lambda r: (r.cluster, r.name)))
        actions.append(SetCheck(workload, gang.check, names.CHECK_READY, reason, updates, reservations))
    # If no worker was replaced, an elastic job has grown.
    replaces_workers = ready and (bool(placement.lost_reason) or placement.job is None)
    event = names.EventReason.REPLACED if replaces_workers else names.EventReason.PLACED
    return [*actions, *emit_event(workload.job, event, reason)]


def podset_locks(gang: Gang, name: str, placement: Placement | None = None) -> tuple[dict[str, object], ...]:
    """The podset updates that keep pods out of the manager cluster, for the Placement of that name.

    Groups without workers get them too, since users may scale by hand. A `placement` adds its slots, but not for an
    elastic job. Kueue keeps the updates in that job's templates, and does not start a slice whose check has other
    updates.
    """
    listed = placement if placement and placement.job is None else None
    locks = (_podset_update(podset, name, listed) for podset in (*gang.job.remote_podsets, *gang.job.idle_podsets))
    return (*locks, relay_network.podset_update(gang.job.relay)) if gang.job.relay else tuple(locks)


def _podset_update(podset: str, name: str, placement: Placement | None) -> dict[str, object]:
    slots = worker_pod.list_slots(placement, podset) if placement else ""
    return {
        "name": podset,
        "labels": {names.PLACEMENT_LABEL: name},
        **({"annotations": {names.SLOTS_ANNOTATION: slots}} if slots else {}),
        "nodeSelector": {names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE},
    }


def _withdrawn_status(
    placement: Placement, blocked: Mapping[Share, Reason], timeout: timedelta, now: datetime
) -> dict[str, object]:
    requested = messages.reason_by_cluster(responsible_shares(blocked))
    cause = Reason(names.ReasonCode.RESERVATION_TIMEOUT, f"Not admitted {messages.timeout_text(timeout)}")
    until = now + exclusion_duration(placement, is_refused=is_refused(blocked))
    return messages.withdrawing_status(placement, requested, _REFUSED if is_refused(blocked) else cause, until, now)


def is_refused(blocked: Mapping[Share, Reason]) -> bool:
    """Whether an admission check refused one of these shares."""
    return any(reason.code is names.ReasonCode.CHECK_REFUSED for reason in blocked.values())


def responsible_shares(blocked: Mapping[Share, Reason]) -> dict[Share, Reason]:
    """The blocked shares whose clusters the next plan excludes.

    Where a check refused a share, the others have not had their time.
    """
    refused = is_refused(blocked)
    return {
        share: with_advice(reason)
        for share, reason in blocked.items()
        if (reason.code is names.ReasonCode.CHECK_REFUSED if refused else reason.code not in _DEFERRED)
    }


def with_advice(reason: Reason) -> Reason:
    """The reason of a share that was not admitted in time, and what would help if its admission check is slow."""
    is_slow = reason.code is names.ReasonCode.CHECK_PENDING
    return replace(reason, text=f"{reason.text}; {_SLOW_CHECK}") if is_slow else reason


def blocked_shares(gang: Gang, reservations: Mapping[Share, Reservation | None]) -> dict[Share, Reason]:
    """Map each share that is not admitted to the reason; the text is empty until the cluster's Kueue answers."""
    blocked: dict[Share, Reason] = {}
    unreachable = gang.clusters.unreachable
    for share, reservation in reservations.items():
        if share.cluster in unreachable:
            blocked[share] = Reason(names.ReasonCode.CLUSTER_UNREACHABLE, unreachable[share.cluster])
        elif reservation is None:
            blocked[share] = _denial(gang, share) or _absence_reason(share, reservations)
        elif reservation.deleting or not reservation.admitted:
            blocked[share] = not_admitted_reason(reservation)
    return blocked


def _absence_reason(share: Share, reservations: Collection[Share]) -> Reason:
    if share.preempts and len(reservations) > 1 and not share.single_worker:
        return RESERVED_LAST
    follows = share.borrows and any(s.cluster == share.cluster and not s.borrows for s in reservations)
    return BORROWS_LATER if follows else NOT_CREATED


def _denial(gang: Gang, share: Share) -> Reason | None:
    if text := dry_run.denied_reason(gang, share):
        return Reason(names.ReasonCode.PODS_REJECTED, text)
    if share.cluster in gang.shares.creation_denials:
        return Reason(names.ReasonCode.SHARE_REJECTED, gang.shares.creation_denials[share.cluster])
    return None


def not_admitted_reason(reservation: Reservation) -> Reason:
    if reservation.refusal:
        return Reason(names.ReasonCode.CHECK_REFUSED, reservation.refusal)
    if reservation.deleting:
        return Reason(names.ReasonCode.SHARE_DELETING, "it is being deleted there")
    if reservation.eviction_message:
        return Reason(names.ReasonCode.SHARE_EVICTED, f"its workers were stopped there: {reservation.eviction_message}")
    if reservation.reserved_at is None:
        return Reason(names.ReasonCode.QUOTA_PENDING, reservation.quota_message)
    text = reservation.checks_text or "an admission check there is pending"
    return Reason(names.ReasonCode.CHECK_PENDING, text)
