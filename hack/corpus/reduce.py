"""Makes the RayCluster of a sample as KubeRay would, changed so that a hundred others can be tried beside it. Pure.

As in KubeRay, labels and annotations carry over, and the RayCluster names its origin, on which a RayService's env
depends (kuberay:ray-operator/controllers/ray, constructRayClusterForRayJob and ...ForRayService). As by Rayspan's check
and Kueue, the workers get the Placement's label, the lock and the pool of the remote flavor. For this trial only: one
replica a group, of two hosts at most, a gate on the head, no queue, and the name of its owner in place of a random one.
"""

from typing import Final

from adapter import names
from adapter.objects.unstructured import Raw

PLACEMENT: Final = "rayjob-sample-4f2a1"
POOL_TOLERATION: Final = {
    "key": names.POOL_LABEL, "operator": "Equal", "value": names.POOL_REMOTE, "effect": "NoSchedule",
}  # fmt: skip
_SPEC: Final = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
_HOSTS: Final = 2  # the least that is more than one


class NoCluster(Exception):
    """A sample that makes no workers; the text says why."""


def ray_cluster(body: Raw, namespace: str) -> Raw:
    """Return the RayCluster to create for a sample; raises NoCluster."""
    owner = _job(body)
    metadata, kind = owner.get("metadata") or {}, owner["kind"]
    spec = owner["spec"] if kind == "RayCluster" else owner["spec"].get(_SPEC[kind])
    if not spec:
        raise NoCluster("it uses a RayCluster that exists")
    if not spec.get("workerGroupSpecs"):
        raise NoCluster("it has no worker group")
    name = name_of(body)
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
    """Return the sample as a user would submit it to a queue."""
    metadata = body.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), names.QUEUE_LABEL: queue}
    return {**body, "metadata": {**metadata, "namespace": namespace, "labels": labels}}


def _job(body: Raw) -> Raw:
    """A RayCronJob makes RayJobs of a template; everything else is itself."""
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
