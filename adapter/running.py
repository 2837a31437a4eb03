"""What happens next to a gang whose job runs, when shares of it are lost, are to be left, or are not needed any more?

The job runs on: what is left of the gang stays where it is, and only the workers that lost their place are planned anew,
in a further round of the same Placement, there or elsewhere. Or the whole gang starts again, if its policy says so.
Whether a single worker lives is not asked here (dispatch.py), and how a round is asked for and given up is lifecycle.py's.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from adapter import explain, names
from adapter.facts import Placement, Reservation, Share
from adapter.gang import Gang


def lost(gang: Gang, current: Placement) -> dict[Share, str]:
    """The shares that were admitted and will not be again, each with the reason; what is only out of sight is not lost."""
    standing = by_share(gang.reservations, current)
    found = {share: _why_lost(gang, current, share, standing.get(_key(current, share))) for share in held(current)}
    return {share: why for share, why in found.items() if why}


def spare(gang: Gang, current: Placement, kept: Iterable[Share]) -> tuple[Share, ...]:
    """The shares that no worker is on, and that are to be left or that nobody needs: others hold the whole gang."""
    kept = tuple(kept)
    empty = [share for share in kept if _key(current, share) not in gang.occupied]
    drained = [share for share in empty if share.cluster in gang.draining]
    room = sum(share.workers for share in staying(gang, kept)) - current.wanted
    more = []
    for share in reversed([share for share in empty if share not in drained and share in held(current)]):
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
    return {
        share.cluster: gang.silent.get(share.cluster) or _why_not(standing.get(_key(current, share)))
        for share in current.live
        if share.cluster in gang.silent or not _admitted(standing.get(_key(current, share)))
    }


def status(gang: Gang, current: Placement, now: datetime) -> dict[str, object]:
    """The Placement's status while nothing is asked for."""
    found = blocked(gang, current)
    return explain.running(current, found, gang.silent, now) if found else explain.placed(current, now)


def _why_lost(gang: Gang, current: Placement, share: Share, found: Reservation | None) -> str:
    if share.cluster in gang.silent:
        why_given_up = gang.given_up.get(share.cluster, "")
        return why_given_up if _key(current, share) not in gang.alive else ""
    if found is None:
        return "its reservation is gone there"
    if found.evicted and found.reserved_at is None and not found.admitted:
        return f"its workers were stopped there: {found.evicted}"
    return ""


def _admitted(found: Reservation | None) -> bool:
    return found is not None and found.admitted and not found.deleting


def _why_not(found: Reservation | None) -> str:
    return "" if found is None else found.evicted or found.message


def _key(current: Placement, share: Share) -> tuple[str, int]:
    return share.cluster, current.round_of(share)
