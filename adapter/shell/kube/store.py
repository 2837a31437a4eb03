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
from adapter.shell.kube.interning import PartHolder, PartTable

ChangeHandler = Callable[[Raw | None, Raw | None], None]  # before, after
ReadT = TypeVar("ReadT")

# For how long a deletion is remembered, against an answer to a write of ours that comes after it: the client gives up on
# one after 10 s, and a process may be stopped between the two for a while.
REMEMBERED_SECONDS = 60.0
# What a list of a filled store holds back until its end weighs so much, beside the page that was just read. It is as much as one
# object may be (`bodies.OBJECT_BYTES`): little beside what is kept of a cluster, and what changed while a watch was down goes in
# as a whole all the same, but where hundreds of objects changed.
PENDING_BYTES = 4 * 2**20
# Objects of a first list that go in at once: some tens of milliseconds.
OBJECTS_AT_ONCE = 100
# What it takes to remember that a list has an object: a pair, whose texts are the object's, and its place in a set.
_KEY_BYTES = 200


def ignore(_: Raw | None, __: Raw | None) -> None:
    """Nobody listens yet: whoever comes looks at everything."""


class MalformedObject(ValueError):
    """Not an object of the kind that a store holds; the text is a part of a sentence."""


class Store:
    """Objects by namespace and name, with one optional index; how many of each of its groups give a `counted` value, and which
    of them a word `finds`."""

    def __init__(
        self,
        on_change: ChangeHandler = ignore,
        *,
        index: Callable[[Raw], str] | None = None,
        counted_value: Callable[[Raw], Hashable] | None = None,
        search_words: Callable[[Raw], Collection[str]] = lambda _: (),
        trim_object: Callable[[Raw], Raw] = trim.without_managed_fields,
    ) -> None:
        """`slims` drops of an object what nobody reads."""
        self.synced = False
        self.newest_version = -1  # the highest version that was ever heard of, by list, watch or the answer to a write
        self.change_count = 0  # how often something in it has changed
        self._on_change = on_change
        self._objects: dict[Key, Raw] = {}
        self._readings: dict[Key, dict[Callable[[Raw], Any], Any]] = {}  # what was read of them, by who reads
        # What was read of all of them, and of which it is to be read again: by who goes through all.
        self._all_readings: dict[Callable[[Raw], Any], tuple[dict[Key, Any], dict[Key, bool]]] = {}
        self._holders: dict[Key, PartHolder] = {}  # of which parts they are
        self._part_table, self._own_weight = (
            PartTable(),
            0,
        )  # what they have in common, and the weight of what they have not
        self._deletions: dict[
            Key, tuple[int, float]
        ] = {}  # version of the deletion, and when we heard of it; oldest first
        self._listed_version = -1  # version of the last full list
        self._restoring = False  # a list is being taken of a cluster that counts from lower down
        self._index, self._counted_value, self._search_words, self._trim_object = (
            index,
            counted_value,
            search_words,
            trim_object,
        )
        self._groups: dict[str, set[Key]] = defaultdict(set)
        self._counts: dict[str, dict[Hashable, int]] = defaultdict(dict)
        self._keys_by_word: dict[tuple[str, str], dict[Key, None]] = defaultdict(dict)  # by group and word

    @property
    def weight(self) -> int:
        """The memory that all of them take."""
        return self._own_weight + self._part_table.weight

    def set_handler(self, on_change: ChangeHandler) -> None:
        """Tell somebody else of each change from now on."""
        self._on_change = on_change

    def notify(self, before: Raw | None = None, after: Raw | None = None) -> None:
        """Tell of a change that no object here shows: what is read beside it, or that this kind can be read at all."""
        self._on_change(before, after)

    def __iter__(self) -> Iterator[Raw]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> Raw | None:
        return self._objects.get(key)

    def by_name(self, name: str) -> Raw | None:
        """A cluster-scoped object."""
        return self._objects.get(("", name))

    def read_cached(self, raw: Raw, read: Callable[[Raw], ReadT]) -> ReadT:
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

    def read_all_cached(self, read: Callable[[Raw], ReadT]) -> Mapping[Key, ReadT]:
        """The same of all that are held, not to be changed: for whoever goes through thousands again and again. Only those that have
        changed since are looked at."""
        if read not in self._all_readings:
            self._all_readings[read] = {}, dict.fromkeys(self._objects, True)
        found, stale = self._all_readings[read]
        for key, anew in stale.items():
            if anew:  # it stands where it came last, as in the store
                found.pop(key, None)
            if (raw := self._objects.get(key)) is not None:
                found[key] = self.read_cached(raw, read)
        stale.clear()
        return found

    def by_index(self, value: str) -> list[Raw]:
        """The objects for which the index gives this value."""
        return [self._objects[key] for key in self._groups.get(value, ())]

    def value_counts(self, value: str) -> Mapping[Any, int]:
        """The counted values of that group's objects, and how many have each; never empty ones, and not to be changed."""
        return self._counts.get(value, {})

    def group_matches(self, value: str, word: str) -> list[Raw]:
        """The objects of that group which this word finds."""
        return [self._objects[key] for key in self._keys_by_word.get((value, word), ())]

    def all_matches(self, word: str) -> Iterator[Raw]:
        """The objects of all groups which this word finds."""
        return (raw for group in list(self._groups) for raw in self.group_matches(group, word))

    def note_version(self, seen_version: str) -> None:
        """Note that the cluster has come to this version."""
        self.newest_version = max(self.newest_version, parse_version(seen_version))

    def replace(self, objects: Iterable[Raw], listed_at: str = "", *, restored: bool = False) -> int:
        """Take a full list that comes in one piece, as `listing` says. Returns how much of it was not taken in."""
        listing = self.begin_listing(listed_at, restored=restored)
        listing.take_page(objects)
        listing.finish()
        return listing.refused_count

    def begin_listing(self, listed_at: str, *, restored: bool = False) -> "Listing":
        """Begin to take a full list as of a version: what it does not hold is gone, and what it holds is so, but for what is newer
        than the list. One that began before is given up.

        An object may be older in it than we knew it: its etcd came back from a backup and counts on from higher up. Where it
        counts from lower down (`restored`), nothing that we knew is newer: it is of a time that never was.
        """
        self._restoring = restored
        return Listing(self, parse_version(listed_at), restored=restored)

    def clear(self) -> None:
        """Drop everything, as if it had never been read. Nobody is told: whoever calls this has said that nothing can be seen."""
        for known in (
            self._objects,
            self._readings,
            self._holders,
            self._deletions,
            self._groups,
            self._counts,
            self._keys_by_word,
        ):
            known.clear()
        self._all_readings.clear()
        self.change_count += 1
        self._part_table, self._own_weight = PartTable(), 0
        self.synced, self._restoring = False, False

    def _finish_listing(self, listed_version: int, *, restored: bool) -> None:
        """Note that it is as a full list of this version says."""
        self._deletions.clear()  # the floor stands for them: what comes late is older than this list
        self._listed_version = listed_version
        self.newest_version = listed_version if restored else max(self.newest_version, listed_version)
        self.synced, self._restoring = True, False

    def put(self, raw: Raw) -> str:
        """Take a newer state, from a watch or from the answer to our own write; an older one is ignored. Returns why it was not
        taken in, if it is no object.

        Versions of one kind in one cluster can be compared as numbers (Kubernetes KEP-5504).
        """
        try:
            kept = self._accept_object(raw)
        except MalformedObject as why:
            return str(why)
        if self._restoring:  # it may be of the time before; the watch tells what is not
            return ""
        key, at = key_of(kept), version_of(kept)
        self.newest_version = max(self.newest_version, at)
        before = self._objects.get(key)
        known = version_of(before) if before is not None else max(self._listed_version, self._deleted_version(key))
        if at > known:  # else an answer to our own write, say, after the watch has told of the deletion
            self._store_object(key, kept)
        return ""

    def _accept_object(self, raw: Raw) -> Raw:
        """The object as it is kept; raises Odd for what is none, so that all that is reckoned of it later can be reckoned."""
        if why := well_formed.malformed_reason(raw):
            raise MalformedObject(why)
        try:
            kept = self._trim_object(raw)
            self._group_and_value(kept)
            self._search_words(kept)
        except UNREADABLE as error:
            raise MalformedObject(f"it cannot be read ({type(error).__name__})") from None
        return kept

    def _group_and_value(self, raw: Raw) -> tuple[str, Hashable]:
        """Its group and its counted value, empty where there is none."""
        group = self._index(raw) if self._index else ""
        return group, self._counted_value(raw) if self._counted_value else ""

    def _store_object(self, key: Key, raw: Raw, holder: PartHolder | None = None) -> None:
        """`holder`: what it holds of this store's parts already."""
        group, counted = self._group_and_value(raw)
        kept = self._intern_object(
            key, raw, holder
        )  # first: what it makes of somebody's nonsense leaves the index as it is
        self._remove_from_index(key)
        before = self._swap_object(key, kept)
        if self._index:
            self._groups[group].add(key)
            for word in self._search_words(raw):
                self._keys_by_word[group, word][key] = None
            if counted:
                self._counts[group][counted] = self._counts[group].get(counted, 0) + 1
        self._on_change(before, kept)

    def remove(self, raw: Raw) -> str:
        """Take a deletion; that of an earlier object of the same name is ignored. Returns why it says nothing, if it is no object."""
        if why := well_formed.malformed_reason(raw):
            return why
        key = key_of(raw)
        self.newest_version = max(self.newest_version, version_of(raw))
        before = self._objects.get(key)
        self._note_deletion(key, version_of(raw))
        same = before is not None and meta(before).get("uid") == meta(raw).get("uid")
        if (
            same and before is not None and version_of(raw) >= version_of(before)
        ):  # an older one is told again after a cut
            self._remove_object(key)
        return ""

    def _deleted_version(self, key: Key) -> int:
        return self._deletions.get(key, (-1, 0.0))[0]

    def _note_deletion(self, key: Key, at: int) -> None:
        now, last = time.monotonic(), self._deleted_version(key)
        self._deletions.pop(key, None)
        self._deletions[key] = max(at, last), now
        while (oldest := next(iter(self._deletions))) != key and now - self._deletions[oldest][1] > REMEMBERED_SECONDS:
            del self._deletions[oldest]

    def _remove_object(self, key: Key) -> None:
        self._remove_from_index(key)
        self._release_parts(self._holders.pop(key))
        self._on_change(self._swap_object(key, None), None)

    def _swap_object(self, key: Key, raw: Raw | None) -> Raw | None:
        """Hold another state of an object, or none any more: of one object this is done here alone, for what was read of the state
        before goes with it, and the change is counted. Returns that state."""
        before = self._objects.get(key)
        if raw is None:
            del self._objects[key]
        else:
            self._objects[key] = raw
        self._readings.pop(key, None)
        self._mark_stale(key, anew=raw is None or before is None)
        self.change_count += 1
        return before

    def _mark_stale(self, key: Key, *, anew: bool) -> None:
        """Note for whoever goes through all that an object is another one. Who has not done so for long begins from the start: what is noted
        for him would not end, for names come and go."""
        for read, (_, stale) in list(self._all_readings.items()):
            if anew:
                stale.pop(key, None)
            stale[key] = anew or stale.get(key, False)
            if len(stale) > 2 * len(self._objects) + OBJECTS_AT_ONCE:
                del self._all_readings[read]

    def _intern_object(self, key: Key, raw: Raw, known: PartHolder | None) -> Raw:
        """Another state of an object, of parts that others have as well: those of the state before are let go after that."""
        kept, holder = (raw, known) if known else self._part_table.intern_object(raw)
        if before := self._holders.get(key):
            self._release_parts(before)
        self._holders[key] = holder
        self._own_weight += holder.weight
        return kept

    def _release_parts(self, holder: PartHolder) -> None:
        self._own_weight -= holder.weight
        self._part_table.release_parts(holder)

    def _remove_from_index(self, key: Key) -> None:
        if self._index and key in self._objects:
            group, counted = self._group_and_value(self._objects[key])
            self._groups[group].discard(key)
            for word in self._search_words(self._objects[key]):
                self._remove_word(key, group, word)
            if counted:
                self._remove_count(group, counted)
            if not self._groups[group]:
                del self._groups[group]
                self._counts.pop(group, None)

    def _remove_word(self, key: Key, group: str, word: str) -> None:
        if like := self._keys_by_word.get((group, word)):
            like.pop(key, None)
            if not like:
                del self._keys_by_word[group, word]

    def _remove_count(self, group: str, counted: Hashable) -> None:
        self._counts[group][counted] -= 1
        if not self._counts[group][counted]:
            del self._counts[group][counted]


