"""What does a volume of a pod's own fields show in a copy?

Name, namespace and annotations are those of the manager's pod. Its uid and its labels of `ray.io` have other names on the copy,
so the volume is told those: under the old ones the files would be empty, and say nothing of why. Environment variables are
no business of this file: they become literals (stripping.py).
"""

import re
from collections.abc import Iterable

from adapter import names
from adapter.objects.unstructured import Raw
from adapter.rewrite.affinity import renamed

_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")


def volumes(found: Iterable[Raw]) -> list[Raw]:
    """A pod spec's volumes, as they show the same there; others are left as they are."""
    return [_volume(volume) for volume in found]


def _volume(volume: Raw) -> Raw:
    changed = _pointed(volume)
    projected = volume.get("projected") or {}
    if not projected.get("sources"):
        return changed
    return {**changed, "projected": {**projected, "sources": [_pointed(source) for source in projected["sources"]]}}


def _pointed(holder: Raw) -> Raw:
    source = holder.get("downwardAPI") or {}
    if not source.get("items"):
        return holder
    return {**holder, "downwardAPI": {**source, "items": [_item(item) for item in source["items"]]}}


def _item(item: Raw) -> Raw:
    reference = item.get("fieldRef") or {}
    path = reference.get("fieldPath") or ""
    there = _there(path)
    return item if there == path else {**item, "fieldRef": {**reference, "fieldPath": there}}


def _there(path: str) -> str:
    if path == "metadata.uid":
        return f"metadata.labels['{names.POD_UID_LABEL}']"
    label = _LABEL.fullmatch(path)
    return f"metadata.labels['{renamed(label[1])}']" if label else path
