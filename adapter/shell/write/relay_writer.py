"""Writes the objects of relayed networks: beside heads, for the routers, and beside workers.

What is written depends on one key and on what is observed, so each write can be repeated. A process remembers what it
wrote, and another one writes it once more.
"""

import asyncio
import base64
import logging
import secrets
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from adapter import names
from adapter.objects.specs import split_address
from adapter.objects.unstructured import Raw, annotation, key_of, meta, parse_time, uid_of
from adapter.objects.workload import Job, Workload
from adapter.relay import relay_objects
from adapter.relay.frp_config import RelayAddress
from adapter.relay.outdated_network import key_problem
from adapter.relay.relay_keys import KEY_BYTES, RelayKeys, fingerprint_of, key_secret, read_key
from adapter.relay.relay_network import MANAGER, RelayNetwork, identity_of
from adapter.relay.relayed_worker import RelayedWorker
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.resources import Resource
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.write.create_object import get_or_create

log = logging.getLogger(__name__)

_DENIALS = (400, 403, 404, 413, 422)


class HeadDenied(Unreachable):
    """The manager cluster denies what a head needs; its text is a fragment, with the reason and what to do."""


class RelayWriter:
    """Writes one object at a time; shell/write/relay_upkeep.py decides which ones are looked at again."""

    def __init__(self, manager: ManagerCache, policies: PolicyObserver) -> None:
        self._manager, self._policies = manager, policies
        self._key = b""  # the valid one that was seen last
        self._key_lock = asyncio.Lock()
        self._routed: dict[str, str] = {}  # identity -> the head's IP that routers have
        self._named: set[tuple[str, RelayNetwork, str]] = set()  # cluster, network, uid of the Service's owner
        self._route_lock = asyncio.Lock()
        self._cluster_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def prepare_head(self, workload: Workload, check: str, identity: str) -> str:
        """Write what a head needs before it starts, and return the fingerprint of the key that it is made from.

        Raises HeadDenied where the manager cluster denies that.
        """
        if self._policies.started_identity(workload, check) == identity:  # another slice of a running elastic job
            return self._policies.started_key(workload, check)
        network = RelayNetwork(identity, workload.namespace)
        key = await self._get_or_create_key()
        await self._apply_head_objects(network, workload.job, RelayKeys(key, network, self._manager.clock.now()))
        return fingerprint_of(key)

    async def try_head(self, workload: Workload) -> None:
        """Ask by a dry run whether the manager cluster still denies what a head needs, and note the answer."""
        # An identity that no job has: a quota does not count an apply of what exists.
        network = RelayNetwork(identity_of(f"{workload.gang_uid} dry run"), workload.namespace)
        keys = RelayKeys(secrets.token_bytes(KEY_BYTES), network, self._manager.clock.now())
        with suppress(HeadDenied):
            await self._apply_head_objects(network, workload.job, keys, is_dry_run=True)
            self._policies.forget_relay_denial(workload.namespace)

    async def _apply_head_objects(
        self, network: RelayNetwork, job: Job | None, keys: RelayKeys, *, is_dry_run: bool = False
    ) -> None:
        """Note a denial, and raise it as HeadDenied."""
        try:
            await self._apply(resources.SECRETS, _head_secret(network, job, keys), is_dry_run=is_dry_run)
            await self._apply(resources.SERVICES, _head_service(network, job), is_dry_run=is_dry_run)
        except ApiError as error:
            if error.status not in _DENIALS:
                raise
            self._policies.note_relay_denied(network.namespace, error.message or error.reason)
            raise HeadDenied(self._policies.denied_relay_reason(network.namespace)) from error

    async def keep_head(self, network: RelayNetwork, job: Job, nodes: str, head_key: str) -> None:
        """Tell the head of a running job which nodes are present (present_nodes), and create its Secret if it is gone.

        Other files stay as the head was started with: its server reads them once. An object that is there is patched
        and not created, as a ResourceQuota would count it once more. One of another key than the head's is not created,
        as the head's own client would read it and lose the server.
        """
        path = resources.SECRETS.path(network.namespace, network.secret)
        data = {relay_objects.NODES_KEY: base64.b64encode(nodes.encode()).decode()}
        if not await self._patch_existing(path, {"data": data}):
            secret = _head_secret(network, job, await self._keys_of_head(network, head_key))
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

    async def prepare_manager(self, worker: RelayedWorker) -> None:
        """Write what a worker needs in the manager cluster: the way of the routers to its head, and the key."""
        await self.route_head(worker.network, worker.head_ip)
        await self._keys_of_head(worker.network, worker.head_key)

    async def prepare_worker(self, cache: WorkerClusterCache, worker: RelayedWorker, pod: Raw) -> None:
        """Write what a remote pod needs in its cluster: its name, and its Secret, which its share owns for now."""
        network, owner, labels = worker.network, meta(pod)["ownerReferences"], origin_labels(pod)
        await self.name_nodes(cache, network, owner, labels)
        secret = _owned(await self._worker_secret(worker, pod, self._now), owner, labels)
        await _create_or_replace(cache.client, resources.SECRETS, secret)

    async def hand_over_secret(self, cache: WorkerClusterCache, worker: RelayedWorker, pod: Raw) -> None:
        """Let a created remote pod own its Secret, so that its token goes with it."""
        secret = _owned(await self._worker_secret(worker, pod, self._now), [_pod_owner(pod)], origin_labels(pod))
        await cache.client.replace(resources.SECRETS.path(*key_of(secret)), secret)

    async def keep_worker_secret(
        self, cache: WorkerClusterCache, network: RelayNetwork, pod: Raw, head_key: str
    ) -> None:
        """Write the Secret of a running remote pod again as it was made. Equal bytes change nothing there.

        The pod shows the relay's address that it dials. The token's time is that of the pod, as the token of a present
        pod counts at any age.
        """
        dialled = annotation(pod, names.RELAY_ADDRESS_ANNOTATION)
        worker = RelayedWorker(network, cache.name, RelayAddress(*split_address(dialled)), "", head_key)
        created = parse_time(meta(pod).get("creationTimestamp"))
        issued_at = min(int(created.timestamp()) if created else 0, self._now)
        cache.require_reachable()
        secret = _owned(await self._worker_secret(worker, pod, issued_at), [_pod_owner(pod)], origin_labels(pod))
        await _replace_or_create(cache.client, resources.SECRETS, secret)

    @property
    def _now(self) -> int:
        return int(self._manager.clock.now().timestamp())

    async def _worker_secret(self, worker: RelayedWorker, pod: Raw, issued_at: int) -> Raw:
        network, cluster, name = worker.network, worker.cluster, key_of(pod)[1]
        keys = await self._keys_of_head(network, worker.head_key)
        return relay_objects.worker_secret(
            network, keys.secrets, keys.client(cluster), worker.address, cluster, name, issued_at
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

    def forget_routes(self) -> None:
        """Forget which routes to heads were written, so that they are written again."""
        self._routed.clear()

    def forget_names(self) -> None:
        """Forget which Services of nodes were written, so that they are looked at again."""
        self._named.clear()

    async def _apply(self, resource: Resource, body: Raw, *, is_dry_run: bool = False) -> Raw:
        path = resource.path(*key_of(body))
        return await self._manager.client.apply(path, body, names.FIELD_MANAGER, is_dry_run=is_dry_run)

    async def _keys_of(self, network: RelayNetwork) -> RelayKeys:
        return RelayKeys(await self._get_or_create_key(), network, self._manager.clock.now())

    async def _keys_of_head(self, network: RelayNetwork, head_key: str) -> RelayKeys:
        """The credentials that fit a running head. Raises Unreachable if the key has changed since it started."""
        if problem := key_problem(head_key, self._policies.relay_key()):
            raise Unreachable(problem)
        return await self._keys_of(network)

    async def keep_key(self) -> None:
        """Remember the key, and create its Secret again if it is gone: running heads accept no other one."""
        async with self._key_lock:
            await self._keep_key(self._key)

    async def _keep_key(self, key: bytes) -> bytes:
        """The key in the Secret, which is created with `key` if it is gone; empty if it has no valid one."""
        secret = self._manager.secrets.get((names.SYSTEM_NAMESPACE, names.RELAY_KEY_SECRET))
        if secret is None and key:
            if self._key:
                log.warning("Secret %s/%s is gone and written again", names.SYSTEM_NAMESPACE, names.RELAY_KEY_SECRET)
            path = resources.SECRETS.path(names.SYSTEM_NAMESPACE)
            secret = await self._manager.client.create(path, key_secret(key))
            self._manager.secrets.put(secret)
        present = read_key(secret)
        self._key = present or self._key
        return present

    async def _get_or_create_key(self) -> bytes:
        """The controller's key, which may be changed at any time; the first one to need it makes it."""
        async with self._key_lock:
            key = await self._keep_key(self._key or secrets.token_bytes(KEY_BYTES))
        if key:
            return key
        raise Unreachable(
            f"Secret {names.SYSTEM_NAMESPACE}/{names.RELAY_KEY_SECRET} has no {KEY_BYTES} bytes in data.key: restore "
            "it from a backup, or delete it and start the jobs again that use the relay"
        )


def _head_secret(network: RelayNetwork, job: Job | None, keys: RelayKeys) -> dict[str, Any]:
    secret = relay_objects.head_secret(network, keys.secrets, keys.server, keys.client(MANAGER))
    return _owned(secret, _job_owner(job))


def _pod_owner(pod: Raw) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "Pod", "name": key_of(pod)[1], "uid": uid_of(pod)}


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


async def _replace_or_create(client: Client, resource: Resource, body: Raw) -> None:
    """Replace an object, or create it if it is gone: a ResourceQuota would count the create of what exists."""
    try:
        await client.replace(resource.path(*key_of(body)), body)
    except ApiError as error:
        if not error.not_found:
            raise
        await client.create(resource.path(key_of(body)[0]), body)
