"""Tests that a RayCluster across clusters recovers when its head restarts under another address.

In one RayCluster the worker in east has the head's address, and the worker in west its name: Ray takes a minute to give
up a head, so both are tested at once.
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

# Workers and mirrors that follow a head, without Ray: tests/integration/test_losses.py, test_head.py.
pytestmark = pytest.mark.long

BY_NAME = {"west": {"address": "ServiceMirror"}}


@dataclass(frozen=True)
class Story:
    """The head pod after a deleted one, the worker uids per cluster before and after, and the remote pods after."""

    head: Raw
    before: Mapping[str, str]
    after: Mapping[str, str]
    copies: Mapping[str, Raw]


@pytest.fixture(scope="module")
def story(fleet: Clusters) -> Story:
    """A RayCluster with a worker in each worker cluster, and Ray's default timeouts."""
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


def test_workers_with_the_heads_address_are_replaced(story: Story) -> None:
    """The worker that had the old address is replaced by a pod with the new one."""
    assert story.after["east"] != story.before["east"]
    head_ip = story.copies[story.after["east"]]["metadata"]["annotations"][names.HEAD_IP_ANNOTATION]
    assert head_ip == story.head["status"]["podIP"]


def test_workers_with_the_heads_name_rejoin_a_new_head(story: Story) -> None:
    """The pod stays: when Ray gives up the old head, its container restarts and joins the new head by name."""
    assert story.after["west"] == story.before["west"]


def _workers(cluster: RayCluster) -> dict[str, str]:
    """The uid of the only worker in each cluster."""
    metas = (pod["metadata"] for pod in cluster.pods("worker"))
    workers = [(meta["labels"][names.CLUSTER_LABEL], meta["uid"]) for meta in metas]
    assert sorted(where for where, _ in workers) == ["east", "west"]
    return dict(workers)
