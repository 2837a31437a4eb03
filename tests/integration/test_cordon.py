"""New workers avoid a cluster that is cordoned or drained, and return when it is not.

It runs the command as a process, as an administrator does. How a drain moves running workers is tested elsewhere.
"""

import subprocess
import sys

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from hack.lab.base.paths import REPO
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage

pytestmark = pytest.mark.long


@pytest.fixture
def east(stage: Stage, running: Controller) -> str:
    """A WorkerCluster of the test's own, which leads to east: no other gang shall miss it."""
    own = stage.own("east")
    stage.clusters = (own, "west")
    return own


def test_a_cordoned_cluster_gets_no_new_workers_and_keeps_its_own(stage: Stage, running: Controller, east: str) -> None:
    manager = stage.manager
    stage.build({"east": 4, "west": 4})
    stage.ray_cluster("before", workers=1)
    wait(lambda: stage.running(1), 90, "one runs", running.tail)
    assert stage.where("before") == f"1 {east}"

    assert _rayspan(manager, "cordon", east) == f"workercluster/{east} cordoned\n"
    assert _rayspan(manager, "cordon", east) == f"workercluster/{east} already cordoned\n"
    assert _column(manager, east, "CORDONED") == "true"
    _wait_until_seen(manager, east)
    stage.ray_cluster("meanwhile", workers=2)
    wait(lambda: stage.where("meanwhile") == "2 west", 60, "all go to west", running.tail)
    assert f"{east} passed over: it is cordoned" in stage.placement("meanwhile")["spec"]["explanation"]
    wait(lambda: stage.running(3), 90, "all run", running.tail)
    assert stage.where("before") == f"1 {east}"

    assert _rayspan(manager, "uncordon", east) == f"workercluster/{east} uncordoned\n"
    assert _rayspan(manager, "uncordon", east) == f"workercluster/{east} already uncordoned\n"
    _wait_until_seen(manager, east)
    stage.ray_cluster("after", workers=2)
    wait(lambda: stage.where("after") == f"2 {east}", 60, "east is in use again", running.tail)


def test_a_gang_that_waits_for_a_cordoned_cluster_starts_when_it_is_open_again(
    stage: Stage, running: Controller, east: str
) -> None:
    stage.build({"east": 2, "west": 1})
    _rayspan(stage.manager, "cordon", east)
    _wait_until_seen(stage.manager, east)
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "it waits", running.tail)
    assert f"{east} has capacity for 0 (it is cordoned)" in stage.reason("pi")
    _rayspan(stage.manager, "uncordon", east)
    wait(lambda: stage.where("pi") == f"2 {east}, 1 west", 60, "it starts", running.tail)


def test_an_empty_cluster_is_drained_at_once_and_gets_no_new_workers(
    stage: Stage, running: Controller, east: str
) -> None:
    manager = stage.manager
    stage.build({"east": 4, "west": 4})
    said = _rayspan(manager, "drain", east, "--timeout", "1m")
    assert said == f"workercluster/{east} draining\nworkercluster/{east} drained\n"
    assert _column(manager, east, "DRAINING") == "true"
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.where("pi") == "2 west", 60, "all go to west", running.tail)
    assert f"{east} passed over: it is draining" in stage.placement("pi")["spec"]["explanation"]

    assert _rayspan(manager, "uncordon", east) == f"workercluster/{east} uncordoned\n"
    _wait_until_seen(manager, east)
    stage.ray_cluster("after", workers=2)
    wait(lambda: stage.where("after") == f"2 {east}", 60, "east is in use again", running.tail)


def _rayspan(manager: Cluster, *words: str) -> str:
    """What the command says when it has done what it was told."""
    done = subprocess.run(
        [sys.executable, "-m", "adapter", *words, "--kubeconfig", str(manager.kubeconfig)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def _wait_until_seen(manager: Cluster, name: str) -> None:
    """The controller knows what the object says now: what it plans from here on keeps to it."""

    def seen() -> bool:
        found = manager.get("workerclusters", name)
        told = condition(found, names.CONNECTED).get("observedGeneration")
        return bool(told == found["metadata"]["generation"])

    wait(seen, 20, "the controller has seen it")


def _column(manager: Cluster, name: str, title: str) -> str:
    header, row = manager.kubectl("get", "workercluster", name).splitlines()
    start = header.index(title)
    return row[start:].split()[0]
