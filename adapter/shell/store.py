"""What do we know of one kind of object in one cluster: the last state of each, as list and watch delivered it.

A store that was never filled is not synced, and whoever asks must do nothing then rather than read "none". Objects are
never changed in place.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from adapter.facts import Key, Raw, key_of, meta

Changed = Callable[[Raw | None, Raw | None], None]  # before, after


class Store:
    """Objects by namespace and name, with one optional index."""

    def __init__(self, changed: Changed, index: Callable[[Raw], str] | None = None) -> None:
        self.synced = False
        self._changed = changed
        self._objects: dict[Key, Raw] = {}
        self._index = index
        self._groups: dict[str, set[Key]] = defaultdict(set)

    def __iter__(self) -> Iterator[Raw]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> Raw | None:
        return self._objects.get(key)

    def named(self, name: str) -> Raw | None:
        """A cluster-scoped object."""
        return self._objects.get(("", name))

    def group(self, value: str) -> list[Raw]:
        """The objects for which the index gives this value."""
        return [self._objects[key] for key in self._groups.get(value, ())]

    def replace(self, objects: Iterable[Raw]) -> None:
        """Take a full list: what it does not hold is gone."""
        fresh = {key_of(raw): raw for raw in objects}
        for key in set(self._objects) - set(fresh):
            self._drop(key)
        self.synced = True
        for raw in fresh.values():
            self.put(raw)

    def put(self, raw: Raw) -> None:
        """Take a newer state, from a watch or from the answer to our own write; an older one is ignored.

        Versions of one kind in one cluster can be compared as numbers (Kubernetes KEP-5504).
        """
        key = key_of(raw)
        before = self._objects.get(key)
        if before is not None and _version(raw) <= _version(before) and meta(raw).get("uid") == meta(before).get("uid"):
            return
        self._unindex(key)
        self._objects[key] = raw
        if self._index:
            self._groups[self._index(raw)].add(key)
        self._changed(before, raw)

    def remove(self, raw: Raw) -> None:
        """Take a deletion; that of an earlier object of the same name is ignored."""
        key = key_of(raw)
        before = self._objects.get(key)
        if before is not None and meta(before).get("uid") == meta(raw).get("uid"):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        self._unindex(key)
        before = self._objects.pop(key)
        self._changed(before, None)

    def _unindex(self, key: Key) -> None:
        if self._index and key in self._objects:
            value = self._index(self._objects[key])
            self._groups[value].discard(key)
            if not self._groups[value]:
                del self._groups[value]


def _version(raw: Raw) -> int:
    text = str(meta(raw).get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0
