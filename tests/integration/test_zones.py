"""Each worker group runs and scales up in its zone or region only, whether Ray's labels or the nodes' labels name it.

In a real cluster Ray's autoscaler decides which group grows; the test does so here. With Ray it is in
e2e/test_elastic.py.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from adapter import names
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import FAKE_NODE, Stage, ray_cluster

NODE_ZONE, NODE_REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
ZONES = ("east", "west")  # also what the WorkerClusters are called, which name no other zone
JOB = "by-zone"


@pytest.mark.parametrize("field", ["zone", pytest.param("region", marks=pytest.mark.long)])
def test_a_group_whose_ray_labels_name_a_zone_or_region_runs_and_grows_there(
    stage: Stage, running: Controller, field: str
) -> None:
    """The policy's first cluster has capacity for all. Workers without capacity in their zone wait, and say so."""
    if field == "region":
        stage.clusters = tuple(_in_region(stage, name) for name in ZONES)
    stage.build({"east": 8, "west": 2})
    _submit(stage, {"in-east": 0, "in-west": 1}, f"ray.io/availability-{field}")
    wait(lambda: _where(stage) == {"in-west": ["west"]}, 90, "the first worker runs in its zone", running.tail)

    stage.scale(JOB, 1, 3)
    wait(lambda: _where(stage) == {"in-west": ["west", "west"]}, 90, "as many as fit run there", running.tail)
    lacks = f"worker group in-west requires {field} west, and this cluster is in {field} east"
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
        _submit(stage, {"in-east": 0, "in-west": 1}, NODE_ZONE)
        wait(lambda: _where(stage) == {"in-west": ["west"]}, 90, "the first worker runs in its zone", running.tail)
        stage.scale(JOB, 1, 2)
        stage.scale(JOB, 0, 1)
        grown = {"in-east": ["east"], "in-west": ["west", "west"]}
        wait(lambda: _where(stage) == grown, 90, "both groups grow, each in its zone", running.tail)
        for cluster, copies in stage.remote().items():
            labels = [copy["metadata"]["labels"] for copy in copies]
            places = {(has.get(NODE_ZONE), has.get(NODE_REGION)) for has in labels}
            assert places == {(cluster, cluster)}, "Kubernetes there copies the node's labels to a pod that it binds"


def _in_region(stage: Stage, name: str) -> str:
    """A WorkerCluster of the stage in the region of the worker cluster's name."""
    own = stage.own(name)
    stage.manager.kubectl("patch", "workercluster", own, "--type=merge", "-p", json.dumps({"spec": {"region": name}}))
    return own


def _submit(stage: Stage, groups: dict[str, int], key: str) -> None:
    """An elastic RayCluster with a group for each zone or region, which a label of Ray's or of nodes names."""
    made = ray_cluster(JOB, stage.name, groups)
    made["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
    for group, zone in zip(made["spec"]["workerGroupSpecs"], ZONES, strict=True):
        group |= {"minReplicas": 0, "maxReplicas": 4}
        if key.startswith(names.RAY_DOMAIN):
            group["labels"] = {key: zone}
        else:
            group["template"]["spec"]["nodeSelector"] = {**FAKE_NODE, key: zone}
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
    """The fake nodes of each worker cluster say that they are in the zone and the region of its name."""
    try:
        for name, worker in stage.fleet.workers.items():
            labels = f"{NODE_ZONE}={name}", f"{NODE_REGION}={name}"
            worker.kubectl("label", "nodes", "-l", "type=kwok", *labels, "--overwrite")
        yield
    finally:
        for worker in stage.fleet.workers.values():
            worker.kubectl("label", "nodes", "-l", "type=kwok", f"{NODE_ZONE}-", f"{NODE_REGION}-")
