"""In which order are the clusters asked, may the gang be divided at all, and how are its workers divided over them?

Takes what each cluster could hold of the whole gang, and says who is asked first. Nominal quota of every cluster goes before
borrowed quota of any: what is borrowed may be reclaimed, and takes the whole gang with it. What must be taken back from others
goes last, for it costs them running pods.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.planning.offers import Offers
from adapter.planning.plan_request import MOST_WORKERS, Candidate, Group, Offer, Request, Strategy
from adapter.quota.tree import QuotaPath


class Look(NamedTuple):  # many are made for each plan
    """What one open candidate could take of the whole gang, were it asked alone."""

    candidate: Candidate
    line: QuotaPath  # its quota
    offers: tuple[Offer, ...]  # one for each group, those asked before it charged
    nominal: int  # workers of the gang that fit nominal quota, of those that one plan may send there
    total: int  # and with borrowing
    ever: int
    copies: float  # how many such gangs fit: the measure of room
    copies_now: float  # the same on nodes that exist
    reason: str  # why fewer fit than are wanted, of the first group that is short; empty when all fit


def look(offers: Offers, one: Candidate, line: QuotaPath) -> Look:
    """Ask a candidate for the whole gang, were its quota as in `line`: group by group as they stand, or as Kueue goes through
    them if only so all of them fit."""
    request = offers.request
    question = "look", line, request.reclaims, *(group.count for group in request.groups)
    # Not the candidate: its tree holds the answer, and neither would ever go.
    return Look(one, *offers.once(one, question, lambda: _look(offers, one, line)[1:]))


def _look(offers: Offers, one: Candidate, line: QuotaPath) -> Look:
    groups, by_role = offers.request.groups, offers.request.by_role
    asked, reason = _asked(offers, one, line, groups)
    if reason and groups != by_role and offers.admits(one, line, {group.name: group.count for group in groups}):
        asked, reason = _asked(offers, one, line, by_role)
    pairs = [(asked[group.name], group) for group in groups]
    total = sum(min(o.total, g.count) for o, g in pairs)
    return Look(
        candidate=one,
        line=line,
        offers=tuple(o for o, _ in pairs),
        nominal=min(sum(min(o.nominal, g.count) for o, g in pairs), MOST_WORKERS),
        total=min(total, MOST_WORKERS),
        ever=min(sum(min(o.ever, g.count) for o, g in pairs), MOST_WORKERS),
        copies=min((o.total / g.count for o, g in pairs), default=0),
        copies_now=min((min(o.now, o.total) / g.count for o, g in pairs), default=0),
        reason=reason if total <= MOST_WORKERS else f"a plan sends at most {MOST_WORKERS} workers to one cluster",
    )


def _asked(offers: Offers, one: Candidate, line: QuotaPath, groups: Sequence[Group]) -> tuple[dict[str, Offer], str]:
    """What there is for each group, by name, once those before it have taken what they can; and why not for all."""
    asked, reason = dict[str, Offer](), ""
    for group in groups:
        found = asked[group.name] = offers.of(one, line, group)
        if found.total < group.count:
            reason = reason or offers.reason(one, line, group)
        take = min(group.count, found.total)
        if take and group is not groups[-1]:
            line = offers.charge(one, line, group, take)
    return asked, reason


def order(request: Request, looks: Sequence[Look]) -> list[Look]:
    """Say who is asked, first choice first: the score. `looks` are in the policy's order, which decides among equals.

    SameCluster asks one cluster that holds the whole gang, and so does AvailableCapacity where there is one: without
    borrowing before with it, and on nodes that exist before those that an autoscaler would have to add.
    """
    whole = [look for look in looks if look.total == request.workers]
    if request.gang == "SameCluster":
        return _best(request, whole)[:1]
    if request.strategy == "AvailableCapacity":
        return _best(request, whole)[:1] or _best(request, looks)
    return list(looks)


def _best(request: Request, looks: Sequence[Look]) -> list[Look]:
    def key(look: Look) -> tuple[bool, bool, float, float]:
        room = (-look.copies_now, -look.copies) if request.strategy == "AvailableCapacity" else (0.0, 0.0)
        return look.nominal < request.workers, look.copies_now < 1, *room

    return sorted(looks, key=key)


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
