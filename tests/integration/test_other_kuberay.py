"""A KubeRay in a worker cluster leaves remote pods alone, even beside a RayCluster of the same name. It finds its
pods by label."""

import functools
import json
from collections.abc import Iterator

import pytest
import yaml

from adapter import names
from hack.lab.base.lab import Lab
from hack.lab.cluster import addons, containerd
from hack.lab.images import images
from hack.testbed import stage as stages
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage

pytestmark = pytest.mark.long

WHERE, NAME = "east", "same"
KIND = "CustomResourceDefinition"


@pytest.fixture
def kuberay(lab: Lab, fleet: Clusters) -> Iterator[Cluster]:
    """The worker cluster with a KubeRay of its own, as stock as the manager's, for as long as the test runs.

    Its kinds stay: Kueue there watches them from now on, and ends itself when it can no longer list them.
    """
    host, cluster = next(one for one in lab.clusters if one.name == WHERE), fleet.workers[WHERE]
    manifest = addons.rendered(addons.KUBERAY)
    objects = [one for one in yaml.load_all(manifest.read_text(), yaml.CSafeLoader) if one["kind"] != KIND]
    containerd.bring(host, addons.KUBERAY.name, images.archive_for(addons.KUBERAY.name))
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--validate=false", "-f", manifest)
    try:
        cluster.wait(functools.partial(addons.ready, host, addons.KUBERAY), 60, "KubeRay runs")
        yield cluster
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", input=yaml.safe_dump_all(objects))


def test_another_kuberay_neither_counts_nor_deletes_our_pods(
    stage: Stage, running: Controller, kuberay: Cluster
) -> None:
    """A gang of two in a cluster where a RayCluster of that name and namespace starts, scales up and down, and is
    deleted."""
    stage.build({WHERE: 4}, policy={"clusters": {"names": [WHERE]}})
    stage.ray_cluster(NAME, workers=2)
    wait(lambda: stage.running(2), 60, "the gang runs", running.tail)
    ours = _ours(stage)

    theirs = stages.ray_cluster(NAME, stage.name, {"workers": 1})
    del theirs["metadata"]["labels"]
    kuberay.apply(yaml.safe_dump(theirs))
    for replicas in (1, 3, 0):
        _scale(kuberay, stage.name, replicas)
        counts = functools.partial(_counts, kuberay, stage.name, replicas)
        wait(counts, 30, f"it counts its own {replicas}", running.tail)
    assert _ours(stage) == ours

    kuberay.delete("raycluster", NAME, stage.name)
    wait(lambda: not _pods_of_theirs(kuberay, stage.name), 30, "its pods are gone")
    assert _ours(stage) == ours
    assert stage.running(2)


def _ours(stage: Stage) -> dict[str, str]:
    """Our pods there that are not about to go: name -> uid."""
    pods = (pod["metadata"] for pod in stage.remote()[WHERE])
    return {pod["name"]: pod["uid"] for pod in pods if "deletionTimestamp" not in pod}


def _scale(cluster: Cluster, namespace: str, replicas: int) -> None:
    path = "/spec/workerGroupSpecs/0"
    patch = [{"op": "replace", "path": f"{path}/{field}", "value": replicas} for field in ("replicas", "minReplicas")]
    patch.append({"op": "replace", "path": f"{path}/maxReplicas", "value": max(1, replicas)})
    cluster.kubectl("-n", namespace, "patch", "raycluster", NAME, "--type=json", "-p", json.dumps(patch))


def _counts(cluster: Cluster, namespace: str, replicas: int) -> bool:
    """Whether so many workers are wanted, seen running, seen ready and there: ours would be too many."""
    status = cluster.get("raycluster", NAME, namespace).get("status") or {}
    counted = [int(status.get(f"{which}WorkerReplicas") or 0) for which in ("desired", "available", "ready")]
    workers = [pod for pod in _pods_of_theirs(cluster, namespace) if _kind(pod) == "worker"]
    return [*counted, len(workers)] == [replicas] * 4


def _pods_of_theirs(cluster: Cluster, namespace: str) -> list[Raw]:
    return cluster.items("pods", namespace, names.RAY_NODE_TYPE_LABEL)


def _kind(pod: Raw) -> str:
    return str(pod["metadata"]["labels"][names.RAY_NODE_TYPE_LABEL])
