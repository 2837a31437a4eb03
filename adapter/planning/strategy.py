"""The order in which clusters are asked, and the division of a gang's workers over them.

Nominal quota of all clusters comes before borrowed quota of any: borrowed quota may be reclaimed, which stops the whole
gang. Quota that must be taken back comes last, since that costs other gangs their running pods.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from adapter.planning.offers import Offers
from adapter.planning.plan_request import (
    MAX_WORKERS_PER_CLUSTER,
    Candidate,
    GangRequest,
    GroupRequest,
    Offer,
    Strategy,
    quota_request_in,
)
from adapter.planning.prices import hourly_cost
from adapter.quota.tree import QuotaPath


class GangOffer(NamedTuple):
    candidate: Candidate
    path: QuotaPath
    group_offers: tuple[Offer, ...]  # by group, with the groups before charged
    nominal: int  # workers, up to MAX_WORKERS_PER_CLUSTER
    total: int  # with borrowing
    potential: int
    gang_copies: float  # how many such gangs fit
    gang_copies_on_nodes: float  # on existing nodes
    reason: str  # why not all fit, of the first group that lacks capacity


def gang_offer(offers: Offers, candidate: Candidate, path: QuotaPath) -> GangOffer:
    """Ask a candidate for the whole gang, with the groups in Kueue's own order if all of them fit only then."""
    request = offers.request
    key = "look", path, request.reclaims_quota, *(group.count for group in request.groups)
    # The answer is cached without the candidate, whose tree has the cache: a cycle would keep both in memory.
    return GangOffer(
        candidate, *offers.compute_once(candidate, key, lambda: _compute_gang_offer(offers, candidate, path)[1:])
    )


def _compute_gang_offer(offers: Offers, candidate: Candidate, path: QuotaPath) -> GangOffer:
    groups, by_role = offers.request.groups, offers.request.groups_by_role
    by_name, reason = _offers_by_group(offers, candidate, path, groups)
    if (
        reason
        and groups != by_role
        and offers.admits_share(candidate, path, {group.name: group.count for group in groups})
    ):
        by_name, reason = _offers_by_group(offers, candidate, path, by_role)
    pairs = [(by_name[group.name], group) for group in groups]
    total = sum(min(offer.total, group.count) for offer, group in pairs)
    return GangOffer(
        candidate=candidate,
        path=path,
        group_offers=tuple(offer for offer, _ in pairs),
        nominal=min(sum(min(offer.nominal, group.count) for offer, group in pairs), MAX_WORKERS_PER_CLUSTER),
        total=min(total, MAX_WORKERS_PER_CLUSTER),
        potential=min(sum(min(offer.potential, group.count) for offer, group in pairs), MAX_WORKERS_PER_CLUSTER),
        gang_copies=min((offer.total / group.count for offer, group in pairs), default=0),
        gang_copies_on_nodes=min((min(offer.on_nodes, offer.total) / group.count for offer, group in pairs), default=0),
        reason=reason
        if total <= MAX_WORKERS_PER_CLUSTER
        else f"a plan sends at most {MAX_WORKERS_PER_CLUSTER} workers to one cluster",
    )


def _offers_by_group(
    offers: Offers, candidate: Candidate, path: QuotaPath, groups: Sequence[GroupRequest]
) -> tuple[dict[str, Offer], str]:
    """Each group's offer after the groups before it are charged, and why not all workers fit."""
    by_name, reason = dict[str, Offer](), ""
    for group in groups:
        offer = by_name[group.name] = offers.offer_for(candidate, path, group)
        if offer.total < group.count:
            reason = reason or offers.shortage_reason(candidate, path, group)
        count = min(group.count, offer.total)
        if count and group is not groups[-1]:
            path = offers.reserve_pods(candidate, path, group, count)
    return by_name, reason


