"""A reflector keeps a store up to date by list and watch, for any answer; over real sockets, on a fast clock."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web

from adapter.objects.unstructured import Raw, key_of
from adapter.shell import metrics
from adapter.shell.kube import reflector
from adapter.shell.kube import store as stores
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.memory_budget import BudgetExceeded, MemoryBudget
from adapter.shell.kube.reflector import FIRST_BACKOFF, PROBE_SECONDS, RESTORED, FollowConfig, follow, follow_all
from adapter.shell.kube.resources import PODS
from adapter.shell.kube.store import Store
from tests.unit import apiserver
from tests.unit.apiserver import PAGE, Answer, Server, bookmark, event, gone, hurried, lists, refuses, streams, text

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


def thing(name: str, version: int, **more: Any) -> dict[str, Any]:
    found = {"namespace": "demo", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": found | more}


@dataclass
class Bench:
    """A store with its reflector, and all notifications in order."""

    server: Server
    store: Store = field(init=False)
    told: list[str] = field(default_factory=list)  # changes as name:version, troubles as a word
    troubles: list[Exception | None] = field(default_factory=list)
    restored: int = 0

    def __post_init__(self) -> None:
        self.store = Store(self._changed)

    def _changed(self, before: Raw | None, after: Raw | None) -> None:
        self.told.append(_short(after) if after else f"-{key_of(before or {})[1]}")
        self.server.news.set()

    def trouble(self, error: Exception | None) -> None:
        self.troubles.append(error)
        status = error.status if isinstance(error, ApiError) else ""
        self.told.append(f"{type(error).__name__}{status}" if error else "well")
        self.server.news.set()

    def note(self) -> None:
        self.restored += 1

    def texts(self) -> set[str]:
        return {_short(raw) for raw in self.store}

    async def watched(self, number: int) -> None:
        """Wait for that many open watches; each is notified."""
        await self.server.until(lambda: len(self.server.of(watch=True)) >= number)

    def resumed(self) -> list[str]:
        return [asked.query["resourceVersion"] for asked in self.server.of(watch=True)]


def _short(raw: Raw) -> str:
    return f"{raw['metadata']['name']}:{raw['metadata']['resourceVersion']}"


@asynccontextmanager
async def following(
    listed: Sequence[Answer], watched: Sequence[Answer] = (), **selectors: str
) -> AsyncIterator[tuple[Bench, "asyncio.Task[None]"]]:
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        bench = Bench(server)
        server.lists, server.watches, server.repeats = list(listed), list(watched), True
        what = FollowConfig(client, PODS, bench.store, bench.trouble, selectors=selectors, on_restored=bench.note)
        task = asyncio.create_task(follow(what))
        try:
            yield bench, task
            assert not task.done(), "it ended by itself"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


# --- list ------------------------------------------------------------------------------------------------------------


@hurried
async def test_a_list_is_read_to_its_last_page_and_then_watched() -> None:
    pages = [lists(7, [thing("a", 5, managedFields=[{}])], following="more"), lists(7, [thing("b", 6)])]
    async with following(pages, labelSelector="x=y") as (bench, _):
        await bench.watched(1)
        assert bench.texts() == {"a:5", "b:6"}
        assert "managedFields" not in (bench.store.get(("demo", "a")) or {})["metadata"]
        first, second, watch = (asked.query for asked in bench.server.asked)
        assert first == {"limit": "100", "labelSelector": "x=y"}
        assert second == first | {"continue": "more"}
        assert watch["resourceVersion"] == "7"
        assert (watch["labelSelector"], watch["allowWatchBookmarks"]) == ("x=y", "true")


@hurried
async def test_trouble_ends_when_a_watch_opens() -> None:
    """Not earlier: decisions rely on the store and on its later notifications."""
    async with following([lists(7, [thing("a", 5)])]) as (bench, _):
        await bench.server.until(lambda: bool(bench.troubles))
        assert bench.told == ["a:5", "well"]
        assert len(bench.server.of(watch=True)) == 1


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        pytest.param(text(PAGE), "Unreachable", id="a login page that says 200"),
        pytest.param(text(PAGE, 302, Location="/login"), "ApiError302", id="a redirect"),
        pytest.param(refuses(403), "ApiError403", id="a refusal"),
        pytest.param(refuses(500), "ApiError500", id="a server's fault"),
        pytest.param(streams('{"items":', then=apiserver.cut), "Unreachable", id="a cut"),
        pytest.param(apiserver.says({"kind": "Status"}), "Unreachable", id="an object that is no list"),
        pytest.param(apiserver.says({"items": 5, "metadata": {}}), "Unreachable", id="items that are none"),
        pytest.param(apiserver.says({"items": []}), "Unreachable", id="a list without a version"),
        pytest.param(lists(10**30), "Unreachable", id="a version beyond all"),
    ],
)
@hurried
async def test_a_list_that_fails_leaves_the_store_as_it_was(bad: Answer, word: str) -> None:
    """To read it as an empty list would delete every copy of every worker."""
    listed = [lists(7, [thing("a", 5)]), bad, lists(9, [thing("a", 8)])]
    async with following(listed, [streams(gone())]) as (bench, _):
        await bench.server.until(lambda: word in bench.told)
        assert bench.told == ["a:5", "well", word]
        assert bench.texts() == {"a:5"}
        assert bench.store.synced, "what was read once is still the last that is known"
        await bench.server.until(lambda: len(bench.troubles) >= 3)
        assert bench.told[3:] == ["a:8", "well"]


@hurried
async def test_a_first_list_that_fails_leaves_the_store_unsynced() -> None:
    async with following([text(PAGE), lists(7)]) as (bench, _):
        await bench.server.until(lambda: bool(bench.troubles))
        assert (bench.told, bench.store.synced) == (["Unreachable"], False)
        await bench.server.until(lambda: len(bench.troubles) >= 2)
        assert (bench.told, bench.store.synced) == (["Unreachable", "well"], True)


@hurried
async def test_an_incomplete_list_changes_nothing() -> None:
    listed = [lists(7, [thing("a", 5), thing("b", 6)]), lists(9, [thing("a", 8)], following="more"), text(PAGE)]
    async with following(listed, [streams(gone())]) as (bench, _):
        await bench.server.until(lambda: "Unreachable" in bench.told)
        assert bench.texts() == {"a:5", "b:6"}


@hurried
async def test_a_list_with_an_expired_page_is_restarted() -> None:
    listed = [lists(7, [thing("a", 5)], following="more"), refuses(410, "Expired"), lists(9, [thing("b", 8)])]
    async with following(listed) as (bench, _):
        await bench.watched(1)
        assert bench.texts() == {"b:8"}
        assert "ApiError410" not in bench.told, "it is no trouble"


@hurried
async def test_a_large_list_is_stored_page_by_page_with_deletions_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the old states of everything would be kept beside the new ones until the last page is there."""
    monkeypatch.setattr(stores, "PENDING_BYTES", 0)
    there = lists(7, [thing("a", 5), thing("b", 6), thing("c", 7)])
    broken = [lists(9, [thing("a", 8)], following="more"), refuses(410, "Expired")]
    again = [lists(12, [thing("a", 8)], following="more"), lists(12, [thing("c", 10)])]
    async with following([there, *broken, *again], [streams(gone())]) as (bench, _):
        await bench.server.until(lambda: len(bench.troubles) >= 2)
        assert bench.told == ["a:5", "b:6", "c:7", "well", "a:8", "c:10", "-b", "well"]
        assert bench.resumed() == ["7", "12"]


