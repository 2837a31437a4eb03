"""Two tenants share every cluster: each owns half, borrows the other's unused half, and reclaims its own.

Tenant A is the stage's own queue; tenant B gets one beside it, in the manager and in every worker cluster.
"""

import json
from typing import Any

import yaml

from adapter import names
from adapter.objects.unstructured import Raw
from hack.testbed.clusters import Cluster
from hack.testbed.stage import Stage, local_queue, ray_cluster

GPU = "nvidia.com/gpu"
B = "b"  # the name of tenant B's LocalQueue


def build(stage: Stage, *, gpus: int, policy: dict[str, Any] | None = None) -> tuple[str, str]:
    """Make the queues, `gpus` for each tenant in each worker cluster; returns the names of both ClusterQueues.

    `policy`: more of the DispatchPolicy's spec.
    """
    stage.build(dict.fromkeys(stage.clusters, gpus), resource=GPU, policy=policy)
    other = f"{stage.name}-{B}"
    _beside(stage, stage.manager, other, {})
    for name in stage.clusters:
        cluster = stage.fleet.workers[name]
        shared = {"cohortName": stage.name, "preemption": {"reclaimWithinCohort": "Any"}}
        cluster.kubectl(
            "patch", "clusterqueue", stage.name, "--type=merge", "-p",
            json.dumps({"spec": _borrowing(stage, cluster, gpus) | shared})
        )  # fmt: skip
        _beside(stage, cluster, other, shared)
    return stage.name, other


def submit(stage: Stage, name: str, *, workers: int, tenant: str = "") -> None:
    """A RayCluster whose workers ask for one GPU each; `tenant` is its LocalQueue, else the stage's own."""
    made = ray_cluster(name, stage.name, {"workers": workers}, more={GPU: "1"})
    if tenant:
        made["metadata"]["labels"][names.QUEUE_LABEL] = tenant
    stage.manager.apply(yaml.safe_dump(made))


def _borrowing(stage: Stage, cluster: Cluster, limit: int) -> dict[str, Any]:
    """The queue's resource groups, with a limit on what it borrows."""
    groups = cluster.get("clusterqueue", stage.name)["spec"]["resourceGroups"]
    for row in (row for group in groups for flavor in group["flavors"] for row in flavor["resources"]):
        row["borrowingLimit"] = str(limit)
    return {"resourceGroups": groups}


def _beside(stage: Stage, cluster: Cluster, name: str, more: Raw) -> None:
    """Another queue like the stage's own."""
    found = cluster.get("clusterqueue", stage.name)["spec"]
    stage.add(cluster, "ClusterQueue", {"spec": {**found, **more}}, name)
    cluster.apply(yaml.safe_dump(local_queue(B, stage.name, name)))
