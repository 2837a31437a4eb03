"""Raw objects of a gang in every state, for the tests of `where` and `why`."""

from collections.abc import Iterable
from typing import Any

from adapter import names
from adapter.diagnosis.job_facts import JobFacts
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import (
    CHECK,
    QUEUE,
    make_condition,
    make_meta,
    make_placement,
    make_pod,
    make_ray_cluster,
    make_worker_cluster,
    make_workload,
    stamp,
)  # fmt: skip
from tests.unit.stores import make_group, make_local_queue, make_ray_job

RAY_CLUSTER = "train-abc"


def make_job(*, queue: str | None = QUEUE, deleting: bool = False, suspend: bool = False, **status: Any) -> Raw:
    """The RayJob; `status` adds to KubeRay's status."""
    found = make_ray_job(make_group(2), queue=queue)
    found["spec"] |= {"suspend": True} if suspend else {}
    labels = found["metadata"]["labels"]
    found["metadata"] = make_meta("train", uid="uid-of-job", deleting=deleting, labels=labels)
    return {**found, "status": {"rayClusterName": RAY_CLUSTER, **status}}


def make_running_cluster(**status: Any) -> Raw:
    """The gang's RayCluster with two workers."""
    return {**make_ray_cluster(), "spec": {"workerGroupSpecs": [make_group(2)]}, "status": status}


def ready(pod: Raw, *, since: float = 60) -> Raw:
    """The pod as running and ready."""
    said = [one for one in pod["status"].get("conditions", ()) if one["type"] != "Ready"]
    status = {**pod["status"], "phase": "Running", "hostIP": "10.1.0.4"}
    return {**pod, "status": {**status, "conditions": [*said, make_condition("Ready", since=since)]}}


def make_head(*, up: bool = True) -> Raw:
    pod = make_pod(f"{RAY_CLUSTER}-head")
    labels = {names.RAY_NODE_TYPE_LABEL: names.HEAD, names.RAY_GCS_GROUP_LABEL: "headgroup"}
    pod = {
        **pod,
        "metadata": {**pod["metadata"], "labels": labels, "creationTimestamp": stamp()},
        "spec": {"nodeName": "n1"},
    }
    return ready(pod) if up else pod


def make_worker(number: int = 0, *, cluster: str = "east", up: bool = True, sent: bool = True, **status: Any) -> Raw:
    """A worker with a slot in a cluster (none if empty); `status` adds to that of its remote pod."""
    slot = f"{cluster}/1/role-workers/{number}" if cluster else ""
    pod = make_pod(f"{RAY_CLUSTER}-worker-{number}", slot=slot, dispatched=bool(cluster) and sent)
    pod["metadata"]["creationTimestamp"] = stamp()
    if cluster:
        pod["metadata"]["labels"][names.CLUSTER_LABEL] = cluster
    pod["status"] |= status
    return ready(pod) if up else pod


def admitted(**more: Any) -> Raw:
    return make_workload(check=names.CHECK_READY, conditions=[names.ADMITTED], **more)


def make_facts(workload: Raw | None = None, pods: Iterable[Raw] | None = None, **more: Any) -> JobFacts:
    """A running gang with one worker each in east and west; arguments replace its objects."""
    work = admitted() if workload is None else workload
    placement = make_placement(work, state="Placed", workers="2 of 2", where="1 east, 1 west") if work else {}
    if placement:
        placement["spec"] |= {"check": CHECK, "job": {"kind": "RayJob", "name": "train"}}
    standing: dict[str, Any] = {
        "job": make_job(jobStatus="RUNNING"),
        "workload": work,
        "placement": placement,
        "ray_cluster": make_running_cluster(),
        "pods": tuple([make_head(), make_worker(0), make_worker(1, cluster="west")] if pods is None else pods),
        "local_queue": make_local_queue("team-a"),
        "worker_clusters": {
            "east": make_worker_cluster("east", zone="us-east-1a"),
            "west": make_worker_cluster("west"),
        },
        "checks": frozenset({CHECK}),
    }
    return JobFacts("RayJob", **(standing | more))
