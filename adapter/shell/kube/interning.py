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
_LONGEST = 1024
# Levels that are looked into: thirteen lead to the last list of an affinity in a RayCluster's worker group. What stands deeper is its
# object's own, for each level is written as JSON once more: whoever nests hundreds of them decides how long that takes.
_DEEPEST = 16
# What weighs more is kept as it is: four times what a pod weighs, and of what is larger there are seldom two. It bounds how long the loop
# stands still for what somebody made up, which is a few milliseconds for each object of a page.
_LARGEST = 2**18
# What it takes to know a part, beside its JSON and itself: its record, its place in the table, and one in whatever has it.
_KNOWN = 400


@dataclass(slots=True)
class Holder:
    """What an object, or a part, is made of."""

    weight: int  # of what is its own
    parts: "list[_Part]" = field(default_factory=list)


@dataclass(slots=True)
class _Part(Holder):
    said: bytes = b""
    whole: int = 0  # what it weighs with its parts
    value: Any = None
    holders: int = 0


class Parts:
    """The parts of a store's objects."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Part] = {}
        self.weight = 0  # of all of them

    def take(self, raw: Raw) -> tuple[Raw, Holder]:
        """The same object, of parts that others have as well; `leave` takes back what it holds."""
        holder = Holder(object_size.of(raw))
        if holder.weight > _LARGEST:
            return raw, holder
        try:
            made = {field: self._inside(field, value, holder) for field, value in raw.items()}
        except TypeError:  # nested deeper than orjson writes
            self.leave(holder)
            return raw, Holder(object_size.of(raw))
        holder.weight = max(holder.weight, 0)
        return made, holder

    def leave(self, holder: Holder) -> None:
        """An object is kept no more."""
        for part in holder.parts:
            part.holders -= 1
            if not part.holders:
                del self._known[part.said]
                self.weight -= part.weight
                self.leave(part)

    def _inside(self, field: str, value: Any, holder: Holder) -> Any:
        return self._within(value, holder, _DEEPEST) if field in ("spec", "status") else _own(value, _DEEPEST)

    def _within(self, found: Any, holder: Holder, levels: int) -> Any:
        """A dict or list of its holder's own, of parts that may be others' as well."""
        if isinstance(found, dict) and levels:
            return {key: self._part(value, holder, levels - 1) for key, value in found.items()}
        if isinstance(found, list) and levels:
            return [self._part(value, holder, levels - 1) for value in found]
        return found

    def _part(self, found: Any, holder: Holder, levels: int) -> Any:
        if not isinstance(found, dict | list):
            return _text(found)
        if not levels:
            return found
        said = orjson.dumps(found)
        if len(said) > _LONGEST:
            return self._within(found, holder, levels)
        part = self._known.get(said) or self._met(found, said, levels)
        part.holders += 1
        holder.parts.append(part)
        holder.weight -= part.whole
        return part.value

    def _met(self, found: Any, said: bytes, levels: int) -> _Part:
        """A part that nobody had."""
        whole = object_size.of_text(said)
        part = _Part(whole, said=bytes(memoryview(said)), whole=whole)  # orjson's own has room for more, which it keeps
        part.value = self._within(found, part, levels)
        part.weight = max(part.weight, 0) + len(said) + _KNOWN
        self._known[part.said] = part
        self.weight += part.weight
        return part


def _own(found: Any, levels: int) -> Any:
    """The same, all of it its object's own but for its texts: names, labels and owners."""
    if not levels:
        return found
    if isinstance(found, dict):
        return {key: _own(value, levels - 1) for key, value in found.items()}
    if isinstance(found, list):
        return [_own(value, levels - 1) for value in found]
    return _text(found)


def _text(found: Any) -> Any:
    """Python keeps such a text once, and lets it go with the last who has it."""
    return sys.intern(found) if type(found) is str else found
