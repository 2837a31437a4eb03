"""What happens next to a gang whose job runs, when shares of it are lost, are to be left, or are not needed any more?

The job runs on: what is left of the gang stays where it is, and only the workers that lost their place are planned anew,
in a further round of the same Placement, there or elsewhere. Or the whole gang starts again, if its policy says so.
Whether a single worker lives is not asked here (worker/dispatch.py), how a round is asked for and given up is reserve.py's, and how
workers come one by one scale_up.py's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from adapter import names
from adapter.actions import Action, DeletePod, LookAgain, Plan, Record, say
from adapter.gang import elastic, messages, scale_up, start_timeout
from adapter.gang.gang_facts import Gang
from adapter.gang.reserve import ask, blocked, why_not
from adapter.gang.scale_up import Asked
from adapter.gang.start_timeout import Unstarted
from adapter.gang.timeouts import RESYNC, SOON, excluded, excluded_for, may_fit
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload


def decide(gang: Gang, work: Workload, current: Placement, now: datetime) -> list[Action]:
    """Say what to do next for a gang whose job runs."""
    # 12. The job runs: workers that lost their place are planned anew, and nothing else is touched.
    # An elastic job may have started with no worker elsewhere, and so with no round.
    seen = current if current.placed_round or work.elastic else replace(current, placed_round=current.round)
    coming = scale_up.coming(gang, seen)
    gone = _lost(gang, seen, coming)
    # An elastic job may hold a share that its last worker has left already, and that is missed by nobody.
    missed = {share: text for share, text in gone.items() if not seen.job or seen.share_key(share) in gang.here}
    refused, why = _refused(gang, seen, gone), _why(missed)
    late = scale_up.late(gang, seen, coming, now)
    told = [*(say(work.job, "ShareLost", why, warning=True) if why else []), *scale_up.told(work, late)]
    # A cluster that refuses the pods would do so again: the plan knows to leave it out, a new attempt would not.
    if gang.on_share_lost == "Restart" and any(not share.single_worker for share in missed if share not in refused):
        text = f"{why} The whole job starts again, as its policy's onShareLost says."
        return [*told, messages.check(gang, work, names.CHECK_RETRY, text)]
    left = [share for share in (*_held(seen, coming), *coming) if share not in gone and share not in late]
    bad = start_timeout.found(gang, seen, now)
    spared = set(_spare(gang, seen, left, bad))
    if gone or spared or late or current.withdrawing:
        again = now + excluded_for(current)
        live = (
            *excluded(current, now, gang.start_timeout),
            *(Exclusion(share.cluster, again, gone[share]) for share in refused),
            *scale_up.left_out(current, late, now),
        )
        kept = tuple(share for share in left if share not in spared)
        return [*told, *_plan(gang, work, current, live, kept, bad, why, len(refused) + bool(late))]
    asked = _asked(seen)
    if asked and current.job and not any(elastic.lacking(gang, _places_of_groups(gang, seen, left, bad)).values()):
        return [Record(current, messages.withdrawing(current, {}, "Nobody needs it any more", now, now))]
    if asked:
        # It is placed when those who come by themselves are, too: who is of a placed round and has no quota counts as lost.
        return ask(gang, work, current, [*asked, *coming], True, now)
    return _whole(gang, work, current, seen, coming, bad, now)


def _plan(
    gang: Gang,
    work: Workload,
    current: Placement,
    live: tuple[Exclusion, ...],
    kept: tuple[Share, ...],
    bad: Unstarted,
    why: str = "",
    refused: int = 0,
) -> list[Action]:
    """Plan the workers that have no place beside the shares that are kept, also those that did not start in time."""
    told = say(work.job, "NotStarted", bad.why, warning=True) if bad.exclusions else []
    without = sum(
        (bad.short.get(current.share_key(share), Counter()) for share in _staying(gang, kept)), Counter[str]()
    )
    lost = " ".join(text for text in (why, bad.why) if text)
    closed = bool(bad.exclusions)
    plan = Plan(work, current, (*live, *bad.exclusions), kept, lost, refused, without, closed)
    return [*told, plan, LookAgain(SOON)]


def _whole(
    gang: Gang, work: Workload, current: Placement, seen: Placement, coming: Asked, bad: Unstarted, now: datetime
) -> list[Action]:
    """What is left to do while no share is lost, and no round asked for: more workers may fit, others are to move, and single ones
    come."""
    live, lacking = excluded(current, now, gang.start_timeout), _lacking(gang, seen, bad)
    missing = sum(lacking.values())
    found = any(map(seen.is_from_last_plan, seen.active_shares))  # by the last plan
    waits = bool(missing or (seen.lost_reason and not found))  # what it says of lost workers is not true any more
    waits = waits and not elastic.full(seen)
    # Before any plan: where room comes and goes all the time, there is one at each look.
    asks = scale_up.ask(gang, work, current, coming, now)
    if bad.exclusions or (missing and bad.late and found) or (waits and may_fit(gang, current, live, now)):
        return [*asks, *_plan(gang, work, current, live, seen.active_shares, bad)]
    moved = [DeletePod(cluster, copy, f"worker cluster {cluster} is being drained") for cluster, copy in gang.movers]
    ended = start_timeout.ended(gang, bad, now)
    recorded = messages.record(current, _status(gang, seen, coming, lacking, now))
    ends = [*(one.until for one in live), *([gang.settles] if gang.settles else [])] if waits else []
    looks = [RESYNC, *(end - now for end in ends)] if waits or _blocked(gang, seen) else []
    looks += [bad.due - now] if bad.due else []
    if missing and current.job:
        recorded += say(work.job, "Waiting", elastic.told(gang, current, lacking))
        recorded += say(work.job, "AutoscalerGivesUp", gang.impatience) if gang.impatience else []
    elif recorded and current.job and not coming and current.status.get("state") == names.RESERVING:
        recorded += say(work.job, "Replaced" if current.lost_reason else "Placed", current.explanation)
    return [*asks, *moved, *ended, *recorded, *([LookAgain(min(looks))] if looks else [])]


def _lost(gang: Gang, current: Placement, coming: Asked) -> dict[Share, str]:
    """The shares that were admitted and will not be again, each with the reason; what is only out of sight is not lost."""
    standing = gang.standing(current, _held(current, coming))
    found = {share: _why_lost(gang, current, share, one) for share, one in standing.items()}
    return {share: why for share, why in found.items() if why}


def _spare(gang: Gang, current: Placement, kept: Iterable[Share], bad: Unstarted) -> tuple[Share, ...]:
    """Those of these shares that no worker is on, and that are to be left or that nobody needs: others hold the whole gang,
    and nobody is on the way to one."""
    kept = tuple(kept)
    empty = [share for share in kept if current.share_key(share) not in gang.occupied]
    drained = [share for share in empty if share.cluster in gang.draining]
    if current.job:
        others = [one for one in empty if one.cluster not in gang.draining and not start_timeout.awaited(gang, one)]
        return (*drained, *elastic.spare(gang, others, _places_of_groups(gang, current, kept, bad)))
    room = 0 if start_timeout.away(gang) else _places(gang, current, kept, bad) - current.wanted_workers
    more = []
    for share in reversed([share for share in empty if share not in drained]):
        if share.workers <= room:
            more.append(share)
            room -= share.workers
    return (*drained, *more)


def _staying(gang: Gang, shares: Iterable[Share]) -> list[Share]:
    """The shares whose workers need no other place."""
    return [share for share in shares if share.cluster not in gang.draining]


def _places(gang: Gang, current: Placement, shares: Iterable[Share], bad: Unstarted) -> int:
    """For how many workers there is a place on some shares that they need not leave."""
    return sum(bad.places(share, current.share_key(share)) for share in _staying(gang, shares))


def _places_of_groups(gang: Gang, current: Placement, shares: Iterable[Share], bad: Unstarted) -> Counter[str]:
    """The same by worker group."""
    places = Counter[str]()
    for share in _staying(gang, shares):
        places.update({group.name: group.count for group in share.groups})
        places.subtract(bad.short.get(current.share_key(share), {}))
    return places


def _held(current: Placement, coming: Asked) -> list[Share]:
    """The shares of rounds that were admitted as a whole, and those of single workers that were."""
    held = (
        share
        for share in current.active_shares
        if share.single_worker or current.round_of(share) <= current.placed_round
    )
    return [share for share in held if share not in coming]


def _asked(current: Placement) -> list[Share]:
    """The shares of the round that is being asked for as a whole."""
    return [
        share
        for share in current.active_shares
        if not share.single_worker and current.round_of(share) > current.placed_round
    ]


def _refused(gang: Gang, current: Placement, gone: Iterable[Share]) -> tuple[Share, ...]:
    """Those of the lost shares whose clusters refuse the gang's pods: they would do so again."""
    lost = (share for share in gone if share.cluster not in gang.silent)
    return tuple(share for share in lost if current.share_key(share) in gang.unusable)


