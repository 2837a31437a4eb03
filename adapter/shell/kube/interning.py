"""Interns identical sub-trees of a store's objects: a gang's pods differ only in names and times.

Parts are compared by their JSON. Each part is weighed once, so the weight still grows with objects that share nothing.
"""

import sys
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.objects.unstructured import Raw
from adapter.shell.kube import object_size

# The largest part, in bytes of JSON; larger trees are split. A container's probes, mounts and statuses have some
# hundred.
_LONGEST_PART = 1024
# Levels that are split; thirteen lead to the last list of an affinity in a RayCluster's worker group. Each level is
# written as JSON once more, so hundreds of levels could take any time.
_DEEPEST = 16
# Heavier objects are not interned. This is four times a pod's weight; larger objects seldom come twice. The limit
# bounds how long a forged object blocks the event loop to a few milliseconds.
_LARGEST_OBJECT = 2**18
# The bytes of a part beside its JSON and value: the record, a table entry, and an entry in each holder.
_PART_OVERHEAD = 400


@dataclass(slots=True)
class PartHolder:
    weight: int  # without its parts
    parts: "list[_Part]" = field(default_factory=list)


@dataclass(slots=True)
class _Part(PartHolder):
    encoded: bytes = b""
    total_weight: int = 0  # with its parts
    value: Any = None
    holder_count: int = 0


class PartTable:
    def __init__(self) -> None:
        self._parts_by_json: dict[bytes, _Part] = {}
        self.weight = 0  # of all parts

    def intern_object(self, raw: Raw) -> tuple[Raw, PartHolder]:
        """The object with interned parts, and their holder for `release_parts`."""
        holder = PartHolder(object_size.weigh_object(raw))
        if holder.weight > _LARGEST_OBJECT:
            return raw, holder
        try:
            interned = {field: self._intern_field(field, value, holder) for field, value in raw.items()}
        except TypeError:  # nested deeper than orjson writes
            self.release_parts(holder)
            return raw, PartHolder(object_size.weigh_object(raw))
        holder.weight = max(holder.weight, 0)
        return interned, holder

    def release_parts(self, holder: PartHolder) -> None:
        for part in holder.parts:
            part.holder_count -= 1
            if not part.holder_count:
                del self._parts_by_json[part.encoded]
                self.weight -= part.weight
                self.release_parts(part)

    def _intern_field(self, field: str, value: Any, holder: PartHolder) -> Any:
        return (
            self._intern_children(value, holder, _DEEPEST)
            if field in ("spec", "status")
            else _intern_texts(value, _DEEPEST)
        )

    def _intern_children(self, tree: Any, holder: PartHolder, levels: int) -> Any:
        if isinstance(tree, dict) and levels:
            return {key: self._intern_part(value, holder, levels - 1) for key, value in tree.items()}
        if isinstance(tree, list) and levels:
            return [self._intern_part(value, holder, levels - 1) for value in tree]
        return tree

    def _intern_part(self, tree: Any, holder: PartHolder, levels: int) -> Any:
        if not isinstance(tree, dict | list):
            return _intern_text(tree)
        if not levels:
            return tree
        encoded = orjson.dumps(tree)
        if len(encoded) > _LONGEST_PART:
            return self._intern_children(tree, holder, levels)
        part = self._parts_by_json.get(encoded) or self._add_part(tree, encoded, levels)
        part.holder_count += 1
        holder.parts.append(part)
        holder.weight -= part.total_weight
        return part.value

    def _add_part(self, tree: Any, encoded: bytes, levels: int) -> _Part:
        whole = object_size.weigh_json(encoded)
        # Copied, because orjson's bytes keep a larger buffer.
        part = _Part(whole, encoded=bytes(memoryview(encoded)), total_weight=whole)
        part.value = self._intern_children(tree, part, levels)
        part.weight = max(part.weight, 0) + len(encoded) + _PART_OVERHEAD
        self._parts_by_json[part.encoded] = part
        self.weight += part.weight
        return part


def _intern_texts(tree: Any, levels: int) -> Any:
    if not levels:
        return tree
    if isinstance(tree, dict):
        return {key: _intern_texts(value, levels - 1) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_intern_texts(value, levels - 1) for value in tree]
    return _intern_text(tree)


def _intern_text(value: Any) -> Any:
    return sys.intern(value) if type(value) is str else value
