"""What do we know of one kind of object in one cluster: the last state of each, as list and watch delivered it.

A store that was never filled is not synced, and whoever asks must do nothing then rather than read "none". Objects are
never changed in place: they share parts (`alike`). It knows how much memory they take, and leaves to others how much that may be. What is no
object (`objects.well_formed`) does not come in, and an object comes in as a whole or not at all.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from adapter.objects import trim, well_formed
from adapter.objects.unstructured import UNREADABLE, Key, Raw, key_of, meta
from adapter.shell.kube import object_size
from adapter.shell.kube.interning import Holder, Parts

Changed = Callable[[Raw | None, Raw | None], None]  # before, after
ReadT = TypeVar("ReadT")

# For how long a deletion is remembered, against an answer to a write of ours that comes after it: the client gives up on
# one after 10 s, and a process may be stopped between the two for a while.
REMEMBERED_SECONDS = 60.0
# What a list of a filled store holds back until its end weighs so much, beside the page that was just read. It is as much as one
# object may be (`bodies.OBJECT_BYTES`): little beside what is kept of a cluster, and what changed while a watch was down goes in
# as a whole all the same, but where hundreds of objects changed.
HELD = 4 * 2**20
# Objects of a first list that go in at once: some tens of milliseconds.
PIECE = 100
# What it takes to remember that a list has an object: a pair, whose texts are the object's, and its place in a set.
_SEEN = 200


def _nobody(_: Raw | None, __: Raw | None) -> None:
    """Nobody listens yet: whoever comes looks at everything."""


class Odd(ValueError):
    """Not an object of the kind that a store holds; the text is a part of a sentence."""


class Store:
    """Objects by namespace and name, with one optional index; how many of each of its groups give a `counted` value, and which
    of them a word `finds`."""

    def __init__(
        self,
        changed: Changed = _nobody,
        *,
        index: Callable[[Raw], str] | None = None,
        counted: Callable[[Raw], Hashable] | None = None,
        finds: Callable[[Raw], Collection[str]] = lambda _: (),
        slims: Callable[[Raw], Raw] = trim.bare,
    ) -> None:
        """`slims` drops of an object what nobody reads."""
        self.synced = False
        self.newest = -1  # the highest version that was ever heard of, by list, watch or the answer to a write
        self.changes = 0  # how often something in it has changed
        self._changed = changed
        self._objects: dict[Key, Raw] = {}
        self._readings: dict[Key, dict[Callable[[Raw], Any], Any]] = {}  # what was read of them, by who reads
        # What was read of all of them, and of which it is to be read again: by who goes through all.
        self._all: dict[Callable[[Raw], Any], tuple[dict[Key, Any], dict[Key, bool]]] = {}
        self._held: dict[Key, Holder] = {}  # of which parts they are
        self._parts, self._own = Parts(), 0  # what they have in common, and the weight of what they have not
        self._gone: dict[Key, tuple[int, float]] = {}  # version of the deletion, and when we heard of it; oldest first
        self._floor = -1  # version of the last full list
        self._restoring = False  # a list is being taken of a cluster that counts from lower down
        self._index, self._counted, self._finds, self._slims = index, counted, finds, slims
        self._groups: dict[str, set[Key]] = defaultdict(set)
        self._counts: dict[str, dict[Hashable, int]] = defaultdict(dict)
        self._found: dict[tuple[str, str], dict[Key, None]] = defaultdict(dict)  # by group and word

    @property
    def weight(self) -> int:
        """The memory that all of them take."""
        return self._own + self._parts.weight

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

    def reading(self, raw: Raw, read: Callable[[Raw], ReadT]) -> ReadT:
        """What `read` finds in an object, found once for as long as the very object is held: many ask the same of one version. What
        is not held is read each time. `read` is one function, not one made for each question."""
        key = key_of(raw)
        if self._objects.get(key) is not raw:
            return read(raw)
        known = self._readings.setdefault(key, {})
        if read not in known:
            known[read] = read(raw)
        found: ReadT = known[read]
        return found

    def readings(self, read: Callable[[Raw], ReadT]) -> Mapping[Key, ReadT]:
        """The same of all that are held, not to be changed: for whoever goes through thousands again and again. Only those that have
        changed since are looked at."""
        if read not in self._all:
            self._all[read] = {}, dict.fromkeys(self._objects, True)
        found, stale = self._all[read]
        for key, anew in stale.items():
            if anew:  # it stands where it came last, as in the store
                found.pop(key, None)
            if (raw := self._objects.get(key)) is not None:
                found[key] = self.reading(raw, read)
        stale.clear()
        return found

    def group(self, value: str) -> list[Raw]:
        """The objects for which the index gives this value."""
        return [self._objects[key] for key in self._groups.get(value, ())]

    def count(self, value: str) -> Mapping[Any, int]:
        """The counted values of that group's objects, and how many have each; never empty ones, and not to be changed."""
        return self._counts.get(value, {})

    def having(self, value: str, word: str) -> list[Raw]:
        """The objects of that group which this word finds."""
        return [self._objects[key] for key in self._found.get((value, word), ())]

    def found_by(self, word: str) -> Iterator[Raw]:
        """The objects of all groups which this word finds."""
        return (raw for group in list(self._groups) for raw in self.having(group, word))

    def passed(self, at: str) -> None:
        """Note that the cluster has come to this version."""
        self.newest = max(self.newest, number(at))

    def replace(self, objects: Iterable[Raw], listed_at: str = "", *, restored: bool = False) -> int:
        """Take a full list that comes in one piece, as `listing` says. Returns how much of it was not taken in."""
        listing = self.listing(listed_at, restored=restored)
        listing.take(objects)
        listing.end()
        return listing.refused

    def listing(self, listed_at: str, *, restored: bool = False) -> "Listing":
        """Begin to take a full list as of a version: what it does not hold is gone, and what it holds is so, but for what is newer
        than the list. One that began before is given up.

        An object may be older in it than we knew it: its etcd came back from a backup and counts on from higher up. Where it
        counts from lower down (`restored`), nothing that we knew is newer: it is of a time that never was.
        """
        self._restoring = restored
        return Listing(self, number(listed_at), restored=restored)

    def forget(self) -> None:
        """Drop everything, as if it had never been read. Nobody is told: whoever calls this has said that nothing can be seen."""
        for known in (self._objects, self._readings, self._held, self._gone, self._groups, self._counts, self._found):
            known.clear()
        self._all.clear()
        self.changes += 1
        self._parts, self._own = Parts(), 0
        self.synced, self._restoring = False, False

    def _listed(self, at: int, *, restored: bool) -> None:
        """Note that it is as a full list of this version says."""
        self._gone.clear()  # the floor stands for them: what comes late is older than this list
        self._floor = at
        self.newest = at if restored else max(self.newest, at)
        self.synced, self._restoring = True, False

    def put(self, raw: Raw) -> str:
        """Take a newer state, from a watch or from the answer to our own write; an older one is ignored. Returns why it was not
        taken in, if it is no object.

        Versions of one kind in one cluster can be compared as numbers (Kubernetes KEP-5504).
        """
        try:
            kept = self._kept(raw)
        except Odd as why:
            return str(why)
        if self._restoring:  # it may be of the time before; the watch tells what is not
            return ""
        key, at = key_of(kept), version(kept)
        self.newest = max(self.newest, at)
        before = self._objects.get(key)
        known = version(before) if before is not None else max(self._floor, self._deleted_at(key))
        if at > known:  # else an answer to our own write, say, after the watch has told of the deletion
            self._set(key, kept)
        return ""

    def _kept(self, raw: Raw) -> Raw:
        """The object as it is kept; raises Odd for what is none, so that all that is reckoned of it later can be reckoned."""
        if why := well_formed.odd(raw):
            raise Odd(why)
        try:
            kept = self._slims(raw)
            self._places(kept)
            self._finds(kept)
        except UNREADABLE as error:
            raise Odd(f"it cannot be read ({type(error).__name__})") from None
        return kept

    def _places(self, raw: Raw) -> tuple[str, Hashable]:
        """Its group and its counted value, empty where there is none."""
        group = self._index(raw) if self._index else ""
        return group, self._counted(raw) if self._counted else ""

    def _set(self, key: Key, raw: Raw, holder: Holder | None = None) -> None:
        """`holder`: what it holds of this store's parts already."""
        group, counted = self._places(raw)
        kept = self._share(key, raw, holder)  # first: what it makes of somebody's nonsense leaves the index as it is
        self._unindex(key)
        before = self._hold(key, kept)
        if self._index:
            self._groups[group].add(key)
            for word in self._finds(raw):
                self._found[group, word][key] = None
            if counted:
                self._counts[group][counted] = self._counts[group].get(counted, 0) + 1
        self._changed(before, kept)

    def remove(self, raw: Raw) -> str:
        """Take a deletion; that of an earlier object of the same name is ignored. Returns why it says nothing, if it is no object."""
        if why := well_formed.odd(raw):
            return why
        key = key_of(raw)
        self.newest = max(self.newest, version(raw))
        before = self._objects.get(key)
        self._bury(key, version(raw))
        same = before is not None and meta(before).get("uid") == meta(raw).get("uid")
        if same and before is not None and version(raw) >= version(before):  # an older one is told again after a cut
            self._drop(key)
        return ""

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
        self._leave(self._held.pop(key))
        self._changed(self._hold(key, None), None)

    def _hold(self, key: Key, raw: Raw | None) -> Raw | None:
        """Hold another state of an object, or none any more: of one object this is done here alone, for what was read of the state
        before goes with it, and the change is counted. Returns that state."""
        before = self._objects.get(key)
        if raw is None:
            del self._objects[key]
        else:
            self._objects[key] = raw
        self._readings.pop(key, None)
        self._age(key, anew=raw is None or before is None)
        self.changes += 1
        return before

    def _age(self, key: Key, *, anew: bool) -> None:
        """Note for whoever goes through all that an object is another one. Who has not done so for long begins from the start: what is noted
        for him would not end, for names come and go."""
        for read, (_, stale) in list(self._all.items()):
            if anew:
                stale.pop(key, None)
            stale[key] = anew or stale.get(key, False)
            if len(stale) > 2 * len(self._objects) + PIECE:
                del self._all[read]

    def _share(self, key: Key, raw: Raw, known: Holder | None) -> Raw:
        """Another state of an object, of parts that others have as well: those of the state before are let go after that."""
        kept, holder = (raw, known) if known else self._parts.take(raw)
        if before := self._held.get(key):
            self._leave(before)
        self._held[key] = holder
        self._own += holder.weight
        return kept

    def _leave(self, holder: Holder) -> None:
        self._own -= holder.weight
        self._parts.leave(holder)

    def _unindex(self, key: Key) -> None:
        if self._index and key in self._objects:
            group, counted = self._places(self._objects[key])
            self._groups[group].discard(key)
            for word in self._finds(self._objects[key]):
                self._unfind(key, group, word)
            if counted:
                self._uncount(group, counted)
            if not self._groups[group]:
                del self._groups[group]
                self._counts.pop(group, None)

    def _unfind(self, key: Key, group: str, word: str) -> None:
        if like := self._found.get((group, word)):
            like.pop(key, None)
            if not like:
                del self._found[group, word]

    def _uncount(self, group: str, counted: Hashable) -> None:
        self._counts[group][counted] -= 1
        if not self._counts[group][counted]:
            del self._counts[group][counted]


