"""Each worker group runs and scales up in its zone only, whether Ray's labels or the nodes' labels name it.

In a real cluster Ray's autoscaler decides which group grows; the test does so here. With Ray it is in
e2e/test_elastic.py.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from adapter import names
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import FAKE_NODE, Stage, ray_cluster

NODE_ZONE = "topology.kubernetes.io/zone"
ZONES = ("east", "west")  # also what the WorkerClusters are called, which name no other zone
JOB = "by-zone"


def test_a_group_whose_ray_labels_name_a_zone_runs_and_grows_there(stage: Stage, running: Controller) -> None:
    """The policy's first cluster has capacity for all. Workers without capacity in their zone wait, and say so."""
    stage.build({"east": 8, "west": 2})
    _submit(stage, {"in-east": 0, "in-west": 1}, "labels")
    wait(lambda: _where(stage) == {"in-west": ["west"]}, 90, "the first worker runs in its zone", running.tail)

    stage.scale(JOB, 1, 3)
    wait(lambda: _where(stage) == {"in-west": ["west", "west"]}, 90, "as many as fit run there", running.tail)
    lacks = "worker group in-west requires zone west, and this cluster is in zone east"
    wait(lambda: lacks in stage.reason(JOB), 30, "it says what the third one lacks", lambda: stage.reason(JOB))

    stage.scale(JOB, 0, 1)
    both = {"in-east": ["east"], "in-west": ["west", "west"]}
    wait(lambda: _where(stage) == both, 90, "the other group grows beside it", running.tail)


@pytest.mark.long
@pytest.mark.alone  # it labels nodes
def test_a_group_whose_node_selector_names_a_zone_runs_and_grows_there(stage: Stage, running: Controller) -> None:
    """As people write it who know Kubernetes alone: a plan wants nodes that the pods may use."""
    with _labelled(stage):
        stage.build({"east": 8, "west": 8})
        _submit(stage, {"in-east": 0, "in-west": 1}, "nodeSelector")
        wait(lambda: _where(stage) == {"in-west": ["west"]}, 90, "the first worker runs in its zone", running.tail)
        stage.scale(JOB, 1, 2)
        stage.scale(JOB, 0, 1)
        grown = {"in-east": ["east"], "in-west": ["west", "west"]}
        wait(lambda: _where(stage) == grown, 90, "both groups grow, each in its zone", running.tail)


def _submit(stage: Stage, groups: dict[str, int], by: str) -> None:
    """An elastic RayCluster with a group for each zone."""
    made = ray_cluster(JOB, stage.name, groups)
    made["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
    for group, zone in zip(made["spec"]["workerGroupSpecs"], ZONES, strict=True):
        group |= {"minReplicas": 0, "maxReplicas": 4}
        if by == "labels":
            group["labels"] = {names.RAY_ZONE_LABEL: zone}
        else:
            group["template"]["spec"]["nodeSelector"] = {**FAKE_NODE, NODE_ZONE: zone}
    stage.manager.apply(yaml.safe_dump(made))


def _where(stage: Stage) -> dict[str, list[str]]:
    """Of each group the clusters of its copies that run."""
    found: dict[str, list[str]] = {}
    for cluster, copies in stage.remote().items():
        for copy in copies:
            if copy["status"].get("phase") == "Running":
                found.setdefault(copy["metadata"]["labels"][names.REMOTE_RAY_GROUP_LABEL], []).append(cluster)
    return found


@contextmanager
def _labelled(stage: Stage) -> Iterator[None]:
    """The fake nodes of each worker cluster say that they are in the zone of its name."""
    try:
        for name, worker in stage.fleet.workers.items():
            worker.kubectl("label", "nodes", "-l", "type=kwok", f"{NODE_ZONE}={name}", "--overwrite")
        yield
    finally:
        for worker in stage.fleet.workers.values():
            worker.kubectl("label", "nodes", "-l", "type=kwok", f"{NODE_ZONE}-")
