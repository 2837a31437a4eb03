"""Keeps the objects of relayed networks while their jobs run, and deletes the routes to heads that are gone.

What somebody deleted is written again: running workers need the names of their nodes, and a head that is started again
needs its Secret.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from adapter import names
from adapter.objects import raycluster
from adapter.objects.unstructured import Raw, key_of, label, mapping_field, meta, text_field, uid_of
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Workload
from adapter.relay import relay_objects
from adapter.relay.relay_network import RelayNetwork, identity_of
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.pagination import list_all
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.supervise import contain_errors, read_each
from adapter.shell.write.relay_writer import RelayWriter, origin_labels

FOLLOW_SECONDS = 5.0
KEEP_SECONDS = 60.0
# A worker's token is issued before its pod is seen, which takes seconds. A change of this time changes each head's
# Secret.
TOKEN_SECONDS = 300


class RelayUpkeep:
    def __init__(self, manager: ManagerCache, fleet: Fleet, policies: PolicyObserver, writer: RelayWriter) -> None:
        self._manager, self._fleet, self._policies, self._writer = manager, fleet, policies, writer

    async def run(self) -> None:
        """Follow heads that move, and keep and delete objects, periodically."""
        kept_at = 0.0
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            with contain_errors("relay", "heads"):
                await self.route_heads()
            if time.monotonic() >= kept_at + KEEP_SECONDS:
                kept_at = time.monotonic()
                with contain_errors("relay", "objects"):
                    await self.keep_objects()
                with contain_errors("relay", "routers"):
                    await self.delete_unused_routes()

    async def route_heads(self) -> None:
        """Lead routers to each head with a relayed network where it is now.

        A pod's label is its user's: it counts only for the head of the job that has this identity.
        """
        if self._manager.not_ready_reason or not self._is_in_use:
            return
        used = self._used_identities()
        for head in self._manager.heads:
            with contain_errors("relay", key_of(head)):
                ip = text_field(mapping_field(head, "status"), "podIP")
                if ip and not is_deleting(head) and self._is_head_of(head, used.get(label(head, names.RELAY_LABEL))):
                    await self._writer.route_head(RelayNetwork(label(head, names.RELAY_LABEL), key_of(head)[0]), ip)

    def _is_head_of(self, head: Raw, gang: Workload | None) -> bool:
        if gang is None or key_of(head)[0] != gang.namespace:
            return False
        ray_cluster = self._manager.ray_clusters.get((gang.namespace, label(head, names.RAY_GCS_CLUSTER_LABEL)))
        return raycluster.belongs_to_job(head, ray_cluster, gang.job) is True

    @property
    def _is_in_use(self) -> bool:
        """Whether a network was ever made in this manager."""
        return self._manager.secrets.get((names.SYSTEM_NAMESPACE, names.RELAY_KEY_SECRET)) is not None

    def _used_identities(self) -> dict[str, Workload]:
        """The gangs with quota by their identities."""
        workloads = read_each("relay", self._manager.workloads, self._manager.read_workload)
        used = (each for _, each in workloads if each.holds_quota and not each.finished)
        return {identity_of(each.gang_uid): each for each in used}

    async def keep_objects(self) -> None:
        """Write again what somebody deleted of the networks of started jobs, and revoke tokens of workers that left."""
        if self._manager.not_ready_reason or not self._is_in_use:
            return
        self._writer.forget_writes()
        used = self._used_identities()
        jobs = {
            RelayNetwork(key, gang.namespace): gang.job for key, gang in used.items() if self._is_started(gang, key)
        }
        present = self._present_nodes(jobs)
        since = int(self._manager.clock.now().timestamp() // TOKEN_SECONDS - 1) * TOKEN_SECONDS
        for network, job in jobs.items():
            with contain_errors("relay", (network.namespace, network.identity)):
                await self._writer.restore_head(network, job)
                await self._revoke_tokens(network, since, present[network])
            for cluster, nodes in present[network].items():
                if nodes:
                    with contain_errors("relay", (network.namespace, network.identity, cluster)):
                        await self._keep_names(cluster, network, nodes)

    def _is_started(self, gang: Workload, identity: str) -> bool:
        return self._policies.started_identity(gang, self._policies.check_of(gang)) == identity

    def _present_nodes(self, networks: Collection[RelayNetwork]) -> dict[RelayNetwork, dict[str, list[Raw]]]:
        """The remote pods of each network by cluster, without clusters of which nothing is known."""
        present: dict[RelayNetwork, dict[str, list[Raw]]] = {network: {} for network in networks}
        for name, cache in self._fleet.reachable().items():
            nodes = _nodes_by_network(cache, networks)
            for network in networks:
                if cache.namespace_shares.is_complete(network.namespace):
                    present[network][name] = nodes[network]
        return present

    async def _revoke_tokens(self, network: RelayNetwork, since: int, nodes: Mapping[str, Iterable[Raw]]) -> None:
        """Let the head refuse nodes that are not among the present ones, and whose token is older than `since`."""
        pods = {cluster: [key_of(pod)[1] for pod in own] for cluster, own in nodes.items()}
        await self._writer.set_nodes(network, relay_objects.present_nodes(network, since, pods))

    async def _keep_names(self, cluster: str, network: RelayNetwork, nodes: Sequence[Raw]) -> None:
        """Keep the Service by which the nodes in a cluster have names; the anchors of all remote pods own it."""
        owners = {owner["uid"]: owner for pod in nodes for owner in meta(pod)["ownerReferences"]}
        cache = self._fleet.connected_cache(cluster)
        await self._writer.name_nodes(cache, network, list(owners.values()), origin_labels(nodes[0]))

    async def delete_unused_routes(self) -> None:
        """Delete the routers' Services of gangs that hold no quota; nothing where no network was ever made."""
        manager = self._manager
        if manager.not_ready_reason or not self._is_in_use:
            return
        path = resources.SERVICES.path(names.SYSTEM_NAMESPACE)
        services, _ = await list_all(manager.client, path, labelSelector=names.RELAY_LABEL)
        used = self._used_identities()
        for service in services:
            # Nothing is known of the jobs of a namespace that is not read as a whole.
            if not manager.namespace_shares.is_complete(label(service, names.RELAY_NAMESPACE_LABEL)):
                continue
            if label(service, names.RELAY_LABEL) not in used:
                with contain_errors("relay", key_of(service)):
                    await manager.client.delete(resources.SERVICES.path(*key_of(service)), uid_of(service))


def _nodes_by_network(
    cache: WorkerClusterCache, networks: Container[RelayNetwork]
) -> defaultdict[RelayNetwork, list[Raw]]:
    """The remote pods of networks in a cluster; a pod's label is its user's, so others are no networks."""
    nodes: defaultdict[RelayNetwork, list[Raw]] = defaultdict(list)
    for pod in cache.pods:
        network = RelayNetwork(label(pod, names.RELAY_LABEL), key_of(pod)[0])
        if network in networks:
            nodes[network].append(pod)
    return nodes