# --- watch -----------------------------------------------------------------------------------------------------------


async def test_a_watch_changes_the_store() -> None:
    lines = [
        event(ADDED, thing("b", 8, managedFields=[{}])),
        event(MODIFIED, thing("a", 9)),
        event(DELETED, thing("b", 10)),
    ]
    async with following([lists(7, [thing("a", 5)])], [streams(*lines)]) as (bench, _):
        await bench.server.until(lambda: len(bench.told) >= 5)
        assert bench.told == ["a:5", "well", "b:8", "a:9", "-b"]
        assert bench.texts() == {"a:9"}


@pytest.mark.parametrize(
    ("lines", "version"),
    [
        pytest.param([], "7", id="the list's version, after no event"),
        pytest.param([event(ADDED, thing("a", 8))], "8", id="the version of an event"),
        pytest.param([event(ADDED, thing("a", 8)), event(DELETED, thing("a", 9))], "9", id="the version of a deletion"),
        pytest.param([event(ADDED, thing("a", 8)), bookmark(20)], "20", id="the version of a bookmark"),
        pytest.param(["\n", bookmark(20), "\n"], "20", id="empty lines are ignored"),
        pytest.param([bookmark(20), '{"type": "ADD'], "20", id="an incomplete last line is ignored"),
    ],
)
@hurried
async def test_a_watch_is_resumed_from_the_last_version(lines: list[str], version: str) -> None:
    async with following([lists(7)], [streams(*lines)]) as (bench, _):
        await bench.watched(2)
        assert bench.resumed() == ["7", version]
        assert len(bench.server.of(watch=False)) == 1, "nothing was forgotten, so nothing is listed"
        assert set(bench.troubles) == {None}, "an end is no trouble"


