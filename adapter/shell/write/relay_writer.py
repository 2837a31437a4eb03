"""Writes the objects of relayed networks: beside heads, for the routers, and beside workers.

What is written depends on one key and on what is observed, so each write can be repeated. A process remembers what it
wrote, and another one writes it once more.
"""

import asyncio
import base64
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw, key_of, meta, uid_of
from adapter.objects.workload import Job, Workload
from adapter.relay import relay_objects
from adapter.relay.relay_keys import KEY_BYTES, RelayKeys
from adapter.relay.relay_network import MANAGER, RelayNetwork, identity_of
from adapter.relay.relayed_worker import RelayedWorker
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import Resource
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.write.create_object import get_or_create

_KEY = "key"
_DENIALS = (400, 403, 404, 413, 422)


class HeadDenied(Unreachable):
    """The manager cluster denies what a head needs; its text is a fragment, with the reason and what to do."""


class RelayWriter:
    """Writes one object at a time; shell/write/relay_upkeep.py decides which ones are looked at again."""

    def __init__(self, manager: ManagerCache, policies: PolicyObserver) -> None:
        self._manager, self._policies = manager, policies
        self._key = b""
        self._routed: dict[str, str] = {}  # identity -> the head's IP that routers have
        self._named: set[tuple[str, RelayNetwork, str]] = set()  # cluster, network, uid of the Service's owner
        self._route_lock = asyncio.Lock()
        self._cluster_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def prepare_head(self, workload: Workload, check: str, identity: str) -> None:
        """Write what a head needs before it starts. Raises HeadDenied where the manager cluster denies that."""
        if self._policies.started_identity(workload, check) == identity:  # another slice of a running elastic job
            return
        await self._apply_head_objects(RelayNetwork(identity, workload.namespace), workload.job)

    async def try_head(self, workload: Workload) -> None:
        """Ask by a dry run whether the manager cluster still denies what a head needs, and note the answer."""
        # An identity that no job has: a quota does not count an apply of what exists.
        network = RelayNetwork(identity_of(f"{workload.gang_uid} dry run"), workload.namespace)
        with suppress(HeadDenied):
            await self._apply_head_objects(network, workload.job, is_dry_run=True)
            self._policies.forget_relay_denial(workload.namespace)

    async def _apply_head_objects(self, network: RelayNetwork, job: Job | None, *, is_dry_run: bool = False) -> None:
        """Note a denial, and raise it as HeadDenied."""
        try:
            await self._apply(resources.SECRETS, await self._head_secret(network, job), is_dry_run=is_dry_run)
            await self._apply(resources.SERVICES, _head_service(network, job), is_dry_run=is_dry_run)
        except ApiError as error:
            if error.status not in _DENIALS:
                raise
            self._policies.note_relay_denied(network.namespace, error.message or error.reason)
            raise HeadDenied(self._policies.denied_relay_reason(network.namespace)) from error

    async def keep_head(self, network: RelayNetwork, job: Job, nodes: str) -> None:
        """Tell the head of a running job which nodes are present (present_nodes), and create its Secret if it is gone.

        Other files stay as the head was started with: its server reads them once. An object that is there is patched
        and not created, as a ResourceQuota would count it once more.
        """
        path = resources.SECRETS.path(network.namespace, network.secret)
        data = {relay_objects.NODES_KEY: base64.b64encode(nodes.encode()).decode()}
        if not await self._patch_existing(path, {"data": data}):
            secret = await self._head_secret(network, job)
            secret["stringData"][relay_objects.NODES_KEY] = nodes
            await self._manager.client.create(resources.SECRETS.path(network.namespace), secret)

    async def keep_head_name(self, network: RelayNetwork, job: Job) -> None:
        """Create the Service of a running job's head if it is gone."""
        path = resources.SERVICES.path(network.namespace, network.node_service(MANAGER))
        if not await self._patch_existing(path, {"metadata": {"ownerReferences": _job_owner(job)}}):
            service = _head_service(network, job)
            await self._manager.client.create(resources.SERVICES.path(network.namespace), service)

    async def _patch_existing(self, path: str, patch: Raw) -> bool:
        """Patch an object of the manager cluster; False if it does not exist."""
        try:
            await self._manager.client.merge_patch(path, patch)
        except ApiError as error:
            if not error.not_found:
                raise
            return False
        return True

    async def _head_secret(self, network: RelayNetwork, job: Job | None) -> dict[str, Any]:
        keys = await self._keys_of(network)
        secret = relay_objects.head_secret(network, keys.secrets, keys.server, keys.client(MANAGER))
        return _owned(secret, _job_owner(job))

    async def prepare_manager(self, worker: RelayedWorker) -> None:
        """Write what a worker needs in the manager cluster: the way of the routers to its head, and the key."""
        await self.route_head(worker.network, worker.head_ip)
        await self._keys_of(worker.network)

    async def prepare_worker(self, cache: WorkerClusterCache, worker: RelayedWorker, pod: Raw) -> None:
        """Write what a remote pod needs in its cluster: its name, and its Secret, which its share owns for now."""
        network, owner, labels = worker.network, meta(pod)["ownerReferences"], origin_labels(pod)
        await self.name_nodes(cache, network, owner, labels)
        secret = _owned(await self._worker_secret(worker, pod), owner, labels)
        await _create_or_replace(cache.client, resources.SECRETS, secret)

    async def hand_over_secret(self, cache: WorkerClusterCache, worker: RelayedWorker, pod: Raw) -> None:
        """Let a created remote pod own its Secret, so that its token goes with it."""
        owner = {"apiVersion": "v1", "kind": "Pod", "name": key_of(pod)[1], "uid": uid_of(pod)}
        secret = _owned(await self._worker_secret(worker, pod), [owner], origin_labels(pod))
        await cache.client.replace(resources.SECRETS.path(*key_of(secret)), secret)

    async def _worker_secret(self, worker: RelayedWorker, pod: Raw) -> Raw:
        network, cluster, name = worker.network, worker.cluster, key_of(pod)[1]
        keys, now = await self._keys_of(network), int(self._manager.clock.now().timestamp())
        return relay_objects.worker_secret(
            network, keys.secrets, keys.client(cluster), worker.address, cluster, name, now
        )

    async def route_head(self, network: RelayNetwork, head_ip: str) -> None:
        """Lead routers to the head with this network."""
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

    async def name_nodes(
        self, cache: WorkerClusterCache, network: RelayNetwork, owners: Sequence[Raw], labels: Mapping[str, str]
    ) -> None:
        """Create the Service of a cluster's nodes, or add anchors to its owners: the last one to go deletes it."""
        wanted = {(cache.name, network, owner["uid"]) for owner in owners}
        if wanted <= self._named:
            return
        service = relay_objects.node_service(network, cache.name, {names.RELAY_LABEL: network.identity})
        async with self._cluster_locks[cache.name]:  # the other workers of a job need the same Service
            cache.require_reachable()
            if not wanted <= self._named:
                await _create_or_add_owners(cache.client, _owned(service, owners, labels))
            self._named |= wanted

    def forget_routes(self, existing: Iterable[str]) -> None:
        """Forget the routes to heads whose identities are not among the existing ones."""
        for identity in self._routed.keys() - set(existing):
            del self._routed[identity]

    def forget_names(self) -> None:
        """Forget which Services of nodes were written, so that they are looked at again."""
        self._named.clear()

    async def _apply(self, resource: Resource, body: Raw, *, is_dry_run: bool = False) -> Raw:
        path = resource.path(*key_of(body))
        return await self._manager.client.apply(path, body, names.FIELD_MANAGER, is_dry_run=is_dry_run)

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


