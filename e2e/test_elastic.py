"""Does a RayJob that Ray's autoscaler lets grow take workers from both clusters, give each back what it leaves, and grow in the zone that
its tasks ask for? And a RayCluster that somebody scales?"""

import json
from dataclasses import replace

import pytest

from adapter import names
from hack.testbed.clusters import Clusters, wait
from hack.testbed.raycluster import RayCluster
from hack.testbed.rayjob import ELASTIC, NAMESPACE, ZONES, Job, removed
from hack.testbed.reader import Raw
from hack.testbed.stage import pods_by_cluster


@pytest.mark.long  # with pods of no Ray: tests/integration/test_elastic.py
def test_it_grows_over_both_clusters_and_gives_back_what_it_leaves(fleet: Clusters) -> None:
    """From one worker to four and back, under Ray's own autoscaler: nobody is restarted, and the quota of who leaves is free."""
    with removed(Job(fleet, "rayjob-elastic", 1, sample=ELASTIC)) as job:
        job.submit()
        assert job.said("STARTED") == {"clusters": ["east"]}
        first, placement = job.pods(), job.placement()["metadata"]["name"]
        grown = job.said("GREW")
        assert grown["same"], "the actor that was there before is the same process"
        assert grown["clusters"] == ["east", "east", "west", "west"]
        assert {pod["metadata"]["uid"] for pod in first} <= {pod["metadata"]["uid"] for pod in job.pods()}

        shrunk = job.said("SHRANK")
        assert (shrunk["same"], shrunk["workers"]) == (True, 1)
        wait(lambda: _held(fleet) in ({"east": 1, "west": 0}, {"east": 0, "west": 0}), 30, "quota is free", job.dump)
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        assert job.placement()["metadata"]["name"] == placement


@pytest.mark.long  # with pods of no Ray: tests/integration/test_zones.py
def test_a_task_that_asks_for_a_zone_lets_the_group_of_that_zone_grow(fleet: Clusters) -> None:
    """There is no worker in the beginning, and the first task asks for the zone that is not the policy's first: Ray chooses the group by
    its labels, and its worker comes there, though there is room in the other zone."""
    with removed(Job(fleet, "rayjob-zones", 0, sample=ZONES)) as job:
        job.submit()
        assert job.said("ZONES") == {"west": "west", "east": "east"}, job.output()
        first = json.loads(
            next(line for line in job.output().splitlines() if line.startswith("RAN ")).removeprefix("RAN ")
        )
        assert (first["asked"], first["cluster"], first["workers"]) == ("west", "west", ["west"]), "nobody else came"
        assert job.wait_for_end() == "SUCCEEDED", job.output()


_ACTOR = """
import json, os, ray, sys
ray.init(logging_level="ERROR", namespace="kept")

@ray.remote(num_cpus=1)
class Actor:
    def where(self):
        return os.getpid(), ray.get_runtime_context().get_node_id()

found = Actor.options(name="first", lifetime="detached", get_if_exists=True).remote()
print(json.dumps(ray.get(found.where.remote(), timeout=60)))
"""


@pytest.mark.long  # with pods of no Ray: tests/integration/test_elastic.py
def test_a_raycluster_that_is_scaled_by_hand_keeps_its_actors(fleet: Clusters) -> None:
    """B6: two workers fill the first cluster, and two more come into the other one. Nobody is restarted, and an actor that was there before
    answers as the same process."""
    made = RayCluster(fleet, "by-hand", workers=2)
    try:
        made.create(_elastic)
        made.wait_until_joined()
        assert pods_by_cluster(made.pods("worker")) == {"east": 2}
        before, actor = _uids(made), made.ask(_ACTOR)
        fleet.manager.kubectl("patch", "raycluster", made.name, "--type=json", "-p", json.dumps(_FOUR))
        replace(made, workers=4).wait_until_joined()
        assert pods_by_cluster(made.pods("worker")) == {"east": 2, "west": 2}
        assert before <= _uids(made), "nobody was restarted"
        assert made.ask(_ACTOR) == actor, "the actor is the same process on the same node"
    finally:
        made.delete()


_FOUR = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 4}]


def _elastic(made: Raw) -> None:
    made["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
    made["spec"]["workerGroupSpecs"][0]["maxReplicas"] = 4


def _uids(made: RayCluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in made.pods("worker")}


def _held(fleet: Clusters) -> dict[str, int]:
    """For how many workers each cluster's Kueue holds quota."""
    found = {
        name: cluster.items("workloads", NAMESPACE, names.MANAGER_LABEL) for name, cluster in fleet.workers.items()
    }
    return {name: sum(int(one["spec"]["podSets"][0]["count"]) for one in shares) for name, shares in found.items()}