@hurried
async def test_versions_continue_over_several_watches() -> None:
    async with following([lists(7)], [streams(bookmark(8)), streams(bookmark(9))]) as (bench, _):
        await bench.watched(3)
        assert bench.resumed() == ["7", "8", "9"]


@pytest.mark.parametrize(
    "answer",
    [streams(gone()), refuses(410, "Expired")],
    ids=["an error event in the watch", "an error instead of the watch"],
)
@hurried
async def test_an_expired_version_is_listed_again(answer: Answer) -> None:
    listed = [lists(7, [thing("a", 5), thing("b", 6)]), lists(30, [thing("b", 6), thing("c", 25)])]
    async with following(listed, [answer]) as (bench, _):
        await bench.watched(2)
        await bench.server.until(lambda: bool(bench.troubles))
        assert bench.texts() == {"b:6", "c:25"}
        assert bench.resumed() == ["7", "30"]
        assert set(bench.troubles) == {None}, "it is no trouble"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        pytest.param('{"type": "ADDED", "object": {"meta\n', "Unreachable", id="half an event"),
        pytest.param(PAGE, "Unreachable", id="a page"),
        pytest.param("[1]\n", "Unreachable", id="a list"),
        pytest.param("null\n", "Unreachable", id="a null"),
        pytest.param('{"type": "ADDED"}\n', "Unreachable", id="an event of nothing"),
        pytest.param('{"type": "ADDED", "object": null}\n', "Unreachable", id="an event of null"),
        pytest.param(event("ERROR", {"code": 500, "reason": "Internal", "message": "m"}), "ApiError500", id="an error"),
    ],
)
@hurried
async def test_an_unreadable_line_is_reported_and_leads_to_a_list(line: str, word: str) -> None:
    """The loop goes on: only a list tells what the line would have said."""
    listed = [lists(7, [thing("a", 5)]), lists(12, [thing("b", 11)])]
    async with following(listed, [streams(event(ADDED, thing("b", 8)), line, event(DELETED, thing("b", 9)))]) as (
        bench,
        _,
    ):
        await bench.watched(2)
        await bench.server.until(lambda: len(bench.troubles) >= 3)
        assert bench.told == ["a:5", "well", "b:8", word, "-a", "b:11", "well"]
        assert bench.resumed() == ["7", "12"]


