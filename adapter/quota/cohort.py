"""Computes how much of a resource in a flavor a node of Kueue's cohort tree can still use, borrowing included.

It is the integer arithmetic of kueue v0.19.2 pkg/cache/scheduler/resource_node.go; each function names its counterpart.
Fair sharing never changes what fits.

What a waiting gang would borrow takes nothing from a queue's own nominal quota: Kueue, too, admits who stays within
that quota before who borrows (kueue:pkg/scheduler/scheduler.go makeClassicalIterator). So there are two usages after
such a deduction, with and without what was borrowed, and a queue's own quota is what the second one leaves.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from adapter.objects.pod_requests import UNLIMITED

FlavorResource = tuple[str, str]
TreeKey = tuple[str, str]  # a ClusterQueue and a Cohort may share a name
Amounts = Mapping[FlavorResource, int]


@dataclass(frozen=True, slots=True)
class Quota:
    """A node's quota of one resource in one flavor; a limit that is None does not limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class ResourceNode:
    parent: TreeKey | None = None
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    usage: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forest:
    """All cohort trees of a cluster, with quotas and usage summed up per node.

    A node without a `subtree_quota` is in a cycle of cohorts, where Kueue admits nothing.
    """

    nodes: Mapping[TreeKey, ResourceNode]
    subtree_quota: Mapping[TreeKey, Amounts]  # own quota plus what the children lend
    # A ClusterQueue's own usage; for a Cohort, its children's usage beyond the quota that they do not lend.
    observed_usage: Mapping[TreeKey, Amounts]
    paths: Mapping[TreeKey, Sequence[TreeKey]]  # node to root, both included
    # The usage of the nodes that were charged since the observation.
    charged_usage: Mapping[TreeKey, Amounts] = field(default_factory=dict)
    # The same without what waiting gangs would borrow; only of nodes where they would.
    unborrowed_usage: Mapping[TreeKey, Amounts] = field(default_factory=dict)

    def usage(self, key: TreeKey) -> Amounts:
        return self.charged_usage[key] if key in self.charged_usage else self.observed_usage[key]


PathNodes = Sequence[tuple[Mapping[FlavorResource, Quota], Amounts, Amounts]]


@dataclass(frozen=True, slots=True, eq=False)
class QuotaPath:
    """One node and its ancestors, the root first; paths are compared by identity.

    Each entry has the node's own limits on borrowing or lending, its subtree quota, and its usage.
    """

    nodes: PathNodes = ()
    unborrowed_nodes: PathNodes | None = None  # without what waiting gangs would borrow; None if they borrow nothing


def build_forest(nodes: Mapping[TreeKey, ResourceNode]) -> Forest:
    """Sum up quotas and usage from the leaves to the roots; a parent without an object is an empty Cohort.

    Source: updateCohortResourceNode and accumulateFromChild; pkg/cache/hierarchy/manager.go for implicit cohorts.
    """
    parents = {member.parent for member in nodes.values() if member.parent is not None}
    all_nodes = {**{key: ResourceNode() for key in parents}, **nodes}
    ordered = _roots_first(all_nodes)
    subtree = {key: {cell: quota.nominal for cell, quota in all_nodes[key].quotas.items()} for key in ordered}
    usage = {key: dict(all_nodes[key].usage) for key in ordered}
    for key in reversed(ordered):
        parent = all_nodes[key].parent
        if parent is not None:
            _accumulate_from_child(all_nodes[key], subtree[key], usage[key], subtree[parent], usage[parent])
    paths: dict[TreeKey, tuple[TreeKey, ...]] = {}
    for key in ordered:
        parent = all_nodes[key].parent
        paths[key] = (key,) if parent is None else (key, *paths[parent])
    return Forest(all_nodes, subtree, usage, paths)


def quota_path(forest: Forest, key: TreeKey) -> QuotaPath:
    """The path from the root to a node; empty for a node that does not exist or is in a cycle."""
    path = forest.paths.get(key, ())[::-1]
    nodes = [
        (_limited_quotas(forest.nodes[node].quotas), forest.subtree_quota[node], forest.usage(node)) for node in path
    ]
    if forest.unborrowed_usage.keys().isdisjoint(path):
        return QuotaPath(nodes)
    unborrowed = (forest.unborrowed_usage.get(node, forest.usage(node)) for node in path)
    return QuotaPath(
        nodes, [(limits, subtree, usage) for (limits, subtree, _), usage in zip(nodes, unborrowed, strict=True)]
    )


