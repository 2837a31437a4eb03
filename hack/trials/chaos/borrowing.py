"""Lets the gangs of a campaign borrow most of what they use, in shares of their own (`borrowingShares`).

In each worker cluster most of the quota belongs to an owner: a second queue of the cohort, which takes it back when
the owner's own Workload comes.
"""

import json

import yaml

from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, local_queue

SHARES = 8
NOMINAL = 2  # CPUs of the gangs' own queue in each worker cluster: five gangs want about eight
OWNER_QUEUE = "owner"  # the LocalQueue
_RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def owner_name(stage: Stage) -> str:
    """The ClusterQueue of the owner."""
    return f"{stage.name}-owner"


def add_owners(stage: Stage) -> None:
    """Give an owner all of each worker cluster's quota but `NOMINAL`."""
    for name in stage.clusters:
        _add_owner(stage, stage.fleet.workers[name])


def _add_owner(stage: Stage, cluster: Cluster) -> None:
    spec = cluster.get("clusterqueues", stage.name)["spec"]
    groups = spec["resourceGroups"]
    cpu = int(groups[0]["flavors"][0]["resources"][0]["nominalQuota"])
    spec = {**spec, "cohortName": stage.name, "preemption": _RECLAIM}
    own, owner = ({"spec": {**spec, "resourceGroups": _with_cpu(groups, n)}} for n in (NOMINAL, cpu - NOMINAL))
    cluster.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(own))
    stage.add(cluster, "ClusterQueue", owner, owner_name(stage))
    cluster.apply(yaml.safe_dump(local_queue(OWNER_QUEUE, stage.name, owner_name(stage))))


def _with_cpu(groups: list[Raw], amount: int) -> list[Raw]:
    cpu, *others = groups[0]["flavors"][0]["resources"]
    flavor = {**groups[0]["flavors"][0], "resources": [{**cpu, "nominalQuota": str(amount)}, *others]}
    return [{**groups[0], "flavors": [flavor]}]
