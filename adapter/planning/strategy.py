"""In which order are the clusters asked, may the gang be divided at all, and how are its workers divided over them?

Takes what each cluster could hold of the whole gang, and says who is asked first. Nominal quota of every cluster goes before
borrowed quota of any: what is borrowed may be reclaimed, and takes the whole gang with it. What must be taken back from others
goes last, for it costs them running pods.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.planning.offers import Offers
from adapter.planning.plan_request import MAX_WORKERS_PER_CLUSTER, Candidate, GangRequest, GroupRequest, Offer, Strategy
from adapter.quota.tree import QuotaPath


class GangOffer(NamedTuple):  # many are made for each plan
    """What one open candidate could take of the whole gang, were it asked alone."""

    candidate: Candidate
    path: QuotaPath  # its quota
    group_offers: tuple[Offer, ...]  # one for each group, those asked before it charged
    nominal: int  # workers of the gang that fit nominal quota, of those that one plan may send there
    total: int  # and with borrowing
    potential: int
    gang_copies: float  # how many such gangs fit: the measure of room
    gang_copies_on_nodes: float  # the same on nodes that exist
    reason: str  # why fewer fit than are wanted, of the first group that is short; empty when all fit


def gang_offer(offers: Offers, candidate: Candidate, path: QuotaPath) -> GangOffer:
    """Ask a candidate for the whole gang, were its quota as in `line`: group by group as they stand, or as Kueue goes through
    them if only so all of them fit."""
    request = offers.request
    question = "look", path, request.reclaims_quota, *(group.count for group in request.groups)
    # Not the candidate: its tree holds the answer, and neither would ever go.
    return GangOffer(
        candidate, *offers.compute_once(candidate, question, lambda: _compute_gang_offer(offers, candidate, path)[1:])
    )


def _compute_gang_offer(offers: Offers, candidate: Candidate, path: QuotaPath) -> GangOffer:
    groups, by_role = offers.request.groups, offers.request.groups_by_role
    asked, reason = _offers_by_group(offers, candidate, path, groups)
    if (
        reason
        and groups != by_role
        and offers.admits_share(candidate, path, {group.name: group.count for group in groups})
    ):
        asked, reason = _offers_by_group(offers, candidate, path, by_role)
    pairs = [(asked[group.name], group) for group in groups]
    total = sum(min(o.total, g.count) for o, g in pairs)
    return GangOffer(
        candidate=candidate,
        path=path,
        group_offers=tuple(o for o, _ in pairs),
        nominal=min(sum(min(o.nominal, g.count) for o, g in pairs), MAX_WORKERS_PER_CLUSTER),
        total=min(total, MAX_WORKERS_PER_CLUSTER),
        potential=min(sum(min(o.potential, g.count) for o, g in pairs), MAX_WORKERS_PER_CLUSTER),
        gang_copies=min((o.total / g.count for o, g in pairs), default=0),
        gang_copies_on_nodes=min((min(o.on_nodes, o.total) / g.count for o, g in pairs), default=0),
        reason=reason
        if total <= MAX_WORKERS_PER_CLUSTER
        else f"a plan sends at most {MAX_WORKERS_PER_CLUSTER} workers to one cluster",
    )


def _offers_by_group(
    offers: Offers, candidate: Candidate, path: QuotaPath, groups: Sequence[GroupRequest]
) -> tuple[dict[str, Offer], str]:
    """What there is for each group, by name, once those before it have taken what they can; and why not for all."""
    asked, reason = dict[str, Offer](), ""
    for group in groups:
        found = asked[group.name] = offers.offer_for(candidate, path, group)
        if found.total < group.count:
            reason = reason or offers.shortage_reason(candidate, path, group)
        take = min(group.count, found.total)
        if take and group is not groups[-1]:
            path = offers.reserve_pods(candidate, path, group, take)
    return asked, reason


def order_clusters(request: GangRequest, gang_offers: Sequence[GangOffer]) -> list[GangOffer]:
    """Say who is asked, first choice first: the score. `looks` are in the policy's order, which decides among equals.

    SameCluster asks one cluster that holds the whole gang, and so does AvailableCapacity where there is one: without
    borrowing before with it, and on nodes that exist before those that an autoscaler would have to add.
    """
    whole = [look for look in gang_offers if look.total == request.workers]
    if request.mode == "SameCluster":
        return _best_first(request, whole)[:1]
    if request.strategy == "AvailableCapacity":
        return _best_first(request, whole)[:1] or _best_first(request, gang_offers)
    return list(gang_offers)


def _best_first(request: GangRequest, gang_offers: Sequence[GangOffer]) -> list[GangOffer]:
    def key(look: GangOffer) -> tuple[bool, bool, float, float]:
        room = (
            (-look.gang_copies_on_nodes, -look.gang_copies) if request.strategy == "AvailableCapacity" else (0.0, 0.0)
        )
        return look.nominal < request.workers, look.gang_copies_on_nodes < 1, *room

    return sorted(gang_offers, key=key)


def allot_workers(strategy: Strategy, wanted: int, offers: Sequence[Offer]) -> list[int]:
    """Say how many of `wanted` workers each cluster takes, in the order of `offers`; fewer in all where they do not fit."""
    divide = _spread_evenly if strategy == "Spread" else _fill_in_order
    taken = divide(wanted, [0] * len(offers), [offer.nominal for offer in offers])
    taken = divide(wanted - sum(taken), taken, [offer.total - offer.reclaimed for offer in offers])
    return divide(wanted - sum(taken), taken, [offer.total for offer in offers])


def _fill_in_order(wanted: int, taken: Sequence[int], room: Sequence[int]) -> list[int]:
    """Each cluster takes all it can before the next one is asked."""
    filled = list(taken)
    for index, most in enumerate(room):
        more = min(wanted, max(0, most - filled[index]))
        filled[index] += more
        wanted -= more
    return filled


def _spread_evenly(wanted: int, taken: Sequence[int], room: Sequence[int]) -> list[int]:
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
