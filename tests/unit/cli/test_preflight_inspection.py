"""Which rights does a preflight ask a worker cluster for? Those that its own way of finding heads and of scheduling needs. And what does
it read in the manager? Only where there are RayServices in a queue, what concerns them.
"""

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
        side = await inspection.inspect_worker(client, "east", head, scheduler, "demo", ())
    assert {text.split()[1] for text in side.missing_rights} == missing
    assert not side.api_error


class _WithServices(Server):
    """A manager with this in Kueue's configuration, and without the policy that holds KubeRay; `services` are its RayServices."""

    def __init__(self, config: str, *services: str) -> None:
        super().__init__()
        self.config, self.services, self.read = config, services, set[str]()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        self.read.add(kind)
        items: list[object] = []
        if kind == "rayservices":
            assert request.query["labelSelector"] == "kueue.x-k8s.io/queue-name" and "/demo/" in request.path
            items = [{"metadata": {"name": name, "namespace": "demo"}} for name in self.services]
        if kind == "configmaps":
            items = [{"metadata": {"name": "other"}}, {"data": {"controller_manager_config.yaml": self.config}}]
        return await says({"items": items})(request)


@pytest.mark.parametrize(
    ("config", "want"),
    [
        pytest.param("integrations: {frameworks: [pod, ray.io/rayservice]}", ["pod", "ray.io/rayservice"], id="said"),
        pytest.param("integrations: {}", [], id="not said"),
        pytest.param("manageJobsWithoutQueueName: false", [], id="nothing of integrations"),
        pytest.param("integrations: [pod]", None, id="a list"),
        pytest.param("a: [", None, id="no YAML"),
        pytest.param("just words", None, id="words"),
        pytest.param("", None, id="elsewhere"),
    ],
)
async def test_where_services_are_in_a_queue_kueues_configuration_is_read(config: str, want: list[str] | None) -> None:
    async with apiserver.serving(_WithServices(config, "chat")) as server, apiserver.connected(server.url) as client:
        side = await inspection.inspect_manager(client, "the manager", "demo")
    assert (side.ray_services, side.frameworks, side.has_service_policy) == (["chat"], want, False)


async def test_where_none_is_nobody_looks() -> None:
    there = _WithServices("integrations: {frameworks: [ray.io/rayservice]}")
    async with apiserver.serving(there) as server, apiserver.connected(server.url) as client:
        side = await inspection.inspect_manager(client, "the manager", "demo")
    assert (side.ray_services, side.frameworks, side.has_service_policy) == ((), None, True)
    assert not there.read & {"configmaps", "mutatingadmissionpolicies"}
