"""Which clusters take how many workers of a gang, and why: a snapshot in, shares or a reason out.

filter (`request.closed`) -> score (`strategy.order`) -> allot (`strategy.allot`), each with a reason for what it passes over.
A gang that has fewer workers placed than it needs gets no share at all. The planner reserves nothing; whether its shares
are admitted is for each worker cluster's Kueue to say. The same snapshot always gives the same plan.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter.objects.placement import GroupShare, Share, Verdict
from adapter.planning import explanation, strategy
from adapter.planning.explanation import NOT_NEEDED
from adapter.planning.offers import Offers
from adapter.planning.plan_request import (
    MAX_WORKERS_PER_CLUSTER,
    Candidate,
    GangRequest,
    GroupRequest,
    Strategy,
    denied_reason,
    filter_reason,
    may_reclaim,
    queue_name,
)
from adapter.planning.strategy import GangOffer, allot_workers
from adapter.quota import tree
from adapter.quota.tree import QuotaPath


@dataclass(frozen=True, slots=True)
class GangPlan:
    """The answer: no shares means that the gang waits, and the sentence says for what."""

    shares: tuple[Share, ...]
    verdicts: tuple[Verdict, ...]
    sentence: str
    never_fits: bool = False  # even empty clusters, all of them known, could not hold the gang
    # Of the shares: cluster and group of which nobody knows yet what their copies would be there.
    untested: tuple[tuple[str, str], ...] = ()


_WorkerCounts = Mapping[str, Mapping[str, int]]  # cluster -> group -> workers


def plan(request: GangRequest, candidates: Sequence[Candidate]) -> GangPlan:
    """Place a gang on the candidates, which are in the policy's order; where it does not fit, by taking back quota that
    others borrowed from its queues."""
    plain = Offers(request)
    made = _plan_once(plain, plain, candidates)
    if made.shares or not any(may_reclaim(request, one) for one in candidates):
        return made
    reclaimed = _plan_once(plain.with_reclaim(), plain, candidates)
    return reclaimed if reclaimed.shares else made


def plan_with_preemption(request: GangRequest, candidates: Sequence[Candidate], freed: Sequence[Candidate]) -> GangPlan:
    """Place a gang that fits nowhere by having Kueue preempt gangs of lower priority: `freed` is the candidates without them."""
    relieved, plain = Offers(request), Offers(request)  # the same clusters with other quotas: nothing is asked alike
    made = _plan_once(relieved, relieved, freed)
    found = {one.name: one for one in candidates}
    shares = tuple(replace(s, preempts=_must_preempt(plain, s, found[s.cluster])) for s in made.shares)
    if not shares:
        return made
    preempting = [share.cluster for share in shares if share.preempts]
    return replace(
        made,
        shares=shares,
        sentence=explanation.placed_sentence(request, made.verdicts, preempting, explanation.PREEMPTING_TEXT),
    )


def _plan_once(offers: Offers, plain: Offers, candidates: Sequence[Candidate]) -> GangPlan:
    request = offers.request
    problems = {one.name: why for one in candidates if (why := filter_reason(request, one))}
    looks = [strategy.gang_offer(offers, one, offers.quota_path(one)) for one in candidates if one.name not in problems]
    counts = _divide_gang(offers, strategy.order_clusters(request, looks))
    placed = sum(sum(groups.values()) for groups in counts.values())
    if not placed or placed < request.needed_workers:
        found = _build_verdicts(candidates, problems, looks)
        fit = max((look.total for look in looks), default=0) if request.mode == "SameCluster" else placed
        most = _most_workers(plain, looks)
        refusals = any(
            denied_reason(one, group) for one in candidates for group in request.groups
        )  # which may be over in a minute
        never = bool(candidates) and not (problems or refusals) and most < request.needed_workers
        return GangPlan(
            (), tuple(found), explanation.shortfall_sentence(request, fit, found, most if never else None), never
        )
    found = _with_chosen_counts(request, _build_verdicts(candidates, problems, looks), counts)
    shares = tuple(_build_share(request, name, groups) for name, groups in counts.items() if groups)
    if request.reclaims_quota:
        seen = {look.candidate.name: look.candidate for look in looks}
        shares = tuple(replace(s, preempts=_must_preempt(plain, s, seen[s.cluster])) for s in shares)
    told = explanation.placed_sentence(request, found, [s.cluster for s in shares if s.preempts])
    return GangPlan(shares, tuple(found), told, untested=_untested_pairs(request, shares))


def _untested_pairs(request: GangRequest, shares: Sequence[Share]) -> tuple[tuple[str, str], ...]:
    tried = {group.name: group.dry_run_results for group in request.groups}
    parts = ((share.cluster, part.name) for share in shares for part in share.groups)
    return tuple((cluster, group) for cluster, group in parts if cluster not in tried[group])


def shares_to_hold(request: GangRequest, candidates: Sequence[Candidate]) -> tuple[Share, ...]:
    """What a gang that has waited long holds back from those behind it: as much as it could use now.

    So room that comes free piece by piece gathers until the gang fits. One that must be in one cluster gathers it in the
    cluster that is nearest to holding it. One that the clusters which take part now could not hold even if they were
    empty keeps nothing: it waits for a quota to be raised or a cluster to come back, which may be never.
    """
    offers = Offers(request)
    able = [
        strategy.gang_offer(offers, one, offers.quota_path(one))
        for one in candidates
        if not filter_reason(request, one)
    ]
    if request.mode == "SameCluster":
        able = [look for look in able if _most_workers(offers, [look]) >= request.needed_workers]
        able = sorted(able, key=lambda look: -look.total)[:1]
    elif _most_workers(offers, able) < request.needed_workers:
        return ()
    counts = _divide_gang(offers, able)
    return tuple(_build_share(request, name, groups) for name, groups in counts.items() if groups)


def charge_shares(request: GangRequest, candidates: Sequence[Candidate], shares: Sequence[Share]) -> list[Candidate]:
    """The candidates after these shares of the gang are reserved."""
    offers, there = Offers(request), defaultdict[str, list[Share]](list)
    for share in shares:
        there[share.cluster].append(share)
    return [_charge_candidate(offers, one, there[one.name]) if one.name in there else one for one in candidates]


def _charge_candidate(offers: Offers, candidate: Candidate, shares: Iterable[Share]) -> Candidate:
    """The candidate after some shares, one after the other: an elastic job may have hundreds in one cluster."""
    if filter_reason(offers.request, replace(candidate, problem="")):
        return candidate
    line = offers.quota_path(candidate)
    for share in shares:
        line = _charge_share(offers, candidate, line, share)
    return replace(
        candidate, quota_tree=tree.with_usage(candidate.quota_tree, queue_name(offers.request, candidate), line)
    )


def _charge_share(offers: Offers, candidate: Candidate, path: QuotaPath, share: Share) -> QuotaPath:
    groups = {group.name: group for group in offers.request.groups}
    parts = [part for part in share.groups if part.name in groups]
    by_role = sorted(parts, key=lambda part: part.role)
    if parts != by_role and offers.admits_share(candidate, path, {part.name: part.count for part in parts}):
        parts = by_role
    for part in parts:
        path = offers.reserve_pods(candidate, path, groups[part.name], part.count, preempts=share.preempts)
    return path


def _divide_gang(offers: Offers, gang_offers: Sequence[GangOffer]) -> _WorkerCounts:
    """Divide the gang over the clusters asked: the first order of its groups in which all fit, else the best one.

    Sure is what each cluster's Kueue admits at its first try, in its own order of the groups; only where no order of ours
    gives that, its later tries are trusted: they admit most of what is left.
    Groups that are spread leave room in pieces, in which a larger one may not fit: then they are filled in after all.
    """
    best: _WorkerCounts = {}
    most = (-1, False)
    strategies = [offers.request.strategy]
    strategies += ["FillInOrder"] if strategies == ["Spread"] and len(offers.request.groups) > 1 else []
    for way in strategies:
        for groups in _group_orders(offers.request, gang_offers):
            counts = _divide_groups(offers, gang_offers, groups, way)
            placed = sum(sum(taken.values()) for taken in counts.values())
            found = (
                placed,
                placed >= offers.request.needed_workers and _admitted_at_first_try(offers, gang_offers, counts),
            )
            if found > most:
                best, most = counts, found
            if most == (offers.request.workers, True):
                break
        if most[0] == offers.request.workers:
            break
    return best


def _admitted_at_first_try(offers: Offers, gang_offers: Sequence[GangOffer], counts: _WorkerCounts) -> bool:
    shared = ((look, counts[look.candidate.name]) for look in gang_offers)
    return all(offers.admits_share(look.candidate, look.path, taken) for look, taken in shared if len(taken) > 1)


def _group_orders(request: GangRequest, gang_offers: Sequence[GangOffer]) -> Iterator[Sequence[GroupRequest]]:
    """The choosiest group first: the one for which there is least room; then as they stand, the other way round, and as
    Kueue goes through them: what is found in that order is sure.

    Packing groups of different shapes is a knapsack: these orders find what there is to find in fleets whose shapes are
    multiples of each other, as machines are; a gang that none of them places waits, and is planned again when room comes.
    That last order and `_sure` would be missed by gangs of several groups whose roles do not sort as their sizes do: of two
    thousand random ones that fit, nine would wait without the one, and a hundred and thirty without the other be divided so
    that a cluster's Kueue admits a share at a later try, or not at all.
    """
    room = [
        sum(look.group_offers[index].total for look in gang_offers) / g.count for index, g in enumerate(request.groups)
    ]
    stand = list(range(len(room)))
    by_role = sorted(stand, key=lambda index: request.groups[index].role)
    orders = [sorted(stand, key=room.__getitem__), stand, stand[::-1], by_role]
    if request.workers > MAX_WORKERS_PER_CLUSTER:
        # That bound is one more thing of which each cluster has so much, and a zone's own groups need theirs.
        bounded = [
            sum(min(look.group_offers[index].total, MAX_WORKERS_PER_CLUSTER) for look in gang_offers) for index in stand
        ]
        orders.insert(0, sorted(stand, key=bounded.__getitem__))
    for index, order in enumerate(orders):
        if order not in orders[:index]:
            yield [request.groups[number] for number in order]


def _divide_groups(
    offers: Offers, gang_offers: Sequence[GangOffer], groups: Sequence[GroupRequest], strategy: Strategy
) -> _WorkerCounts:
    lines = [look.path for look in gang_offers]
    counts: list[dict[str, int]] = [{} for _ in gang_offers]
    for group in groups:
        found = [offers.offer_for(look.candidate, line, group) for look, line in zip(gang_offers, lines, strict=True)]
        if offers.request.workers > MAX_WORKERS_PER_CLUSTER:
            found = [
                one.at_most(MAX_WORKERS_PER_CLUSTER - sum(mine.values()))
                for one, mine in zip(found, counts, strict=True)
            ]
        for index, taken in enumerate(allot_workers(strategy, group.count, found)):
            if taken:
                counts[index][group.name] = taken
            if taken and group is not groups[-1]:  # nobody asks for what the last one leaves
                lines[index] = offers.reserve_pods(gang_offers[index].candidate, lines[index], group, taken)
    return {look.candidate.name: taken for look, taken in zip(gang_offers, counts, strict=True)}


def _build_verdicts(
    candidates: Sequence[Candidate], problems: Mapping[str, str], gang_offers: Sequence[GangOffer]
) -> list[Verdict]:
    seen = {look.candidate.name: look for look in gang_offers}
    closed = {name: Verdict(name, 0, 0, 0, 0, why) for name, why in problems.items()}
    return [closed.get(one.name) or _open_verdict(seen[one.name]) for one in candidates]


def _open_verdict(gang_offer: GangOffer) -> Verdict:
    return Verdict(
        gang_offer.candidate.name,
        gang_offer.nominal,
        gang_offer.total - gang_offer.nominal,
        gang_offer.potential,
        0,
        gang_offer.reason,
    )


def _with_chosen_counts(request: GangRequest, verdicts: Sequence[Verdict], counts: _WorkerCounts) -> list[Verdict]:
    """Write in who takes how many. A cluster that was not needed is not called short, whatever it has."""
    taken = [sum(counts.get(one.cluster, {}).values()) for one in verdicts]
    full = sum(taken) == request.workers
    last = max(index for index, count in enumerate(taken) if count)
    chosen = []
    for index, (one, count) in enumerate(zip(verdicts, taken, strict=True)):
        needed = not full or (
            index < last and one.fitting_workers < (request.workers if request.mode == "SameCluster" else 1)
        )
        spared = not (count or needed) and one.fitting_workers + one.potential > 0
        reason = NOT_NEEDED if spared else one.reason
        asked_no_more = count == request.workers or 0 < count < one.fitting_workers
        chosen.append(replace(one, chosen=count, reason="" if asked_no_more else reason, needed=not spared))
    return chosen


def _must_preempt(plain: Offers, share: Share, candidate: Candidate) -> bool:
    """Whether a share is more than what is free, so that Kueue must preempt somebody."""
    return not plain.admits_share(
        candidate, plain.quota_path(candidate), {part.name: part.count for part in share.groups}
    )


def _most_workers(plain: Offers, gang_offers: Sequence[GangOffer]) -> int:
    """How many workers of the gang even empty clusters could hold, packed as a plan would pack them."""
    request, ever = plain.request, [look.potential for look in gang_offers]
    most = max(ever, default=0) if request.mode == "SameCluster" else sum(ever)
    if len(request.groups) == 1 or most < request.needed_workers or _fits_apart(request, gang_offers):
        return most
    # Groups that have room each for itself may have none together: only placing them tells.
    alone = [
        strategy.gang_offer(plain, look.candidate, plain.empty_path(look.candidate, look.path)) for look in gang_offers
    ]
    if request.mode == "SameCluster":
        return max(look.total for look in alone)
    return sum(sum(taken.values()) for taken in _divide_gang(plain, alone).values())


def _fits_apart(request: GangRequest, gang_offers: Sequence[GangOffer]) -> bool:
    """Whether a gang that may be divided fits empty clusters with no two groups in one: seen at once in a large fleet."""
    left = iter(gang_offers if request.mode != "SameCluster" else ())
    for index, group in enumerate(request.groups):
        room = 0
        while room < group.count:
            look = next(left, None)
            if look is None:
                return False
            room += min(look.group_offers[index].potential, MAX_WORKERS_PER_CLUSTER)
    return True


def _build_share(request: GangRequest, cluster: str, counts: Mapping[str, int]) -> Share:
    groups = (GroupShare(g.name, g.role, counts[g.name]) for g in request.groups if counts.get(g.name))
    return Share(cluster, tuple(groups))
