"""Summarises the fleet: connection, workers by phase, and quota of each worker cluster.

Counts the manager's WorkerClusters and pods. Quota comes from the controller's plans for a small gang in each
LocalQueue. A cluster that accepts no gang now shows no quota.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from adapter import names
from adapter.diagnosis.job_document import Document
from adapter.objects.admissioncheck import our_checks, read_check
from adapter.objects.placement import Placement, parse_placement
from adapter.objects.queues import ClusterQueue, read_cluster_queue
from adapter.objects.unstructured import Key, Raw, condition, key_of
from adapter.objects.worker_pod import placement_key, worker_cluster_of

_IMPLICIT_RESOURCES = ("pods",)  # not requested: every pod counts as one


def describe_fleet(
    clusters: Iterable[Raw],
    pods: Iterable[Raw],
    placements: Iterable[Raw],
    plans: Iterable[Mapping[str, Any]],
    notes: Iterable[str],
    stopped: str = "",
) -> Document:
    """The document of the fleet, null for what is unknown. Programs read its field names.

    `placements` must include those of pods with a template slot.
    """
    phases = _pods_by_phase(pods, {key_of(raw): parse_placement(raw) for raw in placements})
    quota = _quota_by_cluster(plans)
    known = {key_of(cluster)[1]: _cluster_row(cluster, phases) for cluster in sorted(clusters, key=key_of)}
    unknown = {name: _unknown_cluster_row(name, phases) for name in sorted(phases.keys() - known.keys())}
    rows = {**known, **unknown}
    return {
        "clusters": [{**row, "quota": quota.get(name)} for name, row in rows.items()],
        "stopped": stopped or None,
        "notes": list(notes),
    }


def dispatching_queues(queues: Iterable[Raw], checks: Iterable[Raw]) -> dict[str, list[str]]:
    """The manager's ClusterQueues with a check of ours, each with the resources that it has quota for."""
    check_names = our_checks(map(read_check, checks))
    return {
        queue.name: _queue_resources(queue)
        for queue in map(read_cluster_queue, queues)
        if check_names & queue.checks.keys()
    }


def sample_job(namespace: str, queue: str, resources: Iterable[str]) -> dict[str, Any]:
    """A RayCluster whose one worker requests a little of each resource, so that its plan reports the quota."""
    head = {"name": "ray-head", "image": "none"}
    worker = {**head, "name": "ray-worker", "resources": {"requests": {name: "1" for name in resources}}}
    group = {"groupName": "top", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}}
    return {
        "apiVersion": names.RAY_API_VERSION,
        "kind": "RayCluster",
        "metadata": {"name": "rayspan-top", "namespace": namespace, "labels": {names.QUEUE_LABEL: queue}},
        "spec": {
            "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [head]}}},
            "workerGroupSpecs": [{**group, "template": {"spec": {"containers": [worker]}}}],
        },
    }


def _queue_resources(queue: ClusterQueue) -> list[str]:
    covered = (name for group in queue.groups for name in group.resources)
    return [name for name in dict.fromkeys(covered) if name not in _IMPLICIT_RESOURCES]


def _pods_by_phase(pods: Iterable[Raw], placements: Mapping[Key, Placement]) -> dict[str, Counter[str]]:
    """Worker cluster -> phase -> number of manager pods."""
    counts: dict[str, Counter[str]] = {}
    for pod in pods:
        if cluster := worker_cluster_of(pod, placements.get(placement_key(pod))):
            phase = str((pod.get("status") or {}).get("phase") or "Pending")
            counts.setdefault(cluster, Counter())[phase] += 1
    return counts


def _cluster_row(raw: Raw, phases: Mapping[str, Counter[str]]) -> Document:
    name, spec, status = key_of(raw)[1], raw.get("spec") or {}, raw.get("status") or {}
    connected, reachable = (condition(raw, kind) for kind in (names.CONNECTED, names.REACHABLE))
    return {
        **_unknown_cluster_row(name, phases),
        "zone": str(spec.get("zone") or name),
        "connected": connected.get("status"),
        "connectedReason": connected.get("reason"),
        "reachable": reachable.get("status"),
        "cordoned": bool(spec.get("cordoned") or spec.get("draining")),
        "draining": bool(spec.get("draining")),
        "reserved": int(status.get("workers") or 0),
    }


def _unknown_cluster_row(name: str, phases: Mapping[str, Counter[str]]) -> Document:
    """The row of a cluster that is known only from its pods."""
    unknown_fields = ("zone", "connected", "connectedReason", "reachable", "cordoned", "draining", "reserved")
    return {"name": name, **dict.fromkeys(unknown_fields), "workers": dict(sorted(phases.get(name, Counter()).items()))}


def _quota_by_cluster(plans: Iterable[Mapping[str, Any]]) -> dict[str, list[Document]]:
    """The quota of each cluster, one row for each ClusterQueue, flavor and resource."""
    rows_by_cluster: dict[str, dict[tuple[str, str, str], Document]] = {}
    for plan in plans:
        for cluster in plan.get("clusters") or ():
            for row in cluster.get("quota") or ():
                key = (cluster.get("clusterQueue") or "", row.get("flavor") or "", row.get("resource") or "")
                amounts = {field: row.get(field) for field in ("nominal", "used", "free")}
                queue, flavor, resource = key
                row = {"clusterQueue": queue, "flavor": flavor, "resource": resource, **amounts}
                rows_by_cluster.setdefault(str(cluster.get("cluster")), {})[key] = row
    return {name: list(rows.values()) for name, rows in rows_by_cluster.items()}
