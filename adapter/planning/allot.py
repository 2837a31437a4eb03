"""How are the workers of one group divided over clusters? Whole numbers in, whole numbers out.

Nominal quota of every cluster goes before borrowed quota of any: what is borrowed may be reclaimed, and takes the whole
gang with it. What must be taken back from others goes last, for it costs them running pods. Which clusters may take part,
and in which order, is decided before.
"""

from collections.abc import Sequence

from adapter.planning.request import Offer, Strategy


def allot(strategy: Strategy, wanted: int, offers: Sequence[Offer]) -> list[int]:
    """Say how many of `wanted` workers each cluster takes, in the order of `offers`; fewer in all where they do not fit."""
    divide = _level if strategy == "Spread" else _fill
    taken = divide(wanted, [0] * len(offers), [offer.nominal for offer in offers])
    taken = divide(wanted - sum(taken), taken, [offer.total - offer.taken_back for offer in offers])
    return divide(wanted - sum(taken), taken, [offer.total for offer in offers])


def _fill(wanted: int, taken: Sequence[int], room: Sequence[int]) -> list[int]:
    """Each cluster takes all it can before the next one is asked."""
    filled = list(taken)
    for index, most in enumerate(room):
        more = min(wanted, max(0, most - filled[index]))
        filled[index] += more
        wanted -= more
    return filled


def _level(wanted: int, taken: Sequence[int], room: Sequence[int]) -> list[int]:
    """Raise the lowest first, as water rises; what is left over goes one each to the first."""
    level = list(taken)
    while wanted > 0:
        open_ = [index for index, most in enumerate(room) if level[index] < most]
        if not open_:
            break
        lowest = min(level[index] for index in open_)
        low = [index for index in open_ if level[index] == lowest]
        # As far as the next step: the next higher level, the nearest limit, or an even part of what is left.
        higher = [level[index] for index in open_ if level[index] > lowest]
        step = min(*(room[index] - lowest for index in low), *(h - lowest for h in higher), max(1, wanted // len(low)))
        for index in low[: max(1, wanted)]:
            level[index] += step
            wanted -= step
    return level
