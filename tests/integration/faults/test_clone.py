"""A clone of the manager, started from a backup beside the original, leaves the worker clusters to the original.

The clone is real: an API server on a copy of the manager's etcd, and a controller with the same credentials for the
worker clusters. Every uid tells it that it is the manager. Workers run on fake nodes.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import names
from hack.lab.base.lab import Lab
from hack.testbed.auditlog import Written
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.preemption import uids
from hack.testbed.stage import Stage
from hack.trials import restore

pytestmark = [pytest.mark.alone, pytest.mark.long]  # a second control plane in the manager's namespace

HELD = "ClaimConflict"  # the reason of Connected
# An API server's start on a busy machine, and a controller's.
SERVES, TOLD = 90, 60


@pytest.fixture
def process(
    standing: Controller, parked: Clusters, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Controller]:
    """The original's controller, which takes part in an election: who does not claims nothing."""
    standing.stop()
    folder = tmp_path / "original"
    folder.mkdir()
    made = Controller(parked.manager, folder, pace=request.config.getoption("--pace"), elect=True)
    yield made
    made.stop(signal.SIGTERM)  # the Lease is given back: whoever comes next need not wait


@pytest.fixture
def second(stage: Stage, lab: Lab, process: Controller, tmp_path: Path) -> Iterator[Controller]:
    """A controller on a clone, made while a gang of three runs; it is not started yet."""
    stage.build({"east": 2, "west": 2})
    process.start()
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.running(3), 90, "three workers run", process.tail)
    with restore.clone(lab.manager, restore.backup(lab.manager)) as clone:
        wait(lambda: clone.get("workerclusters", "east"), SERVES, "the clone's API server serves")
        folder = tmp_path / "clone"
        folder.mkdir()
        made = Controller(clone, folder, elect=True, number=1)
        yield made
        made.stop()


@pytest.mark.usefixtures("audited")
def test_a_clone_of_the_manager_keeps_its_hands_off(stage: Stage, process: Controller, second: Controller) -> None:
    """Its copies of the gang's pods are deleted, which is an order to delete the workers, were it the manager."""
    clone, written = second.manager, Written(stage)
    before = {name: uids(stage, name) for name in stage.clusters}
    second.start()
    for name in stage.clusters:
        _await_reason(clone, name, HELD, second)
    looks = _looks(second)
    now = ("--grace-period=0", "--force", "--wait=false")
    clone.kubectl("-n", stage.name, "delete", "pods", "-l", f"{names.RAY_NODE_TYPE_LABEL}=worker", *now)
    wait(lambda: _looks(second) >= looks + 3, 30, "it has looked at each of them", second.tail)
    stage.ray_cluster("next", workers=1)
    wait(lambda: stage.running(4), 90, "the original places another gang meanwhile", process.tail)
    assert [str(one) for one in written.take() if not one.name.startswith("next-")] == []
    assert all(before[name] <= uids(stage, name) for name in stage.clusters)
    assert stage.connected(stage.clusters), "the original notices nothing"
    assert second.status() is None and process.status() is None, "both go on"
    for name in stage.clusters:
        _await_reason(clone, name, HELD, second)


def _await_reason(clone: Cluster, name: str, reason: str, controller: Controller) -> None:
    def found() -> bool:
        return bool(condition(clone.get("workerclusters", name), names.CONNECTED).get("reason") == reason)

    wait(found, TOLD, f"the clone says of {name} that it is {reason}", controller.tail)


def _looks(controller: Controller) -> float:
    """How often it has looked at anything."""
    lines = controller.ask("/metrics").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("rayspan_reconciles_total"))
