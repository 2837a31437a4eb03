"""Which rights does a preflight ask a worker cluster for? Those that its own way of finding heads and of scheduling needs."""

import pytest
from aiohttp import web

from adapter.cli.preflight import inspection
from tests.unit import apiserver
from tests.unit.apiserver import Server, says

OF_MIRRORS = {"services", "endpointslices", "endpointslices/restricted"}
OF_VOLCANO = {"podgroups"}


class _OldAccount(Server):
    """Its account was made before there was a ServiceMirror, and before Volcano was told of gangs."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await says({"items": [{"metadata": {"name": "demo"}}]})(request)
        asked = (await request.json())["spec"]["resourceAttributes"]
        kind = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
        return await says({"status": {"allowed": kind not in OF_MIRRORS | OF_VOLCANO}})(request)


@pytest.mark.parametrize(
    ("head", "scheduler", "missing"),
    [
        ("ServiceMirror", "", OF_MIRRORS),
        ("PodIP", "", set()),
        ("ClusterSet", "", set()),
        ("Static", "other", set()),
        ("PodIP", "volcano", OF_VOLCANO),
    ],
)
async def test_rights_on_services_and_pod_groups_are_for_clusters_that_use_them(
    head: str, scheduler: str, missing: set[str]
) -> None:
    async with apiserver.serving(_OldAccount()) as server, apiserver.connected(server.url) as client:
        side = await inspection.worker(client, "east", head, scheduler, "demo", ())
    assert {text.split()[1] for text in side.missing} == missing
    assert not side.trouble
