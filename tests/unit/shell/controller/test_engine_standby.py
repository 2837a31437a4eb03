"""A standby replica caches everything and can plan, writes nothing, and does the pending work once it leads."""

import asyncio
import base64
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from prometheus_client import REGISTRY

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell import metrics, supervise
from adapter.shell.clusters import fleet as fleet_of_members
from adapter.shell.clusters import manager_cache as manager_cluster
from adapter.shell.clusters.claim_holder import ClaimHolder
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.controller import engine as engine_of_one
from adapter.shell.controller.engine import Engine
from adapter.shell.controller.lease import LeaderElector
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.kube import reflector
from adapter.shell.kube.client import FENCED, Client
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.write import anchors
from adapter.shell.write.copies import ObjectCopier
from hack.lab.base.paths import REPO
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, event, holds, kubeconfig, lists, refuses, says, silence, stoppable, text
from tests.unit.shell.controller.test_lease import COLLECTION, Counted, Shelf


def _versioned(raw: Raw, version: int = 1) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(version)}}


def _secret(name: str, url: str) -> Raw:
    config = base64.b64encode(yaml.safe_dump(kubeconfig(url)).encode()).decode()
    return {
        "metadata": builders.make_meta(name, namespace=names.SYSTEM_NAMESPACE),
        "data": {names.KUBECONFIG_KEY: config},
    }


