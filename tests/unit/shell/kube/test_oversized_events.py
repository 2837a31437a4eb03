"""A watch event that is too large costs its namespace's objects, and nobody else anything; over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from adapter.objects.unstructured import Raw
from adapter.shell.kube import reflector, response_limits
from adapter.shell.kube.memory_budget import MemoryBudget
from adapter.shell.kube.reflector import FollowConfig, follow
from adapter.shell.kube.resources import PODS
from adapter.shell.kube.store import Store
from adapter.shell.rate_limit import TokenBucket
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, event, holds, hurried, lists, streams

MOST_BYTES = 5_000
LARGE = "x" * 2 * MOST_BYTES


@pytest.fixture(autouse=True)
def small_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of a few kilobytes are too large, so no test sends megabytes."""
    defaults = response_limits.read_lines.__defaults__
    assert defaults == (response_limits.OBJECT_BYTES,)
    monkeypatch.setattr(response_limits.read_lines, "__defaults__", (MOST_BYTES,))
    monkeypatch.setattr(response_limits, "EVENT_BEGINNING_BYTES", MOST_BYTES // 10)


def pod(namespace: str, name: str, version: int, text: str = "") -> dict[str, Any]:
    """The fields in the order of an API server's pods."""
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"text": text}}


def custom(namespace: str, name: str, version: int, annotation: str, text: str) -> dict[str, Any]:
    """The fields in the order of an API server's custom resources."""
    metadata = {"annotations": {"namespace": "victim", "text": annotation}, **pod(namespace, name, version)["metadata"]}
    return {"metadata": metadata, "spec": {"text": text}}


class Bench:
    def __init__(self, server: Server, metered: bool) -> None:
        self.server, self.budget, self.changed = server, MemoryBudget(10**8), asyncio.Event()
        self.store = Store(self._note, metered=metered)
        self.budget.namespaces.add_store("pods", self.store)
        self.troubles: list[Exception | None] = []

    def _note(self, _: Raw | None, after: Raw | None) -> None:
        if after and after["metadata"]["name"] == "last":
            self.changed.set()
        self.server.news.set()

    def note_trouble(self, error: Exception | None) -> None:
        self.troubles.append(error)
        self.server.news.set()

    async def applied(self) -> None:
        async with asyncio.timeout(apiserver.PATIENCE):
            await self.changed.wait()

    def lists(self) -> int:
        return len(self.server.of(watch=False))

    def names(self) -> set[tuple[str, str]]:
        return {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in self.store}


@asynccontextmanager
async def following(
    listed: Sequence[Answer], *lines: str, metered: bool = True, ends: bool = False
) -> AsyncIterator[Bench]:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        bench = Bench(server, metered)
        server.lists, server.watches, server.repeats = list(listed), [streams(*lines)] * 5 if ends else [], True
        server.watches.append(holds(server, *lines))
        quota, skip_limit = bench.budget.new_quota("pods"), TokenBucket(20, 3600.0)  # a slow machine takes none more
        config = FollowConfig(client, PODS, bench.store, bench.note_trouble, memory_quota=quota, skip_limit=skip_limit)
        task = asyncio.create_task(follow(config))
        try:
            yield bench
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


LISTED = lists(7, [pod("mallory", "a", 5), pod("demo", "b", 6)])
LAST = event("ADDED", pod("demo", "last", 99))


@hurried
async def test_an_event_that_is_too_large_makes_its_namespace_incomplete_and_the_watch_goes_on() -> None:
    large = [event("MODIFIED", pod("mallory", "a", version, LARGE)) for version in range(8, 28)]
    async with following([LISTED], *large, event("ADDED", pod("mallory", "c", 30)), LAST) as bench:
        await bench.applied()
        assert bench.names() == {("demo", "b"), ("demo", "last")}
        assert set(bench.budget.namespaces.incomplete()) == {"mallory"}
        assert "too large to be read" in bench.budget.namespaces.describe("mallory")
        assert (bench.lists(), len(bench.server.of(watch=True))) == (1, 1)
        assert set(bench.troubles) == {None}


@hurried
async def test_a_cluster_that_invents_namespaces_makes_few_of_them_incomplete() -> None:
    large = [event("MODIFIED", pod(f"invented-{number}", "a", 8 + number, LARGE)) for number in range(60)]
    async with following([LISTED], *large, LAST, ends=True) as bench:
        await bench.server.until(lambda: len(bench.server.of(watch=True)) == 6)
        await bench.applied()
        assert len(bench.budget.namespaces.incomplete()) == 20
        assert bench.lists() == 2, "a list tells the others, but not often"


@hurried
async def test_an_annotation_that_is_called_namespace_is_none() -> None:
    async with following([LISTED], event("MODIFIED", custom("mallory", "a", 8, "", LARGE)), LAST) as bench:
        await bench.applied()
        assert set(bench.budget.namespaces.incomplete()) == {"mallory"}


@hurried
async def test_a_deletion_that_is_too_large_ends_a_reload() -> None:
    """What the reload has read may be the deleted object."""
    async with following([LISTED], event("MODIFIED", pod("mallory", "a", 8, LARGE)), LAST) as bench:
        await bench.applied()
        shares = bench.budget.namespaces
        shares.begin_reload("mallory")
        bench.store.reload_object(pod("mallory", "a", 8))
        shares.drop_unreadable("mallory", "pods")
        shares.end_reload("mallory")
        assert not shares.is_complete("mallory") and bench.names() == {("demo", "b"), ("demo", "last")}


@pytest.mark.parametrize("metered", [True, False], ids=["its namespace comes late", "a kind without shares"])
@hurried
async def test_an_event_without_a_namespace_lists_everything_again_but_not_often(metered: bool) -> None:
    text = LARGE if metered else ""
    large = [event("MODIFIED", custom("mallory", "a", version, text, LARGE)) for version in range(8, 28)]
    again = lists(40, [pod("demo", "b", 6), pod("demo", "c", 39)])
    async with following([LISTED, again], *large, LAST, metered=metered, ends=True) as bench:
        await bench.server.until(lambda: len(bench.server.of(watch=True)) == 6)
        await bench.applied()
        assert bench.names() == {("demo", "b"), ("demo", "c"), ("demo", "last")}
        assert bench.lists() == 2 and not bench.budget.namespaces.incomplete()


def test_a_list_that_is_owed_comes_after_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on a watch that stays open, with the next line that it sends."""
    monkeypatch.setattr(reflector, "RELIST_SECONDS", 20.0)

    @hurried
    async def run() -> None:
        large = event("MODIFIED", custom("mallory", "a", 8, LARGE, LARGE))
        async with following([LISTED], large, ends=True) as bench:
            await bench.server.until(lambda: bench.lists() == 2)
            bench.server.watches = [dripping(bench.server, large)] * 9
            await bench.server.until(lambda: bench.lists() == 3)
            _, second, third = (asked.when for asked in bench.server.of(watch=False))
            assert third - second >= 18.0

    run()


def dripping(server: Server, line: str) -> Answer:
    """A watch that sends the same line each second, until the test ends."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while not server.closing.is_set():
            await response.write(line.encode())
            await asyncio.sleep(1)
        return response

    return answer