@pytest.mark.parametrize(
    ("bad", "word", "fresh"),
    [
        pytest.param(refuses(403), "ApiError403", True, id="refused"),
        pytest.param(text(PAGE, 302, Location="/login"), "ApiError302", True, id="a redirect"),
        pytest.param(streams(bookmark(8), then=apiserver.cut), "Unreachable", False, id="cut"),
    ],
)
@hurried
async def test_a_failed_watch_is_trouble_until_one_opens(bad: Answer, word: str, fresh: bool) -> None:
    async with following([lists(7, [thing("a", 5)]), lists(9, [thing("a", 5)])], [bad]) as (bench, _):
        await bench.watched(2)
        await bench.server.until(lambda: bench.told[-1] == "well" and word in bench.told)
        at = bench.told.index(word)
        opened = word == "Unreachable"
        assert bench.told[:at] == ["a:5", *(["well"] if opened else [])], "a refused watch was never open"
        assert set(bench.told[at + 1 :]) == {"well"}
        assert len(bench.server.of(watch=False)) == 1 + fresh


@hurried
async def test_a_missing_server_is_retried() -> None:
    async with apiserver.serving() as nobody:
        url = nobody.url
    async with apiserver.connected(url) as client:
        bench = Bench(Server())
        task = asyncio.create_task(follow(FollowConfig(client, PODS, bench.store, bench.trouble)))
        await bench.server.until(lambda: len(bench.troubles) >= 3)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert {type(error) for error in bench.troubles} == {Unreachable}
    assert not bench.store.synced


@hurried
async def test_a_watch_that_ends_at_once_does_not_spin() -> None:
    """A proxy may end each watch. The pauses double, each at least half of its limit: 0.1, 0.2, 0.4, 0.8, 1.6 s."""
    async with following([lists(7)], [streams()] * 1000) as (bench, _):
        await bench.server.until(lambda: len(bench.server.of(watch=True)) == 6)
        times = [asked.when for asked in bench.server.of(watch=True)]
        for number, (earlier, later) in enumerate(pairwise(times), 1):
            assert later - earlier >= FIRST_BACKOFF * 2**number / 2
        assert len(bench.server.of(watch=False)) == 1


@hurried
async def test_a_reflector_ends_when_cancelled() -> None:
    async with following([lists(7)]) as (bench, task):
        await bench.server.until(lambda: bool(bench.troubles))
    assert task.cancelled()


@hurried
async def test_a_watch_that_is_cut_is_resumed_from_its_last_event() -> None:
    async with following([lists(7)], [streams(event(ADDED, thing("a", 8)), bookmark(20), then=apiserver.cut)]) as (
        bench,
        _,
    ):
        await bench.watched(2)
        assert bench.resumed() == ["7", "20"]


@hurried
async def test_a_page_without_a_line_end_is_no_watch() -> None:
    async with following([lists(7)], [text("<html>")]) as (bench, _):
        await bench.watched(2)
        assert "Unreachable" in bench.told


# --- a restored etcd -------------------------------------------------------------------------------------------------


@hurried
async def test_a_watch_is_not_resumed_from_a_version_that_the_cluster_has_not_reached() -> None:
    """The watch would be silent until that version, and objects written since the backup would count as existing."""
    listed = [lists(7, [thing("a", 5)]), lists(30, [thing("a", 5), thing("c", 20)])]
    watched = [streams(event(ADDED, thing("b", 50)), bookmark(60))]
    async with following(listed, watched) as (bench, _):
        bench.server.newest = 30
        await bench.watched(2)
        await bench.server.until(lambda: bench.told[-1] == "well")
        assert bench.resumed() == ["7", "30"]
        assert bench.texts() == {"a:5", "c:20"}, "what was told of after the backup never was"
        assert [str(error) for error in bench.troubles if error] == [RESTORED]
        assert bench.restored == 1


