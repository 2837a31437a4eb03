"""Splits a plan into shares: one for each cluster's workers that must start together, and one for each other worker.

A group Workload cannot shrink (docs/upstream.md, "A group Workload does not shrink"), so a share is deleted as a whole.
Each further worker of an elastic job has a share of its own, so that Kueue admits, preempts and finishes it
independently of the others. The hosts of a replica count as one worker here: they come and go together.
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

    `together`: group -> how many of its workers, the first ones, go into their cluster's common share. Each other
    worker gets a share of its own. None: no share is split. Once there are `max_shares` shares, further workers join
    the common ones. While a gang is `starting`, a share that preempts is not split: other gangs must not lose workers
    one by one to a round that may be withdrawn.
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
    """Number the rounds of the shares from `last_round` + 1 on; return the shares and the last of these rounds.

    Each single-worker or borrowing share has a round of its own. Other shares keep 0, the current round, which is the
    last.
    """
    numbered, has_common = list[Share](), False
    for share in shares:
        last_round += share.has_own_round
        has_common |= not share.has_own_round
        numbered.append(replace(share, round=last_round) if share.has_own_round else share)
    return tuple(numbered), last_round + (has_common or not numbered)


def _interleave(alone: Sequence[Sequence[Share]]) -> Iterator[Share]:
    """One share of each cluster in turn.

    Workers take their slots in this order, and each cluster's Kueue admits its shares one after the other. Cluster by
    cluster, the last cluster would be idle until the slots of all others are taken.
    """
    return (share for single_shares in itertools.zip_longest(*alone) for share in single_shares if share is not None)


def _groups_together(groups: Sequence[GroupShare], remaining: Mapping[str, int]) -> tuple[GroupShare, ...]:
    counts = (
        (group, min(group.count, max(remaining.get(group.name, 0), 0)) // group.hosts * group.hosts) for group in groups
    )
    return tuple(replace(group, count=count) for group, count in counts if count)


def _with_singles(share: Share, groups: Iterable[GroupShare], singles: Iterable[Share]) -> Sequence[GroupShare]:
    counts = Counter({group.name: group.count for group in groups})
    for single in singles:
        counts[single.groups[0].name] += single.workers
    return tuple(replace(group, count=counts[group.name]) for group in share.groups if counts[group.name])


def _single_worker_shares(share: Share, groups_together: Iterable[GroupShare]) -> Iterator[Share]:
    common = {group.name: group.count for group in groups_together}
    for group in share.groups:
        for _ in range(0, group.count - common.get(group.name, 0), group.hosts):
            yield replace(share, groups=(replace(group, count=group.hosts),), single_worker=True)
