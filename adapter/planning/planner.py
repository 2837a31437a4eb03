"""The planner: which clusters take how many workers of a gang, and why.

Three steps: filter (`plan_request.filter_reason`), score (`strategy.order_candidates`, `strategy.order_clusters`) and
allot (`strategy.allot_workers`). A gang with fewer workers than it needs gets no share. Equal snapshots give equal
plans.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    answers_in,
    denied_reason,
    filter_reason,
    may_reclaim,
    question_in,
    queue_name,
)
from adapter.planning.strategy import GangOffer, allot_workers
from adapter.quota import tree
from adapter.quota.kueue_answers import Question
from adapter.quota.tree import QuotaPath, QuotaTree


@dataclass(frozen=True, slots=True)
class GangPlan:
    shares: tuple[Share, ...]
    verdicts: tuple[Verdict, ...]
    sentence: str
    never_fits: bool = False  # no cluster was filtered out or denies pods, and even empty they are too small
    # (cluster, group) without a dry run.
    untested: tuple[tuple[str, str], ...] = ()
    questions: Mapping[str, Question] = field(default_factory=dict)  # cluster -> what its share asks Kueue


_WorkerCounts = Mapping[str, Mapping[str, int]]  # cluster -> group -> workers


def plan(request: GangRequest, candidates: Sequence[Candidate]) -> GangPlan:
    """Plan a gang on the candidates, which are in the policy's order; if need be, reclaim borrowed quota.

    A gang that fits nowhere may ask: it is planned as if Kueue did not count what a ClusterQueue does not cover.
    """
    plain = Offers(request)
    gang_plan = _plan_or_reclaim(plain, candidates)
    asking = [] if gang_plan.shares else _questions(plain, candidates)
    askable = {
        candidate.name: question for candidate, question in asking if answers_in(request, candidate).may_ask(question)
    }
    return _plan_asking(request, candidates, askable) if askable else gang_plan


def _plan_asking(request: GangRequest, candidates: Sequence[Candidate], askable: Mapping[str, Question]) -> GangPlan:
    gang_plan = _plan_or_reclaim(Offers(request), candidates_asking(candidates, askable))
    questions = {share.cluster: askable[share.cluster] for share in gang_plan.shares if share.cluster in askable}
    notes = [
        explanation.question_sentence(
            candidate.name, queue_name(request, candidate), questions[candidate.name].uncovered
        )
        for candidate in candidates
        if candidate.name in questions
    ]
    return replace(gang_plan, questions=questions, sentence=" ".join((gang_plan.sentence, *notes)))


def candidates_asking(candidates: Iterable[Candidate], clusters: Collection[str]) -> list[Candidate]:
    """The candidates, with those of the clusters planned as if Kueue did not count uncovered resources."""
    return [
        replace(candidate, asks_kueue=True) if candidate.name in clusters else candidate for candidate in candidates
    ]


def next_question_at(request: GangRequest, candidates: Sequence[Candidate]) -> float | None:
    """When Kueue may be asked again about a resource that keeps the gang out, by the clock of the answers."""
    answered = [candidate for candidate in candidates if candidate.kueue_answers]
    times = (
        answers_in(request, candidate).asks_again_at(question)
        for candidate, question in _questions(Offers(request), answered)
    )
    return min((time for time in times if time is not None), default=None)


def _questions(offers: Offers, candidates: Iterable[Candidate]) -> Iterator[tuple[Candidate, Question]]:
    """The candidates whose ClusterQueue does not cover all of the gang's resources, with what a share asks there."""
    for candidate, resources in _uncovered_resources(offers, candidates):
        yield candidate, question_in(offers.request, candidate, resources)


def _uncovered_resources(offers: Offers, candidates: Iterable[Candidate]) -> list[tuple[Candidate, frozenset[str]]]:
    """The candidates whose ClusterQueue does not cover all of the gang's resources, with these."""
    usable = (candidate for candidate in candidates if not filter_reason(offers.request, candidate))
    pairs = ((candidate, offers.uncovered_resources(candidate)) for candidate in usable)
    return [(candidate, resources) for candidate, resources in pairs if resources]


