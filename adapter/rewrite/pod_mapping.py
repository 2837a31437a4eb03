"""Applies `WorkerCluster.spec.pods` to a pod spec that is stripped of the manager's own fields (stripping.py).

The mapping wins over the pod, since the cluster's administrator knows what exists there.
"""

from collections.abc import Mapping
from typing import Any

from adapter.objects.specs import NO_MAPPING, PodMapping
from adapter.objects.unstructured import Raw
from adapter.rewrite.resource_names import rename_resources

_DOCKER_HUB = "docker.io"


def apply_to_spec(pod_spec: Raw, mapping: PodMapping) -> Raw:
    """Apply a mapping to a pod spec; a second application changes nothing."""
    if mapping == NO_MAPPING:
        return pod_spec
    tolerations = list(pod_spec.get("tolerations") or ())
    new = {
        "nodeSelector": {**(pod_spec.get("nodeSelector") or {}), **mapping.node_selector},
        "tolerations": tolerations
        + [dict(toleration) for toleration in mapping.tolerations if toleration not in tolerations],
        "serviceAccountName": mapping.service_account,
        "schedulerName": mapping.scheduler,
        "runtimeClassName": mapping.runtime_class,
        **{kind: _map_containers(pod_spec.get(kind), mapping) for kind in ("initContainers", "containers")},
        "volumes": [_map_volume(volume, mapping) for volume in pod_spec.get("volumes") or ()],
    }
    mapped = {**pod_spec, **{key: value for key, value in new.items() if value}}
    return rename_resources(mapped, mapping.extended_resources)


def with_env(container: Raw, mapping: PodMapping) -> Raw:
    """Ray's container with the cluster's environment variables, which replace the pod's own."""
    if not mapping.env:
        return container
    given = {name: {"name": name, "value": value} for name, value in mapping.env.items()}
    own = [given.get(entry.get("name"), entry) for entry in container.get("env") or ()]
    return {**container, "env": [*own, *(entry for entry in given.values() if entry not in own)]}


def replace_registry(name: str, registries: Mapping[str, str]) -> str:
    """Replace the longest prefix that fits: `docker.io/rayproject` -> `mirror.east/rayproject`.

    A name without a registry is Docker Hub's, and one without a path is in its `library` (distribution/reference,
    ParseNormalizedNamed). A prefix ends where a part of the name ends.
    """
    full = _full_image_name(name)
    fitting = [
        prefix for prefix in registries if full == prefix or full.startswith((f"{prefix}/", f"{prefix}:", f"{prefix}@"))
    ]
    longest = max(fitting, key=len, default="")
    return registries[longest] + full.removeprefix(longest) if longest else name


def _map_containers(containers: Any, mapping: PodMapping) -> list[Raw]:
    if not mapping.image_registries:
        return list(containers or ())
    return [
        {**container, "image": replace_registry(container["image"], mapping.image_registries)}
        if container.get("image")
        else container
        for container in containers or ()
    ]


def _map_volume(volume: Raw, mapping: PodMapping) -> Raw:
    source = volume.get("image") or {}
    if not source.get("reference"):
        return volume
    return {**volume, "image": {**source, "reference": replace_registry(source["reference"], mapping.image_registries)}}


def _full_image_name(name: str) -> str:
    registry, slash, path = name.partition("/")
    if not slash:
        return f"{_DOCKER_HUB}/library/{name}"
    if "." in registry or ":" in registry or registry == "localhost":
        return f"{_DOCKER_HUB}/{path}" if registry == f"index.{_DOCKER_HUB}" else name
    return f"{_DOCKER_HUB}/{name}"
