"""A standby replica watches no pods, and one that starts to decide knows all of them.

With some of them, the others would count as deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml
from aiohttp import web
from prometheus_client import REGISTRY

from adapter import names
from adapter.leader_election import LEASE_DURATION_SECONDS, RETRY_PERIOD_SECONDS
from adapter.shell.controller.engine import FIRST_CONTACT_SECONDS, Engine
from adapter.shell.controller.enqueue import QueueKey
from adapter.shell.controller.reconciler import Reconciler
from adapter.shell.kube.client import Client
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, kubeconfig, lists, stoppable
from tests.unit.shell.controller.test_engine_standby import Manager, _until, _versioned, ended
from tests.unit.shell.controller.test_lease import Counted

HERE = "here"  # the manager's worker pods; copies go by their worker cluster
WORKER = builders.make_pod("train-0", placement="train", slot="east/1/role-workers/0")
OTHER = builders.make_pod("train-1", placement="train", slot="east/1/role-workers/1")


def _whose(path: str, query: Mapping[str, str]) -> str:
    """The owner label of the requested pods; empty for heads and for other kinds."""
    selector = query.get("labelSelector", "")
    if not path.endswith("/pods"):
        return ""
    if selector == names.PLACEMENT_LABEL:
        return HERE
    return next((name for name in ("east", "west") if f"{names.CLUSTER_LABEL}={name}" in selector), "")


class Pods(Manager):
    """A manager with two workers and their copies in east, whose lists may be held back."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.pods = {HERE: [WORKER, OTHER], "east": [WORKER, OTHER]}
        self.held: dict[str, asyncio.Event] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not (whose := _whose(request.path, request.query)):
            return await super().answer(request)
        if held := self.held.get(whose):
            await held.wait()
        return await lists(1, map(_versioned, self.pods.get(whose, ())))(request)

    def hold(self, whose: str) -> None:
        """Answer no list of these until `release`."""
        self.held[whose] = asyncio.Event()

    def release(self) -> None:
        for one in self.held.values():
            one.set()

    def asked(self) -> set[str]:
        """Whose pods were asked for."""
        return {whose for one in self.server.asked if (whose := _whose(one.path, one.query))}