def _plan_or_reclaim(plain: Offers, candidates: Sequence[Candidate]) -> GangPlan:
    request = plain.request
    gang_plan = _plan_once(plain, plain, candidates)
    if gang_plan.shares or not any(may_reclaim(request, candidate) for candidate in candidates):
        return gang_plan
    reclaimed = _plan_once(plain.with_reclaim(), plain, candidates)
    return reclaimed if reclaimed.shares else gang_plan


def plan_with_preemption(request: GangRequest, candidates: Sequence[Candidate], freed: Sequence[Candidate]) -> GangPlan:
    """Plan a gang that fits nowhere: preempt gangs of lower priority, whose quota is free in `freed`."""
    # An Offers caches answers by cluster name. `candidates` and `freed` are the same clusters with different quota, so
    # each needs its own object.
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
    candidates = strategy.order_candidates(request, candidates)
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
        has_denials = any(
            denied_reason(request, candidate, group) for candidate in candidates for group in request.groups
        )
        uncovered = _uncovered_resources(offers, candidates)
        may_not_count = any(
            not answers_in(request, candidate).is_denied(resources) for candidate, resources in uncovered
        )
        may_help = problems or has_denials or may_not_count or _lacks_cordoned_nodes(plain, gang_offers)
        never_fits = bool(candidates) and not may_help and max_workers < request.needed_workers
        # The verdict of a cluster with uncovered resources has the remedy.
        most = max_workers if never_fits and not uncovered else None
        divided = _undividable_group(request, gang_offers) if never_fits else None
        sentence = explanation.shortfall_sentence(request, fit, verdicts, most, divided)
        return GangPlan((), tuple(verdicts), sentence, never_fits)
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
    """The capacity that a starved gang holds from those behind it, as shares.

    A gang that must be in one cluster holds capacity only in the cluster where the most workers fit. A gang that would
    not fit even if the clusters were empty holds nothing, because such a gang may wait for ever. What it would borrow
    is held only against those who would borrow, too (`charge_shares`).
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


def charge_shares(
    request: GangRequest, candidates: Sequence[Candidate], shares: Sequence[Share], *, waiting: bool = False
) -> list[Candidate]:
    """The candidates less these shares; what shares of a `waiting` gang would borrow yields to its owners."""
    offers, by_cluster = Offers(request), defaultdict[str, list[Share]](list)
    for share in shares:
        by_cluster[share.cluster].append(share)
    return [
        replace(candidate, quota_tree=_charged_tree(offers, candidate, by_cluster[candidate.name], waiting=waiting))
        if candidate.name in by_cluster and not filter_reason(request, replace(candidate, problem=""))
        else candidate
        for candidate in candidates
    ]


def _charged_tree(offers: Offers, candidate: Candidate, shares: Iterable[Share], *, waiting: bool) -> QuotaTree:
    """The candidate's tree less the quota of these shares, of which an elastic job may have hundreds in one cluster."""
    if offers.uncovered_resources(candidate):  # the share exists, or will ask
        offers, candidate = Offers(offers.request), replace(candidate, asks_kueue=True)
    path = offers.quota_path(candidate)
    for share in shares:
        path = _charge_share(offers, candidate, path, share, waiting=waiting)
    return tree.with_usage(candidate.quota_tree, queue_name(offers.request, candidate), path)


def _charge_share(offers: Offers, candidate: Candidate, path: QuotaPath, share: Share, *, waiting: bool) -> QuotaPath:
    groups = {group.name: group for group in offers.request.groups}
    parts = [part for part in share.groups if part.name in groups]
    by_role = sorted(parts, key=lambda part: part.role)
    if parts != by_role and offers.admits_share(candidate, path, {part.name: part.count for part in parts}):
        parts = by_role
    for part in parts:
        path = offers.reserve_pods(
            candidate, path, groups[part.name], part.count, preempts=share.preempts, waiting=waiting
        )
    return path


