"""A user's RayJob over islands: the controller makes its nodes join through the manager's one port.

The user's file is the stock sample, and the administrator has set `spec.network` of both WorkerClusters.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from adapter.preflight.preflight_facts import MANAGER
from hack.lab.base.lab import OPEN_PORT, Lab
from hack.testbed import rayspec, relay
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.preflights import failures, preflight_in
from hack.testbed.rayjob import NAMESPACE, Job, removed
from hack.testbed.reader import Raw


@pytest.fixture
def job(relayed: Clusters) -> Iterator[Job]:
    with removed(Job(relayed, "relayed-pi", 2, apart=True)) as rayjob:
        yield rayjob


def test_a_stock_job_runs_over_islands(job: Job, relayed: Clusters) -> None:
    job.submit(change=rayspec.beside_sidecars)
    assert job.wait_for_end() == "SUCCEEDED"
    nodes = job.result()["nodes"]
    assert {node["cluster"]: node["address"].split(".")[1][:14] for node in nodes} == dict.fromkeys(
        ("manager", "east", "west"), "rayspan-relay-"
    )
    job.delete()
    job.wait_until_gone()
    wait(lambda: not _routes(relayed), 120, "no router is led to a head that is gone")


def test_preflight_tests_the_relay_from_each_cluster(relayed: Clusters) -> None:
    """No path between the pods is needed, and the pod networks may be the same."""
    document = preflight_in(relayed.manager, NAMESPACE, want=0)
    checks = {cluster["name"]: cluster["checks"].get("Relay") for cluster in document["clusters"]}
    assert checks == {MANAGER: None, "east": "ok", "west": "ok"}
    assert {(path["byRelay"], path["error"]) for path in document["paths"]} == {(True, None)}, "no path was dialled"
    for name in relayed.workers:
        reachable = condition(relayed.manager.get("workerclusters", name), names.REACHABLE)
        assert (reachable["status"], "the relay's address" in reachable["message"]) == ("True", True)


def test_preflight_names_a_relay_that_is_not_reached(relayed: Clusters, islands: Lab) -> None:
    relay.set_address(islands, relayed, "east", port=OPEN_PORT + 1)
    try:
        document = preflight_in(relayed.manager, NAMESPACE, "--worker-cluster", "east", want=3)
    finally:
        relay.set_address(islands, relayed, "east")
    ((cluster, check, message),) = failures(document)
    assert (cluster, check) == ("east", "Relay")
    assert f"cannot connect to the relay at {islands.manager.address}:{OPEN_PORT + 1} (" in message


def _routes(fleet: Clusters) -> list[Raw]:
    return fleet.manager.items("services", names.SYSTEM_NAMESPACE, names.RELAY_LABEL)
