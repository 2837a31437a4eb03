"""What a started relayed job needs is written again where somebody deleted it, and routes of other jobs are deleted."""

import base64
import json
from typing import Any

import pytest

from adapter import names
from adapter.relay.relay_keys import fingerprint_of, read_key
from adapter.relay.relay_network import RelayNetwork, identity_of, podset_update, with_key
from adapter.shell.clusters.cluster_cache import CONNECTION
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.write import relay_upkeep
from adapter.shell.write.relay_upkeep import TOKEN_SECONDS, RelayUpkeep
from adapter.shell.write.relay_writer import RelayWriter
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, refuses, says
from tests.unit.builders import make_ray_cluster, make_relay_key, make_workload
from tests.unit.stores import Sight, fill, put_ahead

RAY_CLUSTER, OTHER = make_ray_cluster(), make_ray_cluster(name="other", owner="uid-of-other")
WORK: Any = make_workload()
IDENTITY = identity_of(WORK["metadata"]["uid"])
KEY = make_relay_key()


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
        upkeep = _upkeep(sight)
        for ip in ("10.1.0.1", "10.1.0.1", "10.1.0.2"):
            fill(sight.manager.heads, _head(namespace, identity, owner, ip))
            await upkeep.route_heads()
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
        await _upkeep(sight).delete_unused_routes()
    deleted = [asked.path.rpartition("/")[2] for asked in server.asked if asked.method == "DELETE"]
    assert deleted == (["rayspan-head-gone"] if complete else [])


async def _keep(sight: Sight, server: Server, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The requests of one round, as method and path."""
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    fill(sight.manager.secrets, KEY)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        for member in sight.members.values():
            member.client = client
        upkeep = _upkeep(sight)
        await upkeep.keep_heads()
        await upkeep.keep_names()
    return [(asked.method, asked.path.partition("/v1/")[2]) for asked in server.asked]


def _started(identity: str = IDENTITY, key: Any = KEY) -> Any:
    work = make_workload(check=names.CHECK_READY)
    updates = with_key([podset_update(identity)], fingerprint_of(read_key(key)))
    work["status"]["admissionChecks"][0]["podSetUpdates"] = [*updates]
    return work


def _node(identity: str, namespace: str = builders.NAMESPACE, anchor: str = "anchor") -> Any:
    labels = {names.RELAY_LABEL: identity, names.MANAGER_LABEL: "mgr"}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": anchor, "uid": f"uid-of-{anchor}"}
    return {"metadata": {"name": f"of-{anchor}", "namespace": namespace, "labels": labels, "ownerReferences": [owner]}}


_SECRET, _SERVICE = (
    f"namespaces/{builders.NAMESPACE}/{kind}/rayspan-relay-{IDENTITY}" for kind in ("secrets", "services")
)
_GONE, _THERE = refuses(404, "NotFound"), says(KEY)


def _created(path: str) -> tuple[str, str]:
    return "POST", path.rpartition("/")[0]


async def test_what_somebody_deleted_of_a_started_job_is_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    sight, server = Sight({"east": 9}), Server(lists=[_GONE, _THERE] * 3)
    fill(sight.manager.workloads, _started())
    fill(sight.members["east"].pods, _node(IDENTITY), _node(IDENTITY, anchor="second"), _node("f" * 20))
    asked = await _keep(sight, server, monkeypatch)
    expected = [("PATCH", _SECRET), _created(_SECRET), ("PATCH", _SERVICE), _created(_SERVICE)]
    assert asked == [*expected, ("GET", f"{_SERVICE}-east"), _created(_SERVICE)]
    bodies = [each.body["metadata"] for each in server.asked if each.method == "POST"]
    owners = [[owner["name"] for owner in metadata["ownerReferences"]] for metadata in bodies]
    assert owners == [[builders.JOB], [builders.JOB], ["anchor", "second"]]


async def test_a_head_gets_no_secret_of_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own client would read it, and lose the server beside it."""
    sight, server = Sight({"east": 9}), Server(lists=[_GONE, _THERE])
    fill(sight.manager.workloads, _started(key=make_relay_key(b"o")))
    assert await _keep(sight, server, monkeypatch) == [("PATCH", _SECRET), ("PATCH", _SERVICE)]


async def _keep_worker_secrets(sight: Sight, server: Server, monkeypatch: pytest.MonkeyPatch, rounds: int = 1) -> None:
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    fill(sight.manager.secrets, KEY)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.members["east"].client = client
        upkeep = _upkeep(sight)
        for _ in range(rounds):
            await upkeep.keep_worker_secrets()


def _worker(name: str, address: str = "relay.example.com:30443", **status: Any) -> Any:
    pod = _node(IDENTITY)
    annotations = {names.RELAY_ADDRESS_ANNOTATION: address} if address else {}
    labels = {**pod["metadata"]["labels"], names.POD_UID_LABEL: f"manager-uid-of-{name}"}
    own = {"name": name, "uid": f"uid-of-{name}", "annotations": annotations, "labels": labels}
    created = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": {**pod["metadata"], **own, **created}, "status": status}


def _manager_pods(*workers: str) -> list[Any]:
    named = ({"name": name, "namespace": builders.NAMESPACE, "uid": f"manager-uid-of-{name}"} for name in workers)
    return [{"metadata": metadata} for metadata in named]


async def test_the_secret_of_a_running_worker_is_written_again_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    sight, server = Sight({"east": 9}), Server(lists=[_GONE, _THERE, _THERE])
    fill(sight.manager.workloads, _started())
    ended, other = _worker("ended", phase="Failed"), _worker("of-earlier-version", address="")
    fill(sight.members["east"].pods, _worker("w"), ended, other, _worker("of-a-stranger"))
    fill(sight.manager.pods, *_manager_pods("w", "ended", "of-earlier-version"))
    await _keep_worker_secrets(sight, server, monkeypatch, rounds=2)
    path = f"namespaces/{builders.NAMESPACE}/secrets/rayspan-relay-{IDENTITY}-w"
    requests = [(asked.method, asked.path.partition("/v1/")[2]) for asked in server.asked]
    assert requests == [("PUT", path), _created(path), ("PUT", path)]
    first, created, again = (asked.body for asked in server.asked)
    assert first == created == again, "equal bytes change nothing there"
    assert json.loads(created["stringData"]["frpc.json"])["serverAddr"] == "relay.example.com"
    assert [owner["uid"] for owner in created["metadata"]["ownerReferences"]] == ["uid-of-w"]


async def test_all_secrets_of_a_large_job_are_looked_at_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_upkeep, "SECRETS_IN_ROUND", 2)
    sight, server = Sight({"east": 9}), Server(lists=[_THERE] * 4)
    fill(sight.manager.workloads, _started())
    fill(sight.members["east"].pods, *map(_worker, ("w-1", "w-2", "w-3")))
    fill(sight.manager.pods, *_manager_pods("w-1", "w-2", "w-3"))
    await _keep_worker_secrets(sight, server, monkeypatch, rounds=2)
    assert [asked.path[-3:] for asked in server.asked] == ["w-1", "w-2", "w-3", "w-1"]


