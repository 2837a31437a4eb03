"""What has changed of what might fit somewhere, and for whom is that news?

A plan reads the figures of the trees of cohorts in which its gang's queues stand, and of no others: what another team's queues in the
same clusters use is no news for it. It counts as one version for all, of which each change notes the number; whether a gang is to be
planned again is for others to say (shell/observe/replan.py).
"""

from collections.abc import Iterable

from adapter.quota.cohort import Key

Tree = tuple[str, Key]  # a worker cluster, and the root of a tree of cohorts there


class Room:
    """Notes changes."""

    def __init__(self) -> None:
        self.version = 0  # grows with every change of what might fit somewhere
        self._everywhere = 0  # of the last change that is news for everybody
        self._trees: dict[Tree, int] = {}  # of the last change of what is in use in it

    def changed(self) -> None:
        """Note a change that any plan may read: of a policy, a cluster, a queue's rules."""
        self.version += 1
        self._everywhere = self.version
        self._trees.clear()  # they are all older

    def used(self, tree: Tree) -> None:
        """Note that more or less is in use in a tree, whose rules are the same."""
        self.version += 1
        self._trees[tree] = self.version

    def promised(self) -> None:
        """Note that gangs are promised something else than before, or come in another order: of no plan are these the clusters' own
        figures, so it is news for those only that were planned on what others leave."""
        self.version += 1

    def since(self, trees: Iterable[Tree]) -> int:
        """The version of the last change of what these trees show."""
        return (
            max((self._trees.get(tree, 0) for tree in trees), default=0) or self._everywhere
        )  # which is older than any of them
