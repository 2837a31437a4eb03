"""What does the whole fleet hold: of each worker cluster its connection, its workers by phase, and its quota?

Counted from the manager's WorkerClusters and pods. Quota in a worker cluster is known to the controller alone: it is what its plans
for one small gang in each LocalQueue say, and a cluster to which no gang may go now shows none.
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

_IMPLICIT_RESOURCES = ("pods",)  # nobody requests these: they are what a pod is


def describe_fleet(
    clusters: Iterable[Raw],
    pods: Iterable[Raw],
    placements: Iterable[Raw],
    plans: Iterable[Mapping[str, Any]],
    notes: Iterable[str],
    stopped: str = "",
) -> Document:
    """The fleet; names are camelCase and stay, and what is not known is null. Of Placements those are asked for that pods which
    `is_preassigned` are of."""
    phases = _pods_by_phase(pods, {key_of(raw): parse_placement(raw) for raw in placements})
    quota = _quota_by_cluster(plans)
    found = {key_of(one)[1]: _cluster_row(one, phases) for one in sorted(clusters, key=key_of)}
    unknown = {name: _unknown_cluster_row(name, phases) for name in sorted(phases.keys() - found.keys())}
    rows = {**found, **unknown}
    return {
        "clusters": [{**row, "quota": quota.get(name)} for name, row in rows.items()],
        "stopped": stopped or None,
        "notes": list(notes),
    }


def dispatching_queues(queues: Iterable[Raw], checks: Iterable[Raw]) -> dict[str, list[str]]:
    """The ClusterQueues of the manager whose jobs we dispatch, each with the resources that it has quota for."""
    ours = our_checks(map(read_check, checks))
    return {
        queue.name: _queue_resources(queue) for queue in map(read_cluster_queue, queues) if ours & queue.checks.keys()
    }


def sample_job(namespace: str, queue: str, resources: Iterable[str]) -> dict[str, Any]:
    """A RayCluster with one worker that asks for a little of everything: what a plan for it says of quota is what is wanted."""
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
    """How many of the manager's worker pods of each cluster are in which phase."""
    found: dict[str, Counter[str]] = {}
    for pod in pods:
        if cluster := worker_cluster_of(pod, placements.get(placement_key(pod))):
            phase = str((pod.get("status") or {}).get("phase") or "Pending")
            found.setdefault(cluster, Counter())[phase] += 1
    return found


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
    """What the pods alone tell of a cluster."""
    unknown = ("zone", "connected", "connectedReason", "reachable", "cordoned", "draining", "reserved")
    return {"name": name, **dict.fromkeys(unknown), "workers": dict(sorted(phases.get(name, Counter()).items()))}


def _quota_by_cluster(plans: Iterable[Mapping[str, Any]]) -> dict[str, list[Document]]:
    """The quota of each cluster, one row for each resource in each flavor of each of its ClusterQueues."""
    found: dict[str, dict[tuple[str, str, str], Document]] = {}
    for plan in plans:
        for one in plan.get("clusters") or ():
            for row in one.get("quota") or ():
                key = (one.get("clusterQueue") or "", row.get("flavor") or "", row.get("resource") or "")
                amounts = {field: row.get(field) for field in ("nominal", "used", "free")}
                queue, flavor, resource = key
                row = {"clusterQueue": queue, "flavor": flavor, "resource": resource, **amounts}
                found.setdefault(str(one.get("cluster")), {})[key] = row
    return {name: list(rows.values()) for name, rows in found.items()}
