"""Counts versions of capacity, in all and per cohort tree.

A plan reads the usage of the cohort trees that its gang's queues are in, and of no others. So a usage change in another
tree does not concern it. All changes share one counter, and each records its number. Whether a gang must be planned
again is decided in shell/observe/replan.py.
"""

from collections.abc import Iterable

from adapter.quota.cohort import TreeKey

CohortTree = tuple[str, TreeKey]  # a worker cluster, and the root of a cohort tree in it


class CapacityVersions:
    """Records capacity changes."""

    def __init__(self) -> None:
        self.version = 0  # grows with every change of capacity
        self._all_trees_version = 0  # of the last change that any plan may read
        self._tree_versions: dict[CohortTree, int] = {}  # of the last usage change in each tree

    def mark_all_changed(self) -> None:
        """Record a change that any plan may read: of a policy, a cluster, a queue's rules."""
        self.version += 1
        self._all_trees_version = self.version
        self._tree_versions.clear()  # all of them are older

    def mark_tree_changed(self, tree: CohortTree) -> None:
        """Record a usage change in a tree whose rules are unchanged."""
        self.version += 1
        self._tree_versions[tree] = self.version

    def mark_promises_changed(self) -> None:
        """Record that gangs are promised other capacity, or are ordered differently.

        No cluster's own usage changes, so this concerns only plans that depend on what other gangs leave.
        """
        self.version += 1

    def latest_change(self, trees: Iterable[CohortTree]) -> int:
        """The version of the last change of what these trees show."""
        # A tree version is always newer than the one for all trees.
        return max((self._tree_versions.get(tree, 0) for tree in trees), default=0) or self._all_trees_version
