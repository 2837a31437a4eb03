"""Which workers of a plan share one share, and which have one of their own, so that each can go by itself?

A share is given back as a whole: its group Workload cannot be made smaller (docs/upstream.md, "A group Workload does not shrink"). So
of an elastic job only those share one that must come together; whoever else comes is a gang of one, which Kueue there admits,
preempts and gives back by itself. Who goes where is decided before (planner.py).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from adapter.objects.placement import GroupShare, Share


def apart(shares: Sequence[Share], together: Mapping[str, int] | None, *, most: int, starts: bool) -> tuple[Share, ...]:
    """The same workers in the same clusters: of each group the first `together` in one share for each cluster, all others alone.

    None: all that go to a cluster stay together, and so they do where there were more than `most` shares. When a gang `starts`, a share
    that preempts stays whole, too: one by one, others would lose workers for a round that is then given up.
    """
    if together is None:
        return tuple(shares)
    left, whole, alone = Counter(together), list[Share](), list[Share]()
    for share in shares:
        kept = share.groups if starts and share.preempts else _kept(share.groups, left)
        left.subtract({group.name: group.count for group in kept})
        whole += [replace(share, groups=kept)] if kept else []
        alone += _alone(share, kept)
    return (*whole, *alone) if len(whole) + len(alone) <= most else tuple(shares)


def numbered(shares: Iterable[Share], last: int) -> tuple[tuple[Share, ...], int]:
    """Shares that come after a round of that number, each single worker's as a round of its own, and the number of the last one, in
    which all others are."""
    found, others = list[Share](), False
    for share in shares:
        last += share.single
        others |= not share.single
        found.append(replace(share, round=last) if share.single else share)
    return tuple(found), last + (others or not found)


def _kept(groups: Sequence[GroupShare], left: Mapping[str, int]) -> tuple[GroupShare, ...]:
    counts = ((group, min(group.count, max(left.get(group.name, 0), 0))) for group in groups)
    return tuple(replace(group, count=count) for group, count in counts if count)


def _alone(share: Share, kept: Iterable[GroupShare]) -> Iterator[Share]:
    stay = {group.name: group.count for group in kept}
    for group in share.groups:
        for _ in range(group.count - stay.get(group.name, 0)):
            yield replace(share, groups=(replace(group, count=1),), single=True)