class Listing:
    """A full list that comes page by page.

    What it changes is held back until its end and goes in as a whole: whoever looks meanwhile sees what was true before. What
    weighs more than `HELD` goes in sooner, so that two states of everything are never kept: each is one that its object came to,
    and only what is gone is still there. One that is given up before its end leaves behind what went in, and nothing else.
    """

    def __init__(self, store: Store, listed_version: int, *, restored: bool) -> None:
        self._store, self._listed_version, self._restored = store, listed_version, restored
        self._pending: dict[Key, tuple[Raw, PartHolder]] = {}
        self._listed_keys: set[Key] = set()
        self._part_table = PartTable()  # what those that are held have in common
        self._own_weight, self._unused_weight = 0, 0  # the weight of what is theirs alone, and of what nothing comes of
        self.refused_count, self.first_refusal = (
            0,
            "",
        )  # how much of it was not taken in, and why the first of it was not

    @property
    def weight(self) -> int:
        """The memory that it takes beside its store. What is no object, or comes again, counts as if it were kept: a list of nothing
        else would have no end."""
        return self._pending_weight + self._unused_weight + _KEY_BYTES * len(self._listed_keys)

    @property
    def _pending_weight(self) -> int:
        return self._own_weight + self._part_table.weight

    def take_page(self, objects: Iterable[Raw]) -> None:
        """Take a page."""
        for raw in objects:
            try:
                self._take_object(self._store._accept_object(raw))
            except MalformedObject as why:
                self.refused_count, self.first_refusal = self.refused_count + 1, self.first_refusal or str(why)
                self._unused_weight += object_size.weigh_object(raw)
        if self._store.synced and self._pending_weight > PENDING_BYTES:
            self._store_pending()

    def _take_object(self, raw: Raw) -> None:
        key = key_of(raw)
        known = self._store.get(key)
        if key in self._listed_keys:  # an API server names each object once
            self._unused_weight += object_size.weigh_object(raw)
        elif known is not None and known == raw:
            self._listed_keys.add(key_of(known))  # nothing of what came is kept
        else:
            self._listed_keys.add(key)
            self._pending[key] = _, holder = self._part_table.intern_object(raw)
            self._own_weight += holder.weight

    def _store_pending(self, most: int | None = None) -> None:
        """Put into the store what is held, or so many of it. It is of this list's version: whoever lists anew is behind it or not, also
        where this one comes to no end."""
        if not self._restored:
            self._store.newest_version = max(self._store.newest_version, self._listed_version)
        ours = self._store._part_table is self._part_table
        for key in list(itertools.islice(self._pending, most)):
            raw, holder = self._pending.pop(key)  # it is in the store next, and not twice
            if not self._is_newer_in_store(key) and self._store.get(key) != raw:
                self._store._store_object(key, raw, holder if ours else None)
            elif ours:
                self._part_table.release_parts(holder)
        if not self._pending:
            self._part_table, self._own_weight = PartTable(), 0

    def finish(self) -> None:
        """Take it that this was all of it."""
        for _ in self.finish_in_steps():
            pass

    def finish_in_steps(self) -> Generator[None]:
        """The same in pieces, where nobody can look meanwhile: a first list may be of ten thousand, and its store is not synced before."""
        store = self._store
        for key in set(store._objects) - self._listed_keys:
            if not self._is_newer_in_store(key):
                store._remove_object(key)
        if not store._objects:
            store._part_table = self._part_table  # they need not be told apart once more
        try:
            while not store.synced and len(self._pending) > OBJECTS_AT_ONCE:
                self._store_pending(OBJECTS_AT_ONCE)
                yield
        except GeneratorExit:
            self._give_up()
            raise
        store._finish_listing(self._listed_version, restored=self._restored)
        self._store_pending()

    def _give_up(self) -> None:
        """Leave nothing behind of what has not gone in: the store knows its parts already."""
        for _, holder in self._pending.values() if self._store._part_table is self._part_table else ():
            self._part_table.release_parts(holder)
        self._pending.clear()

    def _is_newer_in_store(self, key: Key) -> bool:
        """Whether what is known of an object is newer than this list."""
        known = self._store.get(key)
        return not self._restored and known is not None and 0 < self._listed_version < version_of(known)


def version_of(raw: Raw) -> int:
    """An object's version as a number; 0 when it has none."""
    return parse_version(str(meta(raw).get("resourceVersion") or ""))


def parse_version(text: str) -> int:
    """A version as a number; 0 for what is none. etcd counts in 63 bits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
