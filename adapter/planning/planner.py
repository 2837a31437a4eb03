"""The planner: which clusters take how many workers of a gang, and why.

From a snapshot it makes shares or a reason, in three steps: filter (`plan_request.filter_reason`), score
(`strategy.order_clusters`) and allot (`strategy.allot_workers`). Each step has a reason for what it leaves out. A gang
that has fewer workers placed than it needs gets no share at all. The planner reserves nothing: each worker cluster's
Kueue decides whether its share is admitted. Equal snapshots give equal plans.
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
    """The result: without shares the gang waits, and the sentence says for what."""

    shares: tuple[Share, ...]
    verdicts: tuple[Verdict, ...]
    sentence: str
    never_fits: bool = False  # even empty clusters, all of them known, could not hold the gang
    # The cluster and group of each share that had no dry run.
    untested: tuple[tuple[str, str], ...] = ()


_WorkerCounts = Mapping[str, Mapping[str, int]]  # cluster -> group -> workers


def plan(request: GangRequest, candidates: Sequence[Candidate]) -> GangPlan:
    """Place a gang on the candidates, which are in the policy's order.

    If it does not fit, quota that others borrowed from its queues is taken back.
    """
    plain = Offers(request)
    gang_plan = _plan_once(plain, plain, candidates)
    if gang_plan.shares or not any(may_reclaim(request, candidate) for candidate in candidates):
        return gang_plan
    reclaimed = _plan_once(plain.with_reclaim(), plain, candidates)
    return reclaimed if reclaimed.shares else gang_plan


def plan_with_preemption(request: GangRequest, candidates: Sequence[Candidate], freed: Sequence[Candidate]) -> GangPlan:
    """Place a gang that fits nowhere, by preemption of gangs with lower priority.

    `freed` are the candidates without the quota of those gangs.
    """
    # The clusters have other quotas in both, so no answer is common.
    relieved, plain = Offers(request), Offers(request)
    gang_plan = _plan_once(relieved, relieved, freed)
    by_name = {candidate.name: candidate for candidate in candidates}
    shares = tuple(
        replace(share, preempts=_must_preempt(plain, share, by_name[share.cluster])) for share in gang_plan.shares
    )
    if not shares:
        return gang_plan
    preempting = [share.cluster for share in shares if share.preempts]
    return replace(
        gang_plan,
        shares=shares,
        sentence=explanation.placed_sentence(request, gang_plan.verdicts, preempting, explanation.PREEMPTING_TEXT),
    )


def _plan_once(offers: Offers, plain: Offers, candidates: Sequence[Candidate]) -> GangPlan:
    request = offers.request
    problems = {candidate.name: reason for candidate in candidates if (reason := filter_reason(request, candidate))}
    gang_offers = [
        strategy.gang_offer(offers, candidate, offers.quota_path(candidate))
        for candidate in candidates
        if candidate.name not in problems
    ]
    counts = _divide_gang(offers, strategy.order_clusters(request, gang_offers))
    placed = sum(sum(groups.values()) for groups in counts.values())
    if not placed or placed < request.needed_workers:
        verdicts = _build_verdicts(candidates, problems, gang_offers)
        fit = (
            max((gang_offer.total for gang_offer in gang_offers), default=0)
            if request.mode == "SameCluster"
            else placed
        )
        max_workers = _most_workers(plain, gang_offers)
        # A denial may be over in a minute.
        has_denials = any(denied_reason(candidate, group) for candidate in candidates for group in request.groups)
        never_fits = bool(candidates) and not (problems or has_denials) and max_workers < request.needed_workers
        return GangPlan(
            (),
            tuple(verdicts),
            explanation.shortfall_sentence(request, fit, verdicts, max_workers if never_fits else None),
            never_fits,
        )
    verdicts = _with_chosen_counts(request, _build_verdicts(candidates, problems, gang_offers), counts)
    shares = tuple(_build_share(request, name, groups) for name, groups in counts.items() if groups)
    if request.reclaims_quota:
        by_name = {gang_offer.candidate.name: gang_offer.candidate for gang_offer in gang_offers}
        shares = tuple(replace(share, preempts=_must_preempt(plain, share, by_name[share.cluster])) for share in shares)
    sentence = explanation.placed_sentence(request, verdicts, [share.cluster for share in shares if share.preempts])
    return GangPlan(shares, tuple(verdicts), sentence, untested=_untested_pairs(request, shares))


def _untested_pairs(request: GangRequest, shares: Sequence[Share]) -> tuple[tuple[str, str], ...]:
    results = {group.name: group.dry_run_results for group in request.groups}
    parts = ((share.cluster, part.name) for share in shares for part in share.groups)
    return tuple((cluster, group) for cluster, group in parts if cluster not in results[group])


def shares_to_hold(request: GangRequest, candidates: Sequence[Candidate]) -> tuple[Share, ...]:
    """The capacity that a starved gang holds from those behind it, as shares: as much as it could use now.

    So capacity that becomes free bit by bit gathers until the gang fits. A gang that must be in one cluster holds it in
    the cluster where the most workers fit. A gang that would not fit if its clusters were empty holds nothing: it waits
    for a quota to be raised or a cluster to come back, which may never happen.
    """
    offers = Offers(request)
    gang_offers = [
        strategy.gang_offer(offers, candidate, offers.quota_path(candidate))
        for candidate in candidates
        if not filter_reason(request, candidate)
    ]
    if request.mode == "SameCluster":
        gang_offers = [
            gang_offer for gang_offer in gang_offers if _most_workers(offers, [gang_offer]) >= request.needed_workers
        ]
        gang_offers = sorted(gang_offers, key=lambda gang_offer: -gang_offer.total)[:1]
    elif _most_workers(offers, gang_offers) < request.needed_workers:
        return ()
    counts = _divide_gang(offers, gang_offers)
    return tuple(_build_share(request, name, groups) for name, groups in counts.items() if groups)


def charge_shares(request: GangRequest, candidates: Sequence[Candidate], shares: Sequence[Share]) -> list[Candidate]:
    """The candidates after these shares of the gang are reserved."""
    offers, by_cluster = Offers(request), defaultdict[str, list[Share]](list)
    for share in shares:
        by_cluster[share.cluster].append(share)
    return [
        _charge_candidate(offers, candidate, by_cluster[candidate.name]) if candidate.name in by_cluster else candidate
        for candidate in candidates
    ]


def _charge_candidate(offers: Offers, candidate: Candidate, shares: Iterable[Share]) -> Candidate:
    """The candidate after some shares are reserved one after the other; an elastic job may have hundreds in one
    cluster."""
    if filter_reason(offers.request, replace(candidate, problem="")):
        return candidate
    path = offers.quota_path(candidate)
    for share in shares:
        path = _charge_share(offers, candidate, path, share)
    return replace(
        candidate, quota_tree=tree.with_usage(candidate.quota_tree, queue_name(offers.request, candidate), path)
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
    """Divide the gang over the clusters: by the first order of its groups in which all fit, else by the best one.

    A division is sure if each cluster's Kueue admits it at its first try, in its own order of the groups. Only if no
    order of ours is sure, Kueue's later tries are trusted, which admit most of the rest. Groups that are spread leave
    capacity in pieces, into which a larger group may not fit: then the groups are filled in.
    """
    best: _WorkerCounts = {}
    best_score = (-1, False)
    strategies = [offers.request.strategy]
    strategies += ["FillInOrder"] if strategies == ["Spread"] and len(offers.request.groups) > 1 else []
    for strategy_ in strategies:
        for groups in _group_orders(offers.request, gang_offers):
            counts = _divide_groups(offers, gang_offers, groups, strategy_)
            placed = sum(sum(taken.values()) for taken in counts.values())
            score = (
                placed,
                placed >= offers.request.needed_workers and _admitted_at_first_try(offers, gang_offers, counts),
            )
            if score > best_score:
                best, best_score = counts, score
            if best_score == (offers.request.workers, True):
                break
        if best_score[0] == offers.request.workers:
            break
    return best


def _admitted_at_first_try(offers: Offers, gang_offers: Sequence[GangOffer], counts: _WorkerCounts) -> bool:
    pairs = ((gang_offer, counts[gang_offer.candidate.name]) for gang_offer in gang_offers)
    return all(
        offers.admits_share(gang_offer.candidate, gang_offer.path, taken)
        for gang_offer, taken in pairs
        if len(taken) > 1
    )


def _group_orders(request: GangRequest, gang_offers: Sequence[GangOffer]) -> Iterator[Sequence[GroupRequest]]:
    """The orders in which the groups are tried.

    The group with the least capacity is first; then follow the request's order, its reverse, and Kueue's own order, in
    which a result is sure. Packing groups of different shapes is a knapsack problem. These orders find all divisions in
    fleets whose shapes are multiples of each other, as machines are. A gang that none of them places waits, and is
    planned again when capacity changes.

    Kueue's order and the check for sure divisions matter for gangs of several groups whose roles do not sort by size.
    Of two thousand random ones that fit, nine would wait without that order. Without the check, a hundred and thirty
    would be divided so that a cluster's Kueue admits a share at a later try or not at all.
    """
    capacity = [
        sum(gang_offer.group_offers[index].total for gang_offer in gang_offers) / group.count
        for index, group in enumerate(request.groups)
    ]
    indexes = list(range(len(capacity)))
    by_role = sorted(indexes, key=lambda index: request.groups[index].role)
    orders = [sorted(indexes, key=capacity.__getitem__), indexes, indexes[::-1], by_role]
    if request.workers > MAX_WORKERS_PER_CLUSTER:
        # That limit is one more resource of each cluster, and a zone's own groups need theirs.
        bounded = [
            sum(min(gang_offer.group_offers[index].total, MAX_WORKERS_PER_CLUSTER) for gang_offer in gang_offers)
            for index in indexes
        ]
        orders.insert(0, sorted(indexes, key=bounded.__getitem__))
    for index, order in enumerate(orders):
        if order not in orders[:index]:
            yield [request.groups[number] for number in order]


def _divide_groups(
    offers: Offers, gang_offers: Sequence[GangOffer], groups: Sequence[GroupRequest], strategy: Strategy
) -> _WorkerCounts:
    paths = [gang_offer.path for gang_offer in gang_offers]
    counts: list[dict[str, int]] = [{} for _ in gang_offers]
    for group in groups:
        group_offers = [
            offers.offer_for(gang_offer.candidate, path, group)
            for gang_offer, path in zip(gang_offers, paths, strict=True)
        ]
        if offers.request.workers > MAX_WORKERS_PER_CLUSTER:
            group_offers = [
                offer.at_most(MAX_WORKERS_PER_CLUSTER - sum(cluster_counts.values()))
                for offer, cluster_counts in zip(group_offers, counts, strict=True)
            ]
        for index, taken in enumerate(allot_workers(strategy, group.count, group_offers)):
            if taken:
                counts[index][group.name] = taken
            if taken and group is not groups[-1]:  # what the last group leaves is not used
                paths[index] = offers.reserve_pods(gang_offers[index].candidate, paths[index], group, taken)
    return {gang_offer.candidate.name: taken for gang_offer, taken in zip(gang_offers, counts, strict=True)}


def _build_verdicts(
    candidates: Sequence[Candidate], problems: Mapping[str, str], gang_offers: Sequence[GangOffer]
) -> list[Verdict]:
    by_name = {gang_offer.candidate.name: gang_offer for gang_offer in gang_offers}
    filtered = {name: Verdict(name, 0, 0, 0, 0, reason) for name, reason in problems.items()}
    return [filtered.get(candidate.name) or _open_verdict(by_name[candidate.name]) for candidate in candidates]


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
    """The verdicts with the number of workers that each cluster takes.

    A cluster that was not needed gets no shortage as its reason, whatever its capacity.
    """
    taken = [sum(counts.get(verdict.cluster, {}).values()) for verdict in verdicts]
    is_complete = sum(taken) == request.workers
    last_index = max(index for index, count in enumerate(taken) if count)
    chosen = []
    for index, (verdict, count) in enumerate(zip(verdicts, taken, strict=True)):
        needed = not is_complete or (
            index < last_index and verdict.fitting_workers < (request.workers if request.mode == "SameCluster" else 1)
        )
        is_not_needed = not (count or needed) and verdict.fitting_workers + verdict.potential > 0
        reason = NOT_NEEDED if is_not_needed else verdict.reason
        met_request = count == request.workers or 0 < count < verdict.fitting_workers
        chosen.append(replace(verdict, chosen=count, reason="" if met_request else reason, needed=not is_not_needed))
    return chosen


def _must_preempt(plain: Offers, share: Share, candidate: Candidate) -> bool:
    """Whether a share exceeds the free capacity, so that Kueue must preempt for it."""
    return not plain.admits_share(
        candidate, plain.quota_path(candidate), {part.name: part.count for part in share.groups}
    )


def _most_workers(plain: Offers, gang_offers: Sequence[GangOffer]) -> int:
    """How many workers of the gang even empty clusters could hold, packed as a plan would."""
    request, potentials = plain.request, [gang_offer.potential for gang_offer in gang_offers]
    max_workers = max(potentials, default=0) if request.mode == "SameCluster" else sum(potentials)
    if len(request.groups) == 1 or max_workers < request.needed_workers or _fits_apart(request, gang_offers):
        return max_workers
    # Groups that fit one by one may not fit together; only a division shows that.
    empty_offers = [
        strategy.gang_offer(plain, gang_offer.candidate, plain.empty_path(gang_offer.candidate, gang_offer.path))
        for gang_offer in gang_offers
    ]
    if request.mode == "SameCluster":
        return max(gang_offer.total for gang_offer in empty_offers)
    return sum(sum(taken.values()) for taken in _divide_gang(plain, empty_offers).values())


def _fits_apart(request: GangRequest, gang_offers: Sequence[GangOffer]) -> bool:
    """Whether a gang that may be divided fits empty clusters with no two groups in one: a quick answer for a large
    fleet."""
    remaining = iter(gang_offers if request.mode != "SameCluster" else ())
    for index, group in enumerate(request.groups):
        capacity = 0
        while capacity < group.count:
            gang_offer = next(remaining, None)
            if gang_offer is None:
                return False
            capacity += min(gang_offer.group_offers[index].potential, MAX_WORKERS_PER_CLUSTER)
    return True


def _build_share(request: GangRequest, cluster: str, counts: Mapping[str, int]) -> Share:
    groups = (
        GroupShare(group.name, group.role, counts[group.name]) for group in request.groups if counts.get(group.name)
    )
    return Share(cluster, tuple(groups))
