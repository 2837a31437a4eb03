"""What has changed of what might fit somewhere, and for whom is that news?

A plan reads the figures of the trees of cohorts in which its gang's queues stand, and of no others: what another team's queues in the
same clusters use is no news for it. It counts as one version for all, of which each change notes the number; whether a gang is to be
planned again is for others to say (shell/observe/replan.py).
"""

from collections.abc import Iterable

from adapter.quota.cohort import TreeKey

CohortTree = tuple[str, TreeKey]  # a worker cluster, and the root of a tree of cohorts there


class CapacityVersions:
    """Notes changes."""

    def __init__(self) -> None:
        self.version = 0  # grows with every change of what might fit somewhere
        self._all_trees_version = 0  # of the last change that is news for everybody
        self._tree_versions: dict[CohortTree, int] = {}  # of the last change of what is in use in it

    def mark_all_changed(self) -> None:
        """Note a change that any plan may read: of a policy, a cluster, a queue's rules."""
        self.version += 1
        self._all_trees_version = self.version
        self._tree_versions.clear()  # they are all older

    def mark_tree_changed(self, tree: CohortTree) -> None:
        """Note that more or less is in use in a tree, whose rules are the same."""
        self.version += 1
        self._tree_versions[tree] = self.version

    def mark_promises_changed(self) -> None:
        """Note that gangs are promised something else than before, or come in another order: of no plan are these the clusters' own
        figures, so it is news for those only that were planned on what others leave."""
        self.version += 1

    def latest_change(self, trees: Iterable[CohortTree]) -> int:
        """The version of the last change of what these trees show."""
        return (
            max((self._tree_versions.get(tree, 0) for tree in trees), default=0) or self._all_trees_version
        )  # which is older than any of them
