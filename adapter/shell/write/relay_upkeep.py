"""Keeps the objects of relayed networks while their jobs run, and deletes the routes to heads that are gone.

What somebody deleted is written again: running workers need the names of their nodes, and a head that is started again
needs its Secret.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress

from adapter import names
from adapter.objects import raycluster
from adapter.objects.unstructured import Key, Raw, key_of, label, mapping_field, meta, text_field, uid_of
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Workload
from adapter.relay import relay_objects
from adapter.relay.relay_network import MANAGER, RelayNetwork
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.pagination import list_all
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.relay_observer import RelayObserver, nodes_by_network
from adapter.shell.supervise import contain_errors, read_each
from adapter.shell.write.relay_writer import RelayWriter, origin_labels

log = logging.getLogger(__name__)

FOLLOW_SECONDS = 5.0
KEEP_SECONDS = 60.0
# A worker's token is issued some seconds before its pod is seen, so one of this age counts. Twice this age is the most
# that counts: `since` advances in steps of this length, as each step changes the Secrets of all heads.
TOKEN_SECONDS = 300
SECRETS_IN_ROUND = 300  # the most requests to all worker clusters for the Secrets of their workers in a round


class RelayUpkeep:
    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        policies: PolicyObserver,
        observer: RelayObserver,
        writer: RelayWriter,
    ) -> None:
        self._manager, self._fleet, self._policies = manager, fleet, policies
        self._observer, self._writer = observer, writer
        self._kept_secrets: dict[str, Key] = {}  # cluster -> the pod whose Secret was looked at last
        self._denied: frozenset[str] = frozenset()  # the namespaces with a denial at the last look
        self._troubles: dict[str, str] = {}  # what could not be written -> why; logged once a minute

    async def run(self) -> None:
        """Do each task periodically; none waits for another one."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_repeat(FOLLOW_SECONDS, self.keep_key))
            tasks.create_task(_repeat(FOLLOW_SECONDS, self.route_heads))
            tasks.create_task(_repeat(KEEP_SECONDS, self.keep_heads))
            tasks.create_task(_repeat(KEEP_SECONDS, self.keep_names))
            tasks.create_task(_repeat(KEEP_SECONDS, self.keep_worker_secrets))
            tasks.create_task(_repeat(KEEP_SECONDS, self.delete_unused_routes))
            tasks.create_task(_repeat(KEEP_SECONDS, self.try_denied_namespaces))

    async def keep_key(self) -> None:
        """Create the Secret of the key again if it is gone, as long as this process knows the key."""
        if not self._manager.not_ready_reason:
            with self._contain_trouble(f"Secret {names.SYSTEM_NAMESPACE}/{names.RELAY_KEY_SECRET}"):
                await self._writer.keep_key()

    async def route_heads(self) -> None:
        """Lead routers to each head with a relayed network where it is now.

        A pod's label is its user's: it counts only for the head of the job that has this identity.
        """
        if not self._observer.has_networks:
            return
        used = self._observer.used_identities()
        for head in self._manager.heads:
            with self._contain_trouble("head {}/{}".format(*key_of(head))):
                ip = text_field(mapping_field(head, "status"), "podIP")
                if ip and not is_deleting(head) and self._is_head_of(head, used.get(label(head, names.RELAY_LABEL))):
                    await self._writer.route_head(RelayNetwork(label(head, names.RELAY_LABEL), key_of(head)[0]), ip)

    def _is_head_of(self, head: Raw, gang: Workload | None) -> bool:
        if gang is None or key_of(head)[0] != gang.namespace:
            return False
        ray_cluster = self._manager.ray_clusters.get((gang.namespace, label(head, names.RAY_GCS_CLUSTER_LABEL)))
        return raycluster.belongs_to_job(head, ray_cluster, gang.job) is True

    async def keep_heads(self) -> None:
        """Create what is gone of the heads' objects, and tell each head which workers are present."""
        if not self._observer.has_networks:
            return
        started = self._observer.started_gangs()
        present = self._present_nodes(started)
        since = int(self._manager.clock.now().timestamp() // TOKEN_SECONDS - 1) * TOKEN_SECONDS
        for network, gang in started.items():
            if gang.job:
                nodes = relay_objects.present_nodes(network, since, present[network])
                with self._contain_trouble(f"Secret {network.namespace}/{network.secret}"):
                    await self._writer.keep_head(network, gang.job, nodes, self._observer.head_key(gang))
                with self._contain_trouble(f"Service {network.namespace}/{network.node_service(MANAGER)}"):
                    await self._writer.keep_head_name(network, gang.job)

    def _present_nodes(self, started: Mapping[RelayNetwork, Workload]) -> dict[RelayNetwork, dict[str, list[str]]]:
        """The remote pods of each network by the clusters of its policy, without clusters of which nothing is known.

        The hook refuses nodes that are not among them, unless their tokens are young (relay_objects.present_nodes).
        """
        nodes = {name: nodes_by_network(cache, started) for name, cache in self._fleet.reachable().items()}
        present: dict[RelayNetwork, dict[str, list[str]]] = {}
        for network, gang in started.items():
            policy, _ = self._policies.policy_of(self._policies.check_of(gang))
            used = {name for name, own in nodes.items() if network in own}
            readable = self._fleet.reachable(network.namespace).keys()
            present[network] = {
                name: [key_of(pod)[1] for pod in nodes[name].get(network, ())]
                for name in readable & {*(policy.clusters if policy else ()), *used}
            }
        return present

    async def keep_names(self) -> None:
        """Keep the Services by which the nodes in each cluster have names; a slow cluster holds up no other."""
        if not self._observer.has_networks:
            return
        self._writer.forget_names()
        started = self._observer.started_gangs()
        async with asyncio.TaskGroup() as tasks:
            for cache in self._fleet.reachable().values():
                tasks.create_task(self._keep_names_in(cache, started))

    async def _keep_names_in(self, cache: WorkerClusterCache, networks: Container[RelayNetwork]) -> None:
        """The anchors of all remote pods own the Service: it goes with the last one."""
        with contain_errors("relay", cache.name):
            for network, nodes in nodes_by_network(cache, networks).items():
                service = f"{network.namespace}/{network.node_service(cache.name)}"
                with self._contain_trouble(f"Service {service} in {cache.name}"):
                    owners = {owner["uid"]: owner for pod in nodes for owner in meta(pod).get("ownerReferences") or ()}
                    await self._writer.name_nodes(cache, network, list(owners.values()), origin_labels(nodes[0]))

    async def keep_worker_secrets(self) -> None:
        """Create the Secrets of workers that are gone: a container that starts again needs its token."""
        if not self._observer.has_networks:
            return
        keys = {network: self._observer.head_key(gang) for network, gang in self._observer.started_gangs().items()}
        recorded = {network: key for network, key in keys.items() if key}
        caches = self._fleet.reachable()
        async with asyncio.TaskGroup() as tasks:
            for cache in caches.values():
                tasks.create_task(self._keep_worker_secrets_in(cache, recorded, SECRETS_IN_ROUND // len(caches) or 1))

    async def _keep_worker_secrets_in(
        self, cache: WorkerClusterCache, keys: Mapping[RelayNetwork, str], limit: int
    ) -> None:
        """The controller may not read these Secrets, so it writes each one again, some in a round.

        A head whose key is not recorded may have another one than the present one, so its workers' Secrets stay.
        """
        with contain_errors("relay", cache.name), suppress(TimeoutError):
            running = self._observer.running_workers(cache, keys)
            last = self._kept_secrets.get(cache.name, ("", ""))
            async with asyncio.timeout(KEEP_SECONDS):  # a slow cluster delays no other
                for key in sorted(running, key=lambda key: (key <= last, key))[:limit]:
                    network, pod = running[key]
                    self._kept_secrets[cache.name] = key
                    with self._contain_trouble(f"Secret {key[0]}/{network.worker_secret(key[1])} in {cache.name}"):
                        if self._observer.runs_worker(cache.pods.get(key) or {}):  # it may have ended meanwhile
                            await self._writer.keep_worker_secret(cache, network, pod, keys[network])

    async def try_denied_namespaces(self) -> None:
        """Ask for a job of each namespace that denied a head's objects whether they are still denied.

        Otherwise its jobs would reserve shares for the next try. Once they are not, waiting gangs are planned again.
        """
        if self._manager.not_ready_reason:
            return
        namespaces = self._policies.denied_namespaces()
        gangs = self._unfinished_gangs() if namespaces else {}
        for namespace in namespaces:
            if namespace in gangs:
                with self._contain_trouble(f"a dry run in namespace {namespace}"):
                    await self._writer.try_head(gangs[namespace])
        denied = frozenset(self._policies.denied_namespaces())
        if self._denied - denied:
            self._fleet.capacity_versions.mark_all_changed()
        self._denied = denied

    def _unfinished_gangs(self) -> dict[str, Workload]:
        """One of each namespace."""
        workloads = read_each("relay", self._manager.workloads, self._manager.read_workload)
        return {gang.namespace: gang for _, gang in workloads if gang.gang_uid and gang.job and not gang.finished}

    @contextmanager
    def _contain_trouble(self, about: str) -> Iterator[None]:
        """Contain errors; what an API server answers, or that it does not, is no fault of ours."""
        with contain_errors("relay", about):
            try:
                yield
            except (ApiError, Unreachable) as trouble:
                if self._troubles.get(about) != str(trouble):
                    log.warning("relay: %s: %s", about, trouble)
                self._troubles[about] = str(trouble)

    async def delete_unused_routes(self) -> None:
        """Delete the routers' Services of gangs that hold no quota, and let all others be written again.

        The EndpointSlices cannot be listed, so a route that lacks its slice is not seen.
        """
        manager = self._manager
        if not self._observer.has_networks:
            return
        self._troubles.clear()  # so that each one that lasts is logged once a minute
        services = await self._list_routes()
        used = self._observer.used_identities()
        self._writer.forget_routes()
        for service in services:
            # Nothing is known of the jobs of a namespace that is not read as a whole.
            if not manager.namespace_shares.is_complete(label(service, names.RELAY_NAMESPACE_LABEL)):
                continue
            if label(service, names.RELAY_LABEL) not in used:
                with self._contain_trouble("Service {}/{}".format(*key_of(service))):
                    await manager.client.delete(resources.SERVICES.path(*key_of(service)), uid_of(service))
                    self._writer.forget_routes()  # one may have been written again meanwhile

    async def _list_routes(self) -> list[Raw]:
        path = resources.SERVICES.path(names.SYSTEM_NAMESPACE)
        services, _ = await list_all(self._manager.client, path, labelSelector=names.RELAY_LABEL)
        return services


async def _repeat(seconds: float, task: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        with contain_errors("relay", task.__name__):
            await task()
