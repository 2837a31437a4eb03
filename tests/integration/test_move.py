"""One job's workers leave a worker cluster that its annotation names, and no other job's.

The command runs as a process, as a user runs it. tests/unit/gang has the rules by which workers leave one by one.
"""

import subprocess
import sys

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import label, uid_of
from hack.lab.base.paths import REPO
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, pods_by_cluster

pytestmark = pytest.mark.long


def test_one_job_moves_one_by_one_and_another_stays(stage: Stage, running: Controller) -> None:
    stage.build({"east": 4, "west": 2})
    stage.ray_cluster("moves", workers=2)
    wait(lambda: stage.where("moves") == "2 east" and stage.running(2), 90, "two run in east", running.tail)
    stage.ray_cluster("stays", workers=2)
    wait(lambda: stage.where("stays") == "2 east" and stage.running(4), 90, "four run in east", running.tail)
    staying = _uids(stage, "stays")
    away: list[int] = []

    def has_moved() -> bool:
        ready = [pod for pod in _pods(stage, "moves") if condition(pod, "Ready").get("status") == "True"]
        away.append(2 - len(ready))
        return pods_by_cluster(_pods(stage, "moves")) == {"west": 2} and len(ready) == 2

    printed = _rayspan(stage, "move", "raycluster/moves", "--from", "east", "--wait=false")
    assert printed == "raycluster/moves moving from east\n"
    wait(has_moved, 120, "both run in west", running.tail)
    assert max(away) <= 1, "more than one was away at once"
    wait(lambda: stage.where("moves") == "2 west", 30, "its share in east is deleted", running.tail)
    assert _rayspan(stage, "move", "moves", "--from", "east", "--timeout", "1m") == (
        "raycluster/moves already moving from east\nraycluster/moves moved from east\n"
    )
    assert _uids(stage, "stays") == staying and stage.where("stays") == "2 east"


def test_workers_without_capacity_elsewhere_stay_until_there_is_some(stage: Stage, running: Controller) -> None:
    stage.build({"east": 2, "west": 0})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.where("pi") == "2 east" and stage.running(2), 90, "two run in east", running.tail)
    _rayspan(stage, "move", "pi", "--from", "east", "--wait=false")
    wait(lambda: "the job moves away from it" in stage.reason("pi"), 60, "it says why it stays", running.tail)
    assert pods_by_cluster(stage.workers()) == {"east": 2} and stage.running(2)
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(lambda: pods_by_cluster(stage.workers()) == {"west": 2} and stage.running(2), 120, "it moves", running.tail)


def test_a_job_that_waits_avoids_the_cluster_until_the_move_is_cancelled(stage: Stage, running: Controller) -> None:
    stage.build({"east": 2, "west": 1})
    stage.ray_cluster("first", workers=1)
    wait(lambda: stage.where("first") == "1 east" and stage.running(1), 90, "one runs in east", running.tail)
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "the other one waits", running.tail)
    _rayspan(stage, "move", "pi", "--from", "east", "--from", "west", "--wait=false")
    text = "the job moves away from it"
    wait(lambda: stage.reason("pi").count(text) == 2, 60, "it is planned without both", running.tail)
    stage.manager.kubectl("-n", stage.name, "delete", "raycluster", "first", "--wait=false")
    wait(lambda: not stage.workers(), 60, "there is capacity for it", running.tail)
    assert stage.state("pi") == PlacementState.WAITING
    assert _rayspan(stage, "move", "pi", "--cancel") == "raycluster/pi no longer moving\n"
    wait(lambda: stage.where("pi") == "2 east, 1 west", 60, "it starts", running.tail)


def test_an_unknown_cluster_is_an_event(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "it runs", running.tail)
    annotation = f"{names.MOVE_FROM_ANNOTATION}=nowhere"
    stage.manager.kubectl("-n", stage.name, "annotate", "raycluster", "pi", annotation)
    reason = names.EventReason.MOVE_FROM_IGNORED
    text = wait(lambda: stage.events("pi").get(reason) or "", 60, "the event says it", running.tail)
    assert "names a WorkerCluster that does not exist (nowhere)" in text and stage.running(1)


def _pods(stage: Stage, ray_cluster: str) -> list[Raw]:
    return [pod for pod in stage.workers() if label(pod, names.RAY_GCS_CLUSTER_LABEL) == ray_cluster]


def _uids(stage: Stage, ray_cluster: str) -> set[str]:
    return set(map(uid_of, _pods(stage, ray_cluster)))


def _rayspan(stage: Stage, *words: str) -> str:
    """What the command prints when it has succeeded."""
    options = ("--kubeconfig", str(stage.manager.kubeconfig), "-n", stage.name)
    process = subprocess.run(
        [sys.executable, "-m", "adapter", *words, *options],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process
    return process.stdout
