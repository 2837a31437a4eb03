"""Caches the manager's objects for warnings: its queues, and the objects that admins write."""

from adapter.admission.policy import PolicyObjects
from adapter.admission.warnings import WarningContext
from adapter.objects.admissioncheck import read_check
from adapter.objects.queues import read_cluster_queue, read_local_queue
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.clusters.cluster_cache import ClusterCache, WatchedKind
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.store import Store

# Enough for five thousand ClusterQueues, each with a weight of some 5 KB, and as many LocalQueues of 2 KB.
_MEMORY_BYTES = 48 * 2**20


class WarningCache(ClusterCache):
    def __init__(self, client: Client) -> None:
        super().__init__(client, _MEMORY_BYTES)
        self.local_queues = Store()
        self.cluster_queues = Store()
        self.checks = Store()
        self.worker_clusters = Store()
        self.policies = Store()
        self.multikueue_configs = Store()
        self._watched_kinds = [
            WatchedKind(resources.LOCAL_QUEUES, self.local_queues),
            WatchedKind(resources.CLUSTER_QUEUES, self.cluster_queues),
            WatchedKind(resources.ADMISSION_CHECKS, self.checks),
            WatchedKind(resources.WORKER_CLUSTERS, self.worker_clusters),
            WatchedKind(resources.DISPATCH_POLICIES, self.policies),
            WatchedKind(resources.MULTIKUEUE_CONFIGS, self.multikueue_configs, optional_if=_is_absent_or_forbidden),
        ]

    @property
    def is_current(self) -> bool:
        """Whether all stores are up to date: an unread object must not be reported as missing."""
        return self.synced and self.first_error is None

    def namespace_objects(self, namespace: str) -> WarningContext:
        """The objects for warnings about a job of that namespace."""
        queues = self.local_queues.read_all_cached(read_local_queue).items()
        return WarningContext(
            {name: queue for (queue_namespace, name), queue in queues if queue_namespace == namespace},
            {name: queue for (_, name), queue in self.cluster_queues.read_all_cached(read_cluster_queue).items()},
            {name: check for (_, name), check in self.checks.read_all_cached(read_check).items()},
            self.admin_objects(),
        )

    def admin_objects(self) -> PolicyObjects:
        lacking = resources.MULTIKUEUE_CONFIGS in self.unreadable_kinds
        return PolicyObjects(
            _by_name(self.policies), list(self.worker_clusters), None if lacking else _by_name(self.multikueue_configs)
        )


def _is_absent_or_forbidden(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status in (403, 404)


def _by_name(store: Store) -> dict[str, Raw]:
    return {key_of(raw)[1]: raw for raw in store}
