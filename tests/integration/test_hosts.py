"""The hosts of one replica (`numOfHosts`) run in one cluster, and are lost, replaced and moved together."""

import json
from collections import defaultdict
from collections.abc import Iterator

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import label
from hack.testbed.clusters import Cluster, wait
from hack.testbed.controller import Controller
from hack.testbed.preemption import preempt
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, pods_by_cluster


def test_a_replica_runs_in_one_cluster_and_is_replaced_as_a_whole(stage: Stage, running: Controller) -> None:
    """East has capacity for three workers and gets one replica of two hosts. KubeRay deletes a replica when one of its
    pods is lost, and the replacement runs where the lost one did."""
    stage.build({"east": 3, "west": 5})
    stage.ray_cluster("pi", workers=3, hosts=2)
    wait(lambda: stage.running(6), 90, "three replicas run", running.tail)
    assert _clusters(stage) == [["east"], ["west"], ["west"]]
    assert {name: _counts(stage, name) for name in ("east", "west")} == {"east": [2], "west": [4]}
    shares = stage.placement("pi")["spec"]["shares"]
    assert [(share["groups"][0]["count"], share["groups"][0]["hosts"]) for share in shares] == [(2, 2), (4, 2)]

    before = _replicas(stage)
    for cluster in (stage.fleet.workers["west"], stage.manager):
        lost = next(name for name, pods in _replicas(stage).items() if label(pods[0], names.CLUSTER_LABEL) == "west")
        cluster.delete("pod", _replicas(stage)[lost][0]["metadata"]["name"], stage.name, wait=False)
        wait(lambda: lost not in _replicas(stage) and stage.running(6), 90, "another replica runs", running.tail)  # noqa: B023
        assert _clusters(stage) == [["east"], ["west"], ["west"]]
    (east,) = (name for name, pods in before.items() if label(pods[0], names.CLUSTER_LABEL) == "east")
    assert _uids(_replicas(stage)[east]) == _uids(before[east]), "the replica in east is left alone"
    assert len(stage.remote()["west"]) == 4


def test_half_a_replica_is_not_placed(stage: Stage, running: Controller) -> None:
    """Each cluster has capacity for one host; two hosts in one cluster fit only later."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=1, hosts=2)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "it waits", running.tail)
    assert stage.remote("workloads") == {"east": [], "west": []}
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(lambda: stage.running(2), 90, "it runs", running.tail)
    assert pods_by_cluster(stage.workers()) == {"west": 2}


def test_a_lost_share_takes_whole_replicas_elsewhere(stage: Stage, running: Controller) -> None:
    stage.build({"east": 2, "west": 4})
    stage.ray_cluster("pi", workers=2, hosts=2)
    wait(lambda: stage.running(4), 90, "two replicas run", running.tail)
    assert _clusters(stage) == [["east"], ["west"]]
    preempt(stage, "east")
    wait(lambda: "ShareLost" in stage.events("pi"), 60, "a replica is lost", running.tail)
    wait(lambda: stage.running(4) and _clusters(stage) == [["west"], ["west"]], 90, "both run in west", running.tail)


@pytest.mark.parametrize("autoscaled", [False, True])
def test_an_elastic_job_grows_and_shrinks_by_whole_replicas(
    stage: Stage, running: Controller, autoscaled: bool
) -> None:
    stage.build({"east": 3, "west": 4})
    stage.ray_cluster("pi", workers=1, hosts=2, elastic=3, least=1, autoscaled=autoscaled)
    wait(lambda: stage.running(2), 90, "a replica runs", running.tail)
    stage.scale("pi", 0, 3)
    wait(lambda: stage.running(6), 90, "three replicas run", running.tail)
    assert _clusters(stage) == [["east"], ["west"], ["west"]]
    assert {name: _counts(stage, name) for name in ("east", "west")} == {"east": [2], "west": [2, 2]}
    away = next(pods for pods in _replicas(stage).values() if label(pods[0], names.CLUSTER_LABEL) == "west")
    stage.scale("pi", 0, 2, without=[away[0]["metadata"]["name"]])
    wait(lambda: _counts(stage, "west") == [2], 60, "its share is deleted", running.tail)
    assert stage.running(4) and _clusters(stage) == [["east"], ["west"]]


def test_a_drain_moves_whole_replicas(stage: Stage, running: Controller) -> None:
    """The other cluster has capacity for one and a half of them at first."""
    stage.clusters = (stage.own("east"), "west")
    stage.build({"east": 4, "west": 3})
    stage.ray_cluster("pi", workers=2, hosts=2)
    wait(lambda: stage.running(4), 90, "two replicas run", running.tail)
    assert len(stage.remote()["east"]) == 4
    draining = json.dumps({"spec": {"draining": True}})
    stage.manager.kubectl("patch", "workercluster", stage.clusters[0], "--type=merge", "-p", draining)
    wait(lambda: stage.running(4) and len(stage.remote()["west"]) == 2, 90, "one replica moves", running.tail)
    assert len(stage.remote()["east"]) == 2 and _clusters(stage) == [[stage.clusters[0]], ["west"]]
    stage.set_quota(stage.fleet.workers["west"], 4)
    wait(lambda: stage.running(4) and len(stage.remote()["west"]) == 4, 90, "the other one moves", running.tail)
    wait(lambda: not stage.remote("workloads")["east"], 60, "east is empty", running.tail)


@pytest.fixture
def without_host_labels(stage: Stage) -> Iterator[None]:
    """The manager's KubeRay with the feature gate off, as KubeRay 1.5 has it by default."""
    _set_gate(stage.manager, "RayClusterStatusConditions=true,RayMultiHostIndexing=false")
    yield
    _set_gate(stage.manager, "RayClusterStatusConditions=true")


