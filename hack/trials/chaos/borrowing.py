"""Lets the gangs of a campaign borrow half of what they use, in shares of their own (`borrowingShares`).

In each worker cluster the other half belongs to an owner: a second queue of the cohort, which takes it back when the
owner's own Workload comes.
"""

import json

import yaml

from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, local_queue

SHARES = 8
OWNER_QUEUE = "owner"  # the LocalQueue
_RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def owner_name(stage: Stage) -> str:
    """The ClusterQueue of the owner."""
    return f"{stage.name}-owner"


def add_owners(stage: Stage) -> None:
    """Give an owner half of each worker cluster's quota."""
    for name in stage.clusters:
        _add_owner(stage, stage.fleet.workers[name])


def _add_owner(stage: Stage, cluster: Cluster) -> None:
    spec = cluster.get("clusterqueues", stage.name)["spec"]
    spec = {**spec, "cohortName": stage.name, "preemption": _RECLAIM, "resourceGroups": _halved(spec["resourceGroups"])}
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps({"spec": spec}))
    stage.add(cluster, "ClusterQueue", {"spec": spec}, owner_name(stage))
    cluster.apply(yaml.safe_dump(local_queue(OWNER_QUEUE, stage.name, owner_name(stage))))


def _halved(groups: list[Raw]) -> list[Raw]:
    cpu, *others = groups[0]["flavors"][0]["resources"]
    half = {**cpu, "nominalQuota": str(int(cpu["nominalQuota"]) // 2)}
    flavor = {**groups[0]["flavors"][0], "resources": [half, *others]}
    return [{**groups[0], "flavors": [flavor]}]
