"""Bounds the memory of one cluster's stores, over all kinds.

The cluster is untrusted and decides how much it shows. Beyond a budget, first its largest namespaces become incomplete
(`namespace_shares.py`). If that does not help, the cluster counts as unreachable (`reflector.py`). Sizes are weights of
`object_size.py`.
"""

import asyncio
from collections import Counter

from adapter.shell.kube.client import Unreachable
from adapter.shell.kube.namespace_shares import NamespaceShares
from adapter.shell.kube.store import Store

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
# The most weight of one namespace in it: 3 000 worker pods that share nothing, or 4 500 remote pods. One namespace that
# is crafted for it takes so much memory in addition. A larger part would not fit the limit above in place of the
# hostile worker cluster.
WORKER_NAMESPACE_BYTES = 96 * _MIB
MANAGER_NAMESPACE_BYTES = 192 * _MIB


class BudgetExceeded(Unreachable):
    """A cluster shows more objects than its budget allows."""


class MemoryBudget:
    def __init__(
        self, most_bytes: int, page_lock: asyncio.Lock | None = None, *, most_namespace_bytes: int | None = None
    ) -> None:
        """`page_lock`: the lock of the same cluster's other budget, if any, so that both hold one page at a time."""
        self.most_bytes = most_bytes
        self.namespaces = NamespaceShares(most_bytes if most_namespace_bytes is None else most_namespace_bytes)
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
        """Make the largest namespaces incomplete until the others fit; raises BudgetExceeded."""
        while self.used_bytes > self.most_bytes:
            if self.namespaces.drop_largest():
                continue
            by_kind = self._bytes_by_kind().most_common(3)
            largest = ", ".join(f"{kind} {size / _MIB:.0f} MiB" for kind, size in by_kind)
            raise BudgetExceeded(
                f"it shows more objects than the {self.most_bytes / _MIB:.0f} MiB of memory that are kept of one "
                f"cluster ({largest}); delete the ones that are not needed, or find out which client creates them"
            )

    @property
    def used_bytes(self) -> int:
        """The weight over all kinds."""
        return sum(quota.used_bytes for quota in self._quotas)

    def _bytes_by_kind(self) -> Counter[str]:
        used_bytes = Counter[str]()
        for quota in self._quotas:
            used_bytes[quota.kind] += quota.used_bytes
        return used_bytes


class MemoryQuota:
    """What one kind takes: its store, if it has one, or what `set_used` says."""

    def __init__(self, budget: MemoryBudget, kind: str) -> None:
        self.budget, self.kind = budget, kind
        self.store: Store | None = None
        self._used_bytes, self._checked_bytes = 0, 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes if self.store is None else self.store.used_bytes

    def set_used(self, weight: int) -> None:
        """Set what this kind takes now; raises BudgetExceeded."""
        self._used_bytes = weight
        self.check()

    def check(self) -> None:
        """Check the budget if this kind has grown; raises BudgetExceeded."""
        grows, self._checked_bytes = self.used_bytes > self._checked_bytes, self.used_bytes
        if grows:
            self.budget.check_total()
