"""Which rights does a preflight ask a worker cluster for? Those that the cluster's own way of finding heads needs."""

import pytest
from aiohttp import web

from adapter.shell import inspection
from tests.unit import apiserver
from tests.unit.apiserver import Server, says

OF_MIRRORS = {"services", "endpointslices", "endpointslices/restricted"}


class _OldAccount(Server):
    """Its account was made before there was a ServiceMirror."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await says({"items": [{"metadata": {"name": "demo"}}]})(request)
        asked = (await request.json())["spec"]["resourceAttributes"]
        kind = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
        return await says({"status": {"allowed": kind not in OF_MIRRORS}})(request)


@pytest.mark.parametrize(
    ("head", "missing"), [("ServiceMirror", OF_MIRRORS), ("PodIP", set()), ("ClusterSet", set()), ("Static", set())]
)
async def test_rights_on_services_are_for_clusters_that_mirror_heads(head: str, missing: set[str]) -> None:
    async with apiserver.serving(_OldAccount()) as server, apiserver.connected(server.url) as client:
        side = await inspection.worker(client, "east", head, "demo", ())
    assert {text.split()[1] for text in side.missing} == missing
    assert not side.trouble
