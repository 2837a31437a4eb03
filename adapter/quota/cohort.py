"""How much of one resource in one flavor can a node of Kueue's cohort tree still use, borrowing included?

Integer arithmetic only, the same as kueue v0.19.2 pkg/cache/scheduler/resource_node.go, which every function here names
its counterpart in. It knows nothing of pods, flavors' labels, preemption or fair sharing (whose weights order the
waiting workloads but never change what fits).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapter.objects.pod_requests import UNLIMITED

Cell = tuple[str, str]  # flavor, resource
Key = tuple[str, str]  # kind, name: a ClusterQueue and a Cohort may share their name
Amounts = Mapping[Cell, int]


@dataclass(frozen=True, slots=True)
class Quota:
    """One cell of a ClusterQueue's or Cohort's own quota; None is no limit."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """What one object says of itself: its parent, its own quotas and, for a ClusterQueue, what it has reserved."""

    parent: Key | None = None
    quotas: Mapping[Cell, Quota] = field(default_factory=dict)
    usage: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forest:
    """All cohort trees of a cluster, with quotas and usage summed up per node.

    A node that is in `members` but not in `subtree` hangs in a cycle of cohorts, where Kueue admits nothing.
    """

    members: Mapping[Key, Member]
    subtree: Mapping[Key, Amounts]  # own quota plus what the children lend
    seen: Mapping[
        Key, Amounts
    ]  # usage as the objects showed it; for a Cohort: what its children use beyond what they keep
    paths: Mapping[Key, Sequence[Key]]  # from each node to its root, both included
    charged: Mapping[Key, Amounts] = field(default_factory=dict)  # usage of those nodes that were charged since

    def usage(self, key: Key) -> Amounts:
        """What is in use at a node."""
        return self.charged[key] if key in self.charged else self.seen[key]


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """All that counts for one node: it and those above it. Compared by identity.

    The root is first. Of each: those of its own quotas that limit borrowing or lending, which are few; its quota with
    its children's; what is in use.
    """

    nodes: Sequence[tuple[Mapping[Cell, Quota], Amounts, Amounts]] = ()


def plant(members: Mapping[Key, Member]) -> Forest:
    """Sum up quotas and usage from the leaves to the roots; a parent that is nobody's object is an empty Cohort.

    Source: updateCohortResourceNode and accumulateFromChild; pkg/cache/hierarchy/manager.go for implicit cohorts.
    """
    parents = {member.parent for member in members.values() if member.parent is not None}
    everyone = {**{key: Member() for key in parents}, **members}
    ordered = _roots_first(everyone)
    subtree = {key: {cell: quota.nominal for cell, quota in everyone[key].quotas.items()} for key in ordered}
    usage = {key: dict(everyone[key].usage) for key in ordered}
    for key in reversed(ordered):
        parent = everyone[key].parent
        if parent is not None:
            _accumulate(everyone[key], subtree[key], usage[key], subtree[parent], usage[parent])
    paths: dict[Key, tuple[Key, ...]] = {}
    for key in ordered:
        parent = everyone[key].parent
        paths[key] = (key,) if parent is None else (key, *paths[parent])
    return Forest(everyone, subtree, usage, paths)


def line(forest: Forest, key: Key) -> Line:
    """What the questions below are put to; nothing for a node that does not exist or hangs in a cycle."""
    path = reversed(forest.paths.get(key, ()))
    return Line([(_limits(forest.members[node].quotas), forest.subtree[node], forest.usage(node)) for node in path])


def _limits(quotas: Mapping[Cell, Quota]) -> dict[Cell, Quota]:
    return {cell: quota for cell, quota in quotas.items() if quota.borrowing is not None or quota.lending is not None}


def available(line: Line, cell: Cell) -> int:
    """Say how much the node may take now without preemption; negative where more was admitted than there is.

    Source: available.
    """
    _, subtree, usage = line.nodes[0]
    left = minus(subtree.get(cell, 0), usage.get(cell, 0))
    for limits, subtree, usage in line.nodes[1:]:
        quota, used = limits.get(cell), usage.get(cell, 0)
        if quota is None and used >= 0:
            continue  # as most nodes: it keeps nothing to itself, and may take all that is left above it
        kept = _kept(quota, subtree.get(cell, 0))
        if quota is not None and quota.borrowing is not None:
            stored = minus(subtree.get(cell, 0), kept)
            left = min(left, plus(minus(stored, max(0, minus(used, kept))), quota.borrowing))
        left = plus(max(0, minus(kept, used)), left)
    return left


def potential(line: Line, cell: Cell) -> int:
    """Say how much the node could take if nothing at all were in use.

    Source: potentialAvailable.
    """
    most = line.nodes[0][1].get(cell, 0)
    for limits, subtree, _ in line.nodes[1:]:
        quota = limits.get(cell)
        if quota is None:
            continue
        most = plus(_kept(quota, subtree.get(cell, 0)), most)
        if quota.borrowing is not None:
            most = min(most, plus(subtree.get(cell, 0), quota.borrowing))
    return most


def nominal_free(line: Line, cell: Cell) -> int:
    """Say how much of its own nominal quota the node leaves unused, whether or not others have borrowed it; never negative."""
    _, subtree, usage = line.nodes[-1]
    return max(0, minus(subtree.get(cell, 0), usage.get(cell, 0)))


def borrowing_level(line: Line, cell: Cell, amount: int) -> int:
    """Say how far up `amount` must be borrowed: 0 is not at all, 1 is from the nearest cohort.

    Kueue counts the cohort's height instead of its distance; along one path both order the same.
    Source: pkg/scheduler/preemption/classical/hierarchical_preemption.go FindHeightOfLowestSubtreeThatFits.
    """
    level = 0
    for level, (limits, subtree, usage) in enumerate(reversed(line.nodes)):
        if plus(usage.get(cell, 0), amount) <= subtree.get(cell, 0):
            return level
        amount = minus(amount, _kept_free(limits.get(cell), subtree.get(cell, 0), usage.get(cell, 0)))
    return level


def reserve(line: Line, amounts: Amounts) -> Line:
    """Return the line with `amounts` more in use at the node.

    Source: addUsage.
    """
    nodes = list(line.nodes)
    for at, (limits, subtree, usage) in reversed(list(enumerate(nodes))):
        used, beyond = dict(usage), {}
        for cell, more in amounts.items():
            quota, before = limits.get(cell), used.get(cell, 0)
            used[cell] = plus(before, more)
            if quota is None and before >= 0:
                rest = more  # as at most nodes: asking them what they keep is a seventh of a long plan
            else:
                rest = minus(more, _kept_free(quota, subtree.get(cell, 0), before))
            if rest > 0:
                beyond[cell] = rest
        nodes[at], amounts = (limits, subtree, used), beyond
        if not beyond:
            break
    return Line(nodes)


def emptied(line: Line) -> Line:
    """Return the line as if nothing at all were in use."""
    return Line([(limits, subtree, {}) for limits, subtree, _ in line.nodes])


def charged(forest: Forest, key: Key, line: Line) -> Forest:
    """Return the forest with what is in use on a node's line; it costs no more where there are more queues."""
    used = zip(reversed(forest.paths.get(key, ())), (usage for _, _, usage in line.nodes), strict=True)
    return Forest(forest.members, forest.subtree, forest.seen, forest.paths, {**forest.charged, **dict(used)})


