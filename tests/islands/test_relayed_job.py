"""A user's RayJob over islands: the controller makes its nodes join through the manager's one port.

The user's file is the stock sample, and the administrator has set `spec.network` of both WorkerClusters.
"""

import json
from collections.abc import Iterator

import pytest

from adapter import names
from hack.lab.base.lab import OPEN_PORT, Lab
from hack.lab.images import images
from hack.testbed import relay
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import Job, removed
from hack.testbed.reader import Raw


@pytest.fixture(scope="module")
def relayed(islands: Lab, fleet: Clusters) -> Iterator[Clusters]:
    """The clusters with the component, whose WorkerClusters are reached through the relay."""
    relay.bring(islands)
    network = {
        "mode": "Relay",
        "address": f"{islands.manager.address}:{OPEN_PORT}",
        "image": images.reference("relay"),
    }
    try:
        relay.install_component(fleet.manager)
        for name in fleet.workers:
            _set_network(fleet, name, network)
        yield fleet
    finally:
        for name in fleet.workers:
            _set_network(fleet, name, None)
        relay.remove_component(fleet.manager)


@pytest.fixture
def job(relayed: Clusters) -> Iterator[Job]:
    with removed(Job(relayed, "relayed-pi", 2, apart=True)) as rayjob:
        yield rayjob


def test_a_stock_job_runs_over_islands(job: Job, relayed: Clusters) -> None:
    job.submit(change=_leave_room)
    assert job.wait_for_end() == "SUCCEEDED"
    nodes = job.result()["nodes"]
    assert {node["cluster"]: node["address"].split(".")[1][:14] for node in nodes} == dict.fromkeys(
        ("manager", "east", "west"), "rayspan-relay-"
    )
    job.delete()
    job.wait_until_gone()
    wait(lambda: not _routes(relayed), 120, "no router is led to a head that is gone")


def _leave_room(ray_cluster: Raw) -> None:
    """Let a worker and its sidecar fill a cluster's quota, and the submitter fit beside head and routers."""
    for group, cpu in ((ray_cluster["workerGroupSpecs"][0], "300m"), (ray_cluster["headGroupSpec"], "100m")):
        group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu


def _routes(fleet: Clusters) -> list[Raw]:
    return fleet.manager.items("services", names.SYSTEM_NAMESPACE, names.RELAY_LABEL)


def _set_network(fleet: Clusters, name: str, network: dict[str, str] | None) -> None:
    patch = json.dumps({"spec": {"network": network}})
    fleet.manager.kubectl("patch", "workercluster", name, "--type=merge", "-p", patch)
