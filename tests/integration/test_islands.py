"""The documented fine-tuning job, with twenty workers, runs over two islands of ten GPUs, and the manager sees it.

Fake nodes have the GPUs. It is submitted without a submitter, whose memory no stage's queue covers.
"""

from collections.abc import Iterable

import pytest
import yaml

from hack.lab.base.paths import REPO
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import FAKE_NODE, QUEUE, TOLERATION, Stage, pods_by_cluster

SAMPLE = REPO / "manifests" / "samples" / "rayjob-llama-finetune.yaml"
GPU = "nvidia.com/gpu"
ISLAND = 10  # GPUs of each worker cluster; two fake nodes have eight each


@pytest.mark.long
def test_twenty_workers_run_on_two_islands_of_ten(stage: Stage, running: Controller) -> None:
    """B1: limits only, no minReplicas and maxReplicas: no island holds the job, both are filled, all twenty workers
    run."""
    stage.build(dict.fromkeys(stage.clusters, ISLAND), resource=GPU)
    job = _grown(stage, 2 * ISLAND)
    stage.manager.apply(yaml.safe_dump(job))
    wait(lambda: stage.where(job["metadata"]["name"]) == "10 east, 10 west", 30, "it is divided", running.tail)
    wait(lambda: stage.running(2 * ISLAND), 30, "all twenty run, as the manager sees them", running.tail)
    workers = stage.workers()
    assert pods_by_cluster(workers) == {"east": ISLAND, "west": ISLAND}
    assert {pod["status"]["phase"] for pod in workers} == {"Running"}
    there = {name: stage.remote()[name] for name in stage.clusters}
    assert {name: len(pods) for name, pods in there.items()} == {"east": ISLAND, "west": ISLAND}
    assert _names(pod for pods in there.values() for pod in pods) == _names(workers), "each copy has its pod's name"
    wait(lambda: _held(stage) == {"east": "10", "west": "10"}, 10, "each island's Kueue counts ten GPUs", running.tail)


def _grown(stage: Stage, workers: int) -> Raw:
    """The sample on this stage: so many workers of one CPU and one GPU, on fake nodes; the rest is as it is shipped."""
    job: Raw = yaml.safe_load(SAMPLE.read_text())
    assert job["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": QUEUE}
    job["metadata"]["namespace"] = stage.name
    job["spec"]["submissionMode"] = "InteractiveMode"
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    group["replicas"] = workers
    for part in (cluster["headGroupSpec"], group):
        spec = part["template"]["spec"]
        spec |= {"nodeSelector": FAKE_NODE, "tolerations": [TOLERATION]}
        spec["containers"][0]["resources"]["limits"] = {"cpu": "1", GPU: "1"}
    return job


def _names(pods: Iterable[Raw]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def _held(stage: Stage) -> dict[str, str]:
    """How many GPUs are reserved in each worker cluster's ClusterQueue, as its Kueue writes it."""
    queues = {name: stage.fleet.workers[name].get("clusterqueues", stage.name) for name in stage.clusters}
    return {
        name: row["total"]
        for name, queue in queues.items()
        for flavor in queue["status"].get("flavorsReservation", ())
        for row in flavor["resources"]
        if row["name"] == GPU
    }
