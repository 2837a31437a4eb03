"""`rayspan check` says whether jobs can be dispatched, by the state of real API servers and the deployed controller.

It runs as a process, as an administrator's pipeline runs it. The messages of obstacles are tested with their rules.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hack.lab.base.paths import REPO
from hack.testbed.clusters import wait
from hack.testbed.deployment import Deployment
from hack.testbed.stage import Stage

pytestmark = pytest.mark.long  # test_readme.py asks it once, when all is well

CAN, STOPPED = 0, 3


@pytest.fixture
def queues(stage: Stage, deployed: None) -> Iterator[Stage]:
    """A stage with a way to two clusters, which are open again in the end."""
    stage.build({"east": 1, "west": 1})
    wait(lambda: _rayspan(stage, "check").returncode == CAN, 60, "a way is open", lambda: str(_rayspan(stage, "check")))
    yield stage
    for name in stage.fleet.workers:
        _rayspan(stage, "uncordon", name)


def test_nothing_can_be_dispatched_while_all_clusters_are_cordoned(queues: Stage) -> None:
    for name in queues.fleet.workers:
        assert _rayspan(queues, "cordon", name).returncode == 0
    said = [_cordoned(name) for name in ("east", "west")]
    told = _rayspan(queues, "check")
    assert (told.returncode, told.stderr) == (STOPPED, "")
    verdict, *why = told.stdout.splitlines()
    assert verdict == "Nothing can be dispatched." and {*said} <= {*why}
    found = json.loads(_rayspan(queues, "check", "-o", "json").stdout)
    assert found["dispatches"] is False and {*said} <= {*found["obstacles"]}

    # One way is enough, and what stands in the other one is told all the same.
    assert _rayspan(queues, "uncordon", "west").returncode == 0
    told = _rayspan(queues, "check")
    assert told.returncode == CAN, told
    verdict, *why = told.stdout.splitlines()
    assert verdict == "Jobs can be dispatched." and said[0] in why and said[1] not in why


def test_nothing_can_be_dispatched_without_a_controller(queues: Stage, deployment: Deployment) -> None:
    """Its conditions stand as the last one left them; the Lease does not."""
    deployment.park()
    try:
        told = _rayspan(queues, "check")
        assert told.returncode == STOPPED and "\nNo controller leads since " in told.stdout, told
    finally:
        deployment.unpark()
    wait(lambda: _rayspan(queues, "check").returncode == CAN, 60, "one leads", lambda: str(_rayspan(queues, "check")))


def _cordoned(name: str) -> str:
    return f"WorkerCluster {name} is cordoned; `kubectl rayspan uncordon {name}` lets new workers go there again."


def _rayspan(stage: Stage, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "adapter", verb, *words, "--kubeconfig", str(stage.manager.kubeconfig)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
