"""Reads the facts about a manager's Service whose requests may go directly to workers in other clusters.

Without the right to write slices there are no facts. Of an unreachable cluster, only the state of its Ray nodes and
proxies counts. A cluster without a readable WorkerCluster counts as having no pods: a slot may be forged, and addresses
are unknown. worker/endpoint_objects.py decides on these facts.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from adapter import names
from adapter.objects import specs
from adapter.objects.specs import WorkerCluster
from adapter.objects.unstructured import Key, Raw, key_of
from adapter.objects.worker_pod import slot_cluster
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.supervise import read_each
from adapter.worker import service_endpoints
from adapter.worker.endpoint_objects import ServiceFacts
from adapter.worker.service_endpoints import Backend


class ServiceObserver:
    def __init__(
        self, manager: ManagerCache, fleet: Fleet, cluster_losses: ClusterLosses, proxy_health: ProxyHealth
    ) -> None:
        self._manager, self._fleet, self._cluster_losses, self._proxy_health = (
            manager,
            fleet,
            cluster_losses,
            proxy_health,
        )
        # Cached for one store version: thousands of Services may be reconciled in a row.
        self._pods_by_ray_cluster: Mapping[str, Sequence[Raw]] = {}
        self._pods_version = -1
        # Cached for one store version: each change of a worker reconciles all Services of its RayCluster.
        self._led_services: dict[str, tuple[Raw, Sequence[Key]]] = {}
        self._led_version = -1

    def facts(self, key: Key) -> ServiceFacts:
        if not self._manager.endpoints_readable:
            return ServiceFacts(None)
        service, slices = self._manager.services.get(key), tuple(self._manager.slices.by_index("/".join(key)))
        if service is None:
            return ServiceFacts(None, current_slices=slices)
        selector = (service.get("spec") or {}).get("selector") or {}
        name = key[0], str(selector.get(names.RAY_GCS_CLUSTER_LABEL) or "")
        ray_cluster = self._manager.ray_clusters.get(name)
        if ray_cluster is None or not service_endpoints.is_service_of(service, ray_cluster):
            return ServiceFacts(service, current_slices=slices)
        if self._exceeds_limit(key, ray_cluster):
            return ServiceFacts(service, current_slices=slices, exceeds_limit=True)
        reachable = self._fleet.reachable(key[0])
        backends = read_each(
            "services", self._workers_of("/".join(name)), lambda pod: self._read_backend(pod, reachable)
        )
        return ServiceFacts(service, ray_cluster, tuple(backend for _, backend in backends), slices)

    def _exceeds_limit(self, key: Key, ray_cluster: Raw) -> bool:
        cluster_key, services = "/".join(key_of(ray_cluster)), self._manager.services
        if self._led_version != services.change_count:
            self._led_services, self._led_version = {}, services.change_count
        entry = self._led_services.get(cluster_key)
        if entry is None or entry[0] is not ray_cluster:
            entry = self._led_services[cluster_key] = (
                ray_cluster,
                service_endpoints.routed_services(services.by_index(cluster_key), ray_cluster),
            )
        return key not in entry[1]

    def _workers_of(self, ray_cluster: str) -> Sequence[Raw]:
        pods = self._manager.pods
        if self._pods_version != pods.change_count:
            by_cluster = defaultdict[str, list[Raw]](list)
            for pod in pods:
                by_cluster[by_ray_cluster(pod)].append(pod)
            self._pods_by_ray_cluster, self._pods_version = by_cluster, pods.change_count
        return self._pods_by_ray_cluster.get(ray_cluster, ())

    def _read_backend(self, pod: Raw, reachable: Mapping[str, object]) -> Backend:
        cluster = slot_cluster(pod)
        spec = self._read_spec(cluster)
        if spec is None:
            return Backend(pod, None, reachable=True, cluster=cluster)
        member = self._fleet.caches().get(cluster) if cluster in reachable else None
        remote_pod = member.pods.get(key_of(pod)) if member else None
        is_dead = member is None and (self._cluster_losses.is_node_dead(pod) or self._proxy_health.is_unresponsive(pod))
        return Backend(pod, remote_pod, member is not None, is_dead, cluster, spec.pod_cidrs, spec.network.is_relayed)

    def _read_spec(self, cluster: str) -> WorkerCluster | None:
        """A cluster's spec; None if there is none or it is invalid."""
        raw = self._manager.worker_clusters.by_name(cluster)
        return self._manager.worker_clusters.read_cached(raw, _parse_spec) if raw else None


def _parse_spec(raw: Raw) -> WorkerCluster | None:
    try:
        return specs.parse_worker_cluster(raw)
    except specs.InvalidSpec:  # its condition reports that
        return None
