"""What a head needs for the relay is written before Kueue starts the job; a denial gives the job's capacity back."""

import base64
from typing import Any

import pytest

from adapter import names
from adapter.actions import SetCheck
from adapter.objects.workload import parse_workload
from adapter.relay.relay_network import identity_of, podset_update
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.write.relay_writer import RelayWriter
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, refuses, says
from tests.unit.builders import make_ray_cluster, make_workload
from tests.unit.stores import Sight, fill

WORK: Any = make_workload()
RAY_CLUSTER, OTHER = make_ray_cluster(), make_ray_cluster(name="other", owner="uid-of-other")
IDENTITY = identity_of(WORK["metadata"]["uid"])
KEY: Any = {
    "kind": "Secret",
    "metadata": {"namespace": names.SYSTEM_NAMESPACE, "name": names.RELAY_KEY_SECRET},
    "data": {"key": base64.b64encode(b"k" * 32).decode()},
}


async def _set_ready(server: Server, work: Any = WORK) -> Sight:
    sight = Sight({"east": 9})
    fill(sight.manager.secrets, KEY)
    fill(sight.manager.workloads, work)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = sight.members["east"].client = client
        updates = (podset_update(IDENTITY),)
        action = SetCheck(parse_workload(work), builders.CHECK, names.CHECK_READY, "all", podset_updates=updates)
        await sight.executor(client).execute(action)
    return sight


async def test_secret_and_service_of_the_head_are_written_before_the_check() -> None:
    server = Server(lists=[says(KEY), says(KEY), says(WORK)])
    await _set_ready(server)
    secret, service, check = server.asked
    assert secret.path.endswith(f"/secrets/rayspan-relay-{IDENTITY}") and "names.key" in secret.body["stringData"]
    assert service.path.endswith(f"/services/rayspan-relay-{IDENTITY}")
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": builders.JOB, "uid": "uid-of-job"}
    assert [each.body["metadata"]["ownerReferences"] for each in (secret, service)] == [[owner], [owner]]
    (entry,) = check.body["status"]["admissionChecks"]
    assert (entry["state"], entry["podSetUpdates"]) == (names.CHECK_READY, [podset_update(IDENTITY)])


async def test_a_denial_queues_the_job_again_and_closes_relayed_clusters_for_a_while() -> None:
    server = Server(lists=[refuses(403), says(WORK)])
    sight = await _set_ready(server)
    (entry,) = server.asked[-1].body["status"]["admissionChecks"]
    assert entry["state"] == names.CHECK_RETRY and "podSetUpdates" not in entry
    assert "install the component relay there" in entry["message"]
    assert "install the component relay there" in sight.facts.policies.denied_relay_reason(builders.NAMESPACE)
    assert not sight.facts.policies.denied_relay_reason("elsewhere"), "a quota may deny those of one namespace alone"


async def test_a_failure_that_passes_is_tried_again() -> None:
    with pytest.raises(ApiError):
        await _set_ready(Server(lists=[refuses(500), says(WORK)]))


async def test_a_head_that_was_started_with_the_relay_is_not_prepared_again() -> None:
    """As with another slice of a running elastic job."""
    started = make_workload(check=names.CHECK_READY)
    started["status"]["admissionChecks"][0]["podSetUpdates"] = [podset_update(IDENTITY)]
    server = Server(lists=[says(WORK)])
    await _set_ready(server, started)
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == ["status"]


@pytest.mark.parametrize(
    ("namespace", "identity", "owner", "routed"),
    [
        pytest.param(builders.NAMESPACE, IDENTITY, RAY_CLUSTER, True, id="its head"),
        pytest.param("elsewhere", IDENTITY, RAY_CLUSTER, False, id="another tenant's pod with its label"),
        pytest.param(builders.NAMESPACE, IDENTITY, OTHER, False, id="a pod of another job of its namespace"),
        pytest.param(builders.NAMESPACE, IDENTITY, None, False, id="a pod of no RayCluster"),
        pytest.param(builders.NAMESPACE, identity_of("other"), RAY_CLUSTER, False, id="a label of no job"),
    ],
)
async def test_routers_follow_a_head_that_moves(
    namespace: str, identity: str, owner: Any, routed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    server, sight = Server(lists=[says(KEY)] * 4), Sight({"east": 9})
    fill(sight.manager.secrets, KEY)
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.ray_clusters, RAY_CLUSTER, OTHER)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        writer = RelayWriter(sight.manager, sight.facts.policies)
        for ip in ("10.1.0.1", "10.1.0.1", "10.1.0.2"):
            fill(sight.manager.heads, _head(namespace, identity, owner, ip))
            await writer.route_heads()
    slices = [asked.body["endpoints"][0]["addresses"] for asked in server.asked if "endpoints" in asked.body]
    assert slices == ([["10.1.0.1"], ["10.1.0.2"]] if routed else []), "an unchanged address is not written again"


def _head(namespace: str, identity: str, owner: Any, ip: str) -> Any:
    labels, owners = {names.RELAY_LABEL: identity}, []
    if owner:
        name = owner["metadata"]["name"]
        labels[names.RAY_GCS_CLUSTER_LABEL] = name
        owners = [{"kind": "RayCluster", "name": name, "uid": owner["metadata"]["uid"], "controller": True}]
    metadata = {"name": "head", "namespace": namespace, "labels": labels, "ownerReferences": owners}
    return {"metadata": metadata, "status": {"podIP": ip}}


def _route(identity: str) -> Any:
    labels = {names.RELAY_LABEL: identity, names.RELAY_NAMESPACE_LABEL: builders.NAMESPACE}
    metadata = {"namespace": names.SYSTEM_NAMESPACE, "name": f"rayspan-head-{identity}", "uid": "u", "labels": labels}
    return {"metadata": {**metadata, "resourceVersion": "1"}}


@pytest.mark.parametrize("complete", [True, False], ids=["read as a whole", "incomplete"])
async def test_the_way_to_a_head_that_is_gone_is_deleted(complete: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a namespace that is not read as a whole, no job is known to be gone."""
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    routes = {"kind": "ServiceList", "metadata": {"resourceVersion": "9"}, "items": [_route(IDENTITY), _route("gone")]}
    server, sight = Server(lists=[says(routes), says(KEY)]), Sight({"east": 9})
    monkeypatch.setattr(sight.manager.namespace_shares, "is_complete", lambda _: complete)
    fill(sight.manager.secrets, KEY)
    fill(sight.manager.workloads, WORK)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        await RelayWriter(sight.manager, sight.facts.policies).delete_unused_routes()
    deleted = [asked.path.rpartition("/")[2] for asked in server.asked if asked.method == "DELETE"]
    assert deleted == (["rayspan-head-gone"] if complete else [])


@pytest.mark.parametrize("data", [{}, {"key": ""}, {"key": "a2V5"}])
async def test_no_credential_is_made_from_a_key_that_is_too_short(data: Any) -> None:
    sight = Sight({"east": 9})
    fill(sight.manager.secrets, {**KEY, "data": data})
    with pytest.raises(Unreachable, match=r"has no 32 bytes in data\.key"):
        await RelayWriter(sight.manager, sight.facts.policies)._read_key()
