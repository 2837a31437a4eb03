"""A job scales up and down in the worker clusters that answer while another one does not.

The cable of one is pulled, so that requests to it hang: the hard case. Workers are on fake nodes.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller, dump
from hack.testbed.stage import Stage, pods_by_cluster

JOB = "pi"


@pytest.fixture
def cut(stage: Stage, running: Controller, lab: Lab) -> Iterator[None]:
    """A job with a worker in each of two clusters, of which one was cut off this moment."""
    stage.build({"east": 6, "west": 6}, policy={"strategy": "Spread"})
    stage.ray_cluster(JOB, workers=2, elastic=8)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    assert pods_by_cluster(stage.workers()) == {"east": 1, "west": 1}
    faults.cut(lab, lab.cluster("west"), way="link")
    yield
    faults.heal(lab)


@pytest.mark.long
@pytest.mark.usefixtures("cut")
def test_a_cluster_that_does_not_answer_stops_no_growth_elsewhere(stage: Stage, running: Controller, lab: Lab) -> None:
    """The cut is not detected yet when the job is scaled: its dry runs there hang, and the others run.

    Then all workers go to the other cluster, and a worker that leaves gives its quota back. When the cluster is back
    nothing exists twice.
    """
    before = _uids(stage)
    stage.scale(JOB, 0, 4)
    wait(lambda: _in(stage, "east") >= 2, 30, "what was planned for east runs", lambda: dump(stage, running))
    wait(lambda: _in(stage, "east") == 3, 60, "all that was asked for runs there", lambda: dump(stage, running))
    assert before.items() <= _uids(stage).items(), "nobody was restarted, nor the one that is out of sight"

    goes = max(_uids(stage).keys() - before.keys())
    stage.scale(JOB, 0, 3, without=[goes])
    wait(lambda: _shares(stage, "east") == 2, 30, "who left east gave its quota back", lambda: dump(stage, running))
    stage.scale(JOB, 0, 4)
    wait(lambda: _in(stage, "east") == 3, 30, "and another one comes", lambda: dump(stage, running))

    faults.heal(lab)
    wait(lambda: stage.running(4), 60, "all run", lambda: dump(stage, running))
    wait(
        lambda: (_shares(stage, "west"), len(stage.remote()["west"])) == (1, 1),
        60,
        "nothing is there twice",
        running.tail,
    )
    assert before.items() <= _uids(stage).items()


def _uids(stage: Stage) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in stage.workers()}


def _in(stage: Stage, cluster: str) -> int:
    """How many copies run in a cluster that answers."""
    copies = stage.fleet.workers[cluster].items("pods", stage.name, names.MANAGER_LABEL)
    return sum(copy["status"].get("phase") == "Running" for copy in copies)


def _shares(stage: Stage, cluster: str) -> int:
    return len(stage.fleet.workers[cluster].items("workloads", stage.name, names.MANAGER_LABEL))
