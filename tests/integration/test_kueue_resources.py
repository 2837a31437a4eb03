"""Jobs run where Kueue's own configuration excludes or transforms a resource that they request.

The manager's Kueue and east's are configured so, and west's is not. Real Kueue and KubeRay; workers on fake nodes.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from adapter.objects.placement import PlacementState
from hack.testbed import kueueconfig, nodes
from hack.testbed.clusters import Clusters, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage

pytestmark = pytest.mark.alone

RDMA, MIG, CREDITS = "example.com/rdma", "example.com/mig", "example.com/credits"
ASKS = "the share there shows whether Kueue counts that"
RESOURCES = {
    "excludeResourcePrefixes": [RDMA],
    "transformations": [{"input": MIG, "strategy": "Replace", "outputs": {CREDITS: "2"}}],
}


@pytest.fixture(scope="module")
def resources(fleet: Clusters) -> Iterator[None]:
    """Kueue of the manager and of east counts no RDMA, and two credits for each MIG device."""
    changed = [fleet.manager, fleet.workers["east"]]
    with ExitStack() as cleanup:
        cleanup.callback(kueueconfig.restart, changed)
        for cluster in changed:
            cleanup.enter_context(kueueconfig.changed(cluster, _with_resources))
        kueueconfig.restart(changed)
        for name in ("east", "west"):
            devices = {RDMA: "16", MIG: "16"}
            cleanup.enter_context(nodes.added(fleet.workers[name], "devices", devices))
        yield


@pytest.mark.usefixtures("resources")
def test_an_excluded_resource_is_asked_about_once(stage: Stage, running: Controller) -> None:
    """West denies the first job, and east admits it. The next jobs go to east, and wait when east is full."""
    stage.clusters = ("west", "east")
    stage.build({"west": 4, "east": 4})

    stage.ray_cluster("first", workers=2, more={RDMA: "1"})
    wait(lambda: stage.running(2), 120, "the first job runs", lambda: dump(stage, running))
    assert stage.where("first") == "2 east"
    assert f"ClusterQueue {stage.name} does not cover {RDMA} in east: {ASKS}." in _explanation(stage, "first")

    stage.ray_cluster("second", workers=2, more={RDMA: "1"})
    wait(lambda: stage.running(4), 60, "the second job runs", lambda: dump(stage, running))
    assert stage.where("second") == "2 east"
    assert ASKS not in _explanation(stage, "second")
    assert stage.placement("second")["spec"]["round"] == 1

    stage.ray_cluster("third", workers=1, more={RDMA: "1"})
    wait(lambda: stage.state("third") == PlacementState.WAITING, 60, "the third job waits", running.tail)
    denied = f"west has capacity for 0 (ClusterQueue {stage.name} does not cover {RDMA}, which Kueue there counts"
    assert denied in _explanation(stage, "third")
    assert stage.remote("workloads")["west"] == []


@pytest.mark.usefixtures("resources")
def test_a_transformed_resource_takes_the_quota_of_another(stage: Stage, running: Controller) -> None:
    """The first job shows how many credits a worker takes. The second one waits for credits, without a share."""
    stage.clusters = ("east",)
    stage.build({"east": 8}, resource=CREDITS)

    stage.ray_cluster("first", workers=2, more={MIG: "1"})
    wait(lambda: stage.running(2), 120, "the first job runs", lambda: dump(stage, running))
    assert ASKS in _explanation(stage, "first")

    stage.ray_cluster("second", workers=3, more={MIG: "1"})
    wait(lambda: stage.state("second") == PlacementState.WAITING, 60, "the second job waits", running.tail)
    assert f"{CREDITS} in flavor {stage.name}: 4 free of 8, one worker needs 2" in _explanation(stage, "second")
    assert len(stage.remote("workloads")["east"]) == 1


def _with_resources(config: Raw) -> Raw:
    return {**config, "resources": RESOURCES}


def _explanation(stage: Stage, job: str) -> str:
    return str(stage.placement(job)["spec"]["explanation"])
