"""What becomes of each worker that a running job asks for by itself: its share is asked for, waited for, or given up?

Such a worker is a gang of one. The first round of a job, and one for workers that were lost together, is admitted or given up as a
whole (reserve.py); here nobody waits for another, and what one cluster does not admit in time is planned anew without it, while
all that was admitted stays. Whether a share that was admitted is lost or spared is not asked here (running.py).
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

PendingShares = Mapping[Share, Reservation | None]  # shares that are asked for, and what stands for each


def pending_shares(gang: Gang, current: Placement) -> dict[Share, Reservation | None]:
    """The shares of single workers that were not admitted yet."""
    later = (one for one in current.active_shares if one.single_worker and current.round_of(one) > current.placed_round)
    standing = gang.reservations_of(current, later)
    return {share: found for share, found in standing.items() if not _was_admitted(gang, current, share, found)}


def _was_admitted(gang: Gang, current: Placement, share: Share, reservation: Reservation | None) -> bool:
    """Whether it was admitted once: also if its cluster cannot be seen now, or has taken it back."""
    return (
        bool(reservation and (reservation.admitted or reservation.eviction_message))
        or current.share_key(share) in gang.pods.shares_with_remote_pods
    )


def last_placed_round(current: Placement, pending: PendingShares) -> int:
    """The last round up to which every share was admitted, by those that were not."""
    return min((current.round_of(share) for share in pending), default=current.round + 1) - 1


def timed_out_shares(gang: Gang, current: Placement, pending: PendingShares, now: datetime) -> dict[Share, Reason]:
    """Those that were not admitted in time, and why, as far as their clusters say it."""
    due = _deadlines(gang, current, pending, now)
    return reserve.blocked_shares(gang, {share: found for share, found in pending.items() if now >= due[share]})


def exclusions_for(current: Placement, timed_out: Mapping[Share, Reason], now: datetime) -> list[Exclusion]:
    """The clusters that did not admit them, which are not asked again at once."""
    again = now + exclusion_duration(current)
    told = messages.reason_by_cluster(timed_out)
    return [Exclusion(name, again, f"did not admit in time{why and f': {why}'}") for name, why in told.items()]


def report_timed_out(workload: Workload, timed_out: Mapping[Share, Reason]) -> list[Action]:
    """Say who is planned anew."""
    parts = [
        f"{name}: {why or 'its Kueue did not answer'}" for name, why in messages.reason_by_cluster(timed_out).items()
    ]
    text = f"Not admitted in time, so planned anew: {describe_shares(timed_out)}; {'; '.join(parts)}"
    return emit_event(workload.job, names.EventReason.RESERVATION_TIMEOUT, sentence(text)) if timed_out else []


def reserve_pending(
    gang: Gang, workload: Workload, current: Placement, pending: PendingShares, now: datetime
) -> list[Action]:
    """Ask for those that do not stand, and look again when the first of them is late."""
    absent = [share for share, found in pending.items() if found is None]
    asks = reserve.create_shares(gang, workload, current, absent, True)
    looks = [
        *(when - now for when in _deadlines(gang, current, pending, now).values()),
        *([RESERVE_RETRY] if asks else []),
    ]
    return [*asks, *([RequeueAfter(min(looks))] if looks else [])]


def _deadlines(gang: Gang, current: Placement, pending: PendingShares, now: datetime) -> dict[Share, datetime]:
    """Until when each is waited for: no later plan gives it more time, or a job that grows all the time would wait for ever."""
    busy, seen = last_admissions(gang, current), gang.shares.first_seen_by_round
    since = {
        share: round_started_at(current, seen.get(current.round_of(share), gang.shares.round_first_seen), now)
        for share in pending
    }
    return {
        share: since[share] + round_timeout(gang, current, {share: found}, busy) for share, found in pending.items()
    }
