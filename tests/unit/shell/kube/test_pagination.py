"""A list is read to its end, and one without an end, or of no objects, is a sentence."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from adapter.shell.kube import pagination
from adapter.shell.kube.client import Client, ResponseTooLarge, Unreachable
from adapter.shell.kube.memory_budget import BudgetExceeded, MemoryBudget
from adapter.shell.kube.pagination import PAGE_SIZES, list_all
from adapter.shell.kube.response_limits import OBJECT_BYTES, PAGE_BYTES
from tests.unit.apiserver import Server, lists, says

PATH = "/api/v1/pods"


def thing(number: int, size: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": str(number)}, "text": "x" * size}


async def test_a_list_is_read_page_by_page(server: Server, client: Client) -> None:
    server.lists = [lists(7, [thing(1)], "more"), lists(7, [], "still more"), lists(7, [thing(2)])]
    found = await list_all(client, PATH, lambda raw: raw["metadata"]["name"], labelSelector="x=y")
    assert found == (["1", "2"], "7")
    assert [asked.query for asked in server.asked] == [
        {"limit": "100", "labelSelector": "x=y"},
        {"limit": "100", "labelSelector": "x=y", "continue": "more"},
        {"limit": "100", "labelSelector": "x=y", "continue": "still more"},
    ]


async def test_a_list_is_of_the_version_that_its_first_page_says(server: Server, client: Client) -> None:
    """All pages are of one moment. Where one says another all the same, a watch from the earliest tells what was missed."""
    server.lists = [lists(7, [thing(1)], "more"), lists(9, [thing(2)])]
    assert (await list_all(client, PATH))[1] == "7"


async def test_a_page_is_let_go_of_before_the_next_is_asked_for(server: Server, client: Client) -> None:
    taken: list[tuple[int, str, int]] = []
    server.lists = [lists(7, [thing(1), thing(2)], "more"), lists(7, [thing(3)])]
    turn = asyncio.Lock()

    def take(items: list[Any], version: str) -> None:
        assert turn.locked()
        taken.append((len(items), version, len(server.asked)))

    await pagination.read_pages(client, PATH, take, turn)
    assert taken == [(2, "7", 1), (1, "7", 2)]


async def test_large_objects_come_in_smaller_pages(server: Server, client: Client) -> None:
    """Nobody has to say which kinds are large, and whoever makes large objects keeps no list from being read."""
    there = [thing(number, 1_500_000) for number in range(12)]

    async def answer(request: web.Request) -> web.StreamResponse:
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        return await lists(7, there[start:end], str(end) if end < len(there) else "")(request)

    server.lists = [answer] * 20
    found, version = await list_all(client, PATH, lambda raw: raw["metadata"])
    assert ([one["name"] for one in found], version) == ([str(number) for number in range(12)], "7")
    assert [asked.query["limit"] for asked in server.asked] == ["100", "50", "10", *["2"] * 6]


def test_a_page_of_the_smallest_size_holds_whatever_there_is() -> None:
    assert PAGE_SIZES[-1] * OBJECT_BYTES <= PAGE_BYTES


async def test_a_page_that_is_too_large_with_two_objects_is_from_no_api_server(server: Server, client: Client) -> None:
    server.lists = [lists(7, [thing(1, 9_000_000)])] * 4
    with pytest.raises(ResponseTooLarge, match="it answers with more than 8 MiB at once"):
        await list_all(client, PATH)


async def test_the_same_token_again_is_no_end(server: Server, client: Client) -> None:
    server.lists = [lists(7, [thing(1)], "more")] * 9
    with pytest.raises(Unreachable, match="its list of pods does not end"):
        await list_all(client, PATH)
    assert len(server.asked) == 2


@pytest.mark.parametrize("bound", ["MOST_PAGES", "UNBUDGETED_BYTES", "LIST_SECONDS"])
async def test_a_list_that_goes_on_and_on_is_given_up(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(pagination, bound, {"MOST_PAGES": 5, "UNBUDGETED_BYTES": 500, "LIST_SECONDS": 0.3}[bound])
    server.lists = [lists(7, [thing(number, 100)], str(number)) for number in range(2000)]
    with pytest.raises(Unreachable, match=r"its list of pods does not end|it shows more objects than"):
        await list_all(client, PATH)
    assert server.lists, "it was not read to the end of what the server had"


async def test_a_list_ends_where_its_cluster_has_no_room_left(server: Server, client: Client) -> None:
    """Other kinds take of it as well; and what is kept counts, not what came."""
    budget = MemoryBudget(1_000_000)
    budget.new_quota("nodes").set_used(900_000)
    room = budget.new_quota("pods")
    server.lists = [lists(7, [thing(number, 50_000)], str(number)) for number in range(9)]
    with pytest.raises(BudgetExceeded, match=r"\(nodes 1 MiB, pods 0 MiB\)"):
        await list_all(client, PATH, lambda raw: raw, room)
    assert len(server.asked) == 2
    server.lists = [lists(7, [thing(number, 50_000)]) for number in range(9)]
    assert len((await list_all(client, PATH, lambda raw: raw["metadata"], room))[0]) == 1


async def test_a_page_is_read_when_the_one_before_is_kept(server: Server, client: Client) -> None:
    """Of all kinds of a cluster: each may take as much, for a moment, as all that is kept of it."""
    flying, most = 0, 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        for _ in range(20):
            await asyncio.sleep(0)
        flying -= 1
        return await lists(7, [thing(1)])(request)

    server.lists, budget = [answer] * 9, MemoryBudget(10**6)
    await asyncio.gather(*(list_all(client, PATH, lambda raw: raw, budget.new_quota(kind)) for kind in "abcdefghi"))
    assert most == 1


async def test_a_page_that_takes_too_much_memory_is_asked_for_in_smaller_ones(server: Server, client: Client) -> None:
    """A few bytes of JSON may take thirty times as many."""
    odd = [{"metadata": {"name": str(number)}, "x": [{}] * 25_000} for number in range(100)]
    server.lists = [lists(7, odd[:45]), lists(7, odd[:10])]
    found, _ = await list_all(client, PATH, lambda raw: raw["metadata"])
    assert (len(found), [asked.query["limit"] for asked in server.asked]) == (10, ["100", "50"])


@pytest.mark.parametrize(
    "page",
    [
        pytest.param({"kind": "Status"}, id="no list"),
        pytest.param({"items": {"a": 1}, "metadata": {"resourceVersion": "5"}}, id="items that are none"),
        pytest.param({"items": [], "metadata": {"resourceVersion": "5", "continue": 7}}, id="a token that is a number"),
        pytest.param(
            {"items": [], "metadata": {"resourceVersion": "5", "continue": "x" * 9999}}, id="an endless token"
        ),
    ],
)
async def test_what_is_no_list_is_a_sentence(server: Server, client: Client, page: dict[str, Any]) -> None:
    server.lists = [says(page)]
    with pytest.raises(Unreachable, match="its list of pods cannot be read"):
        await list_all(client, PATH)


async def test_nothing_at_all_may_be_null(server: Server, client: Client) -> None:
    server.lists = [says({"items": None, "metadata": {"resourceVersion": "5"}})]
    assert await list_all(client, PATH) == ([], "5")


@pytest.mark.parametrize("metadata", [None, "x", {}, {"resourceVersion": 5}, {"resourceVersion": "soon"}])
async def test_a_version_that_is_none_is_not_told(server: Server, client: Client, metadata: object) -> None:
    server.lists = [says({"items": [], "metadata": metadata})]
    assert await list_all(client, PATH) == ([], "")
