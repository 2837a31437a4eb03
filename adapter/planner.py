"""Which clusters take how many workers of a gang, and why: a snapshot in, shares or a reason out.

Each step is a function of its own: pass over what cannot take part, then fill the clusters in the policy's order until
the gang is whole. All or nothing: a gang that is not whole gets no share. The planner reserves nothing; whether its
shares are admitted is for each worker cluster's Kueue to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter import quota
from adapter.facts import GroupShare, Key, Raw, Share


@dataclass(frozen=True, slots=True)
class Group:
    """One worker group as it is to be reserved: `pod_spec` is the remote one, `request` what one pod asks of quota."""

    name: str
    role: str
    count: int
    pod_spec: Raw
    request: quota.Resources


@dataclass(frozen=True, slots=True)
class Request:
    """A gang that wants to be placed."""

    namespace: str
    queue: str
    groups: tuple[Group, ...]

    @property
    def workers(self) -> int:
        return sum(group.count for group in self.groups)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker cluster as the planner sees it; `problem` says why it cannot take part now."""

    name: str
    problem: str
    tree: quota.Tree
    queues: Mapping[Key, tuple[str, str]]  # LocalQueue -> its ClusterQueue, and why it takes nothing (empty: it does)
    namespaces: Mapping[str, Mapping[str, str]]  # name -> its labels


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about one cluster."""

    cluster: str
    fits: int
    ever: int
    chosen: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer: no shares means that the gang waits, and the sentence says for what."""

    shares: tuple[Share, ...]
    verdicts: tuple[Verdict, ...]
    sentence: str


def plan(request: Request, candidates: Sequence[Candidate]) -> Plan:
    """Fill the candidates in their order with the gang's workers, all or nothing."""
    left = {group.name: group.count for group in request.groups}
    shares: list[Share] = []
    verdicts: list[Verdict] = []
    for candidate in candidates:
        share, verdict = _consider(request, candidate, left)
        verdicts.append(verdict)
        if share.groups:
            shares.append(share)
            left = {n: c - next((g.count for g in share.groups if g.name == n), 0) for n, c in left.items()}
    if any(left.values()):
        return Plan((), tuple(_unchosen(v) for v in verdicts), _shortfall(request, left, candidates, verdicts))
    return Plan(tuple(shares), tuple(verdicts), _placement(shares, verdicts))


def _consider(request: Request, candidate: Candidate, left: Mapping[str, int]) -> tuple[Share, Verdict]:
    """Take from a candidate as much as is still wanted, and say what it could take of the whole gang."""
    nothing = Share(candidate.name, ())
    problem = candidate.problem or _closed(request, candidate)
    if problem:
        return nothing, Verdict(candidate.name, 0, 0, 0, problem)
    queue, _ = candidate.queues[request.namespace, request.queue]
    labels = candidate.namespaces[request.namespace]
    tree, fits, ever, reason = candidate.tree, 0, 0, ""
    groups: list[GroupShare] = []
    for group in request.groups:
        room = quota.room(tree, queue, group.request, group.pod_spec, wanted=group.count, namespace=labels)
        fits += min(group.count, room.nominal + room.borrow)
        ever += min(group.count, room.ever)
        reason = reason or (room.reason if left[group.name] else "")  # what is not needed is not short
        take = min(left[group.name], room.nominal + room.borrow)
        if take:
            groups.append(GroupShare(group.name, group.role, take))
            # Which flavor Kueue takes depends on how many pods want to go into one: ask for these very ones.
            exact = quota.room(tree, queue, group.request, group.pod_spec, wanted=take, namespace=labels)
            tree = quota.charge(tree, queue, exact, group.request, take)
    chosen = sum(group.count for group in groups)
    return Share(candidate.name, tuple(groups)), Verdict(candidate.name, fits, ever, chosen, reason)


def _closed(request: Request, candidate: Candidate) -> str:
    if request.namespace not in candidate.namespaces:
        return f"no namespace {request.namespace} there: create it, with a LocalQueue {request.queue}"
    if (request.namespace, request.queue) not in candidate.queues:
        return f"no LocalQueue {request.queue} in namespace {request.namespace} there: create it"
    return candidate.queues[request.namespace, request.queue][1]


def _unchosen(verdict: Verdict) -> Verdict:
    return Verdict(verdict.cluster, verdict.fits, verdict.ever, 0, verdict.reason)


def _placement(shares: Sequence[Share], verdicts: Sequence[Verdict]) -> str:
    total = sum(share.workers for share in shares)
    taken = ", ".join(f"{share.workers} of {total} workers to {share.cluster}" for share in shares)
    passed = [f"{v.cluster} passed over: {v.reason.removesuffix('.')}" for v in verdicts if not v.chosen and v.reason]
    return "; ".join([taken, *passed]) + "."


def _shortfall(
    request: Request, left: Mapping[str, int], candidates: Sequence[Candidate], verdicts: Sequence[Verdict]
) -> str:
    needed = f"{request.workers} worker{'s' if request.workers > 1 else ''}"
    each = [f"{v.cluster} has room for {v.fits}{f' ({v.reason})' if v.reason else ''}" for v in verdicts]
    ever = sum(verdict.ever for verdict in verdicts)
    closed = any(c.problem or _closed(request, c) for c in candidates)  # nothing is known of what those could hold
    never = f" Even empty clusters hold only {ever}: raise a quota or ask for fewer workers."
    return (
        f"{needed} needed at once, {request.workers - sum(left.values())} fit now: {'; '.join(each) or 'the policy names no cluster'}."
        f"{never if ever < request.workers and not closed else ''}"
    )
