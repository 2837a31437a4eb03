"""A cluster with an invalid kubeconfig, at the start or after an edit, is unreachable."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import pytest
import yaml
from aiohttp import web

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import condition
from adapter.shell.clusters.claim_holder import ClaimHolder
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.logins import LoginReader
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterListeners
from adapter.shell.controller import wiring
from adapter.shell.kube.client import Client
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.observe.slots import PendingAssignments
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.write.conditions import ConditionWriter
from adapter.shell.write.events import EventRecorder
from tests.unit import apiserver, builders, stores
from tests.unit.apiserver import Server, kubeconfig, lists, silence, text

TYPO = yaml.safe_dump(kubeconfig("https://[fd00::1:6443"))


def secret(content: object) -> Raw:
    return {
        "metadata": builders.make_meta("east", namespace=names.SYSTEM_NAMESPACE),
        "data": {names.KUBECONFIG_KEY: content},
    }


def encoded(content: str) -> str:
    return base64.b64encode(content.encode()).decode()


@dataclass
class Bench:
    manager: ManagerCache
    fleet: Fleet
    conditions: ConditionWriter
    server: Server

    async def look(self, content: object) -> Raw:
        """Put a kubeconfig into east's Secret, look at the WorkerCluster, and return its condition."""
        stores.fill(self.manager.secrets, secret(content))
        await self.conditions.reconcile_cluster("east")
        return condition(self.manager.worker_clusters.by_name("east") or {}, names.CONNECTED)  # type: ignore[return-value]


@asynccontextmanager
async def benched() -> AsyncIterator[Bench]:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client, asyncio.TaskGroup() as tasks:
        manager = ManagerCache(client)
        manager.worker_clusters.replace([builders.make_worker_cluster("east")])

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.method == "PATCH":  # the status of the WorkerCluster
                told = manager.worker_clusters.by_name("east") or {}
                status = {**told["status"], **(await request.json())["status"]}
                version = str(len(server.asked))
                metadata = {**told["metadata"], "resourceVersion": version}
                return await apiserver.says({**told, "metadata": metadata, "status": status})(request)
            return await (text("ok", kind="text/plain") if request.path == "/readyz" else lists(1))(request)

        server.lists, server.watches = [answer] * 1000, [silence(server)] * 1000
        fleet = Fleet(tasks, "mgr", lambda: True)
        facts = wiring.build_observers(
            manager,
            fleet,
            PendingAssignments(),
            ClusterLosses(manager, fleet),
            ProxyHealth(manager, fleet),
            TransientState(),
            "mgr",
        )
        logins = LoginReader(tasks, manager)
        conditions = ConditionWriter(
            manager, fleet, logins, facts.policies, facts.reservations, EventRecorder(client), facts.relay
        )
        yield Bench(manager, fleet, conditions, server)
        for name in fleet.caches():
            await fleet.reconcile(name, None, logins)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        pytest.param(encoded(TYPO), "clusters[].cluster.server is no URL of an API server", id="a typo in the URL"),
        pytest.param(encoded(yaml.safe_dump(kubeconfig("https://e:99999"))), "server is no URL", id="no port"),
        pytest.param(encoded("{"), "it is not YAML", id="no YAML"),
        pytest.param(encoded("clusters: 5"), "clusters is no list of mappings", id="a number"),
        pytest.param("%%%", "is not text", id="no base64"),
        pytest.param({"a": 1}, "has no key kubeconfig", id="no text"),
        pytest.param("", "has no key kubeconfig", id="nothing"),
    ],
)
async def test_an_invalid_kubeconfig_is_reported(content: object, sentence: str) -> None:
    async with benched() as bench:
        told = await bench.look(content)
        assert (told["status"], told["reason"]) == ("False", "BadConfiguration") and sentence in told["message"]
        assert set(bench.fleet.unreachable()) == {"east"} and bench.fleet.caches() == {}


