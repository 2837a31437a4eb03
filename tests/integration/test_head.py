"""Workers in a cluster that mirrors heads find theirs by name: before the first worker, wherever the head moves, until
the last is gone.

Real Kueue and KubeRay; heads and workers on fake nodes, so nothing dials. That DNS and Ray do is shown in e2e.
"""

import json
from collections.abc import Iterator

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.preemption import preempt
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage
from hack.testbed.workerclusters import meant

pytestmark = pytest.mark.long

SERVICE_LABEL = names.SERVICE_NAME_LABEL
SERVICE, SLICE = "pi-head-svc", "pi-head-svc-rayspan-ipv4"


def test_a_head_is_found_by_name_wherever_it_moves(stage: Stage, running: Controller) -> None:
    """Its workers stay, and what is done to its mirror by hand is undone; with the job the mirror goes."""
    east = _mirroring(stage, {"east": 2})["east"]
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", lambda: dump(stage, running))
    before, copies = _head(stage), stage.remote()["east"]
    service = east.get("services", SERVICE, stage.name)
    assert service["spec"]["clusterIP"] == "None" and "selector" not in service["spec"]
    assert _addresses(east, stage) == [before["status"]["podIP"]]
    anchors = [anchor["metadata"]["uid"] for anchor in stage.remote("configmaps")["east"]]
    assert [owner["uid"] for owner in service["metadata"]["ownerReferences"]] == anchors
    name = f"{SERVICE}.{stage.name}.svc.cluster.local"
    assert all(f"--address={name}:6379" in copy["spec"]["containers"][0]["args"][0] for copy in copies)

    moved = json.dumps({"status": {"podIP": "10.99.99.99", "podIPs": [{"ip": "10.99.99.99"}]}})
    patch = ("--subresource=status", "--type=merge", "-p", moved)
    stage.manager.kubectl("-n", stage.name, "patch", "pod", before["metadata"]["name"], *patch)
    wait(lambda: _addresses(east, stage) == ["10.99.99.99"], 10, "its name follows it", running.tail)

    for kind, each in (("service", SERVICE), ("endpointslice", SLICE)):
        east.delete(kind, each, stage.name)
        wait(lambda: east.get("services", SERVICE, stage.name) and _addresses(east, stage) == ["10.99.99.99"], 10,
             f"the {kind} is there again", running.tail)  # fmt: skip
    stray = json.dumps({"endpoints": [{"addresses": ["10.66.66.66"]}], "metadata": {"labels": {SERVICE_LABEL: "x"}}})
    east.kubectl("-n", stage.name, "patch", "endpointslice", SLICE, "--type=merge", "-p", stray)
    wait(lambda: _addresses(east, stage) == ["10.99.99.99"], 10, "it leads to its head again", running.tail)
    assert east.get("endpointslices", SLICE, stage.name)["metadata"]["labels"][SERVICE_LABEL] == SERVICE

    assert {copy["metadata"]["uid"] for copy in copies} == {copy["metadata"]["uid"] for copy in stage.remote()["east"]}
    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left, nor of the mirror", lambda: str(stage.leftovers()))


def test_two_shares_in_one_cluster_need_one_mirror(stage: Stage, running: Controller) -> None:
    """A share that is lost in east is replaced in west, beside the one that stands there: both own the mirror there."""
    workers = _mirroring(stage, {"east": 2, "west": 1})
    stage.ray_cluster("pi", workers=3, priority=stage.priority("low", 10))
    wait(lambda: stage.running(3), 90, "three workers run", lambda: dump(stage, running))
    stage.set_quota(workers["west"], 3)
    preempt(stage)
    wait(lambda: stage.where("pi") == f"3 {_own(stage, 'west')}" and stage.running(3), 90,
         "all run in west", lambda: dump(stage, running))  # fmt: skip
    anchors = {anchor["metadata"]["uid"] for anchor in stage.remote("configmaps")["west"]}
    assert len(anchors) == 2
    for kind, name in (("services", SERVICE), ("endpointslices", SLICE)):
        owners = workers["west"].get(kind, name, stage.name)["metadata"]["ownerReferences"]
        assert {owner["uid"] for owner in owners} == anchors
    wait(lambda: not stage.remote("services")["east"] and not stage.remote("endpointslices")["east"], 60,
         "it is gone in east", running.tail)  # fmt: skip


def test_a_service_of_somebody_else_is_left_alone(stage: Stage, running: Controller) -> None:
    """No worker is made where its head's name leads elsewhere: the job says so, and runs in another cluster."""
    workers = _mirroring(stage, {"east": 2, "west": 2})
    foreign = {"ports": [{"port": 80}], "selector": {"app": "theirs"}}
    made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": stage.name}}
    workers["east"].apply(yaml.safe_dump({**made, "spec": foreign}))
    before = workers["east"].get("services", SERVICE, stage.name)
    wait(lambda: stage.connected(_own(stage, name) for name in workers), 30, "east is tried first", running.tail)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", lambda: dump(stage, running))
    assert stage.where("pi") == f"2 {_own(stage, 'west')}"
    said = stage.told("pi", "RemotePodRejected")
    assert f"services {stage.name}/{SERVICE} exists there and is not ours" in said
    assert said.startswith(f"worker cluster {_own(stage, 'east')} denies the mirror of the head's Service")
    assert workers["east"].get("services", SERVICE, stage.name) == before


