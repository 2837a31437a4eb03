"""Tests that Ray sees the hosts of one replica (`numOfHosts`) in one zone, also after one of them was lost."""

from collections import defaultdict

from adapter import names
from adapter.objects.unstructured import Raw, label
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import JOB_SECONDS, NAMESPACE, Job, removed

HOSTS, REPLICAS = 2, 2
PROGRAM = f"""
import json, signal, time
import ray

ray.init(logging_level="ERROR")

def zones():
    nodes = [node for node in ray.nodes() if node["Alive"] and "ray.io/availability-zone" in node["Labels"]]
    return {{node["NodeName"]: node["Labels"]["ray.io/availability-zone"] for node in nodes}}

first = []
while len(first) < {HOSTS * REPLICAS}:
    time.sleep(1)
    first = zones()
print("FIRST " + json.dumps(first), flush=True)
while len(later := zones()) < {HOSTS * REPLICAS} or len(later.keys() - first.keys()) < {HOSTS}:
    time.sleep(1)
print("LATER " + json.dumps(later), flush=True)
signal.pause()
"""


def test_the_hosts_of_a_replica_are_in_one_zone_and_replaced_together(fleet: Clusters) -> None:
    """Two replicas of two hosts, one in each worker cluster; one remote pod is deleted."""
    with removed(Job(fleet, "hosts", HOSTS * REPLICAS)) as job:
        job.submit(PROGRAM, _in_replicas)
        assert sorted(job.said("FIRST", 2 * JOB_SECONDS).values()) == ["east", "east", "west", "west"]
        before = _replicas(job)
        assert sorted(zone for zone, _ in before.values()) == ["east", "west"]
        lost = next(name for name, (zone, _) in before.items() if zone == "west")
        fleet.workers["west"].delete("pod", min(before[lost][1]), NAMESPACE, wait=False)
        assert sorted(job.said("LATER", 2 * JOB_SECONDS).values()) == ["east", "east", "west", "west"]
        wait(lambda: len(_replicas(job)) == REPLICAS, 30, "the lost replica is gone", job.dump)
        after = _replicas(job)
        assert lost not in after and len(before.items() & after.items()) == 1, (before, after)


def _in_replicas(spec: Raw) -> None:
    group = spec["workerGroupSpecs"][0]
    group |= dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), REPLICAS)
    group["numOfHosts"] = HOSTS


def _replicas(job: Job) -> dict[str, tuple[str, frozenset[str]]]:
    """The worker cluster and the pods of each replica, which is in one."""
    pods = defaultdict[tuple[str, str], set[str]](set)
    for pod in job.pods():
        pods[label(pod, names.RAY_REPLICA_NAME_LABEL), label(pod, names.CLUSTER_LABEL)].add(pod["metadata"]["name"])
    assert len(pods) == len({name for name, _ in pods}), pods
    return {name: (cluster, frozenset(hosts)) for (name, cluster), hosts in pods.items()}
