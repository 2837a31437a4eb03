"""Does a RayCluster that spans clusters come back whole when its head is restarted under another address?"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed import rayspec
from hack.testbed.clusters import Clusters
from hack.testbed.raycluster import RayCluster

# That workers and mirrors follow a head, where no Ray is: tests/integration/test_losses.py, test_head.py.
pytestmark = pytest.mark.long


@pytest.fixture
def cluster(fleet: Clusters) -> Iterator[RayCluster]:
    """A RayCluster with a worker in each worker cluster. Ray's own timers are as they are."""
    made = RayCluster(fleet, "head-restarted", 2)
    made.create(lambda raw: rayspec.apart(raw["spec"]))
    yield made
    made.delete()


def test_workers_come_back_to_a_head_with_another_address(cluster: RayCluster) -> None:
    cluster.wait_until_joined()
    before, old = cluster.head(), _workers(cluster)
    cluster.fleet.manager.kubectl("delete", "pod", before["metadata"]["name"], "--wait=false")
    head = cluster.wait_for_another_head(before)
    fresh, copies = _workers(cluster), cluster.copies()
    assert not old & fresh
    made_for = {copies[uid]["metadata"]["annotations"][names.HEAD_ANNOTATION] for uid in fresh}
    assert made_for == {head["status"]["podIP"]}


def test_workers_rejoin_a_head_that_they_find_by_name(mirroring: None, cluster: RayCluster) -> None:
    """The same pods: when Ray gives up the old head their containers start again, and join the new one by its name."""
    cluster.wait_until_joined()
    before, old = cluster.head(), _workers(cluster)
    cluster.fleet.manager.kubectl("delete", "pod", before["metadata"]["name"], "--wait=false")
    cluster.wait_for_another_head(before)
    assert old == _workers(cluster)


def _workers(cluster: RayCluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.pods("worker")}
