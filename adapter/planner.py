"""Which clusters take how many workers of a gang, and why: a snapshot in, shares or a reason out.

filter (`candidate.closed`) -> score (`score.order`) -> allot (`allot.allot`), each with a reason for what it passes over.
A gang that has fewer workers placed than it needs gets no share at all. The planner reserves nothing; whether its shares
are admitted is for each worker cluster's Kueue to say. The same snapshot always gives the same plan.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter import candidate as candidates
from adapter import score, verdict
from adapter.allot import allot
from adapter.candidate import Candidate, Group, Request
from adapter.facts import GroupShare, Share
from adapter.score import Look
from adapter.verdict import NOT_NEEDED, Verdict


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: no shares means that the gang waits, and the sentence says for what."""

    shares: tuple[Share, ...]
    verdicts: tuple[Verdict, ...]
    sentence: str
    never: bool = False  # even empty clusters, all of them known, could not hold the gang


_Counts = Mapping[str, Mapping[str, int]]  # cluster -> group -> workers


def plan(request: Request, among: Sequence[Candidate]) -> Plan:
    """Place a gang on the candidates, which are in the policy's order; where it does not fit, by taking back quota that
    others borrowed from its queues."""
    made = _plan(request, among)
    if made.shares:
        return made
    reclaimed = _plan(replace(request, reclaims=True), among)
    return reclaimed if reclaimed.shares else made


def _plan(request: Request, among: Sequence[Candidate]) -> Plan:
    problems = {one.name: why for one in among if (why := candidates.closed(request, one))}
    looks = [score.look(request, one) for one in among if one.name not in problems]
    counts = _placed(request, score.order(request, looks))
    placed = sum(sum(groups.values()) for groups in counts.values())
    if not placed or placed < request.needed:
        found = _verdicts(among, request, problems, looks)
        fit = max((look.total for look in looks), default=0) if request.gang == "SameCluster" else placed
        never = not problems and _most(request, looks) < request.needed
        return Plan((), tuple(found), verdict.shortfall(request, fit, found, never), never)
    found = _chosen(request, _verdicts(among, request, problems, looks), counts)
    shares = tuple(_share(request, name, groups) for name, groups in counts.items() if groups)
    if request.reclaims:
        shares = tuple(replace(s, preempts=_preempts(request, s, looks)) for s in shares)
    return Plan(shares, tuple(found), verdict.placed(request, found, [s.cluster for s in shares if s.preempts]))


def keep(request: Request, among: Sequence[Candidate]) -> tuple[Share, ...]:
    """What a gang that has waited long holds back from those behind it: as much as it could use now.

    So room that comes free piece by piece gathers until the gang fits. One that must be in one cluster gathers it in the
    cluster that is nearest to holding it.
    """
    able = [look for look in _looks(request, among) if request.gang != "SameCluster" or look.ever == request.workers]
    if request.gang == "SameCluster":
        able = sorted(able, key=lambda look: -look.total)[:1]
    counts = _placed(replace(request, gang="BestEffort"), able)
    return tuple(_share(request, name, groups) for name, groups in counts.items() if groups)


def charged(request: Request, among: Sequence[Candidate], shares: Sequence[Share]) -> list[Candidate]:
    """The candidates after these shares of the gang are reserved."""
    groups = {group.name: group for group in request.groups}
    taken = {share.cluster: share for share in shares}
    return [_charged(request, one, taken.get(one.name), groups) for one in among]


def _charged(request: Request, one: Candidate, share: Share | None, groups: Mapping[str, Group]) -> Candidate:
    if share is None or candidates.closed(request, replace(one, problem="")):
        return one
    tree = one.tree
    for part in share.groups:
        if part.name in groups:
            tree = candidates.charge(request, one, tree, groups[part.name], part.count)
    return replace(one, tree=tree)


def _looks(request: Request, among: Sequence[Candidate]) -> list[Look]:
    return [score.look(request, one) for one in among if not candidates.closed(request, one)]


