"""Single-worker shares of a running elastic job: they are created, waited for, and given up one by one.

A worker whose share is not admitted in time is planned again without that cluster; the other shares stay. First rounds,
and rounds for workers lost together, are all or nothing (reserve.py). running.py decides whether an admitted share is
lost.
"""

from collections.abc import Mapping
from datetime import datetime

from adapter import names
from adapter.actions import Action, RequeueAfter, emit_event
from adapter.gang import messages, reserve
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import RESERVE_RETRY, exclusion_duration, last_admissions, round_started_at, round_timeout
from adapter.objects.placement import Exclusion, Placement, Share, describe_shares
from adapter.objects.reason import Reason, sentence
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

PendingShares = Mapping[Share, Reservation | None]  # a requested share -> its reservation


def pending_shares(gang: Gang, current: Placement) -> dict[Share, Reservation | None]:
    """The single-worker shares that were never admitted."""
    requested = (s for s in current.active_shares if s.single_worker and current.round_of(s) > current.placed_round)
    reservations = gang.reservations_of(current, requested)
    return {
        share: reservation
        for share, reservation in reservations.items()
        if not _was_admitted(gang, current, share, reservation)
    }


def _was_admitted(gang: Gang, current: Placement, share: Share, reservation: Reservation | None) -> bool:
    """Whether a share was ever admitted, even if its cluster is unreachable or has evicted it since.

    Kueue evicts what an admission check refuses, and that was not admitted.
    """
    return (
        bool(reservation and (reservation.admitted or (reservation.eviction_message and not reservation.refusal)))
        or current.share_key(share) in gang.pods.shares_with_remote_pods
    )


def last_placed_round(current: Placement, pending: PendingShares) -> int:
    return min((current.round_of(share) for share in pending), default=current.round + 1) - 1


def timed_out_shares(gang: Gang, current: Placement, pending: PendingShares, now: datetime) -> dict[Share, Reason]:
    """The pending shares that were refused, or not admitted in time, with their clusters' reasons."""
    deadlines = _deadlines(gang, current, pending, now)
    blocked = reserve.blocked_shares(
        gang, {share: reservation for share, reservation in pending.items() if now >= deadlines[share]}
    )
    return {share: reserve.with_advice(reason) for share, reason in blocked.items()}


def exclusions_for(current: Placement, timed_out: Mapping[Share, Reason], now: datetime) -> list[Exclusion]:
    """Exclude the clusters that did not admit shares in time."""
    until = now + exclusion_duration(current, is_refused=reserve.is_refused(timed_out))
    reasons = messages.first_reasons(timed_out).items()
    return [Exclusion(cluster, until, messages.describe_exclusion(reason)) for cluster, reason in reasons]


def report_timed_out(workload: Workload, timed_out: Mapping[Share, Reason]) -> list[Action]:
    parts = [
        f"{cluster}: {reason or 'its Kueue did not answer'}"
        for cluster, reason in messages.reason_by_cluster(timed_out).items()
    ]
    cause = "Refused" if reserve.is_refused(timed_out) else "Not admitted in time"
    text = f"{cause}, so planned again: {describe_shares(timed_out)}; {'; '.join(parts)}"
    return emit_event(workload.job, names.EventReason.RESERVATION_TIMEOUT, sentence(text)) if timed_out else []


def reserve_pending(
    gang: Gang, workload: Workload, current: Placement, pending: PendingShares, now: datetime
) -> list[Action]:
    """Create the missing shares, and requeue at the first deadline."""
    absent = [share for share, reservation in pending.items() if reservation is None]
    creations = reserve.create_shares(gang, workload, current, absent, True)
    delays = [
        *(deadline - now for deadline in _deadlines(gang, current, pending, now).values()),
        *([RESERVE_RETRY] if creations else []),
    ]
    return [*creations, *([RequeueAfter(min(delays))] if delays else [])]


def _deadlines(gang: Gang, current: Placement, pending: PendingShares, now: datetime) -> dict[Share, datetime]:
    """When each pending share times out. Later plans extend no deadline, or a growing job would wait for ever."""
    admitting_clusters, by_round = last_admissions(gang, current), gang.shares.started_at_by_round
    current_started_at = gang.shares.round_started_at or round_started_at(current, now)
    started = {share: by_round.get(current.round_of(share), current_started_at) for share in pending}
    return {
        share: started[share] + round_timeout(gang, current, {share: reservation}, admitting_clusters)
        for share, reservation in pending.items()
    }
