"""Workers claim devices by the ResourceClaimTemplates that a WorkerCluster names, on quota that Kueue there counts.

Kueue of the manager and of east maps the DeviceClass to a resource. Real Kueue, KubeRay and scheduler; the workers are
on fake nodes, whose ResourceSlices are published by hand.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed import devices, kueueconfig, nodes
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, ray_cluster

pytestmark = pytest.mark.alone

GPU, NODE = "example.com/gpus", "devices"
MAPPINGS = {"deviceClassMappings": [{"name": GPU, "deviceClassNames": [devices.DEVICE_CLASS]}]}
MINE, THEIRS = "one-gpu", "h200"


@pytest.fixture(scope="module")
def mapped(fleet: Clusters) -> Iterator[None]:
    """Kueue of the manager and of east counts a device of the class as one of the resource; east has four."""
    changed, east = [fleet.manager, fleet.workers["east"]], fleet.workers["east"]
    with ExitStack() as cleanup:
        cleanup.callback(kueueconfig.restart, changed)
        for cluster in changed:
            cleanup.enter_context(kueueconfig.changed(cluster, _with_mappings))
        kueueconfig.restart(changed)
        cleanup.enter_context(nodes.added(east, NODE))
        cleanup.enter_context(devices.published(east, NODE, 4))
        yield


@pytest.mark.usefixtures("mapped")
def test_workers_get_the_devices_that_their_cluster_names(stage: Stage, running: Controller) -> None:
    """West names no template, so it is passed over. East has quota for two devices: the second job waits for them.

    So does a job of three workers before Kueue of east has counted any claim: the plan counts it by itself.
    """
    own = _build(stage, {GPU: 1})
    _submit(stage, "large", workers=3)
    wait(lambda: stage.state("large") == PlacementState.WAITING, 60, "the large job waits", running.tail)
    assert f"{GPU} in flavor {stage.name}: 2 free of 2, one worker needs 1" in _explanation(stage, "large")
    assert not stage.remote("workloads")["east"], "no share of it asks in vain"
    stage.manager.delete("raycluster", "large", stage.name)
    _submit(stage, "first", workers=2)
    wait(lambda: stage.running(2), 120, "it runs", lambda: dump(stage, running))
    assert stage.where("first") == f"2 {own}"
    east = stage.fleet.workers["east"]
    pods = stage.remote()["east"]
    claim = {"name": "gpu", "resourceClaimTemplateName": THEIRS}
    assert [pod["spec"]["resourceClaims"] for pod in pods] == [[claim]] * 2
    holders = devices.allocated(east, stage.name)
    assert holders.keys() == {pod["metadata"]["name"] for pod in pods}
    assert len({device for each in holders.values() for device in each}) == 2
    assert (_usage(stage.manager, stage.name), _usage(east, stage.name)) == ({GPU: "2"}, {GPU: "2"})
    assert f"add spec.pods.resourceClaimTemplates: [{{name: {MINE}, namespaces: [{stage.name}]" in _explanation(stage)

    _submit(stage, "second", workers=1)
    wait(lambda: stage.state("second") == PlacementState.WAITING, 60, "the second job waits", running.tail)
    assert f"{GPU} in flavor {stage.name}: 0 free of 2, one worker needs 1" in _explanation(stage, "second")
    assert len(stage.remote("workloads")["east"]) == 1, "no share of it waits in vain"

    stage.manager.delete("raycluster", "first", stage.name)
    wait(lambda: stage.where("second") == f"1 {own}" and stage.running(1), 120, "it runs", lambda: dump(stage, running))


@pytest.mark.long
@pytest.mark.usefixtures("mapped")
def test_an_admission_corrects_what_the_worker_cluster_says(stage: Stage, running: Controller) -> None:
    """The template claims two devices, and the WorkerCluster says one: the first share shows it."""
    own = _build(stage, {GPU: 1}, count=2)
    _submit(stage, "first", workers=1)
    wait(lambda: stage.running(1), 120, "it runs", lambda: dump(stage, running))
    assert stage.where("first") == f"1 {own}"
    _submit(stage, "second", workers=1)
    wait(lambda: stage.state("second") == PlacementState.WAITING, 60, "the second job waits", running.tail)
    assert f"{GPU} in flavor {stage.name}: 0 free of 2, one worker needs 2" in _explanation(stage, "second")
    assert len(stage.remote("workloads")["east"]) == 1


def _with_mappings(config: Raw) -> Raw:
    return {**config, "resources": MAPPINGS}


def _build(stage: Stage, resources: Raw, *, count: int = 1) -> str:
    """Queues with two devices, and a WorkerCluster that names the template of east; returns its name."""
    own = stage.own("east")
    stage.clusters = ("west", own)
    entry = {"name": MINE, "as": THEIRS, "namespaces": [stage.name], "resources": resources}
    patch = json.dumps({"spec": {"pods": {"resourceClaimTemplates": [entry]}}})
    stage.manager.kubectl("patch", "workercluster", own, "--type=merge", "-p", patch)
    stage.build({"east": 2, "west": 2}, resource=GPU)
    stage.manager.apply(yaml.safe_dump(devices.claim_template(stage.name, MINE)))
    stage.fleet.workers["east"].apply(yaml.safe_dump(devices.claim_template(stage.name, THEIRS, count=count)))
    wait(lambda: _is_observed(stage, own), 20, "the controller has observed the WorkerCluster")
    return own


def _is_observed(stage: Stage, cluster: str) -> bool:
    raw = stage.manager.get("workerclusters", cluster)
    generation = condition(raw, names.CONNECTED).get("observedGeneration")
    return bool(generation == raw["metadata"]["generation"])


def _submit(stage: Stage, name: str, *, workers: int) -> None:
    """A RayCluster of workers that claim one device each."""
    body = ray_cluster(name, stage.name, {"workers": workers}, cpu="100m")
    spec = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": MINE}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    stage.manager.apply(yaml.safe_dump(body))


def _usage(cluster: Cluster, namespace: str) -> Raw:
    """How many devices Kueue counts for the only admitted Workload."""
    (workload,) = [raw for raw in cluster.items("workloads", namespace) if (raw.get("status") or {}).get("admission")]
    assignments = workload["status"]["admission"]["podSetAssignments"]
    return {name: amount for part in assignments for name, amount in part["resourceUsage"].items() if name == GPU}


def _explanation(stage: Stage, job: str = "first") -> str:
    return str(stage.placement(job)["spec"]["explanation"])
