"""Do new workers keep away from a cluster that is cordoned or drained, and come back when it is not?

By the command as a process, as an administrator gives it. How a drain moves the workers that run there is tested elsewhere.
"""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage

pytestmark = [pytest.mark.alone, pytest.mark.long]  # no other gang shall miss east


@pytest.fixture
def open_again(stage: Stage) -> Iterator[None]:
    """Whatever a test did to east, other tests need it."""
    yield
    _rayspan(stage.manager, "uncordon", "east")


@pytest.mark.usefixtures("open_again")
def test_a_cordoned_cluster_gets_no_new_workers_and_keeps_its_own(stage: Stage, running: Controller) -> None:
    manager = stage.manager
    stage.build({"east": 4, "west": 4})
    stage.ray_cluster("before", workers=1)
    wait(lambda: stage.running(1), 90, "one runs", running.tail)
    assert stage.where("before") == "1 east"

    assert _rayspan(manager, "cordon", "east") == "workercluster/east cordoned\n"
    assert _rayspan(manager, "cordon", "east") == "workercluster/east already cordoned\n"
    assert _column(manager, "CORDONED") == "true"
    _wait_until_seen(manager)
    stage.ray_cluster("meanwhile", workers=2)
    wait(lambda: stage.where("meanwhile") == "2 west", 60, "all go to west", running.tail)
    assert "east passed over: it is cordoned" in stage.placement("meanwhile")["spec"]["explanation"]
    wait(lambda: stage.running(3), 90, "all run", running.tail)
    assert stage.where("before") == "1 east"

    assert _rayspan(manager, "uncordon", "east") == "workercluster/east uncordoned\n"
    assert _rayspan(manager, "uncordon", "east") == "workercluster/east already uncordoned\n"
    _wait_until_seen(manager)
    stage.ray_cluster("after", workers=2)
    wait(lambda: stage.where("after") == "2 east", 60, "east is in use again", running.tail)


@pytest.mark.usefixtures("open_again")
def test_a_gang_that_waits_for_a_cordoned_cluster_starts_when_it_is_open_again(
    stage: Stage, running: Controller
) -> None:
    stage.build({"east": 2, "west": 1})
    _rayspan(stage.manager, "cordon", "east")
    _wait_until_seen(stage.manager)
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.state("pi") == names.WAITING, 60, "it waits", running.tail)
    assert "east has room for 0 (it is cordoned)" in stage.reason("pi")
    _rayspan(stage.manager, "uncordon", "east")
    wait(lambda: stage.where("pi") == "2 east, 1 west", 60, "it starts", running.tail)


@pytest.mark.usefixtures("open_again")
def test_an_empty_cluster_is_drained_at_once_and_gets_no_new_workers(stage: Stage, running: Controller) -> None:
    manager = stage.manager
    stage.build({"east": 4, "west": 4})
    wait(lambda: not _workers_in_east(manager), 60, "the workers of earlier tests are gone")
    said = _rayspan(manager, "drain", "east", "--timeout", "1m")
    assert said == "workercluster/east draining\nworkercluster/east drained\n"
    assert _column(manager, "DRAINING") == "true"
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.where("pi") == "2 west", 60, "all go to west", running.tail)
    assert "east passed over: it is draining" in stage.placement("pi")["spec"]["explanation"]

    assert _rayspan(manager, "uncordon", "east") == "workercluster/east uncordoned\n"
    _wait_until_seen(manager)
    stage.ray_cluster("after", workers=2)
    wait(lambda: stage.where("after") == "2 east", 60, "east is in use again", running.tail)


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


def _wait_until_seen(manager: Cluster) -> None:
    """The controller knows what the object says now: what it plans from here on keeps to it."""

    def seen() -> bool:
        found = manager.get("workerclusters", "east")
        told = condition(found, names.CONNECTED).get("observedGeneration")
        return bool(told == found["metadata"]["generation"])

    wait(seen, 20, "the controller has seen it")


def _workers_in_east(manager: Cluster) -> list[str]:
    pods = manager.items("pods", None, f"{names.CLUSTER_LABEL}=east")
    places = manager.items("placements")
    shared = [p for p in places if any(share["cluster"] == "east" for share in p["spec"].get("shares") or ())]
    left = [p for p in shared if (p.get("status") or {}).get("state") != names.ENDED]
    return [one["metadata"]["name"] for one in [*pods, *left]]


def _column(manager: Cluster, title: str) -> str:
    header, row = manager.kubectl("get", "workercluster", "east").splitlines()
    start = header.index(title)
    return row[start:].split()[0]
