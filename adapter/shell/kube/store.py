"""What do we know of one kind of object in one cluster: the last state of each, as list and watch delivered it.

A store that was never filled is not synced, and whoever asks must do nothing then rather than read "none". Objects are
never changed in place.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from adapter.objects.raw import Key, Raw, key_of, meta

Changed = Callable[[Raw | None, Raw | None], None]  # before, after

# For how long a deletion is remembered, against an answer to a write of ours that comes after it: the client gives up on
# one after 10 s, and a process may be stopped between the two for a while.
REMEMBERED_SECONDS = 60.0


def _nobody(_: Raw | None, __: Raw | None) -> None:
    """Nobody listens yet: whoever comes looks at everything."""


class Store:
    """Objects by namespace and name, with one optional index; and how many of each of its groups give a `counted` value."""

    def __init__(
        self,
        changed: Changed = _nobody,
        index: Callable[[Raw], str] | None = None,
        counted: Callable[[Raw], str] | None = None,
    ) -> None:
        self.synced = False
        self._changed = changed
        self._objects: dict[Key, Raw] = {}
        self._gone: dict[Key, tuple[int, float]] = {}  # version of the deletion, and when we heard of it; oldest first
        self._floor = -1  # version of the last full list
        self._index, self._counted = index, counted
        self._groups: dict[str, set[Key]] = defaultdict(set)
        self._counts: dict[str, Counter[str]] = defaultdict(Counter)

    def listen(self, changed: Changed) -> None:
        """Tell somebody else of each change from now on."""
        self._changed = changed

    def tell(self, before: Raw | None = None, after: Raw | None = None) -> None:
        """Tell of a change that no object here shows: what is read beside it, or that this kind can be read at all."""
        self._changed(before, after)

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

    def count(self, value: str) -> Mapping[str, int]:
        """The counted values of that group's objects, and how many have each; never empty ones, and not to be changed."""
        return self._counts.get(value, {})

    def replace(self, objects: Iterable[Raw], listed_at: str = "") -> None:
        """Take a full list as of a version: what it does not hold is gone, unless it is newer than the list.

        A list that is older than the one before comes from a restored etcd: it is the truth, whatever we knew.
        """
        fresh = {key_of(raw): raw for raw in objects}
        listed = _number(listed_at)
        restored = listed < self._floor
        for key in set(self._objects) - set(fresh):
            if restored or not listed or version(self._objects[key]) <= listed:
                self._drop(key)
        self._gone.clear()  # the floor stands for them: what comes late is older than this list
        self._floor = listed
        self.synced = True
        for key, raw in fresh.items():
            known = self._objects.get(key)
            if restored or known is None or version(known) < version(raw):
                self._set(key, raw)

    def put(self, raw: Raw) -> None:
        """Take a newer state, from a watch or from the answer to our own write; an older one is ignored.

        Versions of one kind in one cluster can be compared as numbers (Kubernetes KEP-5504).
        """
        key = key_of(raw)
        before = self._objects.get(key)
        known = version(before) if before is not None else max(self._floor, self._deleted_at(key))
        if version(raw) > known:  # else an answer to our own write, say, after the watch has told of the deletion
            self._set(key, raw)

    def _set(self, key: Key, raw: Raw) -> None:
        before, raw = self._objects.get(key), _slim(raw)
        self._unindex(key)
        self._objects[key] = raw
        if self._index:
            group = self._index(raw)
            self._groups[group].add(key)
            if self._counted and (counted := self._counted(raw)):
                self._counts[group][counted] += 1
        self._changed(before, raw)

    def remove(self, raw: Raw) -> None:
        """Take a deletion; that of an earlier object of the same name is ignored."""
        key = key_of(raw)
        before = self._objects.get(key)
        self._bury(key, version(raw))
        same = before is not None and meta(before).get("uid") == meta(raw).get("uid")
        if same and before is not None and version(raw) >= version(before):  # an older one is told again after a cut
            self._drop(key)

    def _deleted_at(self, key: Key) -> int:
        return self._gone.get(key, (-1, 0.0))[0]

    def _bury(self, key: Key, at: int) -> None:
        now, last = time.monotonic(), self._deleted_at(key)
        self._gone.pop(key, None)
        self._gone[key] = max(at, last), now
        while (oldest := next(iter(self._gone))) != key and now - self._gone[oldest][1] > REMEMBERED_SECONDS:
            del self._gone[oldest]

    def _drop(self, key: Key) -> None:
        self._unindex(key)
        before = self._objects.pop(key)
        self._changed(before, None)

    def _unindex(self, key: Key) -> None:
        if self._index and key in self._objects:
            raw = self._objects[key]
            group = self._index(raw)
            self._groups[group].discard(key)
            if self._counted and (counted := self._counted(raw)):
                self._uncount(group, counted)
            if not self._groups[group]:
                del self._groups[group]
                self._counts.pop(group, None)

    def _uncount(self, group: str, counted: str) -> None:
        self._counts[group][counted] -= 1
        if not self._counts[group][counted]:
            del self._counts[group][counted]


def _slim(raw: Raw) -> Raw:
    """Drop what we never read and what would double the memory."""
    metadata = meta(raw)
    if "managedFields" not in metadata:
        return raw
    return {**raw, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def version(raw: Raw) -> int:
    """An object's version as a number; 0 when it has none."""
    return _number(str(meta(raw).get("resourceVersion") or ""))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0
