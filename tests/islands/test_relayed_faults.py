"""Tests that a job over islands outlives cuts, routers and workers: no process restarts while Ray waits for it.

The tests share one job with an actor on each worker, as its start takes as long as a fault.
"""

import base64
import json
import time
from collections.abc import Iterator

import pytest

from adapter import names
from adapter.relay.relay_network import MANAGER, RelayNetwork, network_of_head
from adapter.relay.relay_objects import NODES_KEY
from hack.lab import faults
from hack.lab.base.lab import OPEN_PORT, Lab
from hack.testbed import actors, clusterloss, rayspec, relay
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.rayjob import NAMESPACE, Job, removed
from hack.testbed.reader import Raw

# In a network with routes: e2e/faults/test_cuts.py and e2e/test_drain.py.
pytestmark = pytest.mark.long

_CUT_SECONDS = 20
_KEPT_SECONDS = 180  # two periods of relay_upkeep.KEEP_SECONDS, and a third for a busy machine
_ASKED_SECONDS = 120  # connections through the relay may come back late


@pytest.fixture(scope="module")
def job(relayed: Clusters) -> Iterator[Job]:
    with removed(Job(relayed, "relayed-actors", 2, apart=True)) as actors_job:
        actors.submit(actors_job, rayspec.beside_sidecars)
        yield actors_job


def test_a_cut_of_twenty_seconds_restarts_no_process(job: Job, lab: Lab) -> None:
    """Nothing passes between east's pods and the relay, while its API server is reached."""
    before = actors.seen_after(job, 0, _ASKED_SECONDS)
    faults.cut(lab, lab.cluster("east"), scope="data")
    cut_at = actors.seen(job).asked
    begin = time.monotonic()
    wait(lambda: time.monotonic() > begin + _CUT_SECONDS, 60, "the cut lasts", job.dump)
    assert actors.seen(job).asked <= cut_at + 2, "the link is cut"
    faults.heal(lab)
    _assert_unchanged(job, before)


def test_a_worker_that_ray_still_reaches_is_not_replaced(job: Job, lab: Lab) -> None:
    """East's API server is unreachable past the policy's timeout, and the relay is reached."""
    before, pods = actors.seen_after(job, 0, _ASKED_SECONDS), {pod["metadata"]["uid"] for pod in job.pods()}
    with clusterloss.short_timeout(job.manager):
        faults.cut(lab, lab.cluster("east"), scope="api")
        clusterloss.wait_for_given_up(job, "east")
        assert {pod["metadata"]["uid"] for pod in job.pods()} == pods
        faults.heal(lab)
        wait(lambda: not clusterloss.unknown_conditions(job), 60, "east is reachable again", job.dump)
    assert {pod["metadata"]["uid"] for pod in job.pods()} == pods
    _assert_unchanged(job, before)


def test_the_routers_are_remade(job: Job) -> None:
    before = actors.seen_after(job, 0, _ASKED_SECONDS)
    for action in (("restart",), ("status", "--timeout=100s")):
        job.manager.kubectl("-n", relay.COMPONENT_NAMESPACE, "rollout", *action, relay.ROUTER_DEPLOYMENT)
    _assert_unchanged(job, before)


def test_what_somebody_deletes_of_the_network_is_written_again(job: Job) -> None:
    before, network, east = actors.seen_after(job, 0, _ASKED_SECONDS), _network(job), job.fleet.workers["east"]
    (worker,) = _ready_pods(east)
    key, routes = _key_data(job), (job.manager, "endpointslice", network.router_service, names.SYSTEM_NAMESPACE)
    objects = [
        (job.manager, "secret", names.RELAY_KEY_SECRET, names.SYSTEM_NAMESPACE),
        (job.manager, "secret", network.secret, NAMESPACE),
        (job.manager, "service", network.node_service(MANAGER), NAMESPACE),
        (job.manager, "service", network.router_service, names.SYSTEM_NAMESPACE),
        (east, "service", network.node_service("east"), NAMESPACE),
        (east, "secret", network.worker_secret(worker["metadata"]["name"]), NAMESPACE),
    ]
    for deleted in (objects, [routes]):  # a slice goes with its Service, so it is deleted alone, too
        for cluster, kind, name, namespace in deleted:
            cluster.delete(kind, name, namespace)
        wait(
            lambda: all(cluster.get(*place) for cluster, *place in [*objects, routes]),
            _KEPT_SECONDS,
            "all of them are there again",
            job.dump,
        )
    assert _key_data(job) == key, "the heads accept no other one"
    _assert_unchanged(job, before)