def _why(gone: Mapping[Share, str]) -> str:
    """Why workers are planned anew: a sentence, or empty when none was lost."""
    counts = Counter[tuple[str, str]]()
    for share, text in gone.items():
        counts[share.cluster, text.removesuffix(".")] += share.workers
    parts = [f"{count} in {cluster}: {text}" for (cluster, text), count in counts.items()]
    return f"Workers were lost, {'; '.join(parts)}." if parts else ""


def _lacking(gang: Gang, current: Placement, bad: Unstarted) -> Mapping[str, int]:
    """How many workers have no place, or must leave theirs, of an elastic job by worker group."""
    if current.job:
        return elastic.lacking(gang, _places_of_groups(gang, current, current.active_shares, bad))
    return {"": max(current.wanted_workers - _places(gang, current, current.active_shares, bad), 0)}


def _blocked(gang: Gang, current: Placement) -> dict[str, str]:
    """The clusters of a running gang that cannot be seen, or whose share is not admitted now, and why."""
    unseen = {
        share.cluster: gang.silent[share.cluster] for share in current.active_shares if share.cluster in gang.silent
    }
    found = [one for one in gang.standing(current, current.active_shares).values() if one]
    return unseen | {one.cluster: why_not(one) for one in found if one.deleting or not one.admitted}