@hurried
async def test_a_bookmark_records_the_clusters_version() -> None:
    async with following([lists(7), lists(30)], [streams(bookmark(60))]) as (bench, _):
        bench.server.newest = 30
        await bench.watched(2)
        assert (bench.resumed(), bench.restored) == (["7", "30"], 1)


@hurried
async def test_a_watch_is_resumed_if_the_cluster_is_not_older_than_observed() -> None:
    async with following([lists(7)], [streams(bookmark(60))]) as (bench, _):
        bench.server.newest = 60
        await bench.watched(2)
        assert bench.resumed() == ["7", "60"]
        assert (bench.server.compared, bench.restored) == (1, 0)


@hurried
async def test_the_answer_to_our_write_records_the_clusters_version() -> None:
    """The watch may not have sent the event yet."""
    benches: list[Bench] = []

    async def answered(_: web.Request) -> None:
        benches[0].store.put(thing("made", 50))

    async with following([lists(7), lists(30)], [streams(bookmark(8), then=answered)]) as (bench, _):
        benches.append(bench)
        bench.server.newest = 30
        await bench.watched(2)
        assert (bench.texts(), bench.resumed()) == (set(), ["7", "30"])


@hurried
async def test_a_list_behind_an_earlier_watch_is_believed() -> None:
    """As it is after a silence, which every restore brings about: no watch is taken up then."""
    listed = [lists(7, [thing("a", 5)]), lists(30, [thing("a", 5)])]
    async with following(listed, [streams(event(ADDED, thing("b", 50)), gone())]) as (bench, _):
        await bench.watched(2)
        assert (bench.texts(), bench.restored) == ({"a:5"}, 1)


@hurried
async def test_decreasing_versions_in_a_watch_mean_a_restored_cluster() -> None:
    lines = [event(ADDED, thing("b", 50)), event(ADDED, thing("c", 20)), event(ADDED, thing("d", 51))]
    async with following([lists(7), lists(30, [thing("c", 20)])], [streams(*lines)]) as (bench, _):
        await bench.watched(2)
        assert bench.texts() == {"c:20"}
        assert [str(error) for error in bench.troubles if error] == [RESTORED]


@hurried
async def test_a_restore_noticed_by_one_kind_lists_all_kinds_again() -> None:
    """And not at once again and again, whatever the cluster says."""
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        benches = Bench(server), Bench(server)
        server.lists = [lists(70), lists(70), lists(30), lists(30)]
        server.watches = [streams(bookmark(80)), apiserver.holds(server)]
        server.newest, server.ready = 30, True
        followed = [FollowConfig(client, PODS, one.store, one.trouble, on_restored=one.note) for one in benches]
        task = asyncio.create_task(follow_all(client, lambda _: None, followed))
        try:
            await server.until(lambda: len(server.of(watch=True)) == 4)
            _, second, third, _ = (asked.when for asked in server.of(watch=False))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert [one.restored for one in benches] == [1, 1]
    assert third - second >= PROBE_SECONDS


# --- what is no object -----------------------------------------------------------------------------------------------


def odd(name: str, version: int) -> dict[str, Any]:
    return thing(name, version, uid={"a": 1})


@hurried
async def test_invalid_items_of_a_list_are_skipped_and_counted() -> None:
    before = _odd_ones()
    async with following([lists(7, [thing("a", 5), odd("b", 6), {"metadata": {}}])]) as (bench, _):
        await bench.server.until(lambda: bool(bench.troubles))
        assert (bench.told, bench.texts()) == (["a:5", "well"], {"a:5"})
    assert _odd_ones() - before == 2


@hurried
async def test_an_event_with_an_invalid_object_is_ignored() -> None:
    before = _odd_ones()
    lines = [event(ADDED, odd("b", 8)), event(DELETED, odd("a", 9)), event(ADDED, thing("c", 10))]
    async with following([lists(7, [thing("a", 5)])], [streams(*lines)]) as (bench, _):
        await bench.watched(2)
        assert bench.texts() == {"a:5", "c:10"}
        assert bench.resumed() == ["7", "10"]
        assert set(bench.troubles) == {None}
    assert _odd_ones() - before == 2


