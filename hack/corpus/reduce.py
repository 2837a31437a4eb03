"""Makes the RayCluster of a sample as KubeRay would, changed so that a hundred others can be tried beside it. Pure.

As in KubeRay, labels and annotations carry over, and the RayCluster names its origin, on which a RayService's env
depends (kuberay:ray-operator/controllers/ray, constructRayClusterForRayJob and ...ForRayService). As by Rayspan's check
and Kueue, the workers get the Placement's label, the lock and the pool of the remote flavor. For this trial only: one
replica a group, of two hosts at most, a gate on the head, no queue, and the name of its owner in place of a random one.
"""

from typing import Final

from adapter import names
from adapter.objects import rayservice
from adapter.objects.unstructured import Raw

PLACEMENT: Final = "rayjob-sample-4f2a1"
POOL_TOLERATION: Final = {
    "key": names.POOL_LABEL, "operator": "Equal", "value": names.POOL_REMOTE, "effect": "NoSchedule",
}  # fmt: skip
_SPEC: Final = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
_HOSTS: Final = 2  # the least that is more than one


def ray_cluster(body: Raw, namespace: str) -> Raw | None:
    """Return the RayCluster to create for a sample; None for one without workers."""
    owner, spec = job_of(body), cluster_spec(body)
    if not spec.get("workerGroupSpecs"):
        return None
    metadata, kind, name = owner.get("metadata") or {}, owner["kind"], name_of(body)
    origin = {"ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": kind} if kind in _SPEC else {}
    return {
        "apiVersion": names.RAY_API_VERSION,
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**_without_kueue(metadata.get("labels")), **origin},
            "annotations": dict(metadata.get("annotations") or {}),
        },
        "spec": _held(spec),
    }


def name_of(body: Raw) -> str:
    """The name of a sample's object; one that asks for a generated name gets the beginning of it."""
    metadata = body.get("metadata") or {}
    return str(metadata.get("name") or metadata["generateName"].rstrip("-"))


def in_queue(body: Raw, namespace: str, queue: str) -> Raw:
    """Return the sample as a user would submit it to a queue; without a queue if that is empty."""
    job = job_of(body)
    metadata = job.get("metadata") or {}
    labels = {**_without_kueue(metadata.get("labels")), **({names.QUEUE_LABEL: queue} if queue else {})}
    return {**job, "metadata": {**metadata, "namespace": namespace, "labels": labels}}


def queued_object(submitted: Raw) -> Raw:
    """What Kueue queues of a submitted sample: of a RayService the RayCluster that KubeRay makes."""
    return rayservice.ray_cluster(submitted) if submitted["kind"] == names.RAY_SERVICE else submitted


def cluster_spec(body: Raw) -> Raw:
    """The RayCluster's spec of a sample; empty if it has none where KubeRay reads it."""
    job = job_of(body)
    spec: Raw = job["spec"] if job["kind"] == "RayCluster" else job["spec"].get(_SPEC[job["kind"]]) or {}
    return spec


def worker_templates(body: Raw) -> list[Raw]:
    return [group["template"] for group in cluster_spec(body).get("workerGroupSpecs") or ()]


def job_of(body: Raw) -> Raw:
    """The job that a RayCronJob makes of its template; everything else is itself."""
    if body["kind"] != "RayCronJob":
        return body
    return {**body, "kind": "RayJob", "spec": body["spec"]["jobTemplate"]}


def _without_kueue(labels: Raw | None) -> Raw:
    return {key: value for key, value in (labels or {}).items() if not key.startswith(names.KUEUE_DOMAIN)}


def _held(spec: Raw) -> Raw:
    head = spec["headGroupSpec"]
    template = head["template"]
    gates = [*(template["spec"].get("schedulingGates") or ()), {"name": names.GATE}]
    return {
        **{key: value for key, value in spec.items() if key != "suspend"},
        "headGroupSpec": {**head, "template": {**template, "spec": {**template["spec"], "schedulingGates": gates}}},
        "workerGroupSpecs": [_group(group) for group in spec["workerGroupSpecs"]],
    }


def _group(group: Raw) -> Raw:
    template = group["template"]
    metadata, spec = template.get("metadata") or {}, template["spec"]
    clipped = {"replicas": 1}
    if "minReplicas" in group:
        clipped["minReplicas"] = min(1, group["minReplicas"])
    if "numOfHosts" in group:
        clipped["numOfHosts"] = min(_HOSTS, group["numOfHosts"])
    lock = {names.POOL_LABEL: names.POOL_REMOTE, names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE}
    placed = {
        "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), names.PLACEMENT_LABEL: PLACEMENT}},
        "spec": {
            **spec,
            "nodeSelector": {**(spec.get("nodeSelector") or {}), **lock},
            "tolerations": [*(spec.get("tolerations") or ()), POOL_TOLERATION],
        },
    }
    return {**group, **clipped, "template": placed}