async def test_a_typo_at_run_time_is_a_loss_from_then_on() -> None:
    async with benched() as bench:
        good = encoded(yaml.safe_dump(kubeconfig(bench.server.url)))
        stores.fill(bench.manager.secrets, secret(good))
        await bench.conditions.reconcile_cluster("east")
        await asyncio.wait_for(bench.fleet.caches()["east"].first_reached.wait(), 30)
        assert (await bench.look(good))["status"] == "True" and bench.fleet.unreachable() == {}
        assert (await bench.look(encoded(TYPO)))["status"] == "False"
        assert set(bench.fleet.unreachable()) == {"east"}
        lost = (bench.manager.worker_clusters.by_name("east") or {})["status"]["lostSince"]
        assert (await bench.look(encoded(TYPO)))["status"] == "False"
        assert (bench.manager.worker_clusters.by_name("east") or {})["status"]["lostSince"] == lost
        stores.fill(bench.manager.secrets, secret(good))
        await bench.conditions.reconcile_cluster("east")
        await asyncio.wait_for(bench.fleet.caches()["east"].first_reached.wait(), 30)
        assert (await bench.look(good))["status"] == "True"


async def test_an_edited_price_is_known_without_another_connection() -> None:
    """It is reported as an edited zone is: waiting gangs are planned again."""
    async with benched() as bench:
        await bench.look(encoded(yaml.safe_dump(kubeconfig(bench.server.url))))
        cache, reported = bench.fleet.caches()["east"], list[str]()
        await asyncio.wait_for(cache.first_reached.wait(), 30)
        bench.fleet.set_listeners(WorkerClusterListeners(on_contact=reported.append))
        edited = builders.make_worker_cluster("east", pricePerHour={"cpu": "0.04"})
        for _ in range(2):
            stores.fill(bench.manager.worker_clusters, edited)
            await bench.conditions.reconcile_cluster("east")
        assert bench.fleet.caches()["east"] is cache and cache.spec.price_per_hour == {"cpu": Decimal("0.04")}
        assert reported == ["east"]


async def test_an_internal_error_makes_a_cluster_unreachable(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any unexpected exception for a kubeconfig, of the official client or of ours."""

    async def breaks(*_: object) -> Client:
        raise ValueError(TYPO)

    async with benched() as bench:
        good = encoded(yaml.safe_dump(kubeconfig(bench.server.url)))
        await bench.look(good)
        monkeypatch.setattr(Client, "from_kubeconfig", breaks)
        told = await bench.look(encoded(yaml.safe_dump(kubeconfig(f"{bench.server.url}/"))))
        assert (told["status"], told["reason"]) == ("False", "BadConfiguration")
        assert told["message"].startswith(
            "WorkerCluster east cannot be connected (ValueError); see the controller's log"
        )
        assert "fleet failed at east by ValueError" in caplog.text and "fd00" not in caplog.text


async def test_a_failed_member_is_unreachable_until_it_is_listed_again() -> None:
    member = stores.make_member("east", 1)
    member.on_run_failed(ValueError("x"))
    assert member.unreachable_reason.endswith("reading it ended by ValueError; see the controller's log")
    member._note_error("connection", None)  # it runs again
    for row in member._watched_kinds:
        assert member.unreachable_reason, "an old store would be taken for true"
        member._on_follow_result(row, None)
    assert not member.unreachable_reason


async def test_a_removed_cluster_leaves_no_cached_objects() -> None:
    """A task that still holds the cluster draws no conclusion from it."""
    async with benched() as bench:
        await bench.look(encoded(yaml.safe_dump(kubeconfig(bench.server.url))))
        member = bench.fleet.caches()["east"]
        member.pods.replace([builders.make_pod()])
        await bench.fleet._disengage("east")
        assert len(member.pods) == 0 and member.unreachable_reason


async def test_a_cluster_connected_at_takeover_is_cached_with_its_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the new leader would take it for a cluster without pods."""
    made, logins = Client.from_kubeconfig, list[Client]()

    async with benched() as bench:
        bench.fleet.skip_deferred()

        async def completed(*asked: Any) -> Client:
            """By the time that its last login is made, all of them are to be followed whole."""
            logins.append(await made(*asked))
            if len(logins) > 1:
                bench.fleet.follow_deferred()
            return logins[-1]

        monkeypatch.setattr(Client, "from_kubeconfig", completed)
        monkeypatch.setattr(ClaimHolder, "run", lambda _: asyncio.Event().wait())
        bench.fleet._election = cast(Any, "elected, so that a claim has a login of its own")
        await bench.look(encoded(yaml.safe_dump(kubeconfig(bench.server.url))))
        member = bench.fleet.caches()["east"]
        await asyncio.wait_for(member.first_reached.wait(), 30)
        assert member.pods.synced