class Manager:
    """A manager cluster that is also each of its worker clusters: east from the beginning, and west later."""

    def __init__(self, server: Server) -> None:
        self.server, self.shelf, self.grown = server, Shelf(server), asyncio.Event()
        self.away = False  # what stands before it answers that nobody is there
        self.objects = {
            "workerclusters": [builders.make_worker_cluster("east")],
            "secrets": [_secret("east", server.url), _secret("west", server.url)],
            "admissionchecks": [builders.make_check()],
        }
        server.lists, server.watches = [self.answer] * 10_000, [self.watch] * 10_000

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.away:
            return await refuses(503, "ServiceUnavailable")(request)
        if request.path.startswith(COLLECTION):
            return await self.shelf.answer(request)
        if request.path == "/readyz":
            return await text("ok", kind="text/plain")(request)
        if request.path.endswith("/kube-system"):
            return await says({"metadata": {"uid": "of-the-manager"}})(request)
        if request.method != "GET":
            return await refuses(409, "Conflict")(request)
        return await lists(1, map(_versioned, self.objects.get(request.path.rpartition("/")[2], ())))(request)

    async def watch(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/workerclusters"):
            return await silence(self.server)(request)
        closing, grown = (asyncio.create_task(one.wait()) for one in (self.server.closing, self.grown))
        await asyncio.wait({closing, grown}, return_when=asyncio.FIRST_COMPLETED)
        west = _versioned(builders.make_worker_cluster("west"), 2)
        return await holds(self.server, event("ADDED", west))(request)

    def writes(self) -> set[str]:
        """What was written beside the Lease."""
        return {asked.path for asked in self.server.asked if asked.method != "GET" and "/leases" not in asked.path}

    def read(self, cluster: str) -> bool:
        """Whether the worker cluster's stores are filled; our objects there are listed by the cluster's name."""
        ours = f"{names.CLUSTER_LABEL}={cluster}"
        return any(ours in asked.query.get("labelSelector", "") for asked in self.server.asked)


async def ended(task: asyncio.Task[None], client: Client) -> None:
    """End an engine, and forget that it led."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    metrics.LEADER.set(0)
    await client.close()


@stoppable
async def test_a_replica_caches_and_plans_and_writes_only_as_leader(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with apiserver.serving() as server, apiserver.connected(server.url) as own:
        manager = Manager(server)
        manager.shelf.put("another")
        lease = Counted(own, "b", server)
        client = await Client.from_kubeconfig(yaml.safe_dump(kubeconfig(server.url)), may_write=lease.may_write)
        engine = Engine(client, lease)
        task = asyncio.create_task(engine.run())
        try:
            await lease.looked()
            assert engine.manager.synced, "it is ready, and campaigns only now"
            assert not isinstance(engine.preview, str), "it can say what would be planned"
            assert manager.read("east")
            manager.grown.set()
            await server.until(lambda: manager.read("west"))
            for _ in range(4):
                await lease.looked(after=2)
            assert manager.writes() == set() and FENCED not in caplog.text, "it did not even try"
            assert REGISTRY.get_sample_value("rayspan_leader") == 0

            for _ in range(4):
                await lease.looked(after=2)
            await server.until(lambda: len(manager.writes()) >= 3)
            assert {path.partition("/apis/")[2] for path in manager.writes()} >= {
                "rayspan.dev/v1alpha1/workerclusters/east/status",
                "rayspan.dev/v1alpha1/workerclusters/west/status",
                f"kueue.x-k8s.io/v1beta2/admissionchecks/{builders.CHECK}/status",
            }
            assert REGISTRY.get_sample_value("rayspan_leader") == 1
        finally:
            await ended(task, client)


@stoppable
async def test_a_start_waits_for_an_unreachable_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ready as long as the manager can be seen, and no longer."""
    monkeypatch.setattr(manager_cluster, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(reflector, "PROBE_SECONDS", 0.1)
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        manager = Manager(server)
        manager.away = True
        engine = Engine(client, None)
        task = asyncio.create_task(engine.run())
        try:
            await server.until(lambda: len(server.asked) >= 3)
            assert engine.manager.not_ready_reason == "the manager cluster is not read yet" and not task.done()
            manager.away = False
            await server.until(lambda: not engine.manager.not_ready_reason)
            manager.away = True
            await server.until(
                lambda: engine.manager.not_ready_reason.startswith("the manager cluster is unreachable: 503")
            )
            assert engine.manager.synced and not task.done()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            metrics.LEADER.set(0)


@stoppable
async def test_unreadable_objects_stop_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """A typo in one kubeconfig and wrong types in every kind: east is cached, and its WorkerCluster is reported."""
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        manager = Manager(server)
        manager.objects["workerclusters"].append(builders.make_worker_cluster("west"))
        manager.objects["secrets"][1] = _secret("west", "https://[fd00::1:6443")
        odd: Raw = {"metadata": {"name": "odd", "namespace": "demo", "uid": "u"}, "spec": ["x"], "status": ["y"]}
        for kind in ("workloads", "pods", "placements", "rayclusters", "rayjobs", "dispatchpolicies", "clusterqueues"):
            manager.objects[kind] = [odd]
        manager.objects |= {"localqueues": [odd], "cohorts": [odd], "resourceflavors": [odd], "nodes": [odd]}
        engine = Engine(client, None)
        task = asyncio.create_task(engine.run())
        try:
            told = {f"/apis/rayspan.dev/v1alpha1/workerclusters/{name}/status" for name in ("east", "west")}
            await server.until(lambda: manager.writes() >= told)
            assert not task.done() and "1 of its workloads are left out" in caplog.text
            assert engine._parts is not None and "server is no URL" in engine._parts.fleet.problems["west"]
            assert not engine._parts.fleet.caches()["east"].unreachable_reason
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            metrics.LEADER.set(0)


def _met(task: str) -> float:
    """The number of unexpected errors of a task."""
    return REGISTRY.get_sample_value("rayspan_task_failures_total", {"task": task}) or 0.0


async def _breaks(*_: object) -> None:
    raise RuntimeError


@stoppable
async def test_a_failed_task_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them once, whatever it met; a lost Lease is another matter, see below."""

    broken = {"queue", "losses", "proxies", "anchors", "copies", "resync", "cluster"}
    before = {task: _met(task) for task in broken}
    whose: list[Any] = [WorkQueue, ClusterLosses, ProxyHealth, anchors, ObjectCopier, WorkerClusterCache]
    for one in whose:
        monkeypatch.setattr(one, "run", _breaks)
    monkeypatch.setattr(Engine, "_resync", _breaks)
    monkeypatch.setattr(engine_of_one, "FIRST_CONTACT_SECONDS", 0.1)  # no worker cluster will be seen
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.01)
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        Manager(server)
        engine = Engine(client, None)
        task = asyncio.create_task(engine.run())
        try:
            async with asyncio.timeout(apiserver.PATIENCE):
                while not all(_met(one) >= before[one] + 2 for one in broken):
                    await asyncio.wait([task], timeout=0.1)
                    assert not task.done()
            assert engine._parts is not None
            met = engine._parts.fleet.caches()["east"]._errors.values()
            assert any("reading it ended by RuntimeError" in str(one) for one in met), "it counts as unseen"
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            metrics.LEADER.set(0)


@stoppable
async def test_a_failed_manager_cache_is_unreachable_until_it_is_listed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its earlier state allows no decision meanwhile."""
    reads, told, breaks, again = list[object](), list[str](), asyncio.Event(), asyncio.Event()
    read, before = manager_cluster.ManagerCache.run, _met("manager")

    async def run(self: manager_cluster.ManagerCache) -> None:
        reads.append(self)
        if len(reads) > 1:
            told.append(self.unreachable_reason)
            await again.wait()
            return await read(self)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read(self))
            await breaks.wait()
            reading.cancel()
        raise RuntimeError

    monkeypatch.setattr(manager_cluster.ManagerCache, "run", run)
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 0.01)
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        manager = Manager(server)
        manager.grown.set()
        engine = Engine(client, None)
        task = asyncio.create_task(engine.run())
        try:
            await server.until(lambda: len(manager.writes()) >= 2)
            assert not engine.manager.unreachable_reason
            breaks.set()
            await _until(task, lambda: len(reads) > 1)
            assert told == [
                "the manager cluster is unreachable: reading it ended by RuntimeError; see the controller's log"
            ]
            assert _met("manager") == before + 1
            again.set()
            await _until(task, lambda: not engine.manager.unreachable_reason)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            metrics.LEADER.set(0)


