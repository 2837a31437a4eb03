"""In which order are the clusters asked, and may the gang be divided at all?

Takes what each cluster could hold of the whole gang, and says who is asked first. How many each takes is `allot`'s
question.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adapter.candidate import Candidate, Group, Offer, Offers, Request


@dataclass(frozen=True, slots=True)
class Look:
    """What one open candidate could take of the whole gang, were it asked alone."""

    candidate: Candidate
    offers: tuple[Offer, ...]  # one for each group, those asked before it charged
    nominal: int  # workers of the gang that fit nominal quota
    total: int  # and with borrowing
    ever: int
    copies: float  # how many such gangs fit: the measure of room
    copies_now: float  # the same on nodes that exist

    def reason(self, groups: Sequence[Group]) -> str:
        """Why fewer fit than are wanted, of the first group that is short; empty when all fit."""
        return next((o.reason for o, g in zip(self.offers, groups, strict=True) if o.total < g.count), "")


def look(offers: Offers, one: Candidate) -> Look:
    """Ask a candidate for the whole gang, group by group: as they stand, or as Kueue does if only so all of them fit."""
    groups, by_role = offers.request.groups, offers.request.by_role
    asked = _asked(offers, one, groups)
    short = any(asked[group.name].total < group.count for group in groups)
    if short and groups != by_role and offers.admits(one, {group.name: group.count for group in groups}):
        asked = _asked(offers, one, by_role)
    pairs = [(asked[group.name], group) for group in groups]
    return Look(
        candidate=one,
        offers=tuple(o for o, _ in pairs),
        nominal=sum(min(o.nominal, g.count) for o, g in pairs),
        total=sum(min(o.total, g.count) for o, g in pairs),
        ever=sum(min(o.ever, g.count) for o, g in pairs),
        copies=min((o.total / g.count for o, g in pairs), default=0),
        copies_now=min((min(o.now, o.total) / g.count for o, g in pairs), default=0),
    )


def _asked(offers: Offers, one: Candidate, groups: Sequence[Group]) -> dict[str, Offer]:
    """What there is for each group, by name, once those before it have taken what they can."""
    tree, asked = one.tree, dict[str, Offer]()
    for group in groups:
        found = asked[group.name] = offers.of(one, tree, group)
        take = min(group.count, found.total)
        if take and group is not groups[-1]:
            tree = offers.charge(one, tree, group, take)
    return asked


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