def _limited_quotas(quotas: Mapping[FlavorResource, Quota]) -> dict[FlavorResource, Quota]:
    return {
        cell: quota
        for cell, quota in quotas.items()
        if quota.borrowing_limit is not None or quota.lending_limit is not None
    }


def available(path: QuotaPath, flavor_resource: FlavorResource) -> int:
    """The amount that the node may use now without preemption; negative if over-admitted.

    Within its own nominal quota, what waiting gangs would borrow does not count.
    """
    free = _available(path.nodes, flavor_resource)
    if path.unborrowed_nodes is None:
        return free
    own = min(_available(path.unborrowed_nodes, flavor_resource), unused_nominal(path, flavor_resource))
    return max(free, own)


def _available(nodes: PathNodes, flavor_resource: FlavorResource) -> int:
    """Source: available."""
    _, subtree, usage = nodes[0]
    free = subtract_amounts(subtree.get(flavor_resource, 0), usage.get(flavor_resource, 0))
    for limits, subtree, usage in nodes[1:]:
        quota, used = limits.get(flavor_resource), usage.get(flavor_resource, 0)
        if quota is None and used >= 0:
            continue  # like most nodes, this one lends all its quota
        local = _local_quota(quota, subtree.get(flavor_resource, 0))
        if quota is not None and quota.borrowing_limit is not None:
            stored = subtract_amounts(subtree.get(flavor_resource, 0), local)
            free = min(
                free,
                add_amounts(subtract_amounts(stored, max(0, subtract_amounts(used, local))), quota.borrowing_limit),
            )
        free = add_amounts(max(0, subtract_amounts(local, used)), free)
    return free


def potential_available(path: QuotaPath, flavor_resource: FlavorResource) -> int:
    """The amount that the node could use if nothing were in use. Source: potentialAvailable."""
    most = path.nodes[0][1].get(flavor_resource, 0)
    for limits, subtree, _ in path.nodes[1:]:
        quota = limits.get(flavor_resource)
        if quota is None:
            continue
        most = add_amounts(_local_quota(quota, subtree.get(flavor_resource, 0)), most)
        if quota.borrowing_limit is not None:
            most = min(most, add_amounts(subtree.get(flavor_resource, 0), quota.borrowing_limit))
    return most


def unused_nominal(path: QuotaPath, flavor_resource: FlavorResource) -> int:
    """The node's own unused nominal quota, whether other nodes have borrowed it or not."""
    return _unused(path.nodes, flavor_resource)


def _unused(nodes: PathNodes, flavor_resource: FlavorResource) -> int:
    _, subtree, usage = nodes[-1]
    return max(0, subtract_amounts(subtree.get(flavor_resource, 0), usage.get(flavor_resource, 0)))


def borrowing_level(path: QuotaPath, flavor_resource: FlavorResource, amount: int) -> int:
    """The distance from which `amount` must be borrowed: 0 is no borrowing, 1 is from the nearest cohort.

    Kueue uses the cohort's height instead; along one path the order is equal. Source:
    pkg/scheduler/preemption/classical/hierarchical_preemption.go FindHeightOfLowestSubtreeThatFits.
    """
    level = 0
    for level, (limits, subtree, usage) in enumerate(reversed(path.nodes)):
        if add_amounts(usage.get(flavor_resource, 0), amount) <= subtree.get(flavor_resource, 0):
            return level
        amount = subtract_amounts(
            amount,
            _local_available(
                limits.get(flavor_resource), subtree.get(flavor_resource, 0), usage.get(flavor_resource, 0)
            ),
        )
    return level


def add_usage(path: QuotaPath, amounts: Amounts) -> QuotaPath:
    """The path with `amounts` more in use at the node."""
    unborrowed = path.unborrowed_nodes
    return QuotaPath(_add_usage(path.nodes, amounts), None if unborrowed is None else _add_usage(unborrowed, amounts))


def add_waiting_usage(path: QuotaPath, amounts: Amounts) -> QuotaPath:
    """The path with `amounts` more that a waiting gang would use: what it would borrow yields to its owners."""
    unborrowed = path.nodes if path.unborrowed_nodes is None else path.unborrowed_nodes
    nominal = {cell: min(amount, _unused(unborrowed, cell)) for cell, amount in amounts.items()}
    if path.unborrowed_nodes is None and nominal == amounts:
        return add_usage(path, amounts)
    return QuotaPath(_add_usage(path.nodes, amounts), _add_usage(unborrowed, nominal))


