"""What the tests of running gangs that lose something have in common: how it is taken from them, and how they are looked at."""

import json

import yaml

from adapter import names
from hack.testbed.clusters import Clusters
from hack.testbed.controller import Controller
from hack.testbed.stage import QUEUE, Stage, plain_pod

PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}


def preempt(stage: Stage) -> None:
    """Somebody of east's own users, of higher priority, takes all of its quota."""
    cluster = stage.fleet.workers["east"]
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(PREEMPTION))
    stage.add(cluster, "WorkloadPriorityClass", {"value": 500})
    quota = cluster.get("clusterqueues", stage.name)["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    pod = plain_pod("local", stage.name, QUEUE, str(quota["nominalQuota"]))
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


def workers_in(fleet: Clusters) -> int:
    """For how many workers east says that quota is held."""
    return int((fleet.manager.get("workerclusters", "east").get("status") or {}).get("workers") or 0)


def dump(stage: Stage, running: Controller) -> str:
    """What to know when it does not go on."""
    pods = [
        f"{p['metadata']['name']} {p['status']['phase']} {p['metadata']['annotations'].get(names.SLOT_ANNOTATION)}"
        for p in stage.workers()
    ]
    return "\n".join([json.dumps(stage.placement("pi").get("status")), *pods, running.tail()])
