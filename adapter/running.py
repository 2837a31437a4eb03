"""What happens next to a gang whose job runs, when shares of it are lost, are to be left, or are not needed any more?

The job runs on: what is left of the gang stays where it is, and only the workers that lost their place are planned anew,
in a further round of the same Placement, there or elsewhere. Or the whole gang starts again, if its policy says so.
Whether a single worker lives is not asked here (dispatch.py), and how a round is asked for and given up is lifecycle.py's.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter import explain
from adapter.facts import Placement, Reservation, Share
from adapter.gang import Gang


def lost(gang: Gang, current: Placement) -> dict[Share, str]:
    """The shares that were admitted and will not be again, each with the reason; what is only out of sight is not lost."""
    standing = by_share(gang.reservations, current)
    found = {share: _why_lost(gang, current, share, standing.get(_key(current, share))) for share in held(current)}
    return {share: why for share, why in found.items() if why}


def spare(gang: Gang, current: Placement, kept: Iterable[Share]) -> tuple[Share, ...]:
    """Those of the held shares that no worker is on, and that are to be left or that nobody needs: others hold the whole gang."""
    kept = tuple(kept)
    empty = [share for share in kept if _key(current, share) not in gang.occupied]
    drained = [share for share in empty if share.cluster in gang.draining]
    room = sum(share.workers for share in staying(gang, kept)) - current.wanted
    more = []
    for share in reversed([share for share in empty if share not in drained]):
        if share.workers <= room:
            more.append(share)
            room -= share.workers
    return (*drained, *more)


def staying(gang: Gang, shares: Iterable[Share]) -> list[Share]:
    """The shares whose workers need no other place."""
    return [share for share in shares if share.cluster not in gang.draining]


def held(current: Placement) -> list[Share]:
    """The shares of rounds that were admitted as a whole."""
    return [share for share in current.live if current.round_of(share) <= current.placed_round]


def asked(current: Placement) -> list[Share]:
    """The shares of the round that is being asked for."""
    return [share for share in current.live if current.round_of(share) > current.placed_round]


def by_share(reservations: Iterable[Reservation], current: Placement) -> dict[tuple[str, int], Reservation]:
    """What stands for the Placement's shares, by cluster and round."""
    return {(r.cluster, r.round): r for r in reservations if r.placement == current.name}


def refused(gang: Gang, current: Placement, gone: Iterable[Share]) -> tuple[Share, ...]:
    """Those of the lost shares whose clusters refuse the gang's pods: they would do so again."""
    return tuple(share for share in gone if _key(current, share) in gang.unusable and share.cluster not in gang.silent)


def why(gone: Mapping[Share, str]) -> str:
    """Why workers are planned anew: a sentence, or empty when none was lost."""
    parts = [f"{share.workers} in {share.cluster}: {text.removesuffix('.')}" for share, text in gone.items()]
    return f"Workers were lost, {'; '.join(parts)}." if parts else ""


def missing(gang: Gang, current: Placement) -> int:
    """How many workers have no place, or must leave theirs."""
    return max(current.wanted - sum(share.workers for share in staying(gang, current.live)), 0)


def blocked(gang: Gang, current: Placement) -> dict[str, str]:
    """The clusters of a running gang that cannot be seen, or whose share is not admitted now, and why."""
    standing = by_share(gang.reservations, current)
    unseen = {share.cluster: gang.silent[share.cluster] for share in current.live if share.cluster in gang.silent}
    found = [standing[_key(current, share)] for share in current.live if _key(current, share) in standing]
    return unseen | {one.cluster: why_not(one) for one in found if one.deleting or not one.admitted}


def status(gang: Gang, current: Placement, now: datetime) -> dict[str, object]:
    """The Placement's status while nothing is asked for."""
    found = blocked(gang, current)
    return explain.running(current, found, gang.silent, now) if found else explain.placed(current, now)


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


def why_not(found: Reservation) -> str:
    """Why a share that stands is not admitted."""
    if found.deleting:
        return "it is being deleted there"
    if found.evicted:
        return f"its workers were stopped there: {found.evicted}"
    return found.message if found.reserved_at is None else "an admission check there is pending"


def _key(current: Placement, share: Share) -> tuple[str, int]:
    return share.cluster, current.round_of(share)
