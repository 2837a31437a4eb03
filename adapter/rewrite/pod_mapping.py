"""What does a worker cluster give the pods that come to it: where they run there, as whom, and from which registry?

`WorkerCluster.spec.pods`, applied to a pod spec from which the manager's own was stripped before. The cluster's word wins
over the pod's, since its administrator knows what exists there. Whether a pod may go at all is not asked here (`admission.job_validation`).
"""

from collections.abc import Mapping
from typing import Any

from adapter.objects.specs import NOTHING, PodMapping
from adapter.objects.unstructured import Raw

_DOCKER_HUB = "docker.io"


def spec(found: Raw, pods: PodMapping) -> Raw:
    """Apply a mapping to a pod spec; applied again it changes nothing more.

    Each step takes the fields that Kueue and the scheduler there look at, so the pod, the reservation and the plan all come
    from here.
    """
    if pods == NOTHING:
        return found
    tolerations = list(found.get("tolerations") or ())
    new = {
        "nodeSelector": {**(found.get("nodeSelector") or {}), **pods.node_selector},
        "tolerations": tolerations + [dict(one) for one in pods.tolerations if one not in tolerations],
        "serviceAccountName": pods.service_account,
        "schedulerName": pods.scheduler,
        "runtimeClassName": pods.runtime_class,
        **{kind: _containers(found.get(kind), pods) for kind in ("initContainers", "containers")},
        "volumes": [_volume(volume, pods) for volume in found.get("volumes") or ()],
    }
    return {**found, **{key: value for key, value in new.items() if value}}


def image(name: str, registries: Mapping[str, str]) -> str:
    """Put the replacement of the longest prefix that fits in place of it: `docker.io/rayproject` -> `mirror.east/rayproject`.

    A name without a registry is Docker Hub's, and one without a path is in its `library`, as every container runtime reads
    them (distribution/reference, ParseNormalizedNamed). A prefix ends where a part of the name ends.
    """
    full = _full(name)
    fitting = [
        prefix for prefix in registries if full == prefix or full.startswith((f"{prefix}/", f"{prefix}:", f"{prefix}@"))
    ]
    longest = max(fitting, key=len, default="")
    return registries[longest] + full.removeprefix(longest) if longest else name


def _containers(found: Any, pods: PodMapping) -> list[Raw]:
    if not pods.image_registries:
        return list(found or ())
    return [
        {**container, "image": image(container["image"], pods.image_registries)}
        if container.get("image")
        else container
        for container in found or ()
    ]


def _volume(volume: Raw, pods: PodMapping) -> Raw:
    source = volume.get("image") or {}
    if not source.get("reference"):
        return volume
    return {**volume, "image": {**source, "reference": image(source["reference"], pods.image_registries)}}


def _full(name: str) -> str:
    registry, slash, path = name.partition("/")
    if not slash:
        return f"{_DOCKER_HUB}/library/{name}"
    if "." in registry or ":" in registry or registry == "localhost":
        return f"{_DOCKER_HUB}/{path}" if registry == f"index.{_DOCKER_HUB}" else name
    return f"{_DOCKER_HUB}/{name}"
