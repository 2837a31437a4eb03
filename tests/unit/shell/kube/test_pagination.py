"""A list is read to its end; one without an end, or without objects, is an error with a message."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from adapter.shell.kube import pagination
from adapter.shell.kube.client import Client, ResponseTooLarge, Unreachable
from adapter.shell.kube.memory_budget import BudgetExceeded, MemoryBudget
from adapter.shell.kube.pagination import PAGE_SIZES, OversizedObject, list_all
from adapter.shell.kube.response_limits import OBJECT_BYTES, PAGE_BYTES
from tests.unit.apiserver import Server, lists, says

PATH = "/api/v1/pods"


def thing(number: int, size: int = 0) -> dict[str, Any]:
    return {"metadata": {"name": str(number), "namespace": "demo"}, "text": "x" * size}


async def test_a_list_is_read_page_by_page(server: Server, client: Client) -> None:
    server.lists = [lists(7, [thing(1)], "more"), lists(7, [], "still more"), lists(7, [thing(2)])]
    found = await list_all(client, PATH, lambda raw: raw["metadata"]["name"], labelSelector="x=y")
    assert found == (["1", "2"], "7")
    assert [asked.query for asked in server.asked] == [
        {"limit": "100", "labelSelector": "x=y"},
        {"limit": "100", "labelSelector": "x=y", "continue": "more"},
        {"limit": "100", "labelSelector": "x=y", "continue": "still more"},
    ]


async def test_a_list_has_the_version_of_its_first_page(server: Server, client: Client) -> None:
    """All pages have one version. If one differs, a watch from the earliest version shows what was missed."""
    server.lists = [lists(7, [thing(1)], "more"), lists(9, [thing(2)])]
    assert (await list_all(client, PATH))[1] == "7"


async def test_a_page_is_freed_before_the_next_is_requested(server: Server, client: Client) -> None:
    taken: list[tuple[int, str, int]] = []
    server.lists = [lists(7, [thing(1), thing(2)], "more"), lists(7, [thing(3)])]
    turn = asyncio.Lock()

    def take(items: list[Any], version: str) -> None:
        assert turn.locked()
        taken.append((len(items), version, len(server.asked)))

    await pagination.read_pages(client, PATH, take, turn, False)
    assert taken == [(2, "7", 1), (1, "7", 2)]


async def test_large_objects_come_in_smaller_pages(server: Server, client: Client) -> None:
    """No kind needs to be marked as large, and large objects prevent no list."""
    there = [thing(number, 1_500_000) for number in range(12)]

    async def answer(request: web.Request) -> web.StreamResponse:
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        return await lists(7, there[start:end], str(end) if end < len(there) else "")(request)

    server.lists = [answer] * 20
    found, version = await list_all(client, PATH, lambda raw: raw["metadata"])
    assert ([one["name"] for one in found], version) == ([str(number) for number in range(12)], "7")
    assert [asked.query["limit"] for asked in server.asked] == ["100", "50", "10", *["2"] * 6]


async def test_pages_grow_again_after_an_object_that_must_come_alone(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tenant's object must not make the whole list end after MOST_PAGES objects."""
    monkeypatch.setattr(pagination, "PAGE_SIZES", (100, 20, 2))  # the server takes 1 for another question
    things = [thing(number, 9_000_000 if number == 3 else 0) for number in range(200)]

    async def answer(request: web.Request) -> web.StreamResponse:
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query["limit"])
        is_metadata = "PartialObjectMetadataList" in request.headers["Accept"]
        page = [{"metadata": raw["metadata"]} if is_metadata else raw for raw in things[start:end]]
        return await lists(7, page, str(end) if end < len(things) else "")(request)

    server.lists, taken = [answer] * 30, list[Any]()
    await pagination.read_pages(client, PATH, lambda items, _: taken.extend(items), asyncio.Lock(), True)
    assert [item["metadata"]["name"] for item in taken] == [str(number) for number in range(200)]
    limits = [asked.query["limit"] for asked in server.asked]
    assert limits == ["100", "20", "2", "20", "2", "2", "20", "100", "100"]


def test_the_smallest_page_holds_any_object() -> None:
    assert PAGE_SIZES[-1] * OBJECT_BYTES <= PAGE_BYTES


async def test_of_an_object_that_is_too_large_by_itself_the_metadata_is_read(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagination, "PAGE_SIZES", (100, 2))
    taken: list[Any] = []
    server.lists = [lists(7, [thing(1, 9_000_000)])] * 2 + [lists(7, [thing(1)], "more"), lists(7, [thing(2)])]
    turn = asyncio.Lock()
    await pagination.read_pages(client, PATH, lambda items, _: taken.extend(items), turn, True)
    assert [type(item) for item in taken] == [OversizedObject, dict]
    accepted = [asked.headers["Accept"] for asked in server.asked]
    assert accepted[-2:] == ["application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json"]


