"""What is known about one Service of the manager whose requests may go straight to workers elsewhere?

Reads the stores and builds the facts that worker/endpoint_objects.py decides from: none while the right to write is not given. A cluster that
cannot be seen contributes no copies, and what Ray's head says of its nodes, and their proxies of themselves. One that is not registered, or whose WorkerCluster cannot
be read, has no pods: a pod's slot may be forged, and what the cluster's addresses are is not known.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from adapter import names
from adapter.objects import specs
from adapter.objects.specs import Network
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
    """Reads facts about Services."""

    def __init__(
        self, manager: ManagerCache, fleet: Fleet, cluster_losses: ClusterLosses, proxy_health: ProxyHealth
    ) -> None:
        self._manager, self._fleet, self._cluster_losses, self._proxy_health = (
            manager,
            fleet,
            cluster_losses,
            proxy_health,
        )
        # Worker pods by RayCluster, as of so many changes of their store: thousands of Services may be looked at in a row.
        self._pods_by_ray_cluster: Mapping[str, Sequence[Raw]] = {}
        self._pods_version = -1
        # Which Services of a RayCluster are led, as of so many changes of theirs: all of them are looked at with each change of a worker.
        self._led_services: dict[str, tuple[Raw, Sequence[Key]]] = {}
        self._led_version = -1

    def facts(self, key: Key) -> ServiceFacts:
        """The facts about a Service."""
        if not self._manager.endpoints_readable:
            return ServiceFacts(None)
        service, standing = self._manager.services.get(key), tuple(self._manager.slices.by_index("/".join(key)))
        if service is None:
            return ServiceFacts(None, current_slices=standing)
        selector = (service.get("spec") or {}).get("selector") or {}
        name = key[0], str(selector.get(names.RAY_GCS_CLUSTER_LABEL) or "")
        ray_cluster = self._manager.ray_clusters.get(name)
        if ray_cluster is None or not service_endpoints.is_service_of(service, ray_cluster):
            return ServiceFacts(service, current_slices=standing)
        if self._exceeds_limit(key, ray_cluster):
            return ServiceFacts(service, current_slices=standing, exceeds_limit=True)
        seen = self._fleet.reachable()
        backends = read_each("services", self._workers_of("/".join(name)), lambda pod: self._read_backend(pod, seen))
        return ServiceFacts(service, ray_cluster, tuple(backend for _, backend in backends), standing)

    def _exceeds_limit(self, key: Key, ray_cluster: Raw) -> bool:
        """Whether enough older Services lead to the same RayCluster."""
        of, services = "/".join(key_of(ray_cluster)), self._manager.services
        if self._led_version != services.change_count:
            self._led_services, self._led_version = {}, services.change_count
        known = self._led_services.get(of)
        if known is None or known[0] is not ray_cluster:
            known = self._led_services[of] = (
                ray_cluster,
                service_endpoints.routed_services(services.by_index(of), ray_cluster),
            )
        return key not in known[1]

    def _workers_of(self, ray_cluster: str) -> Sequence[Raw]:
        pods = self._manager.pods
        if self._pods_version != pods.change_count:
            found = defaultdict[str, list[Raw]](list)
            for pod in pods:
                found[by_ray_cluster(pod)].append(pod)
            self._pods_by_ray_cluster, self._pods_version = found, pods.change_count
        return self._pods_by_ray_cluster.get(ray_cluster, ())

    def _read_backend(self, pod: Raw, reachable: Mapping[str, object]) -> Backend:
        cluster = slot_cluster(pod)
        networks = self._pod_networks(cluster)
        if networks is None:
            return Backend(pod, None, reachable=True, cluster=cluster)
        member = self._fleet.caches().get(cluster) if cluster in reachable else None
        copy = member.pods.get(key_of(pod)) if member else None
        dead = member is None and (self._cluster_losses.is_node_dead(pod) or self._proxy_health.is_unresponsive(pod))
        return Backend(pod, copy, member is not None, dead, cluster, networks)

    def _pod_networks(self, cluster: str) -> tuple[Network, ...] | None:
        """The addresses that pods there may have, seen or not: none is any, and None that it is not known."""
        raw = self._manager.worker_clusters.by_name(cluster)
        return self._manager.worker_clusters.read_cached(raw, _pod_cidrs) if raw else None


def _pod_cidrs(raw: Raw) -> tuple[Network, ...] | None:
    try:
        return specs.parse_worker_cluster(raw).pod_cidrs
    except specs.InvalidSpec:  # which its condition says
        return None
