"""What happens next to a gang whose job runs, when shares of it are lost, are to be left, or are not needed any more?

The job runs on: what is left of the gang stays where it is, and only the workers that lost their place are planned anew,
in a further round of the same Placement, there or elsewhere. Or the whole gang starts again, if its policy says so.
Whether a single worker lives is not asked here (worker/dispatch.py), and how a round is asked for and given up is reserving.py's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from adapter import names
from adapter.actions import Action, DeletePod, LookAgain, Plan, Record, say
from adapter.gang import elastic, status, unstarted
from adapter.gang.deadlines import RESYNC, SOON, excluded, excluded_for, may_fit
from adapter.gang.facts import Gang
from adapter.gang.reserving import ask, why_not
from adapter.gang.unstarted import Unstarted
from adapter.objects.placement import Exclusion, Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload


def decide(gang: Gang, work: Workload, current: Placement, now: datetime) -> list[Action]:
    """Say what to do next for a gang whose job runs."""
    # 12. The job runs: workers that lost their place are planned anew, and nothing else is touched.
    # An elastic job may have started with no worker elsewhere, and so with no round.
    seen = current if current.placed_round or work.elastic else replace(current, placed_round=current.round)
    gone = _lost(gang, seen)
    # An elastic job may hold a share that its last worker has left already, and that is missed by nobody.
    missed = {share: text for share, text in gone.items() if not seen.job or _key(seen, share) in gang.here}
    refused, why = _refused(gang, seen, gone), _why(missed)
    told = say(work.job, "ShareLost", why, warning=True) if why else []
    # A cluster that refuses the pods would do so again: the plan knows to leave it out, a new attempt would not.
    if set(missed) - set(refused) and gang.on_share_lost == "Restart":
        text = f"{why} The whole job starts again, as its policy's onShareLost says."
        return [*told, status.check(gang, work, names.CHECK_RETRY, text)]
    left, bad = [share for share in _held(seen) if share not in gone], unstarted.found(gang, seen, now)
    spared = _spare(gang, seen, left, bad)
    if gone or spared or current.withdrawing:
        again = now + excluded_for(current)
        live = (
            *excluded(current, now, gang.start_timeout),
            *(Exclusion(share.cluster, again, gone[share]) for share in refused),
        )
        kept = tuple(share for share in left if share not in spared)
        return [*told, *_plan(gang, work, current, live, kept, bad, why, len(refused))]
    asked = _asked(seen)
    if asked and current.job and not elastic.missing(gang, _places_of_groups(gang, seen, _held(seen), bad)):
        return [Record(current, status.withdrawing(current, {}, "Nobody needs it any more", now, now))]
    if asked:
        return ask(gang, work, current, asked, True, now)
    return _whole(gang, work, current, seen, bad, now)


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
    without = sum((bad.short.get(_key(current, share), Counter()) for share in _staying(gang, kept)), Counter[str]())
    lost = " ".join(text for text in (why, bad.why) if text)
    closed = bool(bad.exclusions)
    plan = Plan(work, current, (*live, *bad.exclusions), kept, lost, refused, without, closed)
    return [*told, plan, LookAgain(SOON)]


def _whole(
    gang: Gang, work: Workload, current: Placement, seen: Placement, bad: Unstarted, now: datetime
) -> list[Action]:
    """What is left to do while no share is lost or asked for: more workers may fit, and others are to move."""
    live, missing = excluded(current, now, gang.start_timeout), _missing(gang, seen, bad)
    found = any(seen.round_of(share) == seen.round for share in seen.live)  # by the last plan
    waits = bool(missing or (seen.lost and not found))  # what it says of lost workers is not true any more
    waits = waits and not elastic.full(seen)
    if bad.exclusions or (missing and bad.late and found) or (waits and may_fit(gang, current, live, now)):
        return _plan(gang, work, current, live, tuple(_held(seen)), bad)
    moved = [DeletePod(cluster, copy, f"worker cluster {cluster} is being drained") for cluster, copy in gang.movers]
    ended = unstarted.ended(gang, bad, now)
    recorded = status.record(current, _status(gang, seen, missing, now))
    ends = [*(one.until for one in live), *([gang.settles] if gang.settles else [])] if waits else []
    looks = [RESYNC, *(end - now for end in ends)] if waits or _blocked(gang, seen) else []
    looks += [bad.due - now] if bad.due else []
    if missing and current.job:
        recorded += say(work.job, "Waiting", elastic.told(gang, current, missing))
    return [*moved, *ended, *recorded, *([LookAgain(min(looks))] if looks else [])]


def _lost(gang: Gang, current: Placement) -> dict[Share, str]:
    """The shares that were admitted and will not be again, each with the reason; what is only out of sight is not lost."""
    standing = _by_share(gang.reservations, current)
    found = {share: _why_lost(gang, current, share, standing.get(_key(current, share))) for share in _held(current)}
    return {share: why for share, why in found.items() if why}


def _spare(gang: Gang, current: Placement, kept: Iterable[Share], bad: Unstarted) -> tuple[Share, ...]:
    """Those of the held shares that no worker is on, and that are to be left or that nobody needs: others hold the whole gang,
    and nobody is on the way to one."""
    kept = tuple(kept)
    empty = [share for share in kept if _key(current, share) not in gang.occupied]
    drained = [share for share in empty if share.cluster in gang.draining]
    if current.job:
        others = [share for share in empty if share not in drained and not unstarted.awaited(gang, share)]
        return (*drained, *elastic.spare(gang, others, _places_of_groups(gang, current, kept, bad)))
    room = 0 if unstarted.away(gang) else _places(gang, current, kept, bad) - current.wanted
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
    return sum(bad.places(share, _key(current, share)) for share in _staying(gang, shares))


def _places_of_groups(gang: Gang, current: Placement, shares: Iterable[Share], bad: Unstarted) -> Counter[str]:
    """The same by worker group."""
    places = Counter[str]()
    for share in _staying(gang, shares):
        places.update({group.name: group.count for group in share.groups})
        places.subtract(bad.short.get(_key(current, share), {}))
    return places


def _held(current: Placement) -> list[Share]:
    """The shares of rounds that were admitted as a whole."""
    return [share for share in current.live if current.round_of(share) <= current.placed_round]


def _asked(current: Placement) -> list[Share]:
    """The shares of the round that is being asked for."""
    return [share for share in current.live if current.round_of(share) > current.placed_round]


def _by_share(reservations: Iterable[Reservation], current: Placement) -> dict[tuple[str, int], Reservation]:
    """What stands for the Placement's shares, by cluster and round."""
    return {(r.cluster, r.round): r for r in reservations if r.placement == current.name}


