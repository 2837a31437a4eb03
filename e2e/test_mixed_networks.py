"""Tests that one RayJob runs over a flat cluster and a relayed one. tests/islands has only relayed ones."""

import base64
import json
from collections.abc import Iterator

import pytest

from adapter import names
from adapter.relay.frp_config import CLIENT_CONFIG_KEY
from hack.lab.base.lab import OPEN_PORT, Lab
from hack.testbed import rayspec, relay
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.rayjob import NAMESPACE, Job, removed

pytestmark = pytest.mark.long


@pytest.fixture
def mixed(lab: Lab, fleet: Clusters) -> Iterator[Clusters]:
    """West is reached through the relay, east is flat."""
    try:
        relay.bring(lab)
        relay.install_component(fleet.manager)
        relay.set_address(lab, fleet, "west")
        yield fleet
    finally:
        relay.disconnect(fleet)


def test_a_job_runs_over_a_flat_and_a_relayed_cluster(mixed: Clusters) -> None:
    with removed(Job(mixed, "mixed-networks", 2, apart=True)) as job:
        job.submit(change=rayspec.beside_sidecars)
        job.wait_for_workers()
        dialled = {name: _dialled_port(cluster) for name, cluster in mixed.workers.items()}
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        addresses = {node["cluster"]: node["address"].split(".")[1] for node in job.result()["nodes"]}
    network = addresses["manager"]
    assert network.startswith("rayspan-relay-"), "the head has a name in place of its IP"
    assert addresses == {"manager": network, "east": f"{network}-east", "west": f"{network}-west"}
    assert dialled == {"east": names.RELAY_SERVER_PORT, "west": OPEN_PORT}, "east dials the head, and west the routers"


def _dialled_port(cluster: Cluster) -> int:
    """The port that the sidecar of a cluster's one worker dials."""
    secrets = cluster.items("secrets", NAMESPACE, names.MANAGER_LABEL)
    (config,) = (secret["data"][CLIENT_CONFIG_KEY] for secret in secrets if CLIENT_CONFIG_KEY in secret["data"])
    return int(json.loads(base64.b64decode(config))["serverPort"])
