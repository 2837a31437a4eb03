"""The sweep deletes what a crash left behind, and leaves owned objects to their owners."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from adapter import names
from adapter.objects.unstructured import Raw, format_time
from adapter.shell.clusters.cluster_cache import CONNECTION
from adapter.shell.kube.client import Unreachable
from adapter.shell.write import anchors
from tests.unit import apiserver
from tests.unit.apiserver import Server, says
from tests.unit.builders import NAMESPACE, make_meta, make_placement, make_reservation, make_workload, stamp
from tests.unit.stores import Sight, fill, put_clock_ahead

SHARE = make_reservation(make_placement(make_workload()))
OWNED = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "an-anchor", "uid": "u"}]


def config_map(name: str, **more: Any) -> Raw:
    return {"metadata": make_meta(name, creationTimestamp=stamp(), **more)}


async def test_an_invalid_answer_ends_no_sweep(caplog: pytest.LogCaptureFixture) -> None:
    sight = Sight({"east": 1})
    member = sight.members["east"]
    server = Server(lists=[says({"kind": "List", "items": ["nonsense"]})])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        member.client = client
        await anchors._sweep_cluster(member, sight.manager, "mgr")
    assert "anchors failed at str by AttributeError" in caplog.text


async def test_an_unreadable_anchor_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    sight = Sight({"east": 1})
    member = sight.members["east"]
    fill(
        member.local_queues,
        {"metadata": {"namespace": 5, "name": "x"}},
        {"metadata": {"namespace": NAMESPACE, "name": "y"}},
    )
    odd = {
        "metadata": {"name": "odd", "namespace": NAMESPACE, "annotations": {names.WORKLOAD_ANNOTATION: "rayjob-train"}}
    }
    place = make_placement(make_workload())
    fill(sight.manager.placements, {**place, "spec": {**place["spec"], "shares": 7}})
    server = Server(lists=[says({"kind": "List", "items": [odd, config_map("stray")]}), says({"kind": "Status"})] * 2)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        member.client = client
        await anchors._sweep_cluster(member, sight.manager, "mgr")
    assert "stray" in {one.path.rpartition("/")[2] for one in server.asked if one.method == "DELETE"}


@pytest.mark.parametrize(
    ("found", "deleted"),
    [
        pytest.param(config_map("stray"), ["stray"], id="an anchor without a share"),
        pytest.param(config_map(SHARE["metadata"]["name"]), [], id="an anchor with a share"),
        pytest.param(config_map("rayspan-0123", ownerReferences=OWNED), [], id="a copied object that its anchor owns"),
    ],
)
async def test_only_anchors_without_a_share_are_swept(found: Raw, deleted: list[str]) -> None:
    sight = Sight({"east": 1})
    member = sight.members["east"]
    fill(member.workloads, SHARE)
    server = Server(lists=[says({"kind": "List", "items": [found]}), says({"kind": "Status"})])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        member.client = client
        await anchors._sweep_namespace(member, NAMESPACE, sight.manager, "mgr")
    assert [one.path.rpartition("/")[2] for one in server.asked if one.method == "DELETE"] == deleted
    assert server.asked[0].query["labelSelector"].endswith(",!rayspan.dev/copy"), "what copies hold is not read"


async def test_when_a_cluster_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster is swept after it becomes reachable and earlier writes have settled, and then at an interval."""
    sight, swept = Sight({"east": 1, "west": 1}), list[tuple[int, str]]()
    turn = 0

    def seen() -> dict[str, Any]:
        return {name: one for name, one in sight.members.items() if name == "east" or turn not in (1, 2)}

    async def sweep(member: Any, *_: object) -> None:
        swept.append((turn, member.name))

    async def pause(_: float) -> None:
        nonlocal turn
        turn += 1
        if turn > 21:
            raise asyncio.CancelledError

    monkeypatch.setattr(anchors, "_sweep_cluster", sweep)
    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await anchors.run(seen, sight.manager, "mgr")
    assert [when for when, name in swept if name == "east"] == [0, 1, 20]
    assert [when for when, name in swept if name == "west"] == [0, 3, 4]


@pytest.mark.parametrize("whose", ["manager", "member"])
async def test_nothing_is_swept_by_emptied_stores(whose: str) -> None:
    """A list takes minutes, and the cache of either cluster may be dropped meanwhile."""
    sight = Sight({"east": 1})
    member = sight.members["east"]

    async def while_it_is_emptied(request: web.Request) -> web.StreamResponse:
        cluster = member if whose == "member" else sight.manager
        cluster._note_error(CONNECTION, Unreachable("it shows too much"))
        return await says({"kind": "List", "items": [config_map("stray")]})(request)

    server = Server(lists=[while_it_is_emptied, says({"kind": "Status"})])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        member.client = client
        await anchors._sweep_cluster(member, sight.manager, "mgr")
    assert [one.method for one in server.asked] == ["GET"]


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
@pytest.mark.parametrize(("age", "deleted"), [(10, False), (20, True)])
async def test_the_age_of_an_anchor_counts_by_its_clusters_clock(ahead: float, age: float, deleted: bool) -> None:
    """Its share may be created a moment after it."""
    sight = Sight({"east": 1})
    member, created = sight.members["east"], datetime.now(UTC) + timedelta(seconds=ahead - age)
    put_clock_ahead(member, ahead)
    stray = {"metadata": make_meta("stray", creationTimestamp=format_time(created))}
    assert anchors._is_orphan(stray, member, sight.manager) is deleted
