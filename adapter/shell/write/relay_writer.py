"""Writes the objects of relayed networks: beside heads, for the routers, and beside workers.

What is written depends on one key and on what is observed, so each write can be repeated. A process remembers what it
wrote, and another one writes it once more.
"""

import asyncio
import base64
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from adapter import names
from adapter.objects import raycluster
from adapter.objects.unstructured import Raw, key_of, label, mapping_field, meta, text_field, uid_of
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Job, Workload
from adapter.relay import relay_objects
from adapter.relay.relay_keys import KEY_BYTES, RelayKeys
from adapter.relay.relay_network import MANAGER, RelayNetwork, identity_of
from adapter.relay.relayed_worker import RelayedWorker
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.pagination import list_all
from adapter.shell.kube.resources import Resource
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.supervise import contain_errors, read_each
from adapter.shell.write.create_object import create_or_get

FOLLOW_SECONDS = 5.0
SWEEP_SECONDS = 60.0
_KEY = "key"
_DENIALS = (400, 403, 404, 413, 422)


class RelayWriter:
    def __init__(self, manager: ManagerCache, policies: PolicyObserver) -> None:
        self._manager, self._policies = manager, policies
        self._key = b""
        self._routed: dict[str, str] = {}  # identity -> the head's IP that routers have
        self._named: set[tuple[str, str, str, str]] = set()  # cluster, namespace, Service, uid of an owner
        self._route_lock = asyncio.Lock()
        self._cluster_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def run(self) -> None:
        """Follow heads that move, and delete the ways to those that are gone, periodically."""
        swept_at = 0.0
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            with contain_errors("relay", "heads"):
                await self.route_heads()
            if time.monotonic() >= swept_at + SWEEP_SECONDS:
                swept_at = time.monotonic()
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
                    await self._route_head(RelayNetwork(label(head, names.RELAY_LABEL), key_of(head)[0]), ip)

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
            if (identity := label(service, names.RELAY_LABEL)) not in used:
                with contain_errors("relay", key_of(service)):
                    await manager.client.delete(resources.SERVICES.path(*key_of(service)), uid_of(service))
                    self._routed.pop(identity, None)

    async def prepare_head(self, workload: Workload, check: str, identity: str) -> str:
        """Write what a head needs before it starts; returns why the manager cluster denies it, or an empty text."""
        if self._policies.started_identity(workload, check) == identity:  # another slice of a running elastic job
            return ""
        try:
            await self._write_head_objects(RelayNetwork(identity, workload.namespace), workload.job)
        except ApiError as denial:
            if denial.status not in _DENIALS:
                raise
            self._policies.note_relay_denied(workload.namespace, denial.message or denial.reason)
            return self._policies.denied_relay_reason(workload.namespace)
        return ""

    async def _write_head_objects(self, network: RelayNetwork, job: Job | None) -> None:
        keys = await self._keys_of(network)
        owner = _job_owner(job) if job else []
        secret = relay_objects.head_secret(network, keys.secrets, keys.server, keys.client(MANAGER))
        labels = {names.RELAY_LABEL: network.identity, names.RAY_NODE_TYPE_LABEL: names.HEAD}
        service = relay_objects.head_service(network, labels)
        for resource, body in ((resources.SECRETS, secret), (resources.SERVICES, service)):
            await self._apply(resource, _owned(body, owner))

    async def prepare_manager(self, worker: RelayedWorker) -> None:
        """Write what a worker needs in the manager cluster: the way of the routers to its head, and the key."""
        await self._route_head(worker.network, worker.head_ip)
        await self._keys_of(worker.network)

    async def prepare_worker(self, cache: WorkerClusterCache, worker: RelayedWorker, pod: Raw) -> None:
        """Write what a remote pod needs in its cluster: its name, and its Secret, which its share owns for now."""
        network, owner, labels = worker.network, meta(pod)["ownerReferences"], _origin_labels(pod)
        service = relay_objects.node_service(network, worker.cluster, {names.RELAY_LABEL: network.identity})
        await self._name_nodes(cache, _owned(service, owner, labels))
        secret = _owned(await self._worker_secret(worker, pod), owner, labels)
        await _create_or_replace(cache.client, resources.SECRETS, secret)

    async def hand_over_secret(self, cache: WorkerClusterCache, worker: RelayedWorker, pod: Raw) -> None:
        """Let a created remote pod own its Secret, so that its token goes with it."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": key_of(pod)[1], "uid": uid_of(pod)}
        secret = _owned(await self._worker_secret(worker, pod), [owner], _origin_labels(pod))
        await cache.client.replace(resources.SECRETS.path(*key_of(secret)), secret)

    async def _worker_secret(self, worker: RelayedWorker, pod: Raw) -> Raw:
        keys = await self._keys_of(worker.network)
        client, name = keys.client(worker.cluster), key_of(pod)[1]
        return relay_objects.worker_secret(worker.network, keys.secrets, client, worker.address, worker.cluster, name)

    async def _route_head(self, network: RelayNetwork, head_ip: str) -> None:
        identity = network.identity
        async with self._route_lock:
            if self._routed.get(identity) != head_ip:
                await self._write_route(network, head_ip)
            self._routed[identity] = head_ip

    async def _write_route(self, network: RelayNetwork, head_ip: str) -> None:
        service, endpoints = relay_objects.router_objects(network, names.SYSTEM_NAMESPACE, head_ip)
        labels = {names.RELAY_LABEL: network.identity, names.RELAY_NAMESPACE_LABEL: network.namespace}
        made = await self._apply(resources.SERVICES, _owned(service, [], labels))
        owner = {"apiVersion": "v1", "kind": "Service", "name": key_of(service)[1], "uid": uid_of(made)}
        await self._apply(resources.ENDPOINT_SLICES, _owned(endpoints, [owner], labels))

    async def _name_nodes(self, cache: WorkerClusterCache, service: Raw) -> None:
        """Create the Service of a cluster's nodes, or add an anchor to its owners: the last one to go deletes it."""
        (namespace, name), (owner,) = key_of(service), meta(service)["ownerReferences"]
        known = cache.name, namespace, name, owner["uid"]
        if known in self._named:
            return
        async with self._cluster_locks[cache.name]:  # the other workers of a job need the same Service
            cache.require_reachable()
            if known in self._named:
                return
            path = resources.SERVICES.path(namespace, name)
            existing = await create_or_get(cache.client, resources.SERVICES, service)
            owners = meta(existing).get("ownerReferences") or []
            if all(own["uid"] != owner["uid"] for own in owners):
                version = meta(existing)["resourceVersion"]
                metadata = {"resourceVersion": version, "ownerReferences": [*owners, owner]}
                await cache.client.merge_patch(path, {"metadata": metadata})
            self._named.add(known)

    async def _apply(self, resource: Resource, body: Raw) -> Raw:
        namespace, name = key_of(body)
        return await self._manager.client.apply(resource.path(namespace, name), body, names.FIELD_MANAGER)

    async def _keys_of(self, network: RelayNetwork) -> RelayKeys:
        if not self._key:
            self._key = await self._read_key()
        return RelayKeys(self._key, network, self._manager.clock.now())

    async def _read_key(self) -> bytes:
        """The controller's key; the first one to need it makes it."""
        stored = self._manager.secrets.get((names.SYSTEM_NAMESPACE, names.RELAY_KEY_SECRET))
        if stored is None:
            text = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
            metadata = {"name": names.RELAY_KEY_SECRET, "namespace": names.SYSTEM_NAMESPACE}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {_KEY: text}}
            stored = await self._manager.client.create(resources.SECRETS.path(names.SYSTEM_NAMESPACE), body)
        key = base64.b64decode((stored.get("data") or {}).get(_KEY) or "")
        if len(key) != KEY_BYTES:
            raise Unreachable(
                f"Secret {names.SYSTEM_NAMESPACE}/{names.RELAY_KEY_SECRET} has no {KEY_BYTES} bytes in data.{_KEY}: "
                "delete it, and start the jobs again that use the relay"
            )
        return key


def _job_owner(job: Job) -> list[Raw]:
    return [{"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}]


def _owned(body: Raw, owners: list[Raw], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    own = {**(meta(body).get("labels") or {}), **(labels or {})}
    return {**body, "metadata": {**meta(body), "labels": own, "ownerReferences": owners}}


def _origin_labels(pod: Raw) -> dict[str, str]:
    own = meta(pod).get("labels") or {}
    keys = (names.MANAGER_LABEL, names.CLUSTER_LABEL, names.WORKLOAD_UID_LABEL)
    return {key: own[key] for key in keys if key in own}


async def _create_or_replace(client: Client, resource: Resource, body: Raw) -> None:
    """Create an object, or replace the one of this name; Secrets there are written and never read."""
    try:
        await client.create(resource.path(key_of(body)[0]), body)
    except ApiError as error:
        if not error.already_exists:
            raise
        await client.replace(resource.path(*key_of(body)), body)