@pytest.fixture
def no_services(stage: Stage) -> Iterator[None]:
    """East's account as it was before there was a ServiceMirror."""
    east = stage.fleet.workers["east"]
    role = east.get("clusterroles", "rayspan-worker")
    fewer = [rule for rule in role["rules"] if not {"services", "endpointslices"} & set(rule["resources"])]
    assert fewer != role["rules"]
    _give(east, fewer)
    yield
    _give(east, role["rules"])


def _give(cluster: Cluster, rules: object) -> None:
    cluster.kubectl("patch", "clusterrole", "rayspan-worker", "--type=merge", "-p", json.dumps({"rules": rules}))


def test_a_cluster_without_rights_on_services_keeps_what_it_runs(
    stage: Stage, running: Controller, no_services: None
) -> None:
    """It says which right it lacks; who comes new waits for it, and goes on when it is given."""
    rules = stage.fleet.workers["west"].get("clusterroles", "rayspan-worker")["rules"]
    name, east = _own(stage, "east"), _mirroring(stage, {"east": 3}, "PodIP")["east"]
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", lambda: dump(stage, running))
    to_mirror = json.dumps({"spec": {"head": {"address": "ServiceMirror"}}})
    stage.manager.kubectl("patch", "workercluster", name, "--type=merge", "-p", to_mirror)
    wait(lambda: _connected(stage, name)["reason"] == "HeadsNotMirrored", 30, "it says so", running.tail)
    told = _connected(stage, name)
    assert told["status"] == "True" and "cannot list resource" in told["message"]

    stage.ray_cluster("late", workers=1)
    wait(lambda: stage.state("late") == PlacementState.WAITING, 60, "it waits", running.tail)
    assert "heads cannot be mirrored there" in stage.placement("late")["spec"]["explanation"]
    copies = stage.remote()["east"]
    east.delete("pod", copies[0]["metadata"]["name"], stage.name, wait=False)
    wait(lambda: "RemotePodRejected" in stage.events("pi"), 60, "its replacement is told", running.tail)
    assert "heads cannot be mirrored there" in stage.told("pi", "RemotePodRejected")
    assert [one["metadata"]["uid"] for one in stage.remote()["east"]] == [copies[1]["metadata"]["uid"]], "it stays"

    _give(east, rules)
    wait(lambda: stage.running(3), 90, "all run", lambda: dump(stage, running))
    assert _connected(stage, name)["reason"] == "Connected"


def _connected(stage: Stage, name: str) -> Raw:
    return condition(stage.manager.get("workerclusters", name), names.CONNECTED)


@pytest.mark.parametrize("count", [1, 2, 3], ids=["service", "slice", "owner"])
def test_killed_while_it_mirrors(stage: Stage, process: Controller, count: int) -> None:
    """After each write of a mirror; the third is made when the head has moved."""
    east = _mirroring(stage, {"east": 1})["east"]
    process.start(die_after=("MirrorHead", count, stage.name))
    stage.ray_cluster("pi", workers=1)
    if count > 2:
        wait(lambda: stage.running(1), 90, "a worker runs", process.tail)
        moved = json.dumps({"status": {"podIP": "10.99.99.99", "podIPs": [{"ip": "10.99.99.99"}]}})
        patch = ("--subresource=status", "--type=merge", "-p", moved)
        stage.manager.kubectl("-n", stage.name, "patch", "pod", _head(stage)["metadata"]["name"], *patch)
    process.wait_for_death()
    assert count > 2 or not stage.remote()["east"], "a worker was made before its head's name resolved"
    process.start()
    wait(lambda: stage.running(1), 90, "a worker runs", process.tail)
    assert _addresses(east, stage) == [_head(stage)["status"]["podIP"]]


def _mirroring(stage: Stage, cpu: dict[str, int], address: str = "ServiceMirror") -> dict[str, Cluster]:
    """Build the stage over WorkerClusters of its own, which mirror heads."""
    registered = [_registered(stage, name, address) for name in cpu]
    stage.manager.apply(yaml.safe_dump_all(registered))
    stage.made += [(stage.manager, f"workercluster.{names.DOMAIN}", each["metadata"]["name"]) for each in registered]
    stage.build(cpu, policy={"clusters": {"names": [_own(stage, name) for name in cpu]}})
    return {name: stage.fleet.workers[name] for name in cpu}


def _own(stage: Stage, name: str) -> str:
    return f"{stage.name}-{name}"


def _registered(stage: Stage, name: str, address: str) -> Raw:
    source = {"kubeConfig": {"secretRef": {"name": name}}}
    spec = {"source": source, "head": {"address": address}}
    kind, metadata = (
        names.WORKER_CLUSTER_KIND,
        {"name": _own(stage, name), "annotations": meant(stage.fleet.workers[name])},
    )
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _head(stage: Stage) -> Raw:
    return stage.manager.items("pods", stage.name, f"{names.RAY_NODE_TYPE_LABEL}=head")[0]


def _addresses(cluster: Cluster, stage: Stage) -> list[str]:
    endpoints = cluster.get("endpointslices", SLICE, stage.name).get("endpoints") or ()
    return [address for endpoint in endpoints for address in endpoint["addresses"]]
