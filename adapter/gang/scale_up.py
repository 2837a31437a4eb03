"""What becomes of each worker that a running job asks for by itself: its share is asked for, waited for, or given up?

Such a worker is a gang of one. The first round of a job, and one for workers that were lost together, is admitted or given up as a
whole (reserve.py); here nobody waits for another, and what one cluster does not admit in time is planned anew without it, while
all that was admitted stays. Whether a share that was admitted is lost or spared is not asked here (running.py).
"""

from collections.abc import Mapping
from datetime import datetime

from adapter.actions import Action, LookAgain, say
from adapter.gang import messages, reserve
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import RETRY, answering, begun, excluded_for, patience
from adapter.objects.placement import Exclusion, Placement, Share, describe_shares
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload

Asked = Mapping[Share, Reservation | None]  # shares that are asked for, and what stands for each


def coming(gang: Gang, current: Placement) -> dict[Share, Reservation | None]:
    """The shares of single workers that were not admitted yet."""
    later = (one for one in current.active_shares if one.single_worker and current.round_of(one) > current.placed_round)
    standing = gang.standing(current, later)
    return {share: found for share, found in standing.items() if not _came(gang, current, share, found)}


def _came(gang: Gang, current: Placement, share: Share, found: Reservation | None) -> bool:
    """Whether it was admitted once: also if its cluster cannot be seen now, or has taken it back."""
    return bool(found and (found.admitted or found.eviction_message)) or current.share_key(share) in gang.there


def placed_round(current: Placement, asked: Asked) -> int:
    """The last round up to which every share was admitted, by those that were not."""
    return min((current.round_of(share) for share in asked), default=current.round + 1) - 1


def late(gang: Gang, current: Placement, asked: Asked, now: datetime) -> dict[Share, str]:
    """Those that were not admitted in time, and why, as far as their clusters say it."""
    due = _due(gang, current, asked, now)
    return reserve.blocked(gang, {share: found for share, found in asked.items() if now >= due[share]})


def left_out(current: Placement, given_up: Mapping[Share, str], now: datetime) -> list[Exclusion]:
    """The clusters that did not admit them, which are not asked again at once."""
    again = now + excluded_for(current)
    told = messages.by_cluster(given_up)
    return [Exclusion(name, again, f"did not admit in time{why and f': {why}'}") for name, why in told.items()]


def told(work: Workload, given_up: Mapping[Share, str]) -> list[Action]:
    """Say who is planned anew."""
    parts = [f"{name}: {why or 'its Kueue did not answer'}" for name, why in messages.by_cluster(given_up).items()]
    text = f"Not admitted in time, so planned anew: {describe_shares(given_up)}; {'; '.join(parts)}"
    return say(work.job, "Withdrawn", text if text.endswith(".") else f"{text}.") if given_up else []


def ask(gang: Gang, work: Workload, current: Placement, asked: Asked, now: datetime) -> list[Action]:
    """Ask for those that do not stand, and look again when the first of them is late."""
    absent = [share for share, found in asked.items() if found is None]
    asks = reserve.reserve(gang, work, current, absent, True)
    looks = [*(when - now for when in _due(gang, current, asked, now).values()), *([RETRY] if asks else [])]
    return [*asks, *([LookAgain(min(looks))] if looks else [])]


def _due(gang: Gang, current: Placement, asked: Asked, now: datetime) -> dict[Share, datetime]:
    """Until when each is waited for: no later plan gives it more time, or a job that grows all the time would wait for ever."""
    busy, seen = answering(gang, current), gang.seen_since
    since = {share: begun(current, seen.get(current.round_of(share), gang.first_seen), now) for share in asked}
    return {share: since[share] + patience(gang, current, {share: found}, busy) for share, found in asked.items()}
