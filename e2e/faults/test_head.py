"""Does a RayCluster that spans clusters come back whole when its head is restarted under another address?

Asked of one RayCluster, whose worker in east has the head's address, and whose worker in west has its name: Ray takes its minute to give
up a head once, and not for each of the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from adapter import names
from hack.testbed import rayspec
from hack.testbed.clusters import Clusters
from hack.testbed.raycluster import RayCluster
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import found_by

# That workers and mirrors follow a head, where no Ray is: tests/integration/test_losses.py, test_head.py.
pytestmark = pytest.mark.long

BY_NAME = {"west": {"address": "ServiceMirror"}}


@dataclass(frozen=True)
class Story:
    """A head's pod that was deleted: the one after it, the uid of the worker in each cluster before and after, and the copies after."""

    head: Raw
    before: Mapping[str, str]
    after: Mapping[str, str]
    copies: Mapping[str, Raw]


@pytest.fixture(scope="module")
def story(fleet: Clusters) -> Story:
    """A RayCluster with a worker in each worker cluster. When Ray gives up a node, or its head, is as it is."""
    cluster = RayCluster(fleet, "head-restarted", 2)
    with found_by(fleet, BY_NAME):
        try:
            cluster.create(lambda raw: rayspec.apart(raw["spec"]))
            cluster.wait_until_joined()
            old, before = cluster.head(), _workers(cluster)
            fleet.manager.kubectl("delete", "pod", old["metadata"]["name"], "--wait=false")
            head = cluster.wait_for_another_head(old)
            return Story(head, before, _workers(cluster), cluster.copies())
        finally:
            cluster.delete()


def test_workers_come_back_to_a_head_with_another_address(story: Story) -> None:
    """Where the old address was all that they had: as other pods, which have the new one."""
    assert story.after["east"] != story.before["east"]
    made_for = story.copies[story.after["east"]]["metadata"]["annotations"][names.HEAD_IP_ANNOTATION]
    assert made_for == story.head["status"]["podIP"]


def test_workers_rejoin_a_head_that_they_find_by_name(story: Story) -> None:
    """The same pods: when Ray gives up the old head their containers start again, and join the new one by its name."""
    assert story.after["west"] == story.before["west"]


def _workers(cluster: RayCluster) -> dict[str, str]:
    """The uid of the one worker in each cluster."""
    found = [(pod["metadata"]["labels"][names.CLUSTER_LABEL], pod["metadata"]["uid"]) for pod in cluster.pods("worker")]
    assert sorted(where for where, _ in found) == ["east", "west"]
    return dict(found)