async def test_an_objects_metadata_may_be_too_large_as_well(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names in ownerReferences are not limited, and `<` takes six bytes in an answer."""
    monkeypatch.setattr(pagination, "PAGE_SIZES", (2,))
    large = {"metadata": {"name": "p", "namespace": "demo", "ownerReferences": [{"name": "\\u003c" * 1_500_000}]}}
    server.lists, taken = [*[lists(7, [large], "more")] * 2, lists(7, [thing(2)])], list[Any]()
    await pagination.read_pages(client, PATH, lambda items, _: taken.extend(items), asyncio.Lock(), True)
    assert [type(item) for item in taken] == [OversizedObject, dict]
    assert (taken[0]["metadata"]["name"], taken[0]["metadata"]["namespace"]) == ("p", "demo")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            {"items": [thing(1)], "text": "x" * 99_000, "metadata": {"resourceVersion": "7"}}, id="late token"
        ),
        pytest.param({"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "p"}}]}, id="no namespace"),
        pytest.param({"metadata": {"resourceVersion": "7", "continue": "x" * 99_000}, "items": []}, id="cut token"),
    ],
)
async def test_metadata_without_a_token_or_a_name_does_not_end_the_list(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, page: dict[str, Any]
) -> None:
    monkeypatch.setattr(pagination, "PAGE_SIZES", (2,))
    server.lists = [lists(7, [thing(1, 9_000_000)], "more"), says(page)]
    with pytest.raises(Unreachable, match="its list of pods cannot be read"):
        await pagination.read_pages(client, PATH, lambda *_: None, asyncio.Lock(), True)


async def test_a_page_of_the_smallest_size_that_is_too_large_is_an_error(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagination, "PAGE_SIZES", (100, 50, 10, 2))
    server.lists = [lists(7, [thing(1, 9_000_000)])] * 4
    with pytest.raises(ResponseTooLarge, match="it answers with more than 8 MiB at once"):
        await list_all(client, PATH)


async def test_a_repeated_token_is_an_error(server: Server, client: Client) -> None:
    server.lists = [lists(7, [thing(1)], "more")] * 9
    with pytest.raises(Unreachable, match="its list of pods does not end"):
        await list_all(client, PATH)
    assert len(server.asked) == 2


@pytest.mark.parametrize("bound", ["MOST_PAGES", "UNBUDGETED_BYTES", "LIST_SECONDS"])
async def test_an_endless_list_is_given_up(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(pagination, bound, {"MOST_PAGES": 5, "UNBUDGETED_BYTES": 500, "LIST_SECONDS": 0.3}[bound])
    server.lists = [lists(7, [thing(number, 100)], str(number)) for number in range(2000)]
    with pytest.raises(Unreachable, match=r"its list of pods does not end|it shows more objects than"):
        await list_all(client, PATH)
    assert server.lists, "it was not read to the end of what the server had"


async def test_a_list_ends_when_its_clusters_budget_is_used(server: Server, client: Client) -> None:
    """Other kinds use the budget too, and stored objects count, not received ones."""
    budget = MemoryBudget(1_000_000)
    budget.new_quota("nodes").set_used(900_000)
    room = budget.new_quota("pods")
    server.lists = [lists(7, [thing(number, 50_000)], str(number)) for number in range(9)]
    with pytest.raises(BudgetExceeded, match=r"\(nodes 1 MiB, pods 0 MiB\)"):
        await list_all(client, PATH, lambda raw: raw, room)
    assert len(server.asked) == 2
    server.lists = [lists(7, [thing(number, 50_000)]) for number in range(9)]
    assert len((await list_all(client, PATH, lambda raw: raw["metadata"], room))[0]) == 1


async def test_pages_of_a_cluster_are_parsed_one_by_one(server: Server, client: Client) -> None:
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


async def test_a_page_that_takes_too_much_memory_is_requested_in_smaller_ones(server: Server, client: Client) -> None:
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
async def test_an_invalid_list_is_an_error_with_a_message(server: Server, client: Client, page: dict[str, Any]) -> None:
    server.lists = [says(page)]
    with pytest.raises(Unreachable, match="its list of pods cannot be read"):
        await list_all(client, PATH)


async def test_an_empty_list_may_have_null_items(server: Server, client: Client) -> None:
    server.lists = [says({"items": None, "metadata": {"resourceVersion": "5"}})]
    assert await list_all(client, PATH) == ([], "5")


@pytest.mark.parametrize("metadata", [None, "x", {}, {"resourceVersion": 5}, {"resourceVersion": "soon"}])
async def test_an_invalid_version_is_left_out(server: Server, client: Client, metadata: object) -> None:
    server.lists = [says({"items": [], "metadata": metadata})]
    assert await list_all(client, PATH) == ([], "")
