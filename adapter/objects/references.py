"""Finds and renames the Secrets and ConfigMaps that a pod refers to, both by one walk over the pod's spec.

Other volumes that name a Secret (CSI, CephFS, …) are not followed: their drivers belong to a cluster, and
`admission.pod_validation` rejects them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapter.objects.unstructured import Raw, printable

SECRET, CONFIG_MAP = "Secret", "ConfigMap"


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """An object in the pod's own namespace."""

    kind: str  # SECRET or CONFIG_MAP
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


# Receives the reference, its field, and whether the pod starts without the object; returns the new name.
_Visitor = Callable[[Reference, str, bool], str]


def find_in_spec(spec: Raw) -> dict[Reference, str]:
    """The references of a pod spec, each with the first field that requires the object; empty if it is optional.

    Pull secrets count as required, although a kubelet tries to pull without a missing one
    (k8s:pkg/kubelet/kubelet_pods.go, getPullSecretsForPod). If they did not, the user would only see that an image
    cannot be pulled.
    """
    references: dict[Reference, str] = {}

    def note(reference: Reference, field: str, optional: bool) -> str:
        references[reference] = references.get(reference) or ("" if optional else field)
        return reference.name

    _visit_spec(spec, note)
    return references


def rename_in_spec(spec: Raw, name_of: Callable[[Reference], str]) -> dict[str, Any]:
    """The pod spec with other names in its references."""
    return _visit_spec(spec, lambda reference, field, optional: name_of(reference))


def _visit_spec(spec: Raw, visit: _Visitor) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if spec.get("volumes"):
        changed["volumes"] = [_visit_volume(volume, visit) for volume in spec["volumes"]]
    for kind in ("containers", "initContainers"):  # KubeRay's own init container has a copy of the Ray container's env
        if spec.get(kind):
            changed[kind] = [
                _visit_container(container, f"spec.{kind}[{printable(container.get('name'))}]", visit)
                for container in spec[kind]
            ]
    if spec.get("imagePullSecrets"):
        changed["imagePullSecrets"] = [_visit_pull_secret(secret, visit) for secret in spec["imagePullSecrets"]]
    return {**spec, **changed}


def _visit_volume(volume: Raw, visit: _Visitor) -> Raw:
    field = f"spec.volumes[{printable(volume.get('name'))}]"
    volume = _visit_pointer(volume, "secret", SECRET, field, visit, "secretName")
    volume = _visit_pointer(volume, "configMap", CONFIG_MAP, field, visit)
    projected = volume.get("projected")
    if not projected or not projected.get("sources"):
        return volume
    sources = [_visit_projected_source(source, f"{field}.projected", visit) for source in projected["sources"]]
    return {**volume, "projected": {**projected, "sources": sources}}


def _visit_projected_source(source: Raw, field: str, visit: _Visitor) -> Raw:
    return _visit_pointer(_visit_pointer(source, "secret", SECRET, field, visit), "configMap", CONFIG_MAP, field, visit)


def _visit_container(container: Raw, field: str, visit: _Visitor) -> Raw:
    changed: dict[str, Any] = {}
    if container.get("env"):
        changed["env"] = [
            _visit_env(entry, f"{field}.env[{printable(entry.get('name'))}]", visit) for entry in container["env"]
        ]
    if container.get("envFrom"):
        changed["envFrom"] = [_visit_env_from(entry, f"{field}.envFrom", visit) for entry in container["envFrom"]]
    return {**container, **changed} if changed else container


def _visit_env(entry: Raw, field: str, visit: _Visitor) -> Raw:
    origin = entry.get("valueFrom")
    if not origin:
        return entry
    origin = _visit_pointer(origin, "secretKeyRef", SECRET, field, visit)
    return {**entry, "valueFrom": _visit_pointer(origin, "configMapKeyRef", CONFIG_MAP, field, visit)}


def _visit_env_from(entry: Raw, field: str, visit: _Visitor) -> Raw:
    return _visit_pointer(
        _visit_pointer(entry, "secretRef", SECRET, field, visit), "configMapRef", CONFIG_MAP, field, visit
    )


def _visit_pull_secret(entry: Raw, visit: _Visitor) -> Raw:
    name = entry.get("name")
    return {**entry, "name": visit(Reference(SECRET, name), "spec.imagePullSecrets", False)} if name else entry


def _visit_pointer(holder: Raw, key: str, kind: str, field: str, visit: _Visitor, name: str = "name") -> Raw:
    pointer = holder.get(key)
    if not pointer or not pointer.get(name):
        return holder
    new_name = visit(Reference(kind, pointer[name]), f"{field}.{key}", bool(pointer.get("optional")))
    return {**holder, key: {**pointer, name: new_name}}