@dataclass
class Stand:
    """A replica that stands by while another one leads, and what its looks found."""

    server: Server
    manager: Pods
    own: Client
    lease: Counted
    engine: Engine
    task: asyncio.Task[None] = field(init=False)
    looks: list[tuple[int, int]] = field(default_factory=list)  # of the manager's pods, and of the copies in east

    def renewed(self) -> None:
        """The other one renews the Lease."""
        self.manager.shelf.put("another")

    async def passes(self, seconds: float) -> None:
        """The Lease is not renewed for that time."""
        for _ in range(round(seconds / RETRY_PERIOD_SECONDS)):
            await self.lease.looked(after=RETRY_PERIOD_SECONDS)

    async def settles(self) -> None:
        """Wait for pending requests: the server answers several sequential requests meanwhile."""
        for _ in range(20):
            await self.own.cluster_uid()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for something that it brings about."""
        await _until(self.task, happened)

    def look(self) -> None:
        parts = self.engine._parts
        seen = parts.fleet.reachable() if parts else {}
        self.looks.append((len(self.engine.manager.pods), len(seen["east"].pods) if "east" in seen else -1))

    @property
    def leads(self) -> bool:
        return REGISTRY.get_sample_value("rayspan_leader") == 1


@asynccontextmanager
async def standing_by(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stand]:
    async with apiserver.serving() as server, apiserver.connected(server.url) as own:
        manager = Pods(server)
        lease = Counted(own, "b", server)
        client = await Client.from_kubeconfig(yaml.safe_dump(kubeconfig(server.url)), may_write=lease.may_write)
        stand = Stand(server, manager, own, lease, Engine(client, lease))
        stand.renewed()

        async def look(_: Reconciler, key: QueueKey) -> float | None:
            stand.look()
            return None

        monkeypatch.setattr(Reconciler, "reconcile", look)
        task = stand.task = asyncio.create_task(stand.engine.run())
        try:
            await lease.looked()
            yield stand
        finally:
            manager.release()
            await ended(task, client)


@stoppable
async def test_a_standby_replica_watches_no_pods_until_the_leader_is_overdue(monkeypatch: pytest.MonkeyPatch) -> None:
    """And then all, also in a cluster that came meanwhile; it decides nothing for that."""
    async with standing_by(monkeypatch) as stand:
        assert stand.engine.manager.synced, "it is ready"
        stand.manager.grown.set()
        renewals = 0
        while renewals < 4 or not stand.manager.read("west"):  # which takes seconds on a busy machine
            stand.renewed()
            await stand.passes(RETRY_PERIOD_SECONDS)
            renewals += 1
        await stand.settles()
        assert stand.manager.asked() == set()
        await stand.passes(6.0)
        await stand.server.until(lambda: stand.manager.asked() == {HERE, "east", "west"})
        stand.renewed()
        await stand.passes(RETRY_PERIOD_SECONDS)
        await stand.settles()
        await stand.until(lambda: len(stand.engine.manager.pods) == 2)
        assert stand.looks == [] and not stand.leads and stand.manager.writes() == set()


@stoppable
async def test_a_cluster_registered_after_that_is_watched_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing_by(monkeypatch) as stand:
        await stand.passes(6.0)
        await stand.server.until(lambda: stand.manager.asked() == {HERE, "east"})
        stand.manager.grown.set()
        await stand.server.until(lambda: "west" in stand.manager.asked())


@stoppable
async def test_after_a_released_lease_the_remote_pods_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """There was no time before, and each cluster would be said to be out of sight for a moment."""
    async with standing_by(monkeypatch) as stand:
        stand.manager.hold("east")
        stand.manager.shelf.put("")
        await stand.passes(RETRY_PERIOD_SECONDS)
        await stand.until(stand.lease.leading.is_set)
        await stand.settles()
        assert (stand.looks, stand.leads) == ([], False)
        stand.manager.release()
        await stand.until(lambda: bool(stand.looks))
        await stand.settles()
        assert stand.leads and set(stand.looks) == {(2, 2)}


@stoppable
async def test_a_takeover_starts_with_all_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    async with standing_by(monkeypatch) as stand:
        await stand.passes(LEASE_DURATION_SECONDS + RETRY_PERIOD_SECONDS)
        await stand.until(lambda: bool(stand.looks))
        await stand.settles()
        assert stand.leads and set(stand.looks) == {(2, 2)}


@stoppable
async def test_a_leader_without_the_managers_pods_decides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each copy would be one whose pod is gone."""
    async with standing_by(monkeypatch) as stand:
        stand.manager.hold(HERE)
        await stand.passes(LEASE_DURATION_SECONDS + RETRY_PERIOD_SECONDS)
        assert stand.lease.leading.is_set() and stand.manager.shelf.holder == "b"
        await stand.passes(RETRY_PERIOD_SECONDS * 3)
        await stand.settles()
        assert (stand.looks, stand.leads) == ([], False)
        assert stand.lease.may_write(), "it goes on to renew the Lease: who else leads would have to read them, too"
        stand.manager.release()
        await stand.until(lambda: bool(stand.looks))
        await stand.settles()
        assert stand.leads and set(stand.looks) == {(2, 2)}


@stoppable
async def test_an_unresponsive_worker_cluster_is_unreachable_and_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the time that the Lease is free it was waited for: the time without a leader is the Lease's, and one look."""
    async with standing_by(monkeypatch) as stand:
        stand.manager.hold("east")
        clock = asyncio.get_running_loop().time
        while not stand.lease.leading.is_set():
            await stand.passes(RETRY_PERIOD_SECONDS)
            await stand.settles()
        held = clock()
        await stand.until(lambda: stand.leads)
        assert clock() - held < FIRST_CONTACT_SECONDS / 2
        await stand.until(lambda: bool(stand.looks))
        await stand.settles()
        assert set(stand.looks) == {(2, -1)}, "nothing is concluded from what is not read there"
        stand.manager.release()
        await stand.until(lambda: stand.looks[-1] == (2, 2))  # all is looked at again as soon as it is


def test_pods_are_told_apart_by_who_asks() -> None:
    """Or the tests above would see nothing."""
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("/api/v1/pods", {"labelSelector": names.PLACEMENT_LABEL}, HERE),
        ("/api/v1/pods", {"labelSelector": f"{names.MANAGER_LABEL}=m,{names.CLUSTER_LABEL}=west"}, "west"),
        ("/api/v1/pods", {"labelSelector": f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"}, ""),
        ("/api/v1/nodes", {}, ""),
    ]
    assert [_whose(path, query) for path, query, _ in asked] == [whose for *_, whose in asked]
