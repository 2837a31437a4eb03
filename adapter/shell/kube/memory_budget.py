"""Bounds the memory that the stores of one cluster take, over all its kinds.

The cluster behind a kubeconfig's URL is untrusted and decides how much it shows, and other clusters need memory too. So
each cluster has a budget of its own. A cluster beyond it counts as unreachable, and others are not affected;
`reflector.py` handles that. Sizes are weights, as `object_size.py` computes them.
"""

import asyncio
from collections import Counter

from adapter.shell.kube.client import Unreachable

_MIB = 2**20

# An honest cluster's objects take half of their weight (`object_size.py`), and a hostile one's all of it. For a worker
# cluster, 128 MiB are 6 000 workers of 21 KB each, or ten thousand nodes. For the manager, 384 MiB are 6 000 worker
# pods of 60 KB each, with their Workloads. The limit in manifests/controller.yaml, 512Mi, is for 3 000 workers in ten
# clusters of which one is hostile. It is the sum of 100 MiB for the process, 100 for the manager, 50 for nine honest
# clusters, 128 for the hostile one, and 120 for its responses while they are read. The latter are a parsed page
# (`response_limits.MEMORY_FACTOR`), an unparsed event of each kind, and small responses. docs/failures.md has the sum
# for other sizes.
WORKER_CLUSTER_BYTES = 128 * _MIB
MANAGER_BYTES = 384 * _MIB


class BudgetExceeded(Unreachable):
    """A cluster shows more objects than its budget allows."""


class MemoryBudget:
    """The memory of one cluster's objects, by kind."""

    def __init__(self, most_bytes: int, page_lock: asyncio.Lock | None = None) -> None:
        """`page_lock`: the lock for pages, where the cluster has another budget as well."""
        self.most_bytes = most_bytes
        # Pages are read one at a time: for a moment, one may take as much memory as all stored objects.
        self.page_lock = page_lock or asyncio.Lock()
        self._quotas: list[MemoryQuota] = []

    def clear(self) -> None:
        """Drop all quotas, because no kind is followed any more."""
        self._quotas.clear()

    def new_quota(self, kind: str) -> "MemoryQuota":
        """A quota for the objects of one kind."""
        quota = MemoryQuota(self, kind)
        self._quotas.append(quota)
        return quota

    def check_total(self) -> None:
        """Raise BudgetExceeded when all kinds together take too much."""
        used_bytes = Counter[str]()
        for quota in self._quotas:
            used_bytes[quota.kind] += quota.used_bytes
        if used_bytes.total() > self.most_bytes:
            largest = ", ".join(f"{kind} {size / _MIB:.0f} MiB" for kind, size in used_bytes.most_common(3))
            raise BudgetExceeded(
                f"it shows more objects than the {self.most_bytes / _MIB:.0f} MiB of memory that are kept of one "
                f"cluster ({largest}); delete there what nobody needs of these, or find out who makes them"
            )


class MemoryQuota:
    """One kind's part of a budget."""

    def __init__(self, budget: MemoryBudget, kind: str) -> None:
        self.budget, self.kind, self.used_bytes = budget, kind, 0

    def set_used(self, weight: int) -> None:
        """Set what this kind takes now; raises BudgetExceeded."""
        grows, self.used_bytes = weight > self.used_bytes, weight
        if grows:
            self.budget.check_total()
