"""Interns identical sub-trees of a store's objects: the pods of a gang differ by their names and times alone.

Parts are identical if their JSON is identical byte by byte, and objects are never changed in place. Each part is
weighed once while any object has it, so the weight still grows with objects that share nothing. Texts are interned by
Python.
"""

import sys
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.objects.unstructured import Raw
from adapter.shell.kube import object_size

# Bytes of a part's JSON. A container's probes, mounts and statuses have some hundred. Larger trees are split into
# parts.
_LONGEST_PART = 1024
# Levels that are split: thirteen lead to the last list of an affinity in a RayCluster's worker group. Deeper trees are
# not interned: each level is written as JSON once more, so an object with hundreds of levels could take any time.
_DEEPEST = 16
# Heavier objects are not interned. This is four times a pod's weight, and larger objects seldom come twice. It bounds
# how long a forged object blocks the event loop, to a few milliseconds for each object of a page.
_LARGEST_OBJECT = 2**18
# Bytes of a part beside its JSON and its value: its record, its entry in the table, and one in each holder.
_PART_OVERHEAD = 400


@dataclass(slots=True)
class PartHolder:
    """The interned parts of an object or of a part."""

    weight: int  # without its parts
    parts: "list[_Part]" = field(default_factory=list)


@dataclass(slots=True)
class _Part(PartHolder):
    encoded: bytes = b""
    total_weight: int = 0  # with its parts
    value: Any = None
    holder_count: int = 0


class PartTable:
    """The parts of a store's objects."""

    def __init__(self) -> None:
        self._parts_by_json: dict[bytes, _Part] = {}
        self.weight = 0  # of all parts

    def intern_object(self, raw: Raw) -> tuple[Raw, PartHolder]:
        """The object with its parts interned, and their holder, which `release_parts` takes back."""
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
        """Release the parts of an object that is no longer stored."""
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
        """A new dict or list whose values are interned."""
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
        # The bytes are copied, because those of orjson keep a larger buffer.
        part = _Part(whole, encoded=bytes(memoryview(encoded)), total_weight=whole)
        part.value = self._intern_children(tree, part, levels)
        part.weight = max(part.weight, 0) + len(encoded) + _PART_OVERHEAD
        self._parts_by_json[part.encoded] = part
        self.weight += part.weight
        return part


def _intern_texts(tree: Any, levels: int) -> Any:
    """A new tree of which only the texts are interned: names, labels and owners."""
    if not levels:
        return tree
    if isinstance(tree, dict):
        return {key: _intern_texts(value, levels - 1) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_intern_texts(value, levels - 1) for value in tree]
    return _intern_text(tree)


def _intern_text(value: Any) -> Any:
    """Intern a text; Python frees it with its last reference."""
    return sys.intern(value) if type(value) is str else value
