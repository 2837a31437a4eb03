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
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.observe.cluster_losses import Losses
from adapter.shell.observe.proxy_health import Proxies
from adapter.shell.supervise import each
from adapter.worker import service_endpoints
from adapter.worker.endpoint_objects import Serving
from adapter.worker.service_endpoints import Backend


class Services:
    """Reads facts about Services."""

    def __init__(self, manager: Manager, fleet: Fleet, losses: Losses, proxies: Proxies) -> None:
        self._manager, self._fleet, self._losses, self._proxies = manager, fleet, losses, proxies
        # Worker pods by RayCluster, as of so many changes of their store: thousands of Services may be looked at in a row.
        self._pods: Mapping[str, Sequence[Raw]] = {}
        self._as_of = -1
        # Which Services of a RayCluster are led, as of so many changes of theirs: all of them are looked at with each change of a worker.
        self._led: dict[str, tuple[Raw, Sequence[Key]]] = {}
        self._led_as_of = -1

    def facts(self, key: Key) -> Serving:
        """The facts about a Service."""
        if not self._manager.serves:
            return Serving(None)
        service, standing = self._manager.services.get(key), tuple(self._manager.slices.group("/".join(key)))
        if service is None:
            return Serving(None, standing=standing)
        selector = (service.get("spec") or {}).get("selector") or {}
        name = key[0], str(selector.get(names.RAY_GCS_CLUSTER_LABEL) or "")
        ray_cluster = self._manager.ray_clusters.get(name)
        if ray_cluster is None or not service_endpoints.is_of(service, ray_cluster):
            return Serving(service, standing=standing)
        if self._beyond(key, ray_cluster):
            return Serving(service, standing=standing, beyond=True)
        seen = self._fleet.seen()
        backends = each("services", self._of("/".join(name)), lambda pod: self._backend(pod, seen))
        return Serving(service, ray_cluster, tuple(backend for _, backend in backends), standing)

    def _beyond(self, key: Key, ray_cluster: Raw) -> bool:
        """Whether enough older Services lead to the same RayCluster."""
        of, services = "/".join(key_of(ray_cluster)), self._manager.services
        if self._led_as_of != services.changes:
            self._led, self._led_as_of = {}, services.changes
        known = self._led.get(of)
        if known is None or known[0] is not ray_cluster:
            known = self._led[of] = ray_cluster, service_endpoints.led(services.group(of), ray_cluster)
        return key not in known[1]

    def _of(self, ray_cluster: str) -> Sequence[Raw]:
        pods = self._manager.pods
        if self._as_of != pods.changes:
            found = defaultdict[str, list[Raw]](list)
            for pod in pods:
                found[by_ray_cluster(pod)].append(pod)
            self._pods, self._as_of = found, pods.changes
        return self._pods.get(ray_cluster, ())

    def _backend(self, pod: Raw, seen: Mapping[str, object]) -> Backend:
        cluster = slot_cluster(pod)
        networks = self._networks(cluster)
        if networks is None:
            return Backend(pod, None, seen=True, cluster=cluster)
        member = self._fleet.members().get(cluster) if cluster in seen else None
        copy = member.pods.get(key_of(pod)) if member else None
        dead = member is None and (self._losses.dead(pod) or self._proxies.silent(pod))
        return Backend(pod, copy, member is not None, dead, cluster, networks)

    def _networks(self, cluster: str) -> tuple[Network, ...] | None:
        """The addresses that pods there may have, seen or not: none is any, and None that it is not known."""
        raw = self._manager.worker_clusters.named(cluster)
        return self._manager.worker_clusters.reading(raw, _pod_cidrs) if raw else None


def _pod_cidrs(raw: Raw) -> tuple[Network, ...] | None:
    try:
        return specs.worker_cluster(raw).pod_cidrs
    except specs.Invalid:  # which its condition says
        return None
