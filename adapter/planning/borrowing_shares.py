"""Divides what a plan borrows into shares of its own, so that its owner's reclaim takes few other workers with it.

Kueue preempts whole Workloads, of equal priority the one whose quota was reserved last
(kueue:pkg/scheduler/preemption/common/ordering.go), until the preemptor fits or the borrower is within its nominal
quota. So a cluster's share is what its nominal quota holds, and the borrowed rest is in some small shares, which are
created after it (gang/reserve.py). A reclaim then stops at most one share's workers more than it asks for.

A share costs its cluster five requests and its Kueue one scheduling cycle, so the policy limits their number.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from adapter import names
from adapter.objects.placement import GroupShare, Share
from adapter.planning.offers import Offers
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest, filter_reason
from adapter.quota.tree import QuotaPath


def divide_borrowing(
    request: GangRequest, candidates: Iterable[Candidate], shares: Sequence[Share], *, max_shares: int, starting: bool
) -> tuple[Share, ...]:
    """Divide the shares that borrow, each into one that does not and at most `borrowing_shares` of the request.

    `candidates`: the clusters as they were planned. There are at most `max_shares` shares in all. A share stays whole
    if it preempts, or if its cluster's Kueue might not admit the parts one after the other. While a gang is `starting`,
    its single-worker shares that borrow are marked; later ones are created later anyway.
    """
    if not request.borrowing_shares:
        return tuple(shares)
    offers, by_name = Offers(request), {candidate.name: candidate for candidate in candidates}
    common, singles = ([s for s in shares if s.single_worker is single] for single in (False, True))
    whole, parts, spare = list[Share](), list[Sequence[Share]](), max_shares - len(shares)
    for share in common:
        nominal, borrowing = _divide(offers, by_name.get(share.cluster), share, spare)
        whole += [nominal] if nominal else []
        parts.append(borrowing)
        spare -= len(borrowing) - (nominal is None)
    interleaved = (share for row in itertools.zip_longest(*parts) for share in row if share is not None)
    return (*whole, *interleaved, *(_mark_singles(offers, by_name, whole, singles) if starting else singles))


def _divide(
    offers: Offers, candidate: Candidate | None, share: Share, spare: int
) -> tuple[Share | None, Sequence[Share]]:
    """The nominal share, None if all is borrowed, and the borrowing shares; `spare`: how many more shares may be."""
    if candidate is None or not _is_divisible(offers.request, candidate, share):
        return share, ()
    groups = _request_groups(offers.request, share)
    nominal = _nominal_counts(offers, candidate, offers.quota_path(candidate), groups)
    borrowed = Counter({group.name: group.count for group in groups}) - nominal
    most = min(offers.request.borrowing_shares, spare + (not nominal))
    if not borrowed or most < 1:
        return share, ()
    counts = list(_deal(groups, borrowed, most))
    if not _are_admitted(offers, candidate, [*filter(None, [nominal]), *counts]):
        return share, ()
    borrowing = [replace(_with_counts(share, part), borrows=True) for part in counts]
    return _with_counts(share, nominal) if nominal else None, borrowing


def _is_divisible(request: GangRequest, candidate: Candidate, share: Share) -> bool:
    """Whether a share may be divided.

    Volcano starts the pods of a share together. So do the hosts of a replica, and a topology request holds for a share.
    """
    is_volcano = candidate.pod_mapping.scheduler == names.VOLCANO_SCHEDULER
    groups = {group.name: group for group in request.groups}
    is_known = {part.name for part in share.groups} <= groups.keys()
    is_bound = any(group.hosts > 1 or group.topology for group in groups.values())
    return is_known and not (share.preempts or is_bound or is_volcano or filter_reason(request, candidate))


def _request_groups(request: GangRequest, share: Share) -> list[GroupRequest]:
    """The groups of a share, with its counts, in the order in which its cluster's Kueue processes them."""
    counts = {part.name: part.count for part in share.groups}
    return [replace(group, count=counts[group.name]) for group in request.groups_by_role if group.name in counts]


def _nominal_counts(
    offers: Offers, candidate: Candidate, path: QuotaPath, groups: Iterable[GroupRequest]
) -> Counter[str]:
    """How many workers of each group the nominal quota holds, without the groups that it holds none of."""
    nominal = Counter[str]()
    for group in groups:
        count = min(offers.offer_for(candidate, path, group).nominal, group.count)
        if count > 0:
            nominal[group.name] = count
            path = offers.reserve_pods(candidate, path, group, count)
    return nominal


def _deal(groups: Sequence[GroupRequest], borrowed: Mapping[str, int], most: int) -> Iterator[Counter[str]]:
    """Deal the borrowed workers to at most `most` parts of nearly one size, which bounds what a reclaim stops."""
    workers = [group.name for group in groups for _ in range(borrowed.get(group.name, 0))]
    size = -(-len(workers) // most)
    return (Counter(workers[start : start + size]) for start in range(0, len(workers), size))


def _are_admitted(offers: Offers, candidate: Candidate, parts: Iterable[Mapping[str, int]]) -> bool:
    """Whether the cluster's Kueue admits the parts one after the other; it may choose another flavor for each."""
    path = offers.quota_path(candidate)
    for part in parts:
        if not offers.admits_share(candidate, path, part):
            return False
        path = _charge(offers, candidate, path, part)
    return True


def _charge(offers: Offers, candidate: Candidate, path: QuotaPath, part: Mapping[str, int]) -> QuotaPath:
    for group in offers.request.groups_by_role:
        if count := part.get(group.name):
            path = offers.reserve_pods(candidate, path, group, count)
    return path


def _with_counts(share: Share, counts: Mapping[str, int]) -> Share:
    groups = (replace(part, count=counts[part.name]) for part in share.groups if counts.get(part.name))
    return replace(share, groups=tuple[GroupShare, ...](groups))


def _mark_singles(
    offers: Offers, candidates: Mapping[str, Candidate], whole: Iterable[Share], singles: Sequence[Share]
) -> list[Share]:
    """The single-worker shares, with those marked that nominal quota beside the common shares does not hold."""
    common, nominal = {share.cluster: share for share in whole}, dict[str, Counter[str]]()
    for name in {share.cluster for share in singles} & candidates.keys():
        counts = Counter[str]()
        for share in (share for share in singles if share.cluster == name):
            counts[share.groups[0].name] += share.workers
        nominal[name] = _nominal_singles(offers, candidates[name], common.get(name), counts)
    return [_mark_single(share, nominal.get(share.cluster)) for share in singles]


def _mark_single(share: Share, nominal: Counter[str] | None) -> Share:
    """The share, marked unless the cluster's remaining `nominal` quota holds it; None if that is not known."""
    if nominal is None:
        return share
    group = share.groups[0].name
    nominal[group] -= share.workers
    return replace(share, borrows=True) if nominal[group] < 0 else share


def _nominal_singles(
    offers: Offers, candidate: Candidate, common: Share | None, counts: Mapping[str, int]
) -> Counter[str]:
    """How many single workers of each group the nominal quota holds beside the common share."""
    path = offers.quota_path(candidate)
    if common:
        path = _charge(offers, candidate, path, {part.name: part.count for part in common.groups})
    groups = [replace(g, count=counts[g.name]) for g in offers.request.groups_by_role if counts.get(g.name)]
    return _nominal_counts(offers, candidate, path, groups)