def _job_owner(job: Job | None) -> list[Raw]:
    return [{"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}] if job else []


def _head_service(network: RelayNetwork, job: Job | None) -> Raw:
    selector = {names.RELAY_LABEL: network.identity, names.RAY_NODE_TYPE_LABEL: names.HEAD}
    return _owned(relay_objects.head_service(network, selector), _job_owner(job))


def _owned(body: Raw, owners: Sequence[Raw], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    own = {**(meta(body).get("labels") or {}), **(labels or {})}
    return {**body, "metadata": {**meta(body), "labels": own, "ownerReferences": list(owners)}}


def origin_labels(pod: Raw) -> dict[str, str]:
    """The labels by which a remote pod's objects are ours."""
    own = meta(pod).get("labels") or {}
    keys = (names.MANAGER_LABEL, names.CLUSTER_LABEL, names.WORKLOAD_UID_LABEL)
    return {key: own[key] for key in keys if key in own}


async def _create_or_add_owners(client: Client, service: Raw) -> None:
    existing = await get_or_create(client, resources.SERVICES, service)
    owners = meta(existing).get("ownerReferences") or []
    known = {owner["uid"] for owner in owners}
    if added := [owner for owner in meta(service)["ownerReferences"] if owner["uid"] not in known]:
        version = meta(existing)["resourceVersion"]
        metadata = {"resourceVersion": version, "ownerReferences": [*owners, *added]}
        await client.merge_patch(resources.SERVICES.path(*key_of(service)), {"metadata": metadata})


async def _create_or_replace(client: Client, resource: Resource, body: Raw) -> None:
    """Create an object, or replace the one of this name; Secrets there are written and never read."""
    try:
        await client.create(resource.path(key_of(body)[0]), body)
    except ApiError as error:
        if not error.already_exists:
            raise
        await client.replace(resource.path(*key_of(body)), body)
