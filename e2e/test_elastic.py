"""Tests that elastic jobs and RayClusters scale up into both clusters and the requested zone, and give quota back."""

import json
from dataclasses import replace

import pytest

from adapter import names
from hack.testbed.clusters import Clusters, wait
from hack.testbed.raycluster import RayCluster
from hack.testbed.rayjob import ELASTIC, NAMESPACE, ZONES, Job, removed
from hack.testbed.reader import Raw
from hack.testbed.stage import pods_by_cluster

FREED_SECONDS = 30  # until the quota of workers that left is free


@pytest.mark.long  # without Ray: tests/integration/test_elastic.py
def test_an_autoscaled_job_grows_into_both_clusters_and_frees_its_quota(fleet: Clusters) -> None:
    """Ray's autoscaler goes from one worker to four and back: no worker restarts, and freed quota returns."""
    with removed(Job(fleet, "rayjob-elastic", 1, sample=ELASTIC)) as job:
        job.submit(words=f"--stay {FREED_SECONDS}")
        assert job.said("STARTED") == {"clusters": ["east"]}
        first, placement = job.pods(), job.placement()["metadata"]["name"]
        grown = job.said("GREW")
        assert grown["same"], "the actor that was there before is the same process"
        assert grown["clusters"] == ["east", "east", "west", "west"]
        assert {pod["metadata"]["uid"] for pod in first} <= {pod["metadata"]["uid"] for pod in job.pods()}

        shrunk = job.said("SHRANK")
        assert (shrunk["same"], shrunk["workers"]) == (True, 1)
        freed = {"east": 1, "west": 0}
        wait(
            lambda: _reserved_workers(fleet) == freed, FREED_SECONDS, "the job holds quota of its one worker", job.dump
        )
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        assert job.placement()["metadata"]["name"] == placement


@pytest.mark.long  # without Ray: tests/integration/test_zones.py
def test_a_task_with_a_zone_label_scales_up_the_group_of_that_zone(fleet: Clusters) -> None:
    """The first task requests west, which is not the policy's first zone; no worker exists yet.

    Ray chooses the group by its labels, and the worker is placed in west although east has capacity.
    """
    with removed(Job(fleet, "rayjob-zones", 0, sample=ZONES)) as job:
        job.submit()
        assert job.said("ZONES") == {"west": "west", "east": "east"}, job.output()
        first = json.loads(
            next(line for line in job.output().splitlines() if line.startswith("RAN ")).removeprefix("RAN ")
        )
        assert (first["asked"], first["cluster"], first["workers"]) == ("west", "west", ["west"]), (
            "no other worker was placed"
        )
        assert job.wait_for_end() == "SUCCEEDED", job.output()


_ACTOR = """
import json, os, ray, sys
ray.init(logging_level="ERROR", namespace="e2e")

@ray.remote(num_cpus=1)
class Actor:
    def where(self):
        return os.getpid(), ray.get_runtime_context().get_node_id()

actor = Actor.options(name="first", lifetime="detached", get_if_exists=True).remote()
print(json.dumps(ray.get(actor.where.remote(), timeout=60)))
"""


@pytest.mark.long  # without Ray: tests/integration/test_elastic.py
def test_a_raycluster_scaled_by_hand_keeps_its_actors(fleet: Clusters) -> None:
    """B6: two workers fill the first cluster, and two more are placed in the other one.

    No worker restarts, and an actor from before answers as the same process.
    """
    cluster = RayCluster(fleet, "by-hand", workers=2)
    try:
        cluster.create(_elastic)
        cluster.wait_until_joined()
        assert pods_by_cluster(cluster.pods("worker")) == {"east": 2}
        before, actor = _uids(cluster), cluster.ask(_ACTOR)
        fleet.manager.kubectl("patch", "raycluster", cluster.name, "--type=json", "-p", json.dumps(_FOUR))
        replace(cluster, workers=4).wait_until_joined()
        assert pods_by_cluster(cluster.pods("worker")) == {"east": 2, "west": 2}
        assert before <= _uids(cluster), "a worker was restarted"
        assert cluster.ask(_ACTOR) == actor, "the actor is the same process on the same node"
    finally:
        cluster.delete()


_FOUR = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}]


def _elastic(raw: Raw) -> None:
    raw["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
    raw["spec"]["workerGroupSpecs"][0]["maxReplicas"] = 4


def _uids(cluster: RayCluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.pods("worker")}


def _reserved_workers(fleet: Clusters) -> dict[str, int]:
    """The number of workers with quota in each worker cluster."""
    workloads = {
        name: cluster.items("workloads", NAMESPACE, names.MANAGER_LABEL) for name, cluster in fleet.workers.items()
    }
    return {
        name: sum(int(share["spec"]["podSets"][0]["count"]) for share in shares) for name, shares in workloads.items()
    }
