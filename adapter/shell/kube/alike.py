"""Which parts of objects are the same, so that one of them is kept for all? The pods of a gang differ by their names and times alone.

An object is as it was: parts are told by their JSON, letter by letter, and objects are never changed in place. What is remembered has a
bound, and may be forgotten at any time: then a part is kept once more. Who reckons how much memory objects take counts each part in each
object: what one shares with others today, it may hold alone tomorrow.
"""

import sys
from typing import Any

import orjson

from adapter.objects.raw import Raw
from adapter.shell.kube import weight

# Bytes of a part's JSON. A container's probes, mounts and statuses are of some hundred; what is larger is looked at part by part.
_LONGEST = 1024
# What those that are remembered weigh, and twice with those that were so before: some three thousand each. A gang's pods have a hundred in
# common, and stand together in lists; what is a pod's own is among them for a moment.
_MOST = 8 * 2**20


class Parts:
    """Parts of objects that were met lately."""

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._weight = most, 0
        self._young: dict[bytes, Any] = {}
        self._old: dict[bytes, Any] = {}

    def shared(self, raw: Raw) -> Raw:
        """The same object, of parts that others have as well."""
        try:
            return {
                field: self._within(value) if field in ("spec", "status") else _own(value)
                for field, value in raw.items()
            }
        except TypeError:  # nested deeper than orjson writes
            return raw

    def _within(self, found: Any) -> Any:
        """A dict or list that is its object's own, of parts that may be others' as well."""
        if isinstance(found, dict):
            return {key: self._part(value) for key, value in found.items()}
        if isinstance(found, list):
            return [self._part(value) for value in found]
        return found

    def _part(self, found: Any) -> Any:
        if not isinstance(found, dict | list):
            return _text(found)
        said = orjson.dumps(found)
        if len(said) > _LONGEST:
            return self._within(found)
        known = self._young.get(said)
        if known is None:
            known = self._old.get(said)
            self._remember(said, known := self._within(found) if known is None else known)
        return known

    def _remember(self, said: bytes, part: Any) -> None:
        self._weight += weight.of_text(said)
        if self._weight > self._most:
            self._young, self._old, self._weight = {}, self._young, weight.of_text(said)
        self._young[bytes(memoryview(said))] = part  # orjson's own has room for more, which it would keep


def _own(found: Any) -> Any:
    """The same, all of it its object's own but for its texts: names, labels and owners."""
    if isinstance(found, dict):
        return {key: _own(value) for key, value in found.items()}
    if isinstance(found, list):
        return [_own(value) for value in found]
    return _text(found)


def _text(found: Any) -> Any:
    """Python keeps such a text once, and lets it go with the last who has it."""
    return sys.intern(found) if type(found) is str else found


shared = Parts().shared  # of all clusters: a pod's status is that of its copy
