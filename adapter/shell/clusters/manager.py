"""What does the manager cluster look like: one store for each kind we read there.

Until every store is synced, and whenever the cluster gives no sign of life, nothing may be decided: an empty or an old
cache means "do nothing", never "nothing is wanted".
"""

import asyncio
import functools
import hashlib
import logging
from collections.abc import Callable

from adapter import names
from adapter.objects.raw import Key, Raw
from adapter.objects.workerpod import slot_of
from adapter.objects.workload import Job
from adapter.shell.clusters.indexes import by_placement, by_ray_cluster, by_workload
from adapter.shell.kube import reflector, resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.reflector import Following
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store

log = logging.getLogger(__name__)

# One read each time. An end instead would be answered by the kubelet with breaks of up to five minutes.
_ASK_AGAIN_SECONDS = 2.0

Heard = Callable[[str, Raw | None, Raw | None], None]  # which store, before, after


class Home:
    """The manager cluster."""

    def __init__(self, client: Client, heard: Heard) -> None:
        self.client = client
        self.heard = heard
        self.unread: dict[Resource, str] = {}  # kinds that we can do without: why they cannot be read
        self._silent: dict[str | Store, Exception] = {}  # what cannot be seen now, and why
        self.filled = asyncio.Event()  # every store has had its first list

        def store(name: str, *index: Callable[[Raw], str]) -> Store:
            return Store(lambda before, after: heard(name, before, after), *index)

        self.workloads = store("workloads")
        self.placements = store("placements", by_workload)
        self.pods = store("pods", by_placement, slot_of)
        self.heads = store("heads", by_ray_cluster)
        self.ray_clusters = store("ray_clusters")
        self.ray_jobs = store("ray_jobs")
        self.worker_clusters = store("worker_clusters")
        self.policies = store("policies")
        self.checks = store("checks")
        self.cluster_queues = store("cluster_queues")
        self.local_queues = store("local_queues")
        self.flavors = store("flavors")
        self.secrets = store("secrets")
        self.gate_policies = store("gate_policies")
        self.gate_bindings = store("gate_bindings")
        self.multikueue_clusters = store("multikueue_clusters")
        self.multikueue_configs = store("multikueue_configs")

    def _followed(self) -> list[tuple[Resource, Store, str, dict[str, str]]]:
        ours = {"fieldSelector": f"metadata.name={names.GATE_POLICY}"}
        return [
            (resources.WORKLOADS, self.workloads, "", {}),
            (resources.PLACEMENTS, self.placements, "", {}),
            (resources.PODS, self.pods, "", {"labelSelector": names.PLACEMENT_LABEL}),
            (resources.PODS, self.heads, "", {"labelSelector": f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"}),
            (resources.RAY_CLUSTERS, self.ray_clusters, "", {}),
            (resources.RAY_JOBS, self.ray_jobs, "", {}),
            (resources.WORKER_CLUSTERS, self.worker_clusters, "", {}),
            (resources.DISPATCH_POLICIES, self.policies, "", {}),
            (resources.ADMISSION_CHECKS, self.checks, "", {}),
            (resources.CLUSTER_QUEUES, self.cluster_queues, "", {}),
            (resources.LOCAL_QUEUES, self.local_queues, "", {}),
            (resources.FLAVORS, self.flavors, "", {}),
            (resources.SECRETS, self.secrets, names.SYSTEM_NAMESPACE, {}),
            (resources.GATE_POLICIES, self.gate_policies, "", ours),
            (resources.GATE_BINDINGS, self.gate_bindings, "", ours),
        ]

    def _optional(self) -> list[tuple[Resource, Store, str]]:
        """What a manager cluster may lack, or not let us read: told only to those who use it."""
        return [
            (resources.MULTIKUEUE_CLUSTERS, self.multikueue_clusters, "multikueue_clusters"),
            (resources.MULTIKUEUE_CONFIGS, self.multikueue_configs, "multikueue_configs"),
        ]

    @property
    def synced(self) -> bool:
        known = all(store.synced or resource in self.unread for resource, store, _ in self._optional())
        return known and all(store.synced for _, store, _, _ in self._followed())

    async def identity(self) -> str:
        """Tell this manager cluster from every other one: short, stable, and not to be configured wrongly.

        Asked until it is answered: a controller that is started while its manager is cut off waits for it.
        """
        told = ""
        while True:
            try:
                found = await self.client.get(resources.NAMESPACES.path(name="kube-system"))
            except (ApiError, Unreachable) as trouble:
                if str(trouble) != told:
                    told = str(trouble)
                    log.warning("manager cluster: %s; asked every %.0f s", told, _ASK_AGAIN_SECONDS)
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
            else:
                return hashlib.sha256(found["metadata"]["uid"].encode()).hexdigest()[:10]

    async def run(self) -> None:
        """Follow everything until cancelled."""
        followed = []
        for resource, store, namespace, selectors in self._followed():
            trouble = functools.partial(self._trouble, resource, store)
            followed.append(Following(self.client, resource, store, trouble, namespace, selectors))
        for resource, store, name in self._optional():
            missed = functools.partial(self._missed, resource, store, name)
            followed.append(Following(self.client, resource, store, missed))
        await reflector.keep(self.client, functools.partial(self._note, "probe"), followed)

    def _missed(self, resource: Resource, store: Store, name: str, error: Exception | None) -> None:
        """Note whether an optional kind can be read; what was read once counts on, whatever is refused later."""
        before = self.unread.get(resource)
        if isinstance(error, ApiError) and error.status in (403, 404) and not store.synced:
            self.unread[resource] = str(error)
        elif error is None:
            self.unread.pop(resource, None)
        if before != self.unread.get(resource):
            log.info("manager cluster: %s %s", resource.plural, self.unread.get(resource) or "are read")
            self.heard(name, None, None)
        if self.synced:
            self.filled.set()

    @property
    def unready(self) -> str:
        """Why a process that reads this could decide nothing now, empty when it could."""
        return self.lost or ("" if self.synced else "the manager cluster is not read yet")

    @property
    def lost(self) -> str:
        """Why the manager cluster cannot be seen now, empty when it can: what a cut link hides must not be taken for true."""
        error = next(iter(self._silent.values()), None)
        return f"the manager cluster cannot be seen: {error}" if error else ""

    def _note(self, source: str | Store, error: Exception | None) -> None:
        if error:
            self._silent[source] = error
        else:
            self._silent.pop(source, None)

    def _trouble(self, resource: Resource, store: Store, error: Exception | None) -> None:
        """A kind that is refused is one that this cluster does not have; one that is silent stops everything."""
        self._note(store, error if isinstance(error, Unreachable) else None)
        if error:
            log.warning("manager cluster: following %s: %s", resource.plural, error)
        elif self.synced:
            self.filled.set()

    def cluster_queue(self, key: Key) -> Raw:
        """The manager's ClusterQueue behind a LocalQueue, empty when there is none."""
        queue = self.local_queues.get(key) or {}
        return self.cluster_queues.named((queue.get("spec") or {}).get("clusterQueue") or "") or {}

    def job(self, job: Job) -> Raw:
        """The RayJob or RayCluster as it stands, empty while nothing is known of it."""
        store = self.ray_jobs if job.kind == "RayJob" else self.ray_clusters
        return store.get((job.namespace, job.name)) or {}
