"""How much is kept of one cluster, over all its kinds, and how much may be?

Whoever is behind a kubeconfig's URL decides how much it shows, and all that is kept of it takes memory which other clusters need. So
each cluster has a budget of its own: who goes beyond it cannot be seen, and costs nobody else anything. What is done then is
`reflector.py`'s. Sizes are weights, as `object_size.py` reckons them.
"""

import asyncio
from collections import Counter

from adapter.shell.kube.client import Unreachable

_MIB = 2**20

# An honest cluster's objects take half of what they weigh (`object_size.py`), and a hostile one's all of it. Of a worker cluster 128 MiB are
# 6 000 workers of 21 KB each, or ten thousand nodes; of the manager 384 MiB are 6 000 worker pods of 60 KB each, with their
# Workloads. The limit in manifests/controller.yaml, 512Mi, is for 3 000 workers in ten clusters of which one is hostile: 100 MiB
# for the process, 100 for the manager, 50 for nine honest clusters, 128 for the hostile one, and 120 for what is being read of it: a
# page once it is parsed (`bodies.MEMORY`), an event of each kind before it is, and small answers. docs/failures.md has the sum for other sizes.
WORKER_CLUSTER_BYTES = 128 * _MIB
MANAGER_BYTES = 384 * _MIB


class BudgetExceeded(Unreachable):
    """It shows more than is kept of one cluster."""


class MemoryBudget:
    """What is kept of one cluster, by kind."""

    def __init__(self, most_bytes: int, page_lock: asyncio.Lock | None = None) -> None:
        """`page`: the turn in which the pages of a cluster are read, where it has another budget beside."""
        self.most_bytes = most_bytes
        self.page_lock = (
            page_lock or asyncio.Lock()
        )  # a page may take as much, for a moment, as all that is kept: one at a time
        self._quotas: list[MemoryQuota] = []

    def clear(self) -> None:
        """Begin anew: nothing is followed any more."""
        self._quotas.clear()

    def new_quota(self, kind: str) -> "MemoryQuota":
        """A place for the objects of one kind."""
        room = MemoryQuota(self, kind)
        self._quotas.append(room)
        return room

    def check_total(self) -> None:
        """Raise Overfull when there is too much of all kinds together."""
        taken = Counter[str]()
        for room in self._quotas:
            taken[room.kind] += room.used_bytes
        if taken.total() > self.most_bytes:
            largest = ", ".join(f"{kind} {size / _MIB:.0f} MiB" for kind, size in taken.most_common(3))
            raise BudgetExceeded(
                f"it shows more objects than the {self.most_bytes / _MIB:.0f} MiB of memory that are kept of one cluster ({largest}); delete there "
                "what nobody needs of these, or find out who makes them"
            )


class MemoryQuota:
    """One kind's part of a budget."""

    def __init__(self, budget: MemoryBudget, kind: str) -> None:
        self.budget, self.kind, self.used_bytes = budget, kind, 0

    def set_used(self, weight: int) -> None:
        """Note what this kind takes now; raises Overfull."""
        grows, self.used_bytes = weight > self.used_bytes, weight
        if grows:
            self.budget.check_total()
