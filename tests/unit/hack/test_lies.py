"""Lies of every sort are reproducible, huge where promised, and never in memory as a whole; true answers are true."""

import itertools
import json
import random
import zlib
from collections.abc import Iterator

import pytest

from adapter.objects import well_formed
from hack.testbed import lies
from hack.testbed.liar import _truth
from hack.testbed.lies import HUGE, MIB, SORTS, Lie
from hack.testbed.oddities import bent, specimen
from hack.testbed.said import Answer, Asked, wire
from hack.testbed.world import World, place

ELSEWHERE = "http://127.0.0.1:1"
LIST = Asked("GET", "/api/v1/pods", {"labelSelector": "rayspan.dev/manager=me", "limit": "250"})
WATCH = Asked("GET", "/api/v1/pods", {"watch": "true", "resourceVersion": "1000"})
GET = Asked("GET", "/api/v1/namespaces/demo/pods/a")
DELETE = Asked("DELETE", "/api/v1/namespaces/demo/pods/a")
POST = Asked("POST", "/apis/kueue.x-k8s.io/v1beta2/namespaces/demo/workloads")


def told(sort: str, asked: Asked, number: int) -> Answer:
    true = World().answer(asked, {"metadata": {"name": "a"}})[1]
    return lies.answer(Lie(sort, number), asked, true, ELSEWHERE)


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("asked", [LIST, WATCH, GET, DELETE, POST], ids=["list", "watch", "get", "delete", "create"])
def test_each_sort_lies_to_each_question(sort: str, asked: Asked) -> None:
    for number in range(5):
        answer = told(sort, asked, number)
        assert sum(part.lies for part in answer) >= 1
        assert sum(len(part.what) for part in answer) < 64 * MIB, "it is held in pieces"
        assert answer == told(sort, asked, number), "it can be told again"
    drawn = {told(sort, LIST, number) for number in range(15)}
    assert len(drawn) > 1, "another number is another lie"


def body(answer: Answer) -> Iterator[bytes]:
    """The bytes after the head of the answer."""
    first, *rest = wire(answer)
    _, _, begun = first.partition(b"\r\n\r\n")
    return itertools.chain([begun], rest)


@pytest.mark.parametrize("number", range(9))
def test_a_huge_body_is_huge(number: int) -> None:
    assert sum(map(len, body(told("a huge body", LIST, number)))) >= HUGE


@pytest.mark.parametrize("number", range(4))
def test_a_compression_bomb_is_small_until_it_is_unpacked(number: int) -> None:
    """It is counted by pieces, because it does not fit in memory."""
    inflate, size = zlib.decompressobj(wbits=31), 0
    packed = b"".join(body(told("a bomb", LIST, number)))
    assert len(packed) < MIB
    while piece := inflate.decompress(packed, MIB):
        size, packed = size + len(piece), inflate.unconsumed_tail
    assert size >= HUGE and inflate.eof


def test_pages_go_on_for_ever() -> None:
    token, seen = "", set()
    for _ in range(9):
        answer = lies.page(token, LIST) if token else next(_first_pages())
        page = json.loads(b"".join(body(answer)))
        token = page["metadata"]["continue"]
        assert token.startswith(lies.ENDLESS) and token not in seen
        seen.add(token)


def _first_pages() -> Iterator[Answer]:
    found = (told("endless pages", LIST, number) for number in range(100))
    return (one for one in found if lies.ENDLESS.encode() in one[0].what)


def test_a_specimen_is_an_object() -> None:
    """Otherwise every altered form of it would be rejected at once."""
    made = specimen(LIST, "a", 5)
    assert well_formed.malformed_reason(made) == "" and made["metadata"]["labels"] == {"rayspan.dev/manager": "me"}


def test_an_altered_object_is_odd_in_one_place() -> None:
    made = specimen(LIST, "a", 5)
    some = [bent(random.Random(number), made) for number in range(200)]
    assert made == specimen(LIST, "a", 5)
    assert sum(one == made for one in some) < 10
    refused = [well_formed.malformed_reason(one) for one in some]
    assert "" in refused and len(set(refused)) > 5, "some come in, and some do not"


# --- true answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/pods", ("pods", "", "")),
        ("/api/v1/namespaces", ("namespaces", "", "")),
        ("/api/v1/namespaces/kube-system", ("namespaces", "", "kube-system")),
        ("/api/v1/namespaces/demo/pods/a/status", ("pods", "demo", "a")),
        ("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q", ("clusterqueues", "", "q")),
        ("/apis/kueue.x-k8s.io/v1beta2/namespaces/demo/workloads", ("workloads", "demo", "")),
        ("/readyz", ("", "", "")),
    ],
)
def test_paths_are_read(path: str, found: tuple[str, str, str]) -> None:
    assert place(path) == found


def test_an_object_exists_until_it_is_deleted() -> None:
    world, one = World(), "/api/v1/namespaces/demo/pods/a"
    collection = Asked("POST", "/api/v1/namespaces/demo/pods")
    status, made = world.answer(collection, {"metadata": {"name": "a", "labels": {"x": "y"}}})
    assert status == 201 and well_formed.malformed_reason(made) == ""
    assert world.answer(collection, {"metadata": {"name": "a"}})[0] == 409
    assert world.answer(Asked("GET", one), None) == (200, made)
    listed = world.answer(Asked("GET", "/api/v1/pods", {"labelSelector": "x=y"}), None)[1]
    assert listed["items"] == [made]
    assert world.answer(Asked("GET", "/api/v1/pods", {"labelSelector": "x=z"}), None)[1]["items"] == []
    _, changed = world.answer(Asked("PATCH", one), {"metadata": {"uid": "other"}, "status": {"phase": "Failed"}})
    assert changed["metadata"]["uid"] == made["metadata"]["uid"] and changed["status"] == {"phase": "Failed"}
    world.answer(Asked("DELETE", one), None)
    assert world.answer(Asked("GET", one), None)[0] == 404


def test_a_stage_has_the_objects_that_a_plan_needs() -> None:
    world = World()
    world.furnish("it-demo", 8)
    (queue,) = world.answer(Asked("GET", "/apis/kueue.x-k8s.io/v1beta2/localqueues"), None)[1]["items"]
    assert (queue["metadata"]["namespace"], queue["spec"]["clusterQueue"]) == ("it-demo", "it-demo")
    only = Asked("GET", "/api/v1/namespaces", {"fieldSelector": "metadata.name=kube-system"})
    assert [one["metadata"]["name"] for one in world.answer(only, None)[1]["items"]] == ["kube-system"]


def test_a_true_watch_sends_bookmarks() -> None:
    _, true = World().answer(WATCH, None)
    assert b'"BOOKMARK"' in _truth(WATCH, 200, true)[0].what
