"""Rewrites downward API volumes for a remote pod, so that their files read as in the manager.

The manager pod's uid and its `ray.io` labels have other names on the remote pod. Under the old names the files would be
empty, without an error.
"""

import re
from collections.abc import Iterable

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.rewrite.affinity import remote_label_key

_LABEL_PATH = re.compile(r"metadata\.labels\['(.+)'\]")


def rewrite_volumes(volumes: Iterable[Raw]) -> list[Raw]:
    return [_rewrite_volume(volume) for volume in volumes]


def _rewrite_volume(volume: Raw) -> Raw:
    changed = _rewrite_downward_api(volume)
    projected = volume.get("projected") or {}
    if not projected.get("sources"):
        return changed
    return {
        **changed,
        "projected": {**projected, "sources": [_rewrite_downward_api(source) for source in projected["sources"]]},
    }


def _rewrite_downward_api(holder: Raw) -> Raw:
    source = holder.get("downwardAPI") or {}
    if not source.get("items"):
        return holder
    return {**holder, "downwardAPI": {**source, "items": [_rewrite_item(item) for item in source["items"]]}}


def _rewrite_item(item: Raw) -> Raw:
    reference = item.get("fieldRef") or {}
    path = reference.get("fieldPath") or ""
    remote_path = _remote_field_path(path)
    return item if remote_path == path else {**item, "fieldRef": {**reference, "fieldPath": remote_path}}


def _remote_field_path(path: str) -> str:
    if path == "metadata.uid":
        return f"metadata.labels['{names.POD_UID_LABEL}']"
    label = _LABEL_PATH.fullmatch(path)
    return f"metadata.labels['{remote_label_key(label[1])}']" if label else path
