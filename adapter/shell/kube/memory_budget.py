"""Bounds the memory of one cluster's stores, over all kinds.

The cluster is untrusted and decides how much it shows. Beyond its budget it counts as unreachable (`reflector.py`).
Sizes are weights of `object_size.py`.
"""

import asyncio
from collections import Counter

from adapter.shell.kube.client import Unreachable

_MIB = 2**20

# The most weight of one cluster's stored objects. A weight (`object_size.py`) is an estimate that is hardly ever too
# low: an honest cluster's objects take half of it in memory, a hostile cluster's all of it. For a worker cluster, 128
# MiB are 6 000 workers of 21 KB, or ten thousand nodes; for the manager, 384 MiB are 6 000 worker pods of 60 KB, with
# their Workloads. The limit in manifests/controller.yaml, 512Mi, is for 3 000 workers in ten clusters of which one is
# hostile. It is the sum of 100 MiB for the process, 100 for the manager, 50 for the nine honest clusters, 128 for the
# hostile one and 120 for the hostile one's responses. These are one parsed page (`response_limits.MEMORY_FACTOR`), one
# unparsed event of each kind, and small responses. docs/failures.md has other sizes.
WORKER_CLUSTER_BYTES = 128 * _MIB
MANAGER_BYTES = 384 * _MIB


class BudgetExceeded(Unreachable):
    """A cluster shows more objects than its budget allows."""


class MemoryBudget:
    def __init__(self, most_bytes: int, page_lock: asyncio.Lock | None = None) -> None:
        """`page_lock`: the lock of the same cluster's other budget, if any, so that both hold one page at a time."""
        self.most_bytes = most_bytes
        # Held while a page is read, because one page may briefly take as much memory as all stored objects.
        self.page_lock = page_lock or asyncio.Lock()
        self._quotas: list[MemoryQuota] = []

    def clear(self) -> None:
        self._quotas.clear()

    def new_quota(self, kind: str) -> "MemoryQuota":
        quota = MemoryQuota(self, kind)
        self._quotas.append(quota)
        return quota

    def check_total(self) -> None:
        used_bytes = Counter[str]()
        for quota in self._quotas:
            used_bytes[quota.kind] += quota.used_bytes
        if used_bytes.total() > self.most_bytes:
            largest = ", ".join(f"{kind} {size / _MIB:.0f} MiB" for kind, size in used_bytes.most_common(3))
            raise BudgetExceeded(
                f"it shows more objects than the {self.most_bytes / _MIB:.0f} MiB of memory that are kept of one "
                f"cluster ({largest}); delete the ones that are not needed, or find out which client creates them"
            )


class MemoryQuota:
    def __init__(self, budget: MemoryBudget, kind: str) -> None:
        self.budget, self.kind, self.used_bytes = budget, kind, 0

    def set_used(self, weight: int) -> None:
        """Set what this kind takes now; raises BudgetExceeded."""
        grows, self.used_bytes = weight > self.used_bytes, weight
        if grows:
            self.budget.check_total()