async def test_a_worker_gets_no_secret_of_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sidecar would read it, and lose the head."""
    sight, server = Sight({"east": 9}), Server()
    fill(sight.manager.workloads, _started(key=make_relay_key(b"o")))
    fill(sight.members["east"].pods, _worker("w"))
    fill(sight.manager.pods, *_manager_pods("w"))
    await _keep_worker_secrets(sight, server, monkeypatch)
    assert not server.asked


async def test_no_secret_is_written_for_a_head_whose_key_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version started it, maybe with another key."""
    sight, server, work = Sight({"east": 9}), Server(), _started()
    work["status"]["admissionChecks"][0]["podSetUpdates"] = [podset_update(IDENTITY)]
    fill(sight.manager.workloads, work)
    fill(sight.members["east"].pods, _worker("w"))
    fill(sight.manager.pods, *_manager_pods("w"))
    await _keep_worker_secrets(sight, server, monkeypatch)
    assert not server.asked


async def test_a_route_that_lacks_its_slice_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller may not list EndpointSlices there."""
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    routes = {"kind": "ServiceList", "metadata": {"resourceVersion": "9"}, "items": [_route(IDENTITY)]}
    server, sight = Server(lists=[says(KEY), says(KEY), says(routes), says(KEY), says(KEY)]), Sight({"east": 9})
    fill(sight.manager.secrets, KEY)
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.ray_clusters, RAY_CLUSTER)
    fill(sight.manager.heads, _head(builders.NAMESPACE, IDENTITY, RAY_CLUSTER, "10.1.0.1"))
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        upkeep = _upkeep(sight)
        for task in (upkeep.route_heads, upkeep.delete_unused_routes, upkeep.route_heads):
            await task()
    assert len([asked for asked in server.asked if "/endpointslices/" in asked.path]) == 2


async def test_what_is_there_is_not_created(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ResourceQuota counts a create before the API server knows that the object exists."""
    labels = {names.RELAY_LABEL: IDENTITY, names.MANAGER_LABEL: "mgr"}
    owners = _node(IDENTITY)["metadata"]["ownerReferences"]
    service = {"metadata": {"name": "nodes", "labels": labels, "ownerReferences": owners, "resourceVersion": "1"}}
    sight, server = Sight({"east": 9}), Server(lists=[_THERE, _THERE, says(service)])
    fill(sight.manager.workloads, _started())
    fill(sight.members["east"].pods, _node(IDENTITY))
    asked = await _keep(sight, server, monkeypatch)
    assert asked == [("PATCH", _SECRET), ("PATCH", _SERVICE), ("GET", f"{_SERVICE}-east")]
    assert list(server.asked[0].body["data"]) == ["nodes.json"], "other files stay as the head was started with"


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(WORK, id="its head is not started"),
        pytest.param(make_workload(check=names.CHECK_READY), id="its head was started without a network"),
        pytest.param(_started("a" * 20), id="the identity is another's"),
    ],
)
async def test_nothing_is_made_for_a_job_without_a_started_network(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sight, server = Sight({"east": 9}), Server()
    fill(sight.manager.workloads, work)
    fill(sight.members["east"].pods, _node(IDENTITY))
    assert await _keep(sight, server, monkeypatch) == []


@pytest.mark.parametrize(
    ("complete", "clusters"),
    [
        pytest.param(True, {"east": ["of-anchor"], "west": []}, id="of reachable clusters"),
        pytest.param(False, {}, id="the namespace is not read as a whole"),
    ],
)
async def test_tokens_of_workers_that_left_are_revoked(
    complete: bool, clusters: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """North is unreachable, so none of its workers is known to have left."""
    sight, server = Sight({"east": 9, "west": 9, "north": 9}), Server(lists=[_THERE, _THERE, _THERE])
    fill(sight.manager.workloads, _started())
    fill(sight.members["east"].pods, _node(IDENTITY))
    sight.members["north"]._note_error(CONNECTION, Exception("no route to host"))
    for member in sight.members.values():
        monkeypatch.setattr(member.namespace_shares, "is_complete", lambda namespace: complete or not namespace)
    await _keep(sight, server, monkeypatch)
    nodes = json.loads(base64.b64decode(server.asked[0].body["data"]["nodes.json"]))
    network = RelayNetwork(IDENTITY, builders.NAMESPACE)
    assert nodes["clusters"] == {network.node_domain(cluster): pods for cluster, pods in clusters.items()}
    margin = sight.manager.clock.now().timestamp() - nodes["since"]
    assert TOKEN_SECONDS <= margin < 2 * TOKEN_SECONDS + 5, "a pod that is not seen yet may log in"


async def test_a_job_whose_objects_are_denied_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    other = _started(identity_of("uid-of-other"))
    other["metadata"].update(name="other", uid="uid-of-other")
    sight, server = Sight({"east": 9}), Server(lists=[refuses(403), refuses(403), _THERE, _THERE])
    fill(sight.manager.workloads, _started(), other)
    asked = await _keep(sight, server, monkeypatch)
    assert len({path for _, path in asked if "/secrets/" in path}) == 2


async def test_a_namespace_is_tried_until_it_denies_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """By objects that no job has: an apply of what exists is never denied by a quota."""
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    sight, server = Sight({"east": 9}), Server(lists=[refuses(403, message="still"), _THERE, _THERE])
    fill(sight.manager.secrets, KEY)
    fill(sight.manager.workloads, WORK)
    policies, versions = sight.facts.policies, sight.fleet.capacity_versions
    policies.note_relay_denied(builders.NAMESPACE, "of old")
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        upkeep, before = _upkeep(sight), versions.version
        await upkeep.try_denied_namespaces()
        assert "still" in policies.denied_relay_reason(builders.NAMESPACE)
        assert versions.version == before
        await upkeep.try_denied_namespaces()
        assert not policies.denied_relay_reason(builders.NAMESPACE)
        assert versions.version > before, "its waiting gangs are planned again"
        await upkeep.try_denied_namespaces()
    assert [asked.query.get("dryRun") for asked in server.asked] == ["All"] * 3, "only a namespace that denied is asked"
    assert not any(asked.path.endswith(IDENTITY) for asked in server.asked)


async def test_gangs_are_planned_again_once_a_denial_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when no API server answers the dry run."""
    monkeypatch.setattr(ManagerCache, "not_ready_reason", "")
    sight = Sight({"east": 9})
    upkeep, versions = _upkeep(sight), sight.fleet.capacity_versions
    sight.facts.policies.note_relay_denied(builders.NAMESPACE, "of old")
    await upkeep.try_denied_namespaces()
    before = versions.version
    put_ahead(sight.manager.clock, 301)
    await upkeep.try_denied_namespaces()
    assert versions.version > before


def _upkeep(sight: Sight) -> RelayUpkeep:
    policies = sight.facts.policies
    return RelayUpkeep(sight.manager, sight.fleet, policies, sight.facts.relay, RelayWriter(sight.manager, policies))