def plus(left: int, right: int) -> int:
    """Add as Kueue's Amount does: unlimited stays unlimited, and nothing leaves 64 bits."""
    return UNLIMITED if left == UNLIMITED or right == UNLIMITED else _clamped(left + right)


def minus(left: int, right: int) -> int:
    """Subtract as Kueue's Amount does: unlimited less anything finite is unlimited, less unlimited is zero."""
    if left == UNLIMITED:
        return 0 if right == UNLIMITED else UNLIMITED
    return -UNLIMITED - 1 if right == UNLIMITED else _clamped(left - right)


def _clamped(amount: int) -> int:
    if -UNLIMITED <= amount <= UNLIMITED:  # nearly always, and this is the innermost step of every plan
        return amount
    return max(-UNLIMITED - 1, min(amount, UNLIMITED))


def _roots_first(members: Mapping[Key, Member]) -> list[Key]:
    children: defaultdict[Key | None, list[Key]] = defaultdict(list)
    for key, member in members.items():
        children[member.parent].append(key)
    ordered = list(children[None])
    for key in ordered:  # grows while it is read; what hangs in a cycle is never reached
        ordered.extend(children[key])
    return ordered


def _accumulate(
    child: Member, quota: Amounts, used: Amounts, parent_quota: dict[Cell, int], parent_used: dict[Cell, int]
) -> None:
    for cell, amount in quota.items():
        lent = minus(amount, _kept(child.quotas.get(cell), amount))
        parent_quota[cell] = plus(parent_quota.get(cell, 0), lent)
    for cell, amount in used.items():
        beyond = max(0, minus(amount, _kept(child.quotas.get(cell), quota.get(cell, 0))))
        parent_used[cell] = plus(parent_used.get(cell, 0), beyond)


def _kept(quota: Quota | None, subtree: int) -> int:
    """What a node never lends to its parent (localQuota)."""
    return 0 if quota is None or quota.lending is None else max(0, minus(subtree, quota.lending))


def _kept_free(quota: Quota | None, subtree: int, used: int) -> int:
    """What of that is unused (LocalAvailable)."""
    return max(0, minus(_kept(quota, subtree), used))
