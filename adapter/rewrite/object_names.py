"""Gives what a pod names of its cluster the names in the worker cluster, as its WorkerCluster says.

These are accounts, claims, ResourceClaimTemplates, host paths, RuntimeClasses, schedulers and priority classes.

What is not named stays in the spec, without the account; `admission.pod_validation` then rejects the pod.
"""

from collections.abc import Iterator
from typing import Any

from adapter.names import DEFAULT_SCHEDULER
from adapter.objects.named_objects import find_object, find_path, name_in_cluster
from adapter.objects.required_objects import account_of
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import Raw
from adapter.rewrite.resource_claims import rename_claims

_NO_PROPAGATION = "None"


def apply_names(spec: Raw, manager_spec: Raw, mapping: PodMapping, namespace: str) -> dict[str, Any]:
    """The remote pod's spec with the names of the worker cluster; `manager_spec` is that of the manager pod."""
    named = with_class_names(spec, manager_spec, mapping, namespace)
    priority_class = str(manager_spec.get("priorityClassName") or "")
    if priority_class and (entry := find_object(mapping.priority_classes, priority_class, namespace)):
        named["priorityClassName"] = name_in_cluster(entry, priority_class)
    account = account_of(manager_spec)
    if account and (entry := find_object(mapping.service_accounts, account, namespace)):
        named["serviceAccountName"] = name_in_cluster(entry, account)
    if not (mapping.claims or mapping.host_paths):
        return named
    read_only = frozenset(_read_only_volumes(spec, mapping, namespace))
    if named.get("volumes"):
        named["volumes"] = [_rename_claim(volume, mapping, namespace) for volume in named["volumes"]]
    for kind in ("initContainers", "containers"):
        if read_only and named.get(kind):
            named[kind] = [_with_read_only_mounts(container, read_only) for container in named[kind]]
    return named


def with_class_names(spec: Raw, manager_spec: Raw, mapping: PodMapping, namespace: str) -> dict[str, Any]:
    """The spec with the RuntimeClass, the scheduler and the ResourceClaimTemplates that are named.

    The share's template has these, too.
    """
    fields = {"runtimeClassName": mapping.runtime_classes, "schedulerName": mapping.schedulers}
    named: dict[str, Any] = dict(spec)
    for field, entries in fields.items():
        name = str(manager_spec.get(field) or "")
        if name not in ("", DEFAULT_SCHEDULER) and (entry := find_object(entries, name, namespace)):
            named[field] = name_in_cluster(entry, name)
    if claims := manager_spec.get("resourceClaims"):
        named["resourceClaims"] = rename_claims(claims, mapping, namespace)
    return named


def _rename_claim(volume: Raw, mapping: PodMapping, namespace: str) -> Raw:
    claim = volume.get("persistentVolumeClaim") or {}
    name = str(claim.get("claimName") or "")
    entry = find_object(mapping.claims, name, namespace) if name else None
    if entry is None:
        return volume
    changed = {**claim, "claimName": name_in_cluster(entry, name)}
    return {**volume, "persistentVolumeClaim": {**changed, "readOnly": True} if entry.read_only else changed}


def _read_only_volumes(spec: Raw, mapping: PodMapping, namespace: str) -> Iterator[str]:
    for volume in spec.get("volumes") or ():
        claim, path = volume.get("persistentVolumeClaim") or {}, (volume.get("hostPath") or {}).get("path")
        entry = (
            find_path(mapping.host_paths, str(path), namespace)
            if path
            else find_object(mapping.claims, str(claim.get("claimName") or ""), namespace)
            if claim
            else None
        )
        if entry and entry.read_only:
            yield str(volume.get("name"))


def _with_read_only_mounts(container: Raw, volumes: frozenset[str]) -> Raw:
    mounts = container.get("volumeMounts") or ()
    if not any(mount.get("name") in volumes for mount in mounts):
        return container
    return {
        **container,
        "volumeMounts": [_read_only_mount(mount) if mount.get("name") in volumes else mount for mount in mounts],
    }


def _read_only_mount(mount: Raw) -> Raw:
    """The mount, read only with all that is mounted beneath it, as far as the node's runtime can.

    A recursive mount allows no propagation (k8s:pkg/apis/core/validation/validation.go, ValidateVolumeMounts).
    """
    fields = {key: value for key, value in mount.items() if key != "mountPropagation" or value == _NO_PROPAGATION}
    recursive = "Enabled" if mount.get("recursiveReadOnly") == "Enabled" else "IfPossible"
    return {**fields, "readOnly": True, "recursiveReadOnly": recursive}
