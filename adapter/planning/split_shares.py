"""Which workers of a plan share one share, and which have one of their own, so that each can go by itself?

A share is given back as a whole: its group Workload cannot be made smaller (docs/upstream.md, "A group Workload does not shrink"). So
of an elastic job only those share one that must come together; whoever else comes is a gang of one, which Kueue there admits,
preempts and gives back by itself. Who goes where is decided before (planner.py).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from adapter.objects.placement import GroupShare, Share


def split_by_worker(
    shares: Sequence[Share], together: Mapping[str, int] | None, *, max_shares: int, starting: bool
) -> tuple[Share, ...]:
    """The same workers in the same clusters: of each group the first `together` in one share for each cluster, all others alone.

    None: all that go to a cluster stay together. Where there were more than `most` shares, so many are alone as there may be, and those
    beyond stay together, too. When a gang `starts`, a share that preempts stays whole: one by one, others would lose workers for a round
    that is then given up.
    """
    if together is None:
        return tuple(shares)
    left, kept = Counter(together), list[Sequence[GroupShare]]()
    for share in shares:
        kept.append(share.groups if starting and share.preempts else _groups_together(share.groups, left))
        left.subtract({group.name: group.count for group in kept[-1]})
    alone = [list(_single_worker_shares(share, stay)) for share, stay in zip(shares, kept, strict=True)]
    if sum(map(bool, kept)) + sum(map(len, alone)) > max_shares:
        room = max(max_shares - len(shares), 0)
        for at, share in enumerate(shares):
            alone[at], beyond = alone[at][:room], alone[at][room:]
            room -= len(alone[at])
            kept[at] = _with_singles(share, kept[at], beyond)
    whole = [replace(share, groups=tuple(stay)) for share, stay in zip(shares, kept, strict=True) if stay]
    return (*whole, *_interleave(alone))


def number_rounds(shares: Iterable[Share], last_round: int) -> tuple[tuple[Share, ...], int]:
    """Shares that come after a round of that number, each single worker's as a round of its own, and the number of the last one, in
    which all others are."""
    found, others = list[Share](), False
    for share in shares:
        last_round += share.single_worker
        others |= not share.single_worker
        found.append(replace(share, round=last_round) if share.single_worker else share)
    return tuple(found), last_round + (others or not found)


def _interleave(alone: Sequence[Sequence[Share]]) -> Iterator[Share]:
    """Of each cluster one, again and again: workers take their places in this order as they come, and each cluster's Kueue lets them in one
    after the other. In the order of the clusters, the last of these would do nothing until all others are done."""
    return (one for turn in itertools.zip_longest(*alone) for one in turn if one is not None)


def _groups_together(groups: Sequence[GroupShare], remaining: Mapping[str, int]) -> tuple[GroupShare, ...]:
    counts = ((group, min(group.count, max(remaining.get(group.name, 0), 0))) for group in groups)
    return tuple(replace(group, count=count) for group, count in counts if count)


def _with_singles(share: Share, groups: Iterable[GroupShare], singles: Iterable[Share]) -> Sequence[GroupShare]:
    """Those who stay together, and single workers who join them."""
    counts = Counter({group.name: group.count for group in groups}) + Counter(one.groups[0].name for one in singles)
    return tuple(replace(group, count=counts[group.name]) for group in share.groups if counts[group.name])


def _single_worker_shares(share: Share, groups_together: Iterable[GroupShare]) -> Iterator[Share]:
    stay = {group.name: group.count for group in groups_together}
    for group in share.groups:
        for _ in range(group.count - stay.get(group.name, 0)):
            yield replace(share, groups=(replace(group, count=1),), single_worker=True)
