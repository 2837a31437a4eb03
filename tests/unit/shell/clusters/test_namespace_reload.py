"""An incomplete namespace is read again by itself, at a bounded pace, and no other one is."""

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from adapter.shell.clusters.cluster_cache import WatchedKind
from adapter.shell.clusters.namespace_reload import FIRST_PAUSE, LAST_PAUSE, NamespaceReloader
from adapter.shell.kube import resources
from adapter.shell.kube.client import Client
from adapter.shell.kube.memory_budget import MemoryBudget
from adapter.shell.kube.store import Store
from tests.unit import apiserver
from tests.unit.apiserver import Server, lists, refuses

SHARE = 100_000


def pod(name: str, size: int) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "full", "name": name, "uid": name, "resourceVersion": "5"},
        "spec": {"text": "x" * size},
    }


class Cluster:
    """One metered kind of a cluster that is read."""

    first_error: Exception | None = None
    synced = True

    def __init__(self, client: Client) -> None:
        self.client, self.budget = client, MemoryBudget(10 * SHARE, most_namespace_bytes=SHARE)
        self.store = Store(metered=True)
        self.budget.new_quota("pods").store = self.store
        self.budget.namespaces.add_store("pods", self.store)
        self.store.replace([], "1")
        self.verified = 0

    def metered_kinds(self) -> Iterable[WatchedKind]:
        selectors: Mapping[str, str] = {"labelSelector": "ours"}
        return [WatchedKind(resources.PODS, self.store, selectors=selectors)]

    async def verify_identity(self) -> None:
        self.verified += 1


@apiserver.hurried
async def test_a_namespace_is_read_until_it_fits() -> None:
    """First it is still full, then it cannot be read, then it fits."""
    large, small = [pod(f"p{number}", 40_000) for number in range(4)], [pod("p0", 10)]
    server = Server(lists=[lists(9, large), refuses(500), lists(9, small)])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        cluster = Cluster(client)
        shares = cluster.budget.namespaces
        complete = asyncio.Event()
        shares.drop_unreadable("full", "pods")
        shares.on_change = lambda _: complete.set()
        task = asyncio.create_task(NamespaceReloader(cluster).run())
        async with asyncio.timeout(apiserver.PATIENCE * 10):
            await complete.wait()
        task.cancel()
        assert shares.is_complete("full") and {raw["metadata"]["name"] for raw in cluster.store} == {"p0"}
        assert {asked.path for asked in server.asked} == {"/api/v1/namespaces/full/pods"}
        assert {asked.query["labelSelector"] for asked in server.asked} == {"ours"} and cluster.verified == 3
        first, second, third = (asked.when for asked in server.asked)
        assert second - first > FIRST_PAUSE and third - second > second - first


async def test_a_read_ends_when_all_namespaces_together_exceed_the_budget() -> None:
    """Each read namespace fits into its share, and ten of them exceed the cluster's budget."""
    async with apiserver.serving(Server(lists=[lists(9, [pod("p0", 40_000)])])) as server:
        async with apiserver.connected(server.url) as client:
            cluster = Cluster(client)
            cluster.budget.most_bytes = SHARE // 4
            cluster.budget.namespaces.drop_unreadable("full", "pods")
            await NamespaceReloader(cluster)._reload("full")
    assert not cluster.budget.namespaces.is_complete("full") and not cluster.store.weight


async def test_a_read_ends_when_the_kind_is_listed_meanwhile() -> None:
    """The object was deleted between both lists, and the store knows of no deletion before the full one."""
    server = Server()
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        cluster = Cluster(client)

        async def answer_late(request: web.Request) -> web.StreamResponse:
            cluster.store.remove(pod("deleted", 10))
            cluster.store.replace([], "12")
            return await lists(9, [pod("deleted", 10)])(request)

        server.lists = [answer_late]
        cluster.budget.namespaces.drop_unreadable("full", "pods")
        await NamespaceReloader(cluster)._reload("full")
        assert not cluster.budget.namespaces.is_complete("full") and not list(cluster.store)


async def test_a_namespace_that_is_complete_by_now_is_not_read() -> None:
    cluster = Cluster(Any)  # type: ignore[arg-type]  # no request is sent
    cluster.budget.namespaces.drop_unreadable("full", "pods")
    cluster.budget.namespaces.clear()
    await NamespaceReloader(cluster)._reload("full")
    assert cluster.budget.namespaces.is_complete("full") and not cluster.verified


def test_the_pause_doubles_and_begins_again_after_long() -> None:
    cluster = Cluster(Any)  # type: ignore[arg-type]  # no request is sent
    reloader, shares = NamespaceReloader(cluster), cluster.budget.namespaces
    shares.drop_unreadable("full", "pods")
    due_times = [now for now in range(0, 3_000, 5) if reloader._due_namespaces(float(now))]
    pauses = [late - early for early, late in itertools.pairwise(due_times)]
    assert due_times[0] == FIRST_PAUSE and pauses[:4] == [30, 60, 120, 240] and set(pauses[4:]) == {LAST_PAUSE}
    shares.begin_reload("full")
    shares.end_reload("full")
    assert not reloader._due_namespaces(3_100.0)
    shares.drop_unreadable("full", "pods")
    assert not reloader._due_namespaces(3_110.0), "one that comes and goes keeps its pause"
    shares.begin_reload("full")
    shares.end_reload("full")
    reloader._due_namespaces(9_000.0)
    shares.drop_unreadable("full", "pods")
    assert not reloader._due_namespaces(9_010.0) and reloader._due_namespaces(9_010.0 + FIRST_PAUSE)
