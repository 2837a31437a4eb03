"""What an administrator writes so that a sample runs: the lines that Rayspan's own sentences tell him. Pure."""

from collections.abc import Iterable
from typing import Any, Final

import yaml

from adapter import names
from adapter.admission.naming_validation import needed_in_clusters
from adapter.objects.required_objects import can_be_named, naming_line
from adapter.objects.unstructured import Raw

CLUSTER: Final = "east"
_PREFIX: Final = "spec.pods."


def worker_cluster(pods: Raw) -> Raw:
    """A WorkerCluster with these `spec.pods`."""
    source = {"kubeConfig": {"secretRef": {"name": CLUSTER}}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKER_CLUSTER_KIND,
        "metadata": {"name": CLUSTER},
        "spec": {"source": source, **({"pods": pods} if pods else {})},
    }


def names_for(templates: Iterable[Raw], namespace: str) -> dict[str, list[Raw]]:
    """The `spec.pods` by which a WorkerCluster names all that these worker templates need and can be named."""
    templates = list(templates)
    lists: dict[str, list[Raw]] = {}
    for needed in needed_in_clusters(templates):
        if can_be_named(needed):
            line: dict[str, list[Any]] = yaml.safe_load(naming_line(needed, namespace).removeprefix(_PREFIX))
            for field, entries in line.items():
                known = lists.setdefault(field, [])
                needed_entries = [_with_access(entry, templates) for entry in entries]
                known += [entry for entry in needed_entries if entry not in known]
    return lists


def _with_access(entry: Raw, templates: Iterable[Raw]) -> Raw:
    """An entry for a host path that a worker writes to says so, as the administrator must: the default is read only."""
    is_written = any(_is_written(entry.get("prefix"), template["spec"]) for template in templates)
    return {**entry, "readOnly": False} if is_written else entry


def _is_written(path: str | None, spec: Raw) -> bool:
    volumes = {volume["name"] for volume in spec.get("volumes") or () if path and _host_path(volume) == path}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    mounts = [mount for container in containers for mount in container.get("volumeMounts") or ()]
    return any(mount["name"] in volumes and not mount.get("readOnly") for mount in mounts)


def _host_path(volume: Raw) -> str:
    return str((volume.get("hostPath") or {}).get("path") or "")