def test_a_changed_address_is_reported_until_it_is_the_workers_again(job: Job, islands: Lab) -> None:
    before, old = actors.seen_after(job, 0, _ASKED_SECONDS), f"{islands.manager.address}:{OPEN_PORT}"
    relay.set_address(islands, job.fleet, "east", port=OPEN_PORT + 1)
    try:
        wait(lambda: _currency(job, "east") == "RelayAddressChanged", 60, "east reports its workers", job.dump)
        message = condition(job.manager.get("workerclusters", "east"), names.RELAY_CURRENT)["message"]
        assert f"Workers of RayJob {NAMESPACE}/{job.name} dial {old}" in message
        assert _currency(job, "west") == "RelayCurrent"
    finally:
        relay.set_address(islands, job.fleet, "east")
    wait(lambda: _currency(job, "east") == "RelayCurrent", 60, "east reports no more", job.dump)
    _assert_unchanged(job, before)


def test_a_deleted_worker_is_replaced_by_another_node(job: Job) -> None:
    """`kubectl delete` of its pod in the worker cluster stands for a preemption. Only its actor restarts."""
    before, west = actors.seen_after(job, 0, _ASKED_SECONDS), job.fleet.workers["west"]
    (old,) = _ready_pods(west)
    west.delete("pod", old["metadata"]["name"], NAMESPACE, wait=False)
    wait(lambda: _replaced(west, old), 180, "another worker is ready in west", job.dump)
    network = _network(job)
    wait(
        lambda: _knows_present_nodes(job, network), _KEPT_SECONDS, "the head knows which workers are present", job.dump
    )
    after = actors.seen_after(job, actors.seen(job).asked + 3, _ASKED_SECONDS)
    assert len(set(after.processes) & set(before.processes)) == 1
    assert after.alive == 2


def test_no_worker_is_created_while_the_relay_has_another_key(job: Job) -> None:
    """A worker that is deleted meanwhile is replaced once the key is restored. Nothing else of the job ends."""
    before, west, key = actors.seen_after(job, 0, _ASKED_SECONDS), job.fleet.workers["west"], _key_data(job)
    (old,) = _ready_pods(west)
    _set_key(job, {"key": base64.b64encode(b"another key of thirty-two bytes!").decode()})
    try:
        wait(lambda: _currency(job, "west") == "RelayKeyChanged", 60, "west reports the key", job.dump)
        west.delete("pod", old["metadata"]["name"], NAMESPACE, wait=False)
        wait(lambda: "RelayKeyChanged" in job.events(), 120, "an event names the key", job.dump)
        assert not _replaced(west, old)
    finally:
        _set_key(job, key)
    wait(lambda: _replaced(west, old), 180, "another worker is ready in west", job.dump)
    assert _currency(job, "west") == "RelayCurrent"
    after = actors.seen_after(job, actors.seen(job).asked + 3, _ASKED_SECONDS)
    assert set(after.processes) & set(before.processes), "the worker in east goes on"
    result = actors.end(job)
    assert len(result["alive"]) == 2


def _assert_unchanged(job: Job, before: actors.Seen) -> None:
    """Assert that the same processes answer again, each call once."""
    after = actors.seen_after(job, actors.seen(job).asked + 3, _ASKED_SECONDS)
    assert after.processes == before.processes, "an actor moved or restarted"
    assert after.alive == 2


def _currency(job: Job, cluster: str) -> str:
    return str(condition(job.manager.get("workerclusters", cluster), names.RELAY_CURRENT).get("reason"))


def _key_data(job: Job) -> Raw:
    data: Raw = job.manager.get("secrets", names.RELAY_KEY_SECRET, names.SYSTEM_NAMESPACE)["data"]
    return data


def _set_key(job: Job, data: Raw) -> None:
    words = ("patch", "secret", names.RELAY_KEY_SECRET, "--type=merge", "-p", json.dumps({"data": data}))
    job.manager.kubectl("-n", names.SYSTEM_NAMESPACE, *words)


def _network(job: Job) -> RelayNetwork:
    (head,) = job.manager.items("pods", NAMESPACE, f"{names.RELAY_LABEL},{names.RAY_NODE_TYPE_LABEL}={names.HEAD}")
    network = network_of_head(head)
    assert network
    return network


def _knows_present_nodes(job: Job, network: RelayNetwork) -> bool:
    """Whether the head's Secret names just the present workers, whose tokens count however old they are."""
    files = job.manager.get("secrets", network.secret, NAMESPACE).get("data") or {}
    clusters = json.loads(base64.b64decode(files.get(NODES_KEY, "")) or "{}").get("clusters") or {}
    return {pod for pods in clusters.values() for pod in pods} == {pod["metadata"]["name"] for pod in job.pods()}


def _ready_pods(cluster: Cluster) -> list[Raw]:
    pods = cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    return [pod for pod in pods if condition(pod, "Ready").get("status") == "True"]


def _replaced(cluster: Cluster, old: Raw) -> bool:
    return any(pod["metadata"]["uid"] != old["metadata"]["uid"] for pod in _ready_pods(cluster))