def _placed(request: Request, asked: Sequence[Look]) -> _Counts:
    """Divide the gang over the clusters asked: the first order of its groups in which all fit, else the best one."""
    best: _Counts = {}
    most = -1
    for groups in _orders(request, asked):
        counts = _divided(request, asked, groups)
        placed = sum(sum(taken.values()) for taken in counts.values())
        if placed > most:
            best, most = counts, placed
        if placed == request.workers:
            break
    return best


def _orders(request: Request, asked: Sequence[Look]) -> Iterator[Sequence[Group]]:
    """The choosiest group first: the one for which there is least room; then as they stand, and the other way round.

    Packing groups of different shapes is a knapsack: three orders find what there is to find in fleets whose shapes are
    multiples of each other, as machines are; a gang that none of them places waits, and is planned again when room comes.
    """
    room = [sum(look.offers[index].total for look in asked) / g.count for index, g in enumerate(request.groups)]
    yield [request.groups[index] for index in sorted(range(len(room)), key=room.__getitem__)]
    if len(request.groups) > 1:
        yield request.groups
        yield request.groups[::-1]


def _divided(request: Request, asked: Sequence[Look], groups: Sequence[Group]) -> _Counts:
    trees = {look.candidate.name: look.candidate.tree for look in asked}
    counts: dict[str, dict[str, int]] = {look.candidate.name: {} for look in asked}
    for group in groups:
        offers = [
            candidates.offer(request, look.candidate, trees[look.candidate.name], group, group.count) for look in asked
        ]
        for look, taken in zip(asked, allot(request.strategy, group.count, offers), strict=True):
            if taken:
                name = look.candidate.name
                counts[name][group.name] = taken
                trees[name] = candidates.charge(request, look.candidate, trees[name], group, taken)
    return counts


def _verdicts(
    among: Sequence[Candidate], request: Request, problems: Mapping[str, str], looks: Sequence[Look]
) -> list[Verdict]:
    seen = {look.candidate.name: look for look in looks}
    closed = {name: Verdict(name, 0, 0, 0, 0, why) for name, why in problems.items()}
    return [closed.get(one.name) or _open(request, seen[one.name]) for one in among]


def _open(request: Request, found: Look) -> Verdict:
    reason = found.reason(request.groups)
    return Verdict(found.candidate.name, found.nominal, found.total - found.nominal, found.ever, 0, reason)


def _chosen(request: Request, found: Sequence[Verdict], counts: _Counts) -> list[Verdict]:
    """Write in who takes how many. A cluster that was not needed is not called short, whatever it has."""
    taken = [sum(counts.get(one.cluster, {}).values()) for one in found]
    full = sum(taken) == request.workers
    last = max(index for index, count in enumerate(taken) if count)
    chosen = []
    for index, (one, count) in enumerate(zip(found, taken, strict=True)):
        needed = not full or (index < last and one.fits < (request.workers if request.gang == "SameCluster" else 1))
        reason = one.reason if count or needed or not one.fits + one.ever else NOT_NEEDED
        asked_no_more = count == request.workers or 0 < count < one.fits
        chosen.append(replace(one, chosen=count, reason="" if asked_no_more else reason))
    return chosen


def _preempts(request: Request, share: Share, looks: Sequence[Look]) -> bool:
    """Whether a share is more than what is free, so that Kueue must preempt those who borrow."""
    plain = replace(request, reclaims=False)
    one = next(look.candidate for look in looks if look.candidate.name == share.cluster)
    tree = one.tree
    for part in share.groups:
        group = next(group for group in request.groups if group.name == part.name)
        if candidates.offer(plain, one, tree, group, part.count).total < part.count:
            return True
        tree = candidates.charge(plain, one, tree, group, part.count)
    return False


def _most(request: Request, looks: Sequence[Look]) -> int:
    """How many workers of the gang even empty clusters could hold."""
    ever = [look.ever for look in looks]
    return max(ever, default=0) if request.gang == "SameCluster" else sum(ever)


def _share(request: Request, cluster: str, counts: Mapping[str, int]) -> Share:
    groups = (GroupShare(g.name, g.role, counts[g.name]) for g in request.groups if counts.get(g.name))
    return Share(cluster, tuple(groups))
