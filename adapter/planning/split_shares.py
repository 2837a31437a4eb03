"""Splits the workers of a plan into shares: workers that must start together share one, others have one each.

A share is deleted as a whole: its group Workload cannot shrink (docs/upstream.md, "A group Workload does not shrink").
So only those workers of an elastic job that must come together share one. Each further worker is a gang of one, which
the worker cluster's Kueue admits, preempts and finishes by itself. planner.py has assigned the clusters before.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from adapter.objects.placement import GroupShare, Share


def split_by_worker(
    shares: Sequence[Share], together: Mapping[str, int] | None, *, max_shares: int, starting: bool
) -> tuple[Share, ...]:
    """Split the shares without a change of workers and clusters.

    Of each group the first `together` workers are in one share for each cluster, and the others have one share each.
    None: all workers of a cluster stay in one share. If there were more than `max_shares`, workers beyond that limit
    join the common share. When a gang is `starting`, a share that preempts stays whole. Otherwise others
    would lose workers one by one, for a round that may then be withdrawn.
    """
    if together is None:
        return tuple(shares)
    remaining, groups_by_share = Counter(together), list[Sequence[GroupShare]]()
    for share in shares:
        groups_by_share.append(
            share.groups if starting and share.preempts else _groups_together(share.groups, remaining)
        )
        remaining.subtract({group.name: group.count for group in groups_by_share[-1]})
    singles = [
        list(_single_worker_shares(share, groups)) for share, groups in zip(shares, groups_by_share, strict=True)
    ]
    if sum(map(bool, groups_by_share)) + sum(map(len, singles)) > max_shares:
        capacity = max(max_shares - len(shares), 0)
        for index, share in enumerate(shares):
            singles[index], beyond = singles[index][:capacity], singles[index][capacity:]
            capacity -= len(singles[index])
            groups_by_share[index] = _with_singles(share, groups_by_share[index], beyond)
    common = [
        replace(share, groups=tuple(groups)) for share, groups in zip(shares, groups_by_share, strict=True) if groups
    ]
    return (*common, *_interleave(singles))


def number_rounds(shares: Iterable[Share], last_round: int) -> tuple[tuple[Share, ...], int]:
    """Number the shares of a plan after `last_round`, and return them with the number of the last round.

    Each single-worker share is a round of its own; all other shares are in the last round.
    """
    numbered, has_common = list[Share](), False
    for share in shares:
        last_round += share.single_worker
        has_common |= not share.single_worker
        numbered.append(replace(share, round=last_round) if share.single_worker else share)
    return tuple(numbered), last_round + (has_common or not numbered)


def _interleave(alone: Sequence[Sequence[Share]]) -> Iterator[Share]:
    """One share of each cluster in turn.

    Workers take their slots in this order, and each cluster's Kueue admits its shares one after the other. In the order
    of the clusters, the last cluster would be idle until all others are done.
    """
    return (share for single_shares in itertools.zip_longest(*alone) for share in single_shares if share is not None)


def _groups_together(groups: Sequence[GroupShare], remaining: Mapping[str, int]) -> tuple[GroupShare, ...]:
    counts = ((group, min(group.count, max(remaining.get(group.name, 0), 0))) for group in groups)
    return tuple(replace(group, count=count) for group, count in counts if count)


def _with_singles(share: Share, groups: Iterable[GroupShare], singles: Iterable[Share]) -> Sequence[GroupShare]:
    """The groups of the common share, with single workers added."""
    counts = Counter({group.name: group.count for group in groups}) + Counter(
        single.groups[0].name for single in singles
    )
    return tuple(replace(group, count=counts[group.name]) for group in share.groups if counts[group.name])


def _single_worker_shares(share: Share, groups_together: Iterable[GroupShare]) -> Iterator[Share]:
    common = {group.name: group.count for group in groups_together}
    for group in share.groups:
        for _ in range(group.count - common.get(group.name, 0)):
            yield replace(share, groups=(replace(group, count=1),), single_worker=True)