class Listing:
    """A full list that comes page by page.

    What it changes is held back until its end and goes in as a whole: whoever looks meanwhile sees what was true before. What
    weighs more than `HELD` goes in sooner, so that two states of everything are never kept: each is one that its object came to,
    and only what is gone is still there. One that is given up before its end leaves behind what went in, and nothing else.
    """

    def __init__(self, store: Store, listed: int, *, restored: bool) -> None:
        self._store, self._listed, self._restored = store, listed, restored
        self._held: dict[Key, tuple[Raw, Holder]] = {}
        self._seen: set[Key] = set()
        self._parts = Parts()  # what those that are held have in common
        self._own, self._idle = 0, 0  # the weight of what is theirs alone, and of what nothing comes of
        self.refused, self.first = 0, ""  # how much of it was not taken in, and why the first of it was not

    @property
    def weight(self) -> int:
        """The memory that it takes beside its store. What is no object, or comes again, counts as if it were kept: a list of nothing
        else would have no end."""
        return self._holds + self._idle + _SEEN * len(self._seen)

    @property
    def _holds(self) -> int:
        return self._own + self._parts.weight

    def take(self, objects: Iterable[Raw]) -> None:
        """Take a page."""
        for raw in objects:
            try:
                self._take(self._store._kept(raw))
            except Odd as why:
                self.refused, self.first = self.refused + 1, self.first or str(why)
                self._idle += object_size.of(raw)
        if self._store.synced and self._holds > HELD:
            self._settle()

    def _take(self, kept: Raw) -> None:
        key = key_of(kept)
        known = self._store.get(key)
        if key in self._seen:  # an API server names each object once
            self._idle += object_size.of(kept)
        elif known is not None and known == kept:
            self._seen.add(key_of(known))  # nothing of what came is kept
        else:
            self._seen.add(key)
            self._held[key] = _, holder = self._parts.take(kept)
            self._own += holder.weight

    def _settle(self, most: int | None = None) -> None:
        """Put into the store what is held, or so many of it. It is of this list's version: whoever lists anew is behind it or not, also
        where this one comes to no end."""
        if not self._restored:
            self._store.newest = max(self._store.newest, self._listed)
        ours = self._store._parts is self._parts
        for key in list(itertools.islice(self._held, most)):
            raw, holder = self._held.pop(key)  # it is in the store next, and not twice
            if not self._outlived(key) and self._store.get(key) != raw:
                self._store._set(key, raw, holder if ours else None)
            elif ours:
                self._parts.leave(holder)
        if not self._held:
            self._parts, self._own = Parts(), 0

    def end(self) -> None:
        """Take it that this was all of it."""
        for _ in self.ending():
            pass

    def ending(self) -> Generator[None]:
        """The same in pieces, where nobody can look meanwhile: a first list may be of ten thousand, and its store is not synced before."""
        store = self._store
        for key in set(store._objects) - self._seen:
            if not self._outlived(key):
                store._drop(key)
        if not store._objects:
            store._parts = self._parts  # they need not be told apart once more
        try:
            while not store.synced and len(self._held) > PIECE:
                self._settle(PIECE)
                yield
        except GeneratorExit:
            self._give_up()
            raise
        store._listed(self._listed, restored=self._restored)
        self._settle()

    def _give_up(self) -> None:
        """Leave nothing behind of what has not gone in: the store knows its parts already."""
        for _, holder in self._held.values() if self._store._parts is self._parts else ():
            self._parts.leave(holder)
        self._held.clear()

    def _outlived(self, key: Key) -> bool:
        """Whether what is known of an object is newer than this list."""
        known = self._store.get(key)
        return not self._restored and known is not None and 0 < self._listed < version(known)


def version(raw: Raw) -> int:
    """An object's version as a number; 0 when it has none."""
    return number(str(meta(raw).get("resourceVersion") or ""))


def number(text: str) -> int:
    """A version as a number; 0 for what is none. etcd counts in 63 bits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
