"""What do the warnings know of the manager cluster: its queues and what admins wrote, as stores that follow them?"""

from adapter.admission.policy import Written
from adapter.admission.warnings import Seen
from adapter.objects.admissioncheck import read_check
from adapter.objects.queues import read_cluster_queue, read_local_queue
from adapter.objects.unstructured import Raw, key_of
from adapter.shell.clusters.cluster_cache import Cluster, Row
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client
from adapter.shell.kube.store import Store

# A ClusterQueue weighs some 5 KB and a LocalQueue 2: enough for five thousand of each.
_KEPT = 48 * 2**20


class Known(Cluster):
    """The manager cluster, as far as warnings need it."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, _KEPT)
        self.local_queues = Store()
        self.cluster_queues = Store()
        self.checks = Store()
        self.worker_clusters = Store()
        self.policies = Store()
        self.configs = Store()
        self._rows = [
            Row(resources.LOCAL_QUEUES, self.local_queues),
            Row(resources.CLUSTER_QUEUES, self.cluster_queues),
            Row(resources.ADMISSION_CHECKS, self.checks),
            Row(resources.WORKER_CLUSTERS, self.worker_clusters),
            Row(resources.DISPATCH_POLICIES, self.policies),
            Row(resources.MULTIKUEUE_CONFIGS, self.configs, spared=_lacks),
        ]

    @property
    def sure(self) -> bool:
        """Whether all of it is as it is now: what is not seen is not to be missed by anybody."""
        return self.synced and self.trouble is None

    def seen(self, namespace: str) -> Seen:
        """What there is for a job of that namespace."""
        queues = self.local_queues.readings(read_local_queue).items()
        return Seen(
            {name: queue for (queue_namespace, name), queue in queues if queue_namespace == namespace},
            {name: queue for (_, name), queue in self.cluster_queues.readings(read_cluster_queue).items()},
            {name: check for (_, name), check in self.checks.readings(read_check).items()},
            self.written(),
        )

    def written(self) -> Written:
        """What admins have written that a check may refer to."""
        lacking = resources.MULTIKUEUE_CONFIGS in self.unread
        return Written(_by_name(self.policies), list(self.worker_clusters), None if lacking else _by_name(self.configs))


def _lacks(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.status in (403, 404)


def _by_name(store: Store) -> dict[str, Raw]:
    return {key_of(raw)[1]: raw for raw in store}