def _status(
    gang: Gang, current: Placement, coming: Asked, lacking: Mapping[str, int], now: datetime
) -> dict[str, object]:
    """The Placement's status while no round is asked for."""
    if coming:
        body = messages.reserving(current, blocked(gang, coming), now)
    elif found := _blocked(gang, current):
        body = messages.running(current, found, gang.silent, now)
    else:
        body = messages.placed(current, now, elastic.told(gang, current, lacking) if current.job else "")
    return {**body, "placedRound": scale_up.placed_round(current, coming)} if current.job else body


def _why_lost(gang: Gang, current: Placement, share: Share, found: Reservation | None) -> str:
    key = current.share_key(share)
    if share.cluster in gang.silent:
        if key in gang.alive:
            return ""
        # Where copies were, and nobody counts as running any more, Ray lost them all: their replacements need not wait.
        waited_for = gang.unplaced and key in gang.there
        return gang.given_up.get(share.cluster) or (
            f"the worker cluster {gang.silent[share.cluster]}" if waited_for else ""
        )
    if found is None:
        return "its reservation is gone there"
    # A cluster that runs some of them may have its reasons to refuse others for a while: what runs is not given up.
    if key not in gang.there and (why := gang.unusable.get(key)):
        return why
    if found.admitted or found.deleting or (found.reserved_at is not None and not found.stranded):
        return ""
    # In its queue it would wait behind others, and while it does, other clusters may have room.
    stopped, waits = (
        f"its workers were stopped there: {found.eviction_message}",
        f"it lost its quota there: {found.message}",
    )
    return stopped if found.eviction_message else waits
