"""How much of one resource in one flavor can a node of Kueue's cohort tree still use, borrowing included?

Integer arithmetic only, the same as kueue v0.19.2 pkg/cache/scheduler/resource_node.go, which every function here names
its counterpart in. It knows nothing of pods, flavors' labels, preemption or fair sharing (whose weights order the
waiting workloads but never change what fits).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from adapter.shape import UNLIMITED

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
    usage: Mapping[Key, Amounts]  # for a Cohort: what its children use beyond what they keep to themselves


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
    return Forest(everyone, subtree, usage)


def available(forest: Forest, key: Key, cell: Cell) -> int:
    """Say how much `key` may take now without preemption; negative where more was admitted than there is.

    Source: available.
    """
    *below, root = path(forest, key)
    left = minus(forest.subtree[root].get(cell, 0), forest.usage[root].get(cell, 0))
    for node in reversed(below):
        quota, used = forest.members[node].quotas.get(cell), forest.usage[node].get(cell, 0)
        if quota is not None and quota.borrowing is not None:
            kept = _kept(forest, node, cell)
            stored = minus(forest.subtree[node].get(cell, 0), kept)
            left = min(left, plus(minus(stored, max(0, minus(used, kept))), quota.borrowing))
        left = plus(_kept_free(forest, node, cell), left)
    return left


def potential(forest: Forest, key: Key, cell: Cell) -> int:
    """Say how much `key` could take if nothing at all were in use.

    Source: potentialAvailable.
    """
    *below, root = path(forest, key)
    most = forest.subtree[root].get(cell, 0)
    for node in reversed(below):
        quota = forest.members[node].quotas.get(cell)
        most = plus(_kept(forest, node, cell), most)
        if quota is not None and quota.borrowing is not None:
            most = min(most, plus(forest.subtree[node].get(cell, 0), quota.borrowing))
    return most


def nominal_free(forest: Forest, key: Key, cell: Cell) -> int:
    """Say how much of its own nominal quota `key` leaves unused, whether or not others have borrowed it; never negative."""
    return max(0, minus(forest.subtree[key].get(cell, 0), forest.usage[key].get(cell, 0)))


def borrowing_level(forest: Forest, key: Key, cell: Cell, amount: int) -> int:
    """Say how far up `amount` must be borrowed: 0 is not at all, 1 is from the nearest cohort.

    Kueue counts the cohort's height instead of its distance; along one path both order the same.
    Source: pkg/scheduler/preemption/classical/hierarchical_preemption.go FindHeightOfLowestSubtreeThatFits.
    """
    level = 0
    for level, node in enumerate(path(forest, key)):
        if plus(forest.usage[node].get(cell, 0), amount) <= forest.subtree[node].get(cell, 0):
            return level
        amount = minus(amount, _kept_free(forest, node, cell))
    return level


def reserve(forest: Forest, key: Key, amounts: Amounts) -> Forest:
    """Return the forest with `amounts` more in use at `key`; everything beside the path to the root is shared.

    Source: addUsage.
    """
    usage = dict(forest.usage)
    for node in path(forest, key):
        before = usage[node]
        usage[node] = {**before, **{cell: plus(before.get(cell, 0), more) for cell, more in amounts.items()}}
        beyond = {cell: minus(more, _kept_free(forest, node, cell)) for cell, more in amounts.items()}
        amounts = {cell: more for cell, more in beyond.items() if more > 0}
    return replace(forest, usage=usage)


def path(forest: Forest, key: Key) -> Iterator[Key]:
    """Walk from a node to its root, both included; endless where cohorts form a cycle."""
    step: Key | None = key
    while step is not None:
        yield step
        step = forest.members[step].parent


def plus(left: int, right: int) -> int:
    """Add as Kueue's Amount does: unlimited stays unlimited, and nothing leaves 64 bits."""
    return UNLIMITED if UNLIMITED in (left, right) else _clamped(left + right)


def minus(left: int, right: int) -> int:
    """Subtract as Kueue's Amount does: unlimited less anything finite is unlimited, less unlimited is zero."""
    if left == UNLIMITED:
        return 0 if right == UNLIMITED else UNLIMITED
    return -UNLIMITED - 1 if right == UNLIMITED else _clamped(left - right)


def _clamped(amount: int) -> int:
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
        lent = minus(amount, _kept_of(child, cell, amount))
        parent_quota[cell] = plus(parent_quota.get(cell, 0), lent)
    for cell, amount in used.items():
        beyond = max(0, minus(amount, _kept_of(child, cell, quota.get(cell, 0))))
        parent_used[cell] = plus(parent_used.get(cell, 0), beyond)


def _kept(forest: Forest, key: Key, cell: Cell) -> int:
    return _kept_of(forest.members[key], cell, forest.subtree[key].get(cell, 0))


def _kept_of(member: Member, cell: Cell, subtree: int) -> int:
    """What a node never lends to its parent (localQuota)."""
    quota = member.quotas.get(cell)
    if quota is None or quota.lending is None:
        return 0
    return max(0, minus(subtree, quota.lending))


def _kept_free(forest: Forest, key: Key, cell: Cell) -> int:
    """What of that is unused (LocalAvailable)."""
    return max(0, minus(_kept(forest, key, cell), forest.usage[key].get(cell, 0)))
