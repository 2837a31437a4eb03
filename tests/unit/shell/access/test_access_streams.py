"""The access server uses a grant for its own pod, its own subresource and once, and counts streams by namespace.

The manager and the worker cluster are two API servers over real sockets, with objects by path.
"""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from adapter import membership, names
from adapter.access.grant import EXEC, LOG, manifest
from adapter.objects.unstructured import Raw, format_time
from adapter.shell.access import access_server, concurrency, self_signed
from adapter.shell.kube import resources
from adapter.shell.shipped_policies import access_policy
from tests.unit.apiserver import PATIENCE, connected, kubeconfig

KEY, PROTOCOL = "k" * 43, "v5.channel.k8s.io"
POD_UID, GRANT_UID = "u-1", "u-g"
KUBE_SYSTEM: Raw = {"metadata": {"name": "kube-system", "uid": "m"}}
WORKER_SYSTEM: Raw = {"metadata": {"name": "kube-system", "uid": "w"}}


@dataclass
class Cluster:
    """An API server with objects by path; it records writes, and the subresources that it serves."""

    objects: dict[str, Any] = field(default_factory=dict)
    deleted: list[tuple[str, Any]] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        subresource = request.path.rpartition("/")[2]
        if subresource in (EXEC, LOG):
            self.served.append(subresource)
            return await (_echo(request) if subresource == EXEC else self._hold(request))
        body = self.objects.get(request.path)
        if request.method == "DELETE" and body is not None:
            self.deleted.append((request.path, json.loads(await request.text())["preconditions"]))
            del self.objects[request.path]
        return web.json_response({"reason": "NotFound"}, status=404) if body is None else web.json_response(body)

    async def _hold(self, request: web.Request) -> web.StreamResponse:
        """A log that stays open until the test ends."""
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"line\n")
        await self.closing.wait()
        return answer


async def _echo(request: web.Request) -> web.StreamResponse:
    answer = web.WebSocketResponse(protocols=[PROTOCOL])
    await answer.prepare(request)
    await answer.send_bytes(b"done")
    await answer.close()
    return answer


@asynccontextmanager
async def _running(cluster: Cluster) -> AsyncIterator[Cluster]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=PATIENCE)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    cluster.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield cluster
    finally:
        cluster.closing.set()
        await runner.cleanup()


def _ago(seconds: float) -> str:
    return format_time(datetime.now(UTC) - timedelta(seconds=seconds))


def _manager_objects(worker_url: str, namespaces: tuple[str, ...], subresource: str) -> dict[str, Any]:
    shipped = access_policy()
    policy, binding = (
        {"metadata": {"creationTimestamp": _ago(60)}, "spec": spec} for spec in (shipped.policy, shipped.binding)
    )
    login = base64.b64encode(yaml.safe_dump(kubeconfig(worker_url)).encode()).decode()
    source = {"kubeConfig": {"secretRef": {"name": "east"}}}
    objects: dict[str, Any] = {
        resources.ACCESS_POLICIES.path(name=names.ACCESS_POLICY): policy,
        resources.ACCESS_BINDINGS.path(name=names.ACCESS_POLICY): binding,
        resources.NAMESPACES.path(name="kube-system"): KUBE_SYSTEM,
        resources.WORKER_CLUSTERS.path(name="east"): {
            "metadata": {"name": "east"},
            "spec": {"source": source},
            "status": {"clusterUID": WORKER_SYSTEM["metadata"]["uid"]},
        },
        resources.SECRETS.path(names.SYSTEM_NAMESPACE, "east"): {"data": {names.KUBECONFIG_KEY: login}},
    }
    for namespace in namespaces:
        pod = _pod(namespace, annotations={names.SLOT_ANNOTATION: "east/1/r/0"}, uid=POD_UID)
        made = manifest(pod, subresource, KEY)
        grant_meta = {"name": "kubectl-1", "namespace": namespace, "uid": GRANT_UID, "creationTimestamp": _ago(10)}
        objects[resources.PODS.path(namespace, "worker-a")] = pod
        objects[resources.WORKER_ACCESSES.path(namespace, "kubectl-1")] = {**made, "metadata": grant_meta}
    return objects


def _pod(namespace: str, **more: Any) -> Raw:
    return {"metadata": {"namespace": namespace, "name": "worker-a", **more}}


