"""The facts about a Service: its rights, the workers of its RayCluster, and the state of their clusters."""

import logging
from collections.abc import Iterable
from typing import Any, cast

import pytest
from aiohttp import web

from adapter import names
from adapter.objects.unstructured import Key, Raw, uid_of
from adapter.shell.controller.enqueue import SERVICE
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.reconciler import Reconciler
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.observe.service_observer import ServiceObserver
from adapter.worker import service_endpoints
from adapter.worker.endpoint_objects import ServiceFacts
from adapter.worker.proxy_polling import FAILURE_THRESHOLD, ProxyPollState
from tests.unit.apiserver import Server, connected, serving
from tests.unit.builders import (
    NAMESPACE,
    make_ray_cluster,
    make_service,
    make_serving,
    make_serving_copy,
    make_worker_cluster,
)
from tests.unit.shell.write.test_dry_run_requests import Told
from tests.unit.stores import Sight, fill

KEY = (NAMESPACE, "chat-serve-svc")
HERE, THERE = make_serving("here"), make_serving("there", address="10.2.0.1", slot="west/1/w/0")


def make_slice(name: str, service: str = KEY[1]) -> Raw:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.SERVICE_NAME_LABEL: service}}}


def sight() -> Sight:
    """A RayService with a worker in each of two clusters, and a pod of another owner."""
    found = Sight({"east": 8, "west": 8})
    manager = found.manager
    other = make_serving("other")
    other["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL] = "other"
    for store, objects in (
        (manager.services, [make_service()]),
        (manager.slices, [make_slice("ours"), make_slice("another", "another")]),
        (manager.ray_clusters, [make_ray_cluster(owner="uid-of-chat")]),
        (manager.pods, [HERE, THERE, other]),
        (manager.worker_clusters, [make_worker_cluster("east"), make_worker_cluster("west")]),
        (found.members["east"].pods, [make_serving_copy(HERE)]),
        (found.members["west"].pods, [make_serving_copy(THERE)]),
    ):
        fill(store, *objects)
    return found


def read(found: Sight) -> ServiceFacts:
    return found.facts.service_observer.facts(KEY)


def test_the_workers_of_its_raycluster_with_their_copies() -> None:
    found = read(sight())
    assert {one.pod["metadata"]["name"] for one in found.backends} == {"here", "there"}
    assert all(one.remote_pod and one.reachable and not one.node_dead for one in found.backends)
    assert found.ray_cluster and [one["metadata"]["name"] for one in found.current_slices] == ["ours"]


def test_a_changed_pod_is_observed_at_the_next_reconcile() -> None:
    found = sight()
    read(found)
    fill(found.manager.pods, HERE)
    assert [one.pod["metadata"]["name"] for one in read(found).backends] == ["here"]


def test_ray_is_asked_about_an_unreachable_cluster() -> None:
    found = sight()
    found.members["west"]._note_error("probe", Unreachable("no answer"))
    losses, proxies = ClusterLosses(found.manager, found.fleet), ProxyHealth(found.manager, found.fleet)
    services = ServiceObserver(found.manager, found.fleet, losses, proxies)

    def states() -> dict[str, tuple[bool, bool, bool]]:
        each = services.facts(KEY).backends
        return {one.pod["metadata"]["name"]: (one.reachable, one.remote_pod is not None, one.node_dead) for one in each}

    assert states() == {"here": (True, True, False), "there": (False, False, False)}
    losses._live_nodes[NAMESPACE, "train-abc"] = {"there": True}, 0.0
    assert states()["there"] == (False, False, False)
    losses._live_nodes[NAMESPACE, "train-abc"] = {"there": False, "here": False}, 0.0
    assert states() == {"here": (True, True, False), "there": (False, False, True)}


def test_proxies_of_an_unreachable_cluster_are_polled() -> None:
    """Which is heard sooner than Ray's head; it counts for a cluster that is unreachable, and for no other."""
    found = sight()
    found.members["west"]._note_error("probe", Unreachable("no answer"))
    proxies = ProxyHealth(found.manager, found.fleet)
    services = ServiceObserver(found.manager, found.fleet, ClusterLosses(found.manager, found.fleet), proxies)
    deaf = ProxyPollState(ever_answered=True, failures=FAILURE_THRESHOLD)
    proxies._poll_schedule = {(NAMESPACE, uid_of(pod), "10.0.0.1:8000"): deaf for pod in (HERE, THERE)}
    assert {one.cluster: one.node_dead for one in services.facts(KEY).backends} == {"east": False, "west": True}


@pytest.mark.parametrize("plural", ["services", "endpointslices"])
def test_a_missing_right_gives_no_facts_and_one_message(plural: str, caplog: pytest.LogCaptureFixture) -> None:
    found = sight()
    manager, told = found.manager, list[object]()
    row = next(row for row in manager._watched_kinds if row.resource.plural == plural)
    row.store.set_handler(lambda *change: told.append(change))
    refusal = ApiError(403, "Forbidden", f"{plural} is forbidden")
    caplog.set_level(logging.INFO)
    for _ in range(3):
        manager._on_follow_result(row, refusal)
    assert read(found) == ServiceFacts(None) and manager.unreachable_reason == ""
    (line,) = caplog.messages
    assert "requests of RayServices pass their heads" in line and not told
    manager._on_follow_result(row, None)
    assert read(found).service and told == [(None, None)], "who is looked at again finds the right"
    assert "go straight to their workers" in caplog.messages[-1]


def test_pod_networks_count_while_the_cluster_is_unreachable() -> None:
    found = sight()
    clusters = [make_worker_cluster("east", podCIDRs=["10.1.0.0/16"]), make_worker_cluster("west", podCIDRs=["x"])]
    fill(found.manager.worker_clusters, *clusters)
    found.members["east"]._note_error("probe", Unreachable("no answer"))
    east, west = sorted(read(found).backends, key=lambda one: one.cluster)
    assert not east.reachable and [str(each) for each in east.pod_networks] == ["10.1.0.0/16"]
    assert west.reachable and west.remote_pod is None, "its addresses are not known, so none of them leads there"


def test_workers_of_a_relayed_cluster_have_no_route() -> None:
    found = sight()
    relay = {"mode": "Relay", "address": "relay.example.com:30443", "image": "relay:1"}
    fill(found.manager.worker_clusters, make_worker_cluster("east"), make_worker_cluster("west", network=relay))
    assert {backend.cluster: backend.relayed for backend in read(found).backends} == {"east": False, "west": True}


def test_a_slot_in_an_unregistered_cluster_is_no_endpoint() -> None:
    """Any user who may annotate pods may write any name there; it is no unreachable cluster."""
    found = sight()
    fill(found.manager.pods, make_serving("forged", slot="nowhere/1/w/0"))
    (forged,) = read(found).backends
    assert forged.reachable and forged.remote_pod is None and not forged.node_dead


def test_the_oldest_four_services_of_a_raycluster_get_slices() -> None:
    """Each Service costs a write for each change of a worker, and a user may create any number."""
    found = sight()
    many = [make_service(f"chat-{n}") for n in range(6)]
    for n, service in enumerate(many):
        service["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{n}Z"
    fill(found.manager.services, *reversed(many))
    led = {n: found.facts.service_observer.facts((NAMESPACE, f"chat-{n}")) for n in range(6)}
    assert [n for n, facts in led.items() if facts.exceeds_limit] == [4, 5]
    assert all(facts.backends for n, facts in led.items() if n < 4) and not led[5].backends
    fill(found.manager.services, *many[2:])
    assert not found.facts.service_observer.facts((NAMESPACE, "chat-5")).exceeds_limit


def test_services_without_an_owner_do_not_count_for_the_limit() -> None:
    """A user's own have the same labels and selector, and KubeRay's of the next RayCluster is younger than they are."""
    found = sight()
    users, own = [make_service(f"mine-{n}", owner="") for n in range(4)], make_service()
    for service in (own, *users):
        service["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z" if service is own else "2025-01-01T00:00:00Z"
    fill(found.manager.services, *users, own)
    assert not read(found).exceeds_limit and read(found).backends


def test_the_services_within_the_limit_are_computed_once_for_a_raycluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are looked at with each change of a worker."""
    found, asked = sight(), list[object]()
    fill(found.manager.services, *(make_service(f"chat-{n}") for n in range(20)))
    led = service_endpoints.routed_services

    def counted(services: Iterable[Raw], ray_cluster: Raw) -> list[Key]:
        asked.append(ray_cluster)
        return led(services, ray_cluster)

    monkeypatch.setattr(service_endpoints, "routed_services", counted)
    assert sum(found.facts.service_observer.facts((NAMESPACE, f"chat-{n}")).exceeds_limit for n in range(20)) == 16
    assert len(asked) == 1
    fill(found.manager.ray_clusters, make_ray_cluster(owner="uid-of-another"))
    assert not found.facts.service_observer.facts((NAMESPACE, "chat-19")).exceeds_limit, "none is of that RayCluster"


def test_a_service_without_an_owner_reads_no_pods() -> None:
    found = sight()
    fill(found.manager.services, make_service(owner=""))
    facts = read(found)
    assert facts.service and facts.current_slices and not facts.backends


async def test_one_reconcile_writes_one_slice_and_the_next_nothing() -> None:
    """From the stores to the API server, with nothing in between that a test stands in for."""
    body: Any = {}

    async def stored(request: web.Request) -> web.StreamResponse:
        body.update(await request.json())
        metadata = {**body["metadata"], "uid": "u", "resourceVersion": "9"}
        return web.json_response({**body, "metadata": metadata}, status=201)

    server, found, unasked = Server(lists=[stored]), sight(), cast(Any, None)
    fill(found.manager.slices)
    async with serving(server), connected(server.url) as client:
        found.manager.client = client
        looks = Reconciler(
            manager=found.manager,
            fleet=found.fleet,
            gang_observer=unasked,
            worker_observer=unasked,
            service_observer=found.facts.service_observer,
            assignments=unasked,
            executor=found.executor(client),
            condition_writer=unasked,
            quota_aggregator=unasked,
            ended_gangs=unasked,
            event_handlers=cast(EventHandlers, Told()),
        )
        for _ in range(2):
            assert await looks.reconcile((SERVICE, *KEY)) is None
    assert [asked.method for asked in server.asked] == ["POST"]
    assert [one["addresses"] for one in body["endpoints"]] == [["10.1.0.1"], ["10.2.0.1"]]


def test_an_unsynced_manager_gives_no_facts() -> None:
    found = sight()
    found.manager.slices.clear()
    assert read(found) == ServiceFacts(None)
    assert resources.ENDPOINT_SLICES not in found.manager.unreadable_kinds
