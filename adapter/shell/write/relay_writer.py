"""Writes the objects of relayed networks: beside heads, for the routers, and beside workers.

What is written depends on one key and on what is observed, so each write can be repeated. A process remembers what it
wrote, and another one writes it once more.
"""

import asyncio
import base64
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw, key_of, meta, uid_of
from adapter.objects.workload import Job, Workload
from adapter.relay import relay_objects
from adapter.relay.relay_keys import KEY_BYTES, RelayKeys
from adapter.relay.relay_network import MANAGER, RelayNetwork
from adapter.relay.relayed_worker import RelayedWorker
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import Resource
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.write.create_object import create_or_get

TRIED_SECONDS = 300.0
_KEY = "key"
_DENIALS = (400, 403, 404, 413, 422)


class HeadDenied(Unreachable):
    """The manager cluster denies what a head needs; a fragment says why, and what to do."""


class RelayWriter:
    """Writes what actions ask for; shell/write/relay_upkeep.py keeps it."""

    def __init__(self, manager: ManagerCache, policies: PolicyObserver) -> None:
        self._manager, self._policies = manager, policies
        self._key = b""
        self._routed: dict[str, str] = {}  # identity -> the head's IP that routers have
        self._named: set[tuple[str, RelayNetwork, str]] = set()  # cluster, network, uid of the Service's owner
        self._tried_until: dict[str, float] = {}  # namespace -> monotonic time until which it is not asked again
        self._route_lock = asyncio.Lock()
        self._cluster_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def try_head(self, workload: Workload) -> None:
        """Ask the manager cluster whether it takes what a head needs, before anything is reserved for the job.

        A namespace is asked once in TRIED_SECONDS, as it gives the same answer for each of its jobs. Raises ApiError;
        after a denial, relayed clusters are left out of the namespace's plans for a while.
        """
        check, namespace, now = self._policies.check_of(workload), workload.namespace, time.monotonic()
        if now < self._tried_until.get(namespace, 0.0) or self._policies.started_identity(workload, check) is not None:
            return
        if identity := self._policies.relay_identity(workload, check):
            with self._noted_denial(namespace):
                await self._create_head_objects(RelayNetwork(identity, namespace), workload.job, is_dry_run=True)
            recent = {key: until for key, until in self._tried_until.items() if now < until}
            self._tried_until = {**recent, namespace: now + TRIED_SECONDS}

    async def prepare_head(self, workload: Workload, check: str, identity: str) -> None:
        """Write what a head needs before it starts. Raises HeadDenied where the manager cluster denies that."""
        if self._policies.started_identity(workload, check) == identity:  # another slice of a running elastic job
            return
        try:
            with self._noted_denial(workload.namespace):
                for resource, body in await self._head_objects(
                    RelayNetwork(identity, workload.namespace), workload.job
                ):
                    await self._apply(resource, body)
        except ApiError as error:
            if error.status not in _DENIALS:
                raise
            raise HeadDenied(self._policies.denied_relay_reason(workload.namespace)) from error

    @contextmanager
    def _noted_denial(self, namespace: str) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            if error.status in _DENIALS:
                self._policies.note_relay_denied(namespace, error.message or error.reason)
                self._tried_until.pop(namespace, None)
            raise

    async def restore_head(self, network: RelayNetwork, job: Job | None) -> None:
        """Create what the head of a running job needs, where somebody deleted it.

        What is there stays as the head was started with: its server reads its files once.
        """
        await self._create_head_objects(network, job)

    async def set_nodes(self, network: RelayNetwork, nodes: str) -> None:
        """Tell the head of a running job which nodes are present; tokens of others are revoked (present_nodes)."""
        body = {"data": {relay_objects.NODES_KEY: base64.b64encode(nodes.encode()).decode()}}
        await self._manager.client.merge_patch(resources.SECRETS.path(network.namespace, network.secret), body)

    async def _create_head_objects(self, network: RelayNetwork, job: Job | None, *, is_dry_run: bool = False) -> None:
        client = self._manager.client
        create = client.dry_run_create if is_dry_run else client.create
        for resource, body in await self._head_objects(network, job):
            try:
                await create(resource.path(network.namespace), body)
            except ApiError as error:
                if not error.already_exists:
                    raise

    async def _head_objects(self, network: RelayNetwork, job: Job | None) -> list[tuple[Resource, Raw]]:
        keys = await self._keys_of(network)
        owner = _job_owner(job) if job else []
        secret = relay_objects.head_secret(network, keys.secrets, keys.server, keys.client(MANAGER))
        labels = {names.RELAY_LABEL: network.identity, names.RAY_NODE_TYPE_LABEL: names.HEAD}
        service = relay_objects.head_service(network, labels)
        return [(resources.SECRETS, _owned(secret, owner)), (resources.SERVICES, _owned(service, owner))]

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

    def forget_writes(self) -> None:
        """Forget what was written, so that the next one to need it writes again what somebody deleted."""
        self._routed.clear()
        self._named.clear()

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


def _owned(body: Raw, owners: Sequence[Raw], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    own = {**(meta(body).get("labels") or {}), **(labels or {})}
    return {**body, "metadata": {**meta(body), "labels": own, "ownerReferences": list(owners)}}


def origin_labels(pod: Raw) -> dict[str, str]:
    """The labels by which a remote pod's objects are ours."""
    own = meta(pod).get("labels") or {}
    keys = (names.MANAGER_LABEL, names.CLUSTER_LABEL, names.WORKLOAD_UID_LABEL)
    return {key: own[key] for key in keys if key in own}


async def _create_or_add_owners(client: Client, service: Raw) -> None:
    existing = await create_or_get(client, resources.SERVICES, service)
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
