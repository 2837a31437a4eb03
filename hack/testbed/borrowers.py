"""Who borrows a stage's quota in a worker cluster: plain pods of a queue that has none of its own."""

import json

import yaml

from adapter import names
from hack.testbed.clusters import wait
from hack.testbed.stage import Stage, local_queue, plain_pod


def lend(stage: Stage, name: str, cpu: int) -> None:
    """Let pods of a second queue, in the same cohort and without quota of its own, use so many cores of the stage's queue."""
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