@pytest.mark.alone
@pytest.mark.usefixtures("without_host_labels")
def test_without_labels_of_hosts_a_job_is_rejected(stage: Stage, running: Controller) -> None:
    """It says what to do, holds nothing, and a job of single hosts beside it runs."""
    stage.build({"east": 4})
    stage.ray_cluster("pi", workers=1, hosts=2)
    text = wait(lambda: stage.events("pi").get("Rejected") or "", 60, "the job is rejected", running.tail)
    assert f"lack the label {names.RAY_REPLICA_NAME_LABEL}" in text and "RayMultiHostIndexing" in text
    wait(lambda: not _active(stage), 30, "Kueue deactivates it", running.tail)
    wait(lambda: stage.reserving() == 0 and not stage.workers(), 60, "it holds nothing", running.tail)
    stage.ray_cluster("single", workers=2)
    wait(lambda: stage.running(2), 90, "another job runs", running.tail)
    assert not _active(stage), "it is not queued again"


def _active(stage: Stage) -> bool:
    workloads = stage.manager.items("workloads", stage.name)
    return all(
        workload["spec"].get("active", True)
        for workload in workloads
        if workload["metadata"]["ownerReferences"][0]["name"] == "pi"
    )


def _set_gate(manager: Cluster, gates: str) -> None:
    path, value = "/spec/template/spec/containers/0/args", [f"--feature-gates={gates}"]
    patch = json.dumps([{"op": "replace", "path": path, "value": value}])
    manager.kubectl("-n", "default", "patch", "deployment", "kuberay-operator", "--type=json", "-p", patch)
    manager.kubectl("-n", "default", "rollout", "status", "deployment/kuberay-operator", "--timeout=90s")


def _replicas(stage: Stage) -> dict[str, list[Raw]]:
    """The manager's workers by KubeRay's name of their replica, which all have."""
    replicas = defaultdict[str, list[Raw]](list)
    for pod in stage.workers():
        replicas[pod["metadata"]["labels"][names.RAY_REPLICA_NAME_LABEL]].append(pod)
    return replicas


def _clusters(stage: Stage) -> list[list[str]]:
    """The clusters of each replica."""
    return sorted(sorted({label(pod, names.CLUSTER_LABEL) for pod in pods}) for pods in _replicas(stage).values())


def _counts(stage: Stage, name: str) -> list[int]:
    """How many workers each Workload of the stage holds quota for in a worker cluster."""
    workloads = stage.remote("workloads")[name]
    return sorted(sum(podset["count"] for podset in workload["spec"]["podSets"]) for workload in workloads)


def _uids(pods: list[Raw]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}
