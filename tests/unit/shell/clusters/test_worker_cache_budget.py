"""A worker cluster whose objects exceed the memory budget is unreachable and affects no other cluster."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from adapter.objects import specs
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.clusters import worker_cache as members
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from tests.unit import apiserver, builders, stores
from tests.unit.apiserver import Answer, Server, hurried, lists


def node(name: str, **labels: str) -> Raw:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels}}


def shows(*nodes: Raw) -> Answer:
    """A cluster with nothing in it but nodes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return await lists(1, nodes if request.path.endswith("/nodes") else ())(request)

    return answer


class Forgetful(WorkerClusterCache):
    """A member that says when it was forgotten."""

    forgotten: asyncio.Event

    def _forget_derived(self) -> None:
        super()._forget_derived()
        self.forgotten.set()


@asynccontextmanager
async def followed(name: str, *nodes: Raw) -> AsyncIterator[Forgetful]:
    server = Server(lists=[shows(*nodes)] * 1000, ready=True)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        spec = specs.parse_worker_cluster(builders.make_worker_cluster(name))
        found = Forgetful(name, spec, client, "mgr", WorkerClusterListeners())
        found.forgotten = asyncio.Event()
        task = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@hurried
async def test_a_cluster_beyond_its_budget_is_unreachable_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "WORKER_CLUSTER_BYTES", 2 * 2**20)
    many = [node(f"n{number}", long="x" * 60_000) for number in range(40)]
    async with (
        followed("east", *many) as east,
        followed("west", node("n", zone="a")) as west,
        asyncio.timeout(apiserver.PATIENCE),
    ):
        await west.first_reached.wait()
        await east.forgotten.wait()
        assert "it shows more objects than the 2 MiB" in east.unreachable_reason
        assert "(nodes 2 MiB" in east.unreachable_reason and east.unreachable_reason.startswith("is unreachable since")
        assert not any(len(row.store) or row.store.synced for row in east._watched_kinds), "what it showed is not kept"
        assert not west.unreachable_reason and len(west._node_objects) == 1


def test_nothing_of_a_forgotten_cluster_is_kept() -> None:
    east = stores.make_member("east", 4)
    assert east.tree and east.nodes.count and east.queues and east.namespace_labels
    for row in east._watched_kinds:
        row.store.clear()
    east._on_stores_emptied()
    assert not (east.nodes.count or east.queues or east.namespace_labels) and not east.synced