def _divide_gang(offers: Offers, gang_offers: Sequence[GangOffer]) -> _WorkerCounts:
    """Divide the gang by the first order of its groups with a complete and sure division, else by the best order.

    A division is sure if each cluster's Kueue admits its share at the first try, in Kueue's own order of the groups.
    The best order places the most workers; of equal orders, one with a sure division is better. If no division is
    sure, Kueue admits most of the shares at a later try.

    The strategy Spread may leave each cluster too little capacity for a worker of a larger group. So FillInOrder is
    tried too if Spread does not place all workers of several groups.
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
    """The orders in which the groups are tried: least capacity first, the request's, its reverse, and Kueue's own.

    To pack groups of different shapes is a knapsack problem. If the larger shapes are multiples of the smaller ones, as
    those of machines are, these orders find the best solution; otherwise they may miss it.

    The gain was measured on two thousand random gangs that fit, and whose roles do not sort by size. Without Kueue's
    order, nine of them would wait. Without the check for sure divisions, a hundred and thirty would get a share that
    Kueue admits at a later try or not at all.
    """
    capacity = [
        sum(gang_offer.group_offers[index].total for gang_offer in gang_offers) / group.count
        for index, group in enumerate(request.groups)
    ]
    indexes = list(range(len(capacity)))
    by_role = sorted(indexes, key=lambda index: request.groups[index].role)
    orders = [sorted(indexes, key=capacity.__getitem__), indexes, indexes[::-1], by_role]
    if request.workers > MAX_WORKERS_PER_CLUSTER:
        # The limit of workers is one more resource of each cluster. A group bound to a location can use this resource
        # in few clusters only, so the group comes first.
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
        for index, taken in enumerate(allot_workers(strategy, group.count, group_offers, group.hosts)):
            if taken:
                counts[index][group.name] = taken
            if taken and group is not groups[-1]:  # nothing follows the last group
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
    """The verdicts with each cluster's workers; the reason of a cluster that was not needed is NOT_NEEDED."""
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
    return not plain.admits_share(
        candidate, plain.quota_path(candidate), {part.name: part.count for part in share.groups}
    )


def _most_workers(plain: Offers, gang_offers: Sequence[GangOffer]) -> int:
    """How many workers empty clusters could hold, packed as a plan packs them."""
    request, potentials = plain.request, [gang_offer.potential for gang_offer in gang_offers]
    max_workers = max(potentials, default=0) if request.mode == "SameCluster" else sum(potentials)
    if len(request.groups) == 1 or max_workers < request.needed_workers or _fits_apart(request, gang_offers):
        return max_workers
    # Groups that fit one by one may not fit together.
    empty_offers = [
        strategy.gang_offer(plain, gang_offer.candidate, plain.empty_path(gang_offer.candidate, gang_offer.path))
        for gang_offer in gang_offers
    ]
    if request.mode == "SameCluster":
        return max(gang_offer.total for gang_offer in empty_offers)
    return sum(sum(taken.values()) for taken in _divide_gang(plain, empty_offers).values())


def _undividable_group(request: GangRequest, gang_offers: Sequence[GangOffer]) -> GroupRequest | None:
    """The first group of which no empty cluster holds all hosts of a replica."""
    for index, group in enumerate(request.groups):
        if group.hosts > 1 and not any(gang_offer.group_offers[index].potential for gang_offer in gang_offers):
            return group
    return None


def _lacks_cordoned_nodes(plain: Offers, gang_offers: Sequence[GangOffer]) -> bool:
    """Whether cordoned nodes may be all that a gang lacks; its groups are not packed together here."""
    request = plain.request
    gains = [
        sum(plain.gain_if_uncordoned(gang_offer.candidate, gang_offer.path, group) for group in request.groups)
        for gang_offer in gang_offers
    ]
    totals = [gang_offer.potential + gain for gang_offer, gain in zip(gang_offers, gains, strict=True)]
    most = max(totals, default=0) if request.mode == "SameCluster" else sum(totals)
    return any(gains) and most >= request.needed_workers


def _fits_apart(request: GangRequest, gang_offers: Sequence[GangOffer]) -> bool:
    """Whether a gang fits empty clusters with one group in each: quick in a large fleet."""
    remaining = iter(gang_offers if request.mode != "SameCluster" else ())
    for index, group in enumerate(request.groups):
        capacity = 0
        while capacity < group.count:
            gang_offer = next(remaining, None)
            if gang_offer is None:
                return False
            capacity += min(
                gang_offer.group_offers[index].potential, MAX_WORKERS_PER_CLUSTER // group.hosts * group.hosts
            )
    return True


def _build_share(request: GangRequest, cluster: str, counts: Mapping[str, int]) -> Share:
    groups = (
        GroupShare(group.name, group.role, counts[group.name], group.hosts)
        for group in request.groups
        if counts.get(group.name)
    )
    return Share(cluster, tuple(groups))
