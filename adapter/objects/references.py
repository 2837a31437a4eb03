"""Which Secrets and ConfigMaps does a pod refer to, and how does it read when they have other names?

Both are one walk over the pod's spec, so what is found is what is renamed. Volumes of other kinds that name a Secret (CSI,
CephFS, …) are not followed: their drivers belong to a cluster, and `admission.pod_validation` turns them away.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapter.objects.unstructured import Raw, quoted

SECRET, CONFIG_MAP = "Secret", "ConfigMap"


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """An object in the pod's own namespace."""

    kind: str  # SECRET or CONFIG_MAP
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


# Called with the reference, the field that holds it, and whether the pod starts without the object; says the name to put there.
_Visit = Callable[[Reference, str, bool], str]


def wanted(spec: Raw) -> dict[Reference, str]:
    """Find a pod spec's references, each with the first field that cannot do without it; empty: all can.

    Pull secrets cannot, although a kubelet tries without (k8s:pkg/kubelet/kubelet_pods.go, getPullSecretsForPod): whoever
    writes one into a template needs it, and would hear of a missing one only from an image that is not pulled.
    """
    found: dict[Reference, str] = {}

    def note(reference: Reference, field: str, optional: bool) -> str:
        found[reference] = found.get(reference) or ("" if optional else field)
        return reference.name

    _walked(spec, note)
    return found


def renamed(spec: Raw, name_of: Callable[[Reference], str]) -> dict[str, Any]:
    """Put other names into a pod spec's references, and change nothing else."""
    return _walked(spec, lambda reference, field, optional: name_of(reference))


def _walked(spec: Raw, visit: _Visit) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if spec.get("volumes"):
        changed["volumes"] = [_volume(one, visit) for one in spec["volumes"]]
    for kind in ("containers", "initContainers"):  # KubeRay repeats the first one's env in an init container of its own
        if spec.get(kind):
            changed[kind] = [_container(one, f"spec.{kind}[{quoted(one.get('name'))}]", visit) for one in spec[kind]]
    if spec.get("imagePullSecrets"):
        changed["imagePullSecrets"] = [_pull_secret(one, visit) for one in spec["imagePullSecrets"]]
    return {**spec, **changed}


def _volume(volume: Raw, visit: _Visit) -> Raw:
    field = f"spec.volumes[{quoted(volume.get('name'))}]"
    volume = _pointed(volume, "secret", SECRET, field, visit, "secretName")
    volume = _pointed(volume, "configMap", CONFIG_MAP, field, visit)
    projected = volume.get("projected")
    if not projected or not projected.get("sources"):
        return volume
    sources = [_source(one, f"{field}.projected", visit) for one in projected["sources"]]
    return {**volume, "projected": {**projected, "sources": sources}}


def _source(source: Raw, field: str, visit: _Visit) -> Raw:
    return _pointed(_pointed(source, "secret", SECRET, field, visit), "configMap", CONFIG_MAP, field, visit)


def _container(container: Raw, field: str, visit: _Visit) -> Raw:
    changed: dict[str, Any] = {}
    if container.get("env"):
        changed["env"] = [_env(one, f"{field}.env[{quoted(one.get('name'))}]", visit) for one in container["env"]]
    if container.get("envFrom"):
        changed["envFrom"] = [_env_from(one, f"{field}.envFrom", visit) for one in container["envFrom"]]
    return {**container, **changed} if changed else container


def _env(entry: Raw, field: str, visit: _Visit) -> Raw:
    origin = entry.get("valueFrom")
    if not origin:
        return entry
    origin = _pointed(origin, "secretKeyRef", SECRET, field, visit)
    return {**entry, "valueFrom": _pointed(origin, "configMapKeyRef", CONFIG_MAP, field, visit)}


def _env_from(entry: Raw, field: str, visit: _Visit) -> Raw:
    return _pointed(_pointed(entry, "secretRef", SECRET, field, visit), "configMapRef", CONFIG_MAP, field, visit)


def _pull_secret(entry: Raw, visit: _Visit) -> Raw:
    name = entry.get("name")
    return {**entry, "name": visit(Reference(SECRET, name), "spec.imagePullSecrets", False)} if name else entry


def _pointed(holder: Raw, key: str, kind: str, field: str, visit: _Visit, name: str = "name") -> Raw:
    pointer = holder.get(key)
    if not pointer or not pointer.get(name):
        return holder
    there = visit(Reference(kind, pointer[name]), f"{field}.{key}", bool(pointer.get("optional")))
    return {**holder, key: {**pointer, name: there}}