def _remote_pod(namespace: str, pod_uid: str = POD_UID) -> Raw:
    manager = membership.cluster_identity_of(KUBE_SYSTEM)
    return _pod(namespace, labels={names.MANAGER_LABEL: manager, names.POD_UID_LABEL: pod_uid})


@dataclass
class Scene:
    manager: Cluster
    worker: Cluster
    session: aiohttp.ClientSession


@asynccontextmanager
async def _scene(subresource: str, *namespaces: str, pod_uid: str = POD_UID) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        system = {resources.NAMESPACES.path(): {"items": [WORKER_SYSTEM]}}
        worker = await stack.enter_async_context(_running(Cluster(system)))
        for namespace in namespaces:
            worker.objects[resources.PODS.path(namespace, "worker-a")] = _remote_pod(namespace, pod_uid)
        manager = await stack.enter_async_context(
            _running(Cluster(_manager_objects(worker.url, namespaces, subresource)))
        )
        client = await stack.enter_async_context(connected(manager.url))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        runner = await access_server.serve(client, await self_signed.self_signed_context(), port)
        stack.push_async_callback(runner.cleanup)
        session = aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=aiohttp.TCPConnector(ssl=False))
        yield Scene(manager, worker, await stack.enter_async_context(session))


def _path(namespace: str, subresource: str) -> str:
    return f"/{namespace}/kubectl-1/{KEY}/api/v1/namespaces/{namespace}/pods/worker-a/{subresource}"


async def test_the_streams_of_one_namespace_leave_streams_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "MOST_STREAMS_OF_NAMESPACE", 2)
    async with asyncio.timeout(PATIENCE), _scene(LOG, "greedy", "other") as scene, AsyncExitStack() as opened:
        for _ in range(2):
            log = await opened.enter_async_context(scene.session.get(_path("greedy", LOG)))
            assert (log.status, await log.content.readline()) == (200, b"line\n")
        async with scene.session.get(_path("greedy", LOG)) as refused:
            assert refused.status == 429 and "Namespace greedy has as many" in (await refused.json())["message"]
        async with scene.session.get(_path("other", LOG)) as log:
            assert log.status == 200


async def test_a_command_runs_once() -> None:
    async with asyncio.timeout(PATIENCE), _scene(EXEC, "default") as scene:
        async with scene.session.ws_connect(_path("default", EXEC), protocols=[PROTOCOL]) as command:
            assert await command.receive_bytes() == b"done"
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await scene.session.ws_connect(_path("default", EXEC), protocols=[PROTOCOL])
        assert refused.value.status == 403
        path = resources.WORKER_ACCESSES.path("default", "kubectl-1")
        assert scene.manager.deleted == [(path, {"uid": GRANT_UID})]
        assert scene.worker.served == [EXEC]


async def test_two_uses_at_the_same_time_run_a_command_once() -> None:
    """Both have read the grant before one of them deletes it."""
    async with asyncio.timeout(PATIENCE), _scene(EXEC, "default") as scene:
        uses = [scene.session.ws_connect(_path("default", EXEC), protocols=[PROTOCOL]) for _ in range(2)]
        results = await asyncio.gather(*uses, return_exceptions=True)
        refused = [result for result in results if isinstance(result, aiohttp.WSServerHandshakeError)]
        assert [error.status for error in refused] == [403] and scene.worker.served == [EXEC]


@pytest.mark.parametrize("subresource", [EXEC, LOG])
async def test_a_remote_pod_of_another_pod_is_not_reached(subresource: str) -> None:
    async with asyncio.timeout(PATIENCE), _scene(subresource, "default", pod_uid="u-of-another") as scene:
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Protocol": PROTOCOL}
        async with scene.session.get(_path("default", subresource), headers=headers) as refused:
            assert refused.status == 404 and "has no remote pod in east" in (await refused.json())["message"]
        assert scene.worker.served == [] and scene.manager.deleted == []


async def test_a_grant_for_a_log_runs_no_command() -> None:
    async with asyncio.timeout(PATIENCE), _scene(LOG, "default") as scene:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await scene.session.ws_connect(_path("default", EXEC), protocols=[PROTOCOL])
        assert refused.value.status == 403 and scene.worker.served == []
