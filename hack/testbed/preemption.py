"""A worker cluster's own users beside a gang: they preempt its quota, or lend it theirs and take it back.

It also reads the result: remote pods, the Placement, reserved quota.
"""

import json

import yaml

from adapter import names
from hack.testbed.clusters import Clusters, wait
from hack.testbed.stage import QUEUE, Stage, local_queue, plain_pod

PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}


def preempt(stage: Stage, name: str = "east", cpu: int | None = None) -> None:
    """Somebody of a worker cluster's own users, of higher priority, takes so many cores of its quota, or all of it."""
    cluster = stage.fleet.workers[name]
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(PREEMPTION))
    stage.add(cluster, "WorkloadPriorityClass", {"value": 500})
    quota = cluster.get("clusterqueues", stage.name)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    pod = plain_pod("local", stage.name, QUEUE, str(cpu or quota["nominalQuota"]))
    pod["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = stage.name
    cluster.apply(yaml.safe_dump(pod))


def uids(stage: Stage, cluster: str) -> set[str]:
    """The uids of the copies in a worker cluster; no other cluster is asked."""
    return {
        pod["metadata"]["uid"] for pod in stage.fleet.workers[cluster].items("pods", stage.name, names.MANAGER_LABEL)
    }


def status(stage: Stage) -> dict[str, str]:
    """The status of the Placement of `pi`."""
    return {"state": "", "workers": "", "reason": "", **(stage.placement("pi").get("status") or {})}


def workers_in(fleet: Clusters, name: str) -> int:
    """For how many workers a WorkerCluster says that quota is held."""
    return int((fleet.manager.get("workerclusters", name).get("status") or {}).get("workers") or 0)


def lend(stage: Stage, name: str, cpu: int) -> None:
    """Let pods of a second queue, in the cohort and without quota of its own, use so many cores of the
    stage's queue."""
    cluster, other = stage.fleet.workers[name], f"{stage.name}-b"
    mine = {"cohortName": stage.name, "preemption": {"reclaimWithinCohort": "Any"}}
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps({"spec": mine}))
    row = {"name": stage.name, "resources": [{"name": "cpu", "nominalQuota": "0"}]}
    group = {"coveredResources": ["cpu"], "flavors": [row]}
    queue = {"cohortName": stage.name, "namespaceSelector": {}, "resourceGroups": [group]}
    stage.add(cluster, "ClusterQueue", {"spec": queue}, other)
    pods = (plain_pod(f"borrower-{number}", stage.name, "other") for number in range(cpu))
    cluster.apply(yaml.safe_dump_all([local_queue("other", stage.name, other), *pods]))
    wait(lambda: _borrowed(stage, name, other) == str(cpu), 60, "the borrowers run, and Kueue has counted them")


def borrowers(stage: Stage, name: str) -> list[str]:
    """The uids of the borrowing pods that nobody has deleted."""
    pods = stage.fleet.workers[name].items("pods", stage.name, f"{names.QUEUE_LABEL}=other")
    return sorted(pod["metadata"]["uid"] for pod in pods if not pod["metadata"].get("deletionTimestamp"))


def _borrowed(stage: Stage, name: str, queue: str) -> str:
    status = stage.fleet.workers[name].get("clusterqueues", queue).get("status") or {}
    rows = [row for flavor in status.get("flavorsReservation") or () for row in flavor["resources"]]
    return str(rows[0]["borrowed"]) if rows else ""
