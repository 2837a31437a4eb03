"""Pods get what their WorkerCluster, its API server and its Kueue give them, and a plan knows of it."""

import json
from collections.abc import Callable, Iterator

import pytest
import yaml

from adapter import names
from hack.testbed.auditlog import Written
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import FAKE_NODE, Stage, ray_cluster

pytestmark = pytest.mark.long

Give = Callable[[Raw], None]
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture
def give(stage: Stage, running: Controller) -> Give:
    """Write the spec.pods of a WorkerCluster of the test's own, which leads to east, and wait until the controller
    knows."""
    own = stage.own("east")
    stage.clusters = (own, "west")

    def write(pods: Raw) -> None:
        stage.manager.kubectl("patch", "workercluster", own, "--type=merge", "-p", json.dumps({"spec": {"pods": pods}}))
        wait(_seen, 20, "the controller has seen it", running.tail)

    def _seen() -> bool:
        found = stage.manager.get("workerclusters", own)
        told = condition(found, names.CONNECTED).get("observedGeneration")
        return bool(told == found["metadata"]["generation"])

    return write


def test_copies_have_it_and_rules_about_other_pods_hold_there(stage: Stage, running: Controller, give: Give) -> None:
    """The template leaves the nodes to the cluster. Its matchLabelKeys were merged by the manager's API server, and the
    worker's refuses to merge what is there already."""
    give(
        {
            "nodeSelector": FAKE_NODE,
            "tolerations": [TOLERATION],
            "imageRegistries": {"docker.io/rayproject": "mirror.example/rays"},
            "labels": {"node-selection": "luna"},
            "annotations": {"karpenter.sh/do-not-disrupt": "true"},
        }
    )
    stage.build({"east": 2})
    body = ray_cluster("pi", stage.name, {"workers": 2})
    template = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    del template["nodeSelector"], template["tolerations"]
    apart = {"labelSelector": {"matchLabels": {"ray.io/node-type": "worker"}}, "matchLabelKeys": ["ray.io/cluster"]}
    hostname = "kubernetes.io/hostname"
    template["topologySpreadConstraints"] = [
        {"topologyKey": hostname, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **apart}
    ]
    stage.manager.apply(yaml.safe_dump(body))
    wait(lambda: stage.running(2), 90, "both run", running.tail)
    copies = stage.remote()["east"]
    for copy in copies:
        assert copy["spec"]["containers"][0]["image"] == "mirror.example/rays/ray:2.60.0"
        assert copy["metadata"]["labels"]["node-selection"] == "luna"
        assert copy["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
        assert not [key for key in copy["metadata"]["labels"] if key.startswith("ray.io/")]
    assert len({copy["spec"]["nodeName"] for copy in copies}) == 2, "they know of each other by their labels' new names"


def test_a_share_keeps_the_nodes_that_it_was_reserved_for(stage: Stage, running: Controller, give: Give) -> None:
    """They are its flavor's. With other nodes for a new pod its Kueue would end the share, and with it the running
    pods."""
    stage.build({"east": 2}, node_labels={"east": FAKE_NODE})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "both run", running.tail)
    lost, stays = stage.remote()["east"]
    give({"nodeSelector": {key: "others" for key in FAKE_NODE}})
    stage.fleet.workers["east"].delete("pod", lost["metadata"]["name"], stage.name, wait=False)
    uid = lost["metadata"]["uid"]
    wait(lambda: uid not in _uids(stage) and stage.running(2), 90, "another one runs in its place", running.tail)
    assert stays["metadata"]["uid"] in _uids(stage)


def _uids(stage: Stage) -> set[str]:
    return {copy["metadata"]["uid"] for copy in stage.remote()["east"]}


@pytest.fixture
def heavy(stage: Stage) -> Iterator[str]:
    """A RuntimeClass of east, which the manager does not have."""
    east, name = stage.fleet.workers["east"], f"{stage.name}-heavy"
    overhead = {"podFixed": {"cpu": "500m"}}
    made = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "heavy"}
    east.apply(yaml.safe_dump({**made, "overhead": overhead}))
    yield name
    east.delete("runtimeclass", name)


def test_the_overhead_of_a_runtime_class_is_held_and_planned_with(
    stage: Stage, running: Controller, give: Give, heavy: str
) -> None:
    """East was asked what a worker would be there, so its plan, its share and its Kueue count the same."""
    give({"runtimeClassName": heavy})
    stage.build({"east": 3, "west": 3})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "both run", running.tail)
    assert stage.where("pi") == f"2 {stage.clusters[0]}"
    assert {copy["spec"]["overhead"]["cpu"] for copy in stage.remote()["east"]} == {"500m"}
    wait(lambda: _reserved(stage) == "3", 20, "two workers and their overhead are held", running.tail)
    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: str(stage.leftovers()))
    wait(lambda: _reserved(stage) == "0", 20, "east's queue counts nothing any more, so that the next plan tries it")

    stage.ray_cluster("large", workers=3)
    wait(lambda: stage.running(3), 90, "all run", running.tail)
    assert stage.where("large") == f"2 {stage.clusters[0]}, 1 {stage.clusters[1]}"
    assert stage.placement("large")["spec"]["round"] == 1, "nothing was asked for in vain"


def _reserved(stage: Stage) -> str:
    queue = stage.fleet.workers["east"].get("clusterqueues", stage.name)
    return str(queue["status"]["flavorsReservation"][0]["resources"][0]["total"])


def test_a_plan_looks_for_the_nodes_that_the_cluster_asks_for(stage: Stage, running: Controller, give: Give) -> None:
    give({"nodeSelector": {"pool": "nowhere"}})
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.where("pi") == "1 west", 60, "it goes to west", running.tail)
    assert "matches the worker's node selector" in stage.placement("pi")["spec"]["explanation"]


@pytest.mark.usefixtures("audited")
def test_what_stands_beside_the_templates_is_refused_before_any_quota_is_held(
    stage: Stage, running: Controller
) -> None:
    """Only Rayspan may give its labels to Ray nodes; the Workload has nothing of them."""
    stage.build({"east": 4})
    written = Written(stage)
    body = ray_cluster("pi", stage.name, {"workers": 1})
    body["spec"]["workerGroupSpecs"][0]["labels"] = {names.CLUSTER_LABEL: "east"}
    stage.manager.apply(yaml.safe_dump(body))
    wait(lambda: "Rejected" in stage.events("pi"), 60, "the job says so", running.tail)
    assert f"spec.workerGroupSpecs[0].labels has {names.CLUSTER_LABEL}" in stage.told("pi", "Rejected")
    assert written.take() == [], "no cluster was asked for anything"
