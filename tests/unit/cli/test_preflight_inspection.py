"""The rights that a preflight asks for in a worker cluster, and what it reads in the manager about RayServices.

Rights depend on how the cluster finds heads and schedules pods. RayServices matter only if one is in a queue.
"""

import pytest
from aiohttp import web

from adapter.admission.cluster_identity import IdentityRecord
from adapter.cli.preflight import inspection
from tests.unit import apiserver
from tests.unit.apiserver import Server, says

OF_MIRRORS = {"services", "endpointslices", "endpointslices/restricted"}
OF_VOLCANO = {"podgroups"}


class _OldAccount(Server):
    """An account from before ServiceMirror and before Volcano's pod groups."""

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
        side = await inspection.inspect_worker(client, IdentityRecord("east"), head, scheduler, "demo", ())
    assert {text.split()[1] for text in side.missing_rights} == missing
    assert not side.api_error


async def test_a_cluster_that_is_not_the_one_on_record_is_not_inspected() -> None:
    """No probe pod is created there either, because the result has an API error."""
    async with apiserver.serving(Server(uid="another")) as server, apiserver.connected(server.url) as client:
        side = await inspection.inspect_worker(client, IdentityRecord("east", "first"), "PodIP", "", "demo", ())
    assert side.api_error.startswith("east is not inspected: its kubeconfig leads to a different cluster than before")
    assert server.asked == []


class _WithServices(Server):
    """A manager with this configuration of Kueue, these RayServices, and no policy that holds KubeRay."""

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
        pytest.param(
            "integrations: {frameworks: [pod, ray.io/rayservice]}",
            ["pod", "ray.io/rayservice"],
            id="frameworks are listed",
        ),
        pytest.param("integrations: {}", [], id="frameworks are missing"),
        pytest.param("manageJobsWithoutQueueName: false", [], id="integrations is missing"),
        pytest.param("integrations: [pod]", None, id="a list instead of a map"),
        pytest.param("a: [", None, id="invalid YAML"),
        pytest.param("just words", None, id="a text instead of a map"),
        pytest.param("", None, id="an empty text"),
    ],
)
async def test_kueues_configuration_is_read_if_services_are_in_a_queue(config: str, want: list[str] | None) -> None:
    async with apiserver.serving(_WithServices(config, "chat")) as server, apiserver.connected(server.url) as client:
        side = await inspection.inspect_manager(client, "the manager", "demo")
    assert (side.ray_services, side.frameworks, side.has_service_policy) == (["chat"], want, False)


async def test_kueues_configuration_is_not_read_without_services() -> None:
    there = _WithServices("integrations: {frameworks: [ray.io/rayservice]}")
    async with apiserver.serving(there) as server, apiserver.connected(server.url) as client:
        side = await inspection.inspect_manager(client, "the manager", "demo")
    assert (side.ray_services, side.frameworks, side.has_service_policy) == ((), None, True)
    assert not there.read & {"configmaps", "mutatingadmissionpolicies"}


class _OddNodes(_OldAccount):
    """A cluster whose nodes are of a wrong shape."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/nodes"):
            return await says({"items": [{"metadata": {"name": "a"}, "spec": {"podCIDRs": [{}]}}]})(request)
        return await super().handle(request)


async def test_objects_of_a_wrong_shape_are_an_error_of_their_cluster() -> None:
    async with apiserver.serving(_OddNodes()) as server, apiserver.connected(server.url) as client:
        side = await inspection.inspect_worker(client, IdentityRecord("east"), "PodIP", "", "demo", ())
    assert side.api_error.startswith("The API server of east answers with objects that cannot be read; see ")


class _Queues(_OldAccount):
    """A worker cluster whose Kueue's configuration is readable."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        queues = [
            {"metadata": {"name": name}, "spec": {"queueingStrategy": "StrictFIFO"}} for name in ("team", "others")
        ]
        items = {
            "localqueues": [{"metadata": {"name": "ray", "namespace": "demo"}, "spec": {"clusterQueue": "team"}}],
            "clusterqueues": queues,
            "configmaps": [{"data": {"controller_manager_config.yaml": "integrations: {frameworks: [batch/job]}"}}],
        }
        kind = request.path.rpartition("/")[2]
        if request.method == "GET" and kind in items:
            return await says({"items": items[kind]})(request)
        return await super().handle(request)


async def test_settings_of_a_worker_clusters_queues_and_of_its_kueue_are_noted() -> None:
    async with apiserver.serving(_Queues()) as server, apiserver.connected(server.url) as client:
        side = await inspection.inspect_worker(client, IdentityRecord("east"), "PodIP", "", "demo", ("ray",))
    (note,), (fault,) = side.kueue_notes, side.kueue_faults
    assert note.startswith("ClusterQueue team is StrictFIFO") and "lacks pod in integrations.frameworks" in fault
