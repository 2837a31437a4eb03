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
    MOST_WORKERS,
    Candidate,
    Group,
    Request,
    Strategy,
    closed,
    queue_name,
    reclaims,
    refused,
)
from adapter.planning.strategy import Look, allot
from adapter.quota import tree
from adapter.quota.tree import QuotaPath


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: no shares means that the gang waits, and the sentence says for what."""

    shares: tuple[Share, ...]
    verdicts: tuple[Verdict, ...]
    sentence: str
    never: bool = False  # even empty clusters, all of them known, could not hold the gang
    # Of the shares: cluster and group of which nobody knows yet what their copies would be there.
    untried: tuple[tuple[str, str], ...] = ()


_Counts = Mapping[str, Mapping[str, int]]  # cluster -> group -> workers


def plan(request: Request, among: Sequence[Candidate]) -> Plan:
    """Place a gang on the candidates, which are in the policy's order; where it does not fit, by taking back quota that
    others borrowed from its queues."""
    plain = Offers(request)
    made = _plan(plain, plain, among)
    if made.shares or not any(reclaims(request, one) for one in among):
        return made
    reclaimed = _plan(plain.reclaiming(), plain, among)
    return reclaimed if reclaimed.shares else made


def outranking(request: Request, among: Sequence[Candidate], freed: Sequence[Candidate]) -> Plan:
    """Place a gang that fits nowhere by having Kueue preempt gangs of lower priority: `freed` is the candidates without them."""
    relieved, plain = Offers(request), Offers(request)  # the same clusters with other quotas: nothing is asked alike
    made = _plan(relieved, relieved, freed)
    found = {one.name: one for one in among}
    shares = tuple(replace(s, preempts=_preempts(plain, s, found[s.cluster])) for s in made.shares)
    if not shares:
        return made
    preempting = [share.cluster for share in shares if share.preempts]
    return replace(
        made, shares=shares, sentence=explanation.placed(request, made.verdicts, preempting, explanation.PREEMPTING)
    )


def _plan(offers: Offers, plain: Offers, among: Sequence[Candidate]) -> Plan:
    request = offers.request
    problems = {one.name: why for one in among if (why := closed(request, one))}
    looks = [strategy.look(offers, one, offers.line(one)) for one in among if one.name not in problems]
    counts = _placed(offers, strategy.order(request, looks))
    placed = sum(sum(groups.values()) for groups in counts.values())
    if not placed or placed < request.needed:
        found = _verdicts(among, problems, looks)
        fit = max((look.total for look in looks), default=0) if request.gang == "SameCluster" else placed
        most = _most(plain, looks)
        refusals = any(
            refused(one, group) for one in among for group in request.groups
        )  # which may be over in a minute
        never = bool(among) and not (problems or refusals) and most < request.needed
        return Plan((), tuple(found), explanation.shortfall(request, fit, found, most if never else None), never)
    found = _chosen(request, _verdicts(among, problems, looks), counts)
    shares = tuple(_share(request, name, groups) for name, groups in counts.items() if groups)
    if request.reclaims:
        seen = {look.candidate.name: look.candidate for look in looks}
        shares = tuple(replace(s, preempts=_preempts(plain, s, seen[s.cluster])) for s in shares)
    told = explanation.placed(request, found, [s.cluster for s in shares if s.preempts])
    return Plan(shares, tuple(found), told, untried=_untried(request, shares))


def _untried(request: Request, shares: Sequence[Share]) -> tuple[tuple[str, str], ...]:
    tried = {group.name: group.tried for group in request.groups}
    parts = ((share.cluster, part.name) for share in shares for part in share.groups)
    return tuple((cluster, group) for cluster, group in parts if cluster not in tried[group])


def keep(request: Request, among: Sequence[Candidate]) -> tuple[Share, ...]:
    """What a gang that has waited long holds back from those behind it: as much as it could use now.

    So room that comes free piece by piece gathers until the gang fits. One that must be in one cluster gathers it in the
    cluster that is nearest to holding it. One that the clusters which take part now could not hold even if they were
    empty keeps nothing: it waits for a quota to be raised or a cluster to come back, which may be never.
    """
    offers = Offers(request)
    able = [strategy.look(offers, one, offers.line(one)) for one in among if not closed(request, one)]
    if request.gang == "SameCluster":
        able = [look for look in able if _most(offers, [look]) >= request.needed]
        able = sorted(able, key=lambda look: -look.total)[:1]
    elif _most(offers, able) < request.needed:
        return ()
    counts = _placed(offers, able)
    return tuple(_share(request, name, groups) for name, groups in counts.items() if groups)


def charged(request: Request, among: Sequence[Candidate], shares: Sequence[Share]) -> list[Candidate]:
    """The candidates after these shares of the gang are reserved."""
    offers, there = Offers(request), defaultdict[str, list[Share]](list)
    for share in shares:
        there[share.cluster].append(share)
    return [_charged(offers, one, there[one.name]) if one.name in there else one for one in among]


def _charged(offers: Offers, one: Candidate, shares: Iterable[Share]) -> Candidate:
    """The candidate after some shares, one after the other: an elastic job may have hundreds in one cluster."""
    if closed(offers.request, replace(one, problem="")):
        return one
    line = offers.line(one)
    for share in shares:
        line = _after(offers, one, line, share)
    return replace(one, tree=tree.with_usage(one.tree, queue_name(offers.request, one), line))


def _after(offers: Offers, one: Candidate, line: QuotaPath, share: Share) -> QuotaPath:
    groups = {group.name: group for group in offers.request.groups}
    parts = [part for part in share.groups if part.name in groups]
    by_role = sorted(parts, key=lambda part: part.role)
    if parts != by_role and offers.admits(one, line, {part.name: part.count for part in parts}):
        parts = by_role
    for part in parts:
        line = offers.charge(one, line, groups[part.name], part.count, preempts=share.preempts)
    return line


def _placed(offers: Offers, asked: Sequence[Look]) -> _Counts:
    """Divide the gang over the clusters asked: the first order of its groups in which all fit, else the best one.

    Sure is what each cluster's Kueue admits at its first try, in its own order of the groups; only where no order of ours
    gives that, its later tries are trusted: they admit most of what is left.
    Groups that are spread leave room in pieces, in which a larger one may not fit: then they are filled in after all.
    """
    best: _Counts = {}
    most = (-1, False)
    strategies = [offers.request.strategy]
    strategies += ["FillInOrder"] if strategies == ["Spread"] and len(offers.request.groups) > 1 else []
    for way in strategies:
        for groups in _orders(offers.request, asked):
            counts = _divided(offers, asked, groups, way)
            placed = sum(sum(taken.values()) for taken in counts.values())
            found = placed, placed >= offers.request.needed and _sure(offers, asked, counts)
            if found > most:
                best, most = counts, found
            if most == (offers.request.workers, True):
                break
        if most[0] == offers.request.workers:
            break
    return best


def _sure(offers: Offers, asked: Sequence[Look], counts: _Counts) -> bool:
    shared = ((look, counts[look.candidate.name]) for look in asked)
    return all(offers.admits(look.candidate, look.line, taken) for look, taken in shared if len(taken) > 1)


def _orders(request: Request, asked: Sequence[Look]) -> Iterator[Sequence[Group]]:
    """The choosiest group first: the one for which there is least room; then as they stand, the other way round, and as
    Kueue goes through them: what is found in that order is sure.

    Packing groups of different shapes is a knapsack: these orders find what there is to find in fleets whose shapes are
    multiples of each other, as machines are; a gang that none of them places waits, and is planned again when room comes.
    That last order and `_sure` would be missed by gangs of several groups whose roles do not sort as their sizes do: of two
    thousand random ones that fit, nine would wait without the one, and a hundred and thirty without the other be divided so
    that a cluster's Kueue admits a share at a later try, or not at all.
    """
    room = [sum(look.offers[index].total for look in asked) / g.count for index, g in enumerate(request.groups)]
    stand = list(range(len(room)))
    by_role = sorted(stand, key=lambda index: request.groups[index].role)
    orders = [sorted(stand, key=room.__getitem__), stand, stand[::-1], by_role]
    if request.workers > MOST_WORKERS:
        # That bound is one more thing of which each cluster has so much, and a zone's own groups need theirs.
        bounded = [sum(min(look.offers[index].total, MOST_WORKERS) for look in asked) for index in stand]
        orders.insert(0, sorted(stand, key=bounded.__getitem__))
    for index, order in enumerate(orders):
        if order not in orders[:index]:
            yield [request.groups[number] for number in order]


def _divided(offers: Offers, asked: Sequence[Look], groups: Sequence[Group], strategy: Strategy) -> _Counts:
    lines = [look.line for look in asked]
    counts: list[dict[str, int]] = [{} for _ in asked]
    for group in groups:
        found = [offers.of(look.candidate, line, group) for look, line in zip(asked, lines, strict=True)]
        if offers.request.workers > MOST_WORKERS:
            found = [one.bounded(MOST_WORKERS - sum(mine.values())) for one, mine in zip(found, counts, strict=True)]
        for index, taken in enumerate(allot(strategy, group.count, found)):
            if taken:
                counts[index][group.name] = taken
            if taken and group is not groups[-1]:  # nobody asks for what the last one leaves
                lines[index] = offers.charge(asked[index].candidate, lines[index], group, taken)
    return {look.candidate.name: taken for look, taken in zip(asked, counts, strict=True)}


def _verdicts(among: Sequence[Candidate], problems: Mapping[str, str], looks: Sequence[Look]) -> list[Verdict]:
    seen = {look.candidate.name: look for look in looks}
    closed = {name: Verdict(name, 0, 0, 0, 0, why) for name, why in problems.items()}
    return [closed.get(one.name) or _open(seen[one.name]) for one in among]


def _open(found: Look) -> Verdict:
    return Verdict(found.candidate.name, found.nominal, found.total - found.nominal, found.ever, 0, found.reason)


def _chosen(request: Request, found: Sequence[Verdict], counts: _Counts) -> list[Verdict]:
    """Write in who takes how many. A cluster that was not needed is not called short, whatever it has."""
    taken = [sum(counts.get(one.cluster, {}).values()) for one in found]
    full = sum(taken) == request.workers
    last = max(index for index, count in enumerate(taken) if count)
    chosen = []
    for index, (one, count) in enumerate(zip(found, taken, strict=True)):
        needed = not full or (
            index < last and one.fitting_workers < (request.workers if request.gang == "SameCluster" else 1)
        )
        reason = one.reason if count or needed or not one.fitting_workers + one.potential else NOT_NEEDED
        asked_no_more = count == request.workers or 0 < count < one.fitting_workers
        chosen.append(replace(one, chosen=count, reason="" if asked_no_more else reason))
    return chosen


def _preempts(plain: Offers, share: Share, one: Candidate) -> bool:
    """Whether a share is more than what is free, so that Kueue must preempt somebody."""
    return not plain.admits(one, plain.line(one), {part.name: part.count for part in share.groups})


def _most(plain: Offers, looks: Sequence[Look]) -> int:
    """How many workers of the gang even empty clusters could hold, packed as a plan would pack them."""
    request, ever = plain.request, [look.ever for look in looks]
    most = max(ever, default=0) if request.gang == "SameCluster" else sum(ever)
    if len(request.groups) == 1 or most < request.needed or _apart(request, looks):
        return most
    # Groups that have room each for itself may have none together: only placing them tells.
    alone = [strategy.look(plain, look.candidate, plain.emptied(look.candidate, look.line)) for look in looks]
    if request.gang == "SameCluster":
        return max(look.total for look in alone)
    return sum(sum(taken.values()) for taken in _placed(plain, alone).values())


def _apart(request: Request, looks: Sequence[Look]) -> bool:
    """Whether a gang that may be divided fits empty clusters with no two groups in one: seen at once in a large fleet."""
    left = iter(looks if request.gang != "SameCluster" else ())
    for index, group in enumerate(request.groups):
        room = 0
        while room < group.count:
            look = next(left, None)
            if look is None:
                return False
            room += min(look.offers[index].ever, MOST_WORKERS)
    return True


def _share(request: Request, cluster: str, counts: Mapping[str, int]) -> Share:
    groups = (GroupShare(g.name, g.role, counts[g.name]) for g in request.groups if counts.get(g.name))
    return Share(cluster, tuple(groups))