def _odd_ones() -> float:
    return float(metrics.MALFORMED_OBJECTS.labels("", "pods")._value.get())


# --- a budget --------------------------------------------------------------------------------------------------------


@hurried
async def test_a_cluster_beyond_its_budget_is_forgotten_and_retried_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trouble is reported before objects of any kind are dropped, so that none counts as deleted."""
    async with apiserver.serving(Server(ready=True)) as server, apiserver.connected(server.url) as client:
        monkeypatch.setattr(reflector, "FIRST_PAUSE", 1.0)
        budget, benches = MemoryBudget(20_000), [Bench(server), Bench(server)]
        seen: list[tuple[Exception | None, int, bool]] = []
        followed = [
            FollowConfig(client, PODS, one.store, one.trouble, memory_quota=budget.new_quota("pods")) for one in benches
        ]
        server.lists = [lists(7, [thing("a", 5)]), lists(7, [thing("b", 6)])]
        grows = [event(ADDED, thing(f"c{number}", 8 + number, text="x" * 5_000)) for number in range(9)]
        server.watches = [apiserver.silence(server), apiserver.holds(server, *grows)]

        def forget() -> None:
            seen.extend((one.troubles[-1], len(one.store), one.store.synced) for one in benches)
            server.lists = [lists(29, [thing("a", 5)]), lists(29, [thing("b", 6)])]
            server.news.set()

        task = asyncio.create_task(follow_all(client, lambda _: None, followed, forget))
        try:
            await server.until(lambda: bool(seen))
            clock = asyncio.get_running_loop().time
            began, asked = clock(), len(server.asked)
            for trouble, size, synced in seen:
                assert isinstance(trouble, BudgetExceeded) and not size and not synced
            assert not any(text.startswith("-") for one in benches for text in one.told), "nothing is gone"
            await server.until(lambda: len(server.asked) > asked)
            assert clock() - began > 0.5
            await server.until(lambda: all(one.troubles[-1] is None for one in benches))
            assert [one.texts() for one in benches] == [{"a:5"}, {"b:6"}]
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@hurried
async def test_a_new_list_counts_for_the_budget_beside_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one name after the other, of which none is gone before the last page."""
    monkeypatch.setattr(stores, "PENDING_BYTES", 0)
    large = "x" * 5_000
    async with apiserver.serving() as server, apiserver.connected(server.url) as client:
        bench = Bench(server)
        server.lists = [lists(7, [thing("a", 5, text=large)])]
        server.lists += [lists(9, [thing(f"b{number}", 8, text=large)], str(number)) for number in range(9)]
        server.watches = [streams(gone())]
        room, taken = MemoryBudget(15_000).new_quota("pods"), list[bool]()

        def trouble(error: Exception | None) -> None:
            taken.append(room.used_bytes == bench.store.weight)
            bench.trouble(error)

        what = FollowConfig(client, PODS, bench.store, trouble, memory_quota=room)
        task = asyncio.create_task(follow(what))
        try:
            await server.until(lambda: any(isinstance(one, BudgetExceeded) for one in bench.troubles))
            assert bench.told[:4] == ["a:5", "well", "b0:8", "b1:8"]
            assert len(server.of(watch=False)) == 3, "it is not read on"
            assert taken == [True, True], "what was held of it takes no room any more"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("bad", [text(PAGE), refuses(500)])
@hurried
async def test_trouble_keeps_no_incomplete_list_in_memory(bad: Answer) -> None:
    """The error is kept while the trouble lasts, and a raised error keeps the locals of its frames alive."""
    async with following([lists(7, [thing("a", 5)], following="more"), bad]) as (bench, _):
        await bench.server.until(lambda: bool(bench.troubles))
        (met,) = bench.troubles
        assert met is not None and not (met.__traceback__ or met.__context__ or met.__cause__)
