"""Counts versions of the capacity, for all worker clusters together and for each cohort tree.

A plan reads only the usage of its queues' cohort trees. All changes share one counter. shell/observe/replan.py decides
whether a gang is planned again.
"""

from collections.abc import Iterable

from adapter.quota.cohort import TreeKey

CohortTree = tuple[str, TreeKey]  # a worker cluster, and a cohort tree's root in it


class CapacityVersions:
    def __init__(self) -> None:
        self.version = 0
        self._all_trees_version = 0  # of the last change that any plan may read
        self._tree_versions: dict[CohortTree, int] = {}  # of a tree's last usage change

    def mark_all_changed(self) -> None:
        """Record a change that any plan may read: of a policy, a cluster, a queue's rules."""
        self.version += 1
        self._all_trees_version = self.version
        self._tree_versions.clear()  # all of them are older

    def mark_tree_changed(self, tree: CohortTree) -> None:
        """Record a change of a tree's usage, but not of its rules."""
        self.version += 1
        self._tree_versions[tree] = self.version

    def mark_promises_changed(self) -> None:
        """Record that gangs are promised other capacity, or ordered differently.

        No cluster's own usage changes: this concerns only plans that depend on what other gangs leave.
        """
        self.version += 1

    def latest_change(self, trees: Iterable[CohortTree]) -> int:
        # A tree's version is always newer than the one for all trees.
        return max((self._tree_versions.get(tree, 0) for tree in trees), default=0) or self._all_trees_version