async def _until(task: asyncio.Task[None], happened: Callable[[], bool]) -> None:
    """Wait for something that a task which goes on brings about."""
    async with asyncio.timeout(apiserver.PATIENCE):
        while not happened():
            await asyncio.wait([task], timeout=0.05)
            assert not task.done()


class Shaky(LeaderElector):
    """A Lease whose first attempts break."""

    attempts = 0

    async def _acquire_or_renew(self) -> float:
        self.attempts += 1
        return await (_broken() if self.attempts < 4 else super()._acquire_or_renew())


async def _broken() -> float:
    raise RuntimeError


@stoppable
async def test_a_failed_renewal_does_not_delay_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the Lease, and of the claim to a worker cluster: each runs out where it is not renewed in time."""
    before = {task: _met(task) for task in ("lease", "claim")}
    monkeypatch.setattr(supervise, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(engine_of_one, "RETRY_PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(fleet_of_members, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(ClaimHolder, "run", _breaks)
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        Manager(server)
        lease = Shaky(client, "a")
        engine = Engine(client, lease)
        task = asyncio.create_task(engine.run())
        try:
            await _until(task, lambda: lease.leading.is_set() and _met("claim") >= before["claim"] + 2)
            assert _met("lease") == before["lease"] + 3
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            metrics.LEADER.set(0)


@asynccontextmanager
async def leading(folder: Path) -> AsyncIterator[tuple[Process, Shelf]]:
    """The controller as the Deployment runs it, once it leads."""
    async with apiserver.serving() as server:
        manager = Manager(server)
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig(server.url)))
        words = ("-m", "adapter", "controller", "--port", "0", "--plan-port", "0")
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, env={**os.environ, "KUBECONFIG": str(file)}, cwd=REPO, stderr=PIPE
        )
        try:
            await server.until(lambda: len(manager.writes()) >= 2)
            yield process, manager.shelf
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _end(process: Process) -> tuple[int | None, str]:
    async with asyncio.timeout(apiserver.PATIENCE):
        _, said = await process.communicate()
    return process.returncode, said.decode()


@stoppable
async def test_a_terminated_process_releases_the_lease(tmp_path: Path) -> None:
    async with leading(tmp_path) as (process, shelf):
        assert shelf.holder not in ("", "?")
        process.terminate()
        code, said = await _end(process)
    assert (code, shelf.holder) == (0, "") and "Traceback" not in said


@stoppable
async def test_a_process_that_loses_the_lease_ends_with_a_message(tmp_path: Path) -> None:
    async with leading(tmp_path) as (process, shelf):
        shelf.put("usurper")
        code, said = await _end(process)
    assert (code, shelf.holder) == (1, "usurper") and "Traceback" not in said
    assert said.splitlines()[-1].endswith(
        "stopped writing, and exiting to be restarted: Lease rayspan-controller in "
        "rayspan-system: it is held by usurper"
    )