def order_candidates(request: GangRequest, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, which are in the policy's order, in that of their price if the strategy is Cheapest.

    Clusters without a price are last, and the policy's order decides among equals.

    The price of a cluster is that of the whole gang, also where only some of its workers fit. An order for each group
    would be cheaper where one cluster has cheap GPUs and another one cheap cores. But it would part groups that fit
    into one cluster, and then their traffic costs money and time that no price here shows. A gang of one group costs
    the least.
    """
    if request.strategy != "Cheapest":
        return list(candidates)
    return sorted(candidates, key=lambda candidate: _cost_key(gang_cost_in(request, candidate)))


def _cost_key(cost: Decimal | None) -> tuple[bool, Decimal]:
    return cost is None, cost or Decimal(0)


def gang_cost_in(request: GangRequest, candidate: Candidate) -> Decimal | None:
    """What the whole gang would cost there in an hour; None if the cluster has no price."""
    return hourly_cost_in(request, candidate, {group.name: group.count for group in request.groups})


def hourly_cost_in(request: GangRequest, candidate: Candidate, counts: Mapping[str, int]) -> Decimal | None:
    """What these workers, counted by group, cost there in an hour; None if the cluster has no price."""
    return hourly_cost(
        candidate.prices,
        (
            (quota_request_in(request, candidate, group), counts[group.name])
            for group in request.groups
            if counts.get(group.name)
        ),
    )


def order_clusters(request: GangRequest, gang_offers: Sequence[GangOffer]) -> list[GangOffer]:
    """The clusters to ask; `gang_offers` are in the order of `order_candidates`, which decides among equals.

    SameCluster asks one cluster that can take the whole gang, and so does AvailableCapacity if there is one. Clusters
    where the gang needs no borrowing come first, then those where it fits existing nodes without an autoscaler. With
    Cheapest, existing nodes do not count: a node that is added costs what the price says.
    """
    whole = [offer for offer in gang_offers if offer.total == request.workers]
    if request.mode == "SameCluster":
        return _best_first(request, whole)[:1]
    if request.strategy == "AvailableCapacity":
        return _best_first(request, whole)[:1] or _best_first(request, gang_offers)
    return list(gang_offers)


def _best_first(request: GangRequest, gang_offers: Sequence[GangOffer]) -> list[GangOffer]:
    def key(offer: GangOffer) -> tuple[bool, bool, float, float]:
        capacity = (
            (-offer.gang_copies_on_nodes, -offer.gang_copies) if request.strategy == "AvailableCapacity" else (0.0, 0.0)
        )
        lacks_nodes = request.strategy != "Cheapest" and offer.gang_copies_on_nodes < 1
        return offer.nominal < request.workers, lacks_nodes, *capacity

    return sorted(gang_offers, key=key)


def allot_workers(strategy: Strategy, wanted: int, offers: Sequence[Offer], hosts: int = 1) -> list[int]:
    """How many of `wanted` workers each cluster takes, in replicas of `hosts`; fewer in all if they do not fit."""
    if hosts > 1:
        in_replicas = [offer.in_replicas(hosts) for offer in offers]
        return [replicas * hosts for replicas in allot_workers(strategy, wanted // hosts, in_replicas)]
    divide = _spread_evenly if strategy == "Spread" else _fill_in_order
    taken = divide(wanted, [0] * len(offers), [offer.nominal for offer in offers])
    taken = divide(wanted - sum(taken), taken, [offer.total - offer.reclaimed for offer in offers])
    return divide(wanted - sum(taken), taken, [offer.total for offer in offers])


def _fill_in_order(wanted: int, taken: Sequence[int], room: Sequence[int]) -> list[int]:
    filled = list(taken)
    for index, capacity in enumerate(room):
        more = min(wanted, max(0, capacity - filled[index]))
        filled[index] += more
        wanted -= more
    return filled


def _spread_evenly(wanted: int, taken: Sequence[int], room: Sequence[int]) -> list[int]:
    """Raise the lowest clusters first, as water rises; the rest goes to the first clusters, one worker each."""
    level = list(taken)
    while wanted > 0:
        open_indexes = [index for index, capacity in enumerate(room) if level[index] < capacity]
        if not open_indexes:
            break
        lowest = min(level[index] for index in open_indexes)
        lowest_indexes = [index for index in open_indexes if level[index] == lowest]
        higher = [level[index] for index in open_indexes if level[index] > lowest]
        step = min(
            *(room[index] - lowest for index in lowest_indexes),
            *(h - lowest for h in higher),
            max(1, wanted // len(lowest_indexes)),
        )
        for index in lowest_indexes[: max(1, wanted)]:
            level[index] += step
            wanted -= step
    return level