def _add_usage(path_nodes: PathNodes, amounts: Amounts) -> PathNodes:
    """Source: addUsage."""
    nodes = list(path_nodes)
    for index, (limits, subtree, usage) in reversed(list(enumerate(nodes))):
        used, beyond = dict(usage), {}
        for cell, more in amounts.items():
            quota, before = limits.get(cell), used.get(cell, 0)
            used[cell] = add_amounts(before, more)
            if quota is None and before >= 0:
                rest = more  # calling `_local_available` would take a seventh of a long plan
            else:
                rest = subtract_amounts(more, _local_available(quota, subtree.get(cell, 0), before))
            if rest > 0:
                beyond[cell] = rest
        nodes[index], amounts = (limits, subtree, used), beyond
        if not beyond:
            break
    return nodes


def without_usage(path: QuotaPath) -> QuotaPath:
    return QuotaPath([(limits, subtree, {}) for limits, subtree, _ in path.nodes])


def with_path_usage(forest: Forest, key: TreeKey, path: QuotaPath) -> Forest:
    """The forest with the usage of a node's path; the cost does not grow with the number of queues."""
    keys, unborrowed = forest.paths.get(key, ())[::-1], path.unborrowed_nodes or ()
    return replace(
        forest,
        charged_usage={**forest.charged_usage, **_usage_by_key(keys, path.nodes)},
        unborrowed_usage={**forest.unborrowed_usage, **(_usage_by_key(keys, unborrowed) if unborrowed else {})},
    )


def _usage_by_key(keys: Sequence[TreeKey], nodes: PathNodes) -> dict[TreeKey, Amounts]:
    return {key: usage for key, (_, _, usage) in zip(keys, nodes, strict=True)}


def add_amounts(amount: int, other: int) -> int:
    """As Kueue's Amount: unlimited stays unlimited, and results are clamped to 64 bits."""
    return UNLIMITED if amount == UNLIMITED or other == UNLIMITED else _clamp_to_int64(amount + other)


def subtract_amounts(amount: int, other: int) -> int:
    """As Kueue's Amount: unlimited minus a finite amount is unlimited, and unlimited minus unlimited is zero."""
    if amount == UNLIMITED:
        return 0 if other == UNLIMITED else UNLIMITED
    return -UNLIMITED - 1 if other == UNLIMITED else _clamp_to_int64(amount - other)


def _clamp_to_int64(amount: int) -> int:
    if -UNLIMITED <= amount <= UNLIMITED:  # the usual case, in the innermost loop
        return amount
    return max(-UNLIMITED - 1, min(amount, UNLIMITED))


def _roots_first(members: Mapping[TreeKey, ResourceNode]) -> list[TreeKey]:
    children: defaultdict[TreeKey | None, list[TreeKey]] = defaultdict(list)
    for key, member in members.items():
        children[member.parent].append(key)
    ordered = list(children[None])
    for key in ordered:  # `ordered` grows meanwhile; a node in a cycle is never reached
        ordered.extend(children[key])
    return ordered


def _accumulate_from_child(
    child: ResourceNode,
    quota: Amounts,
    used: Amounts,
    parent_quota: dict[FlavorResource, int],
    parent_used: dict[FlavorResource, int],
) -> None:
    for cell, amount in quota.items():
        lent = subtract_amounts(amount, _local_quota(child.quotas.get(cell), amount))
        parent_quota[cell] = add_amounts(parent_quota.get(cell, 0), lent)
    for cell, amount in used.items():
        beyond = max(0, subtract_amounts(amount, _local_quota(child.quotas.get(cell), quota.get(cell, 0))))
        parent_used[cell] = add_amounts(parent_used.get(cell, 0), beyond)


def _local_quota(quota: Quota | None, subtree: int) -> int:
    """The quota that a node never lends to its parent (localQuota)."""
    return 0 if quota is None or quota.lending_limit is None else max(0, subtract_amounts(subtree, quota.lending_limit))


def _local_available(quota: Quota | None, subtree: int, used: int) -> int:
    """The unused part of the quota that a node never lends. Source: LocalAvailable."""
    return max(0, subtract_amounts(_local_quota(quota, subtree), used))