def _refused(gang: Gang, current: Placement, gone: Iterable[Share]) -> tuple[Share, ...]:
    """Those of the lost shares whose clusters refuse the gang's pods: they would do so again."""
    return tuple(share for share in gone if _key(current, share) in gang.unusable and share.cluster not in gang.silent)


def _why(gone: Mapping[Share, str]) -> str:
    """Why workers are planned anew: a sentence, or empty when none was lost."""
    parts = [f"{share.workers} in {share.cluster}: {text.removesuffix('.')}" for share, text in gone.items()]
    return f"Workers were lost, {'; '.join(parts)}." if parts else ""


def _missing(gang: Gang, current: Placement, bad: Unstarted) -> int:
    """How many workers have no place, or must leave theirs."""
    if current.job:
        return elastic.missing(gang, _places_of_groups(gang, current, current.live, bad))
    return max(current.wanted - _places(gang, current, current.live, bad), 0)


def _blocked(gang: Gang, current: Placement) -> dict[str, str]:
    """The clusters of a running gang that cannot be seen, or whose share is not admitted now, and why."""
    standing = _by_share(gang.reservations, current)
    unseen = {share.cluster: gang.silent[share.cluster] for share in current.live if share.cluster in gang.silent}
    found = [standing[_key(current, share)] for share in current.live if _key(current, share) in standing]
    return unseen | {one.cluster: why_not(one) for one in found if one.deleting or not one.admitted}


def _status(gang: Gang, current: Placement, missing: int, now: datetime) -> dict[str, object]:
    """The Placement's status while nothing is asked for."""
    found = _blocked(gang, current)
    if found:
        return status.running(current, found, gang.silent, now)
    return status.placed(current, now, elastic.told(gang, current, missing) if current.job else "")


def _why_lost(gang: Gang, current: Placement, share: Share, found: Reservation | None) -> str:
    if share.cluster in gang.silent:
        if _key(current, share) in gang.alive:
            return ""
        # Where copies were, and nobody counts as running any more, Ray lost them all: their replacements need not wait.
        waited_for = gang.unplaced and _key(current, share) in gang.there
        return gang.given_up.get(share.cluster) or (
            f"the worker cluster {gang.silent[share.cluster]}" if waited_for else ""
        )
    if found is None:
        return "its reservation is gone there"
    # A cluster that runs some of them may have its reasons to refuse others for a while: what runs is not given up.
    if _key(current, share) not in gang.there and (why := gang.unusable.get(_key(current, share))):
        return why
    if found.admitted or found.deleting or (found.reserved_at is not None and not found.stranded):
        return ""
    # In its queue it would wait behind others, and while it does, other clusters may have room.
    stopped, waits = f"its workers were stopped there: {found.evicted}", f"it lost its quota there: {found.message}"
    return stopped if found.evicted else waits


def _key(current: Placement, share: Share) -> tuple[str, int]:
    return share.cluster, current.round_of(share)
