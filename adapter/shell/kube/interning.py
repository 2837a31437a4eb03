"""Which parts do the objects of a store have in common, so that one is kept for all? The pods of a gang differ by their names and times alone.

An object is as it was: parts are told by their JSON, letter by letter, and objects are never changed in place. Each part is reckoned once,
for as long as some object has it: so whoever makes objects up that share nothing is found out as before. Texts are shared as well, by Python.
"""

import sys
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter.objects.unstructured import Raw
from adapter.shell.kube import object_size

# Bytes of a part's JSON. A container's probes, mounts and statuses are of some hundred; what is larger is looked at part by part.
_LONGEST_PART = 1024
# Levels that are looked into: thirteen lead to the last list of an affinity in a RayCluster's worker group. What stands deeper is its
# object's own, for each level is written as JSON once more: whoever nests hundreds of them decides how long that takes.
_DEEPEST = 16
# What weighs more is kept as it is: four times what a pod weighs, and of what is larger there are seldom two. It bounds how long the loop
# stands still for what somebody made up, which is a few milliseconds for each object of a page.
_LARGEST_OBJECT = 2**18
# What it takes to know a part, beside its JSON and itself: its record, its place in the table, and one in whatever has it.
_PART_OVERHEAD = 400


@dataclass(slots=True)
class PartHolder:
    """What an object, or a part, is made of."""

    weight: int  # of what is its own
    parts: "list[_Part]" = field(default_factory=list)


@dataclass(slots=True)
class _Part(PartHolder):
    encoded: bytes = b""
    total_weight: int = 0  # what it weighs with its parts
    value: Any = None
    holder_count: int = 0


class PartTable:
    """The parts of a store's objects."""

    def __init__(self) -> None:
        self._parts_by_json: dict[bytes, _Part] = {}
        self.weight = 0  # of all of them

    def intern_object(self, raw: Raw) -> tuple[Raw, PartHolder]:
        """The same object, of parts that others have as well; `leave` takes back what it holds."""
        holder = PartHolder(object_size.weigh_object(raw))
        if holder.weight > _LARGEST_OBJECT:
            return raw, holder
        try:
            made = {field: self._intern_field(field, value, holder) for field, value in raw.items()}
        except TypeError:  # nested deeper than orjson writes
            self.release_parts(holder)
            return raw, PartHolder(object_size.weigh_object(raw))
        holder.weight = max(holder.weight, 0)
        return made, holder

    def release_parts(self, holder: PartHolder) -> None:
        """An object is kept no more."""
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
        """A dict or list of its holder's own, of parts that may be others' as well."""
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
        said = orjson.dumps(tree)
        if len(said) > _LONGEST_PART:
            return self._intern_children(tree, holder, levels)
        part = self._parts_by_json.get(said) or self._add_part(tree, said, levels)
        part.holder_count += 1
        holder.parts.append(part)
        holder.weight -= part.total_weight
        return part.value

    def _add_part(self, tree: Any, encoded: bytes, levels: int) -> _Part:
        """A part that nobody had."""
        whole = object_size.weigh_json(encoded)
        part = _Part(
            whole, encoded=bytes(memoryview(encoded)), total_weight=whole
        )  # orjson's own has room for more, which it keeps
        part.value = self._intern_children(tree, part, levels)
        part.weight = max(part.weight, 0) + len(encoded) + _PART_OVERHEAD
        self._parts_by_json[part.encoded] = part
        self.weight += part.weight
        return part


def _intern_texts(tree: Any, levels: int) -> Any:
    """The same, all of it its object's own but for its texts: names, labels and owners."""
    if not levels:
        return tree
    if isinstance(tree, dict):
        return {key: _intern_texts(value, levels - 1) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_intern_texts(value, levels - 1) for value in tree]
    return _intern_text(tree)


def _intern_text(value: Any) -> Any:
    """Python keeps such a text once, and lets it go with the last who has it."""
    return sys.intern(value) if type(value) is str else value
