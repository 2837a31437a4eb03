"""Stores the last state of each object of one kind in one cluster, as list and watch delivered it.

Readers must do nothing on a store that is not synced. Objects are never changed in place: they share parts
(`interning.py`). Malformed items (`objects.well_formed`) are rejected.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from adapter.objects import trim, well_formed
from adapter.objects.unstructured import UNREADABLE, Key, Raw, key_of, meta, parse_version, version_of
from adapter.shell.kube import object_size
from adapter.shell.kube.interning import PartHolder
from adapter.shell.kube.weight_accounts import WeightAccounts

ChangeHandler = Callable[[Raw | None, Raw | None], None]  # before, after
AcceptNamespace = Callable[[str], bool]
ReadT = TypeVar("ReadT")

# How long a deletion is remembered, because an own write's response may arrive after it. The client waits 10 s for a
# response, and the process may be stopped in between.
REMEMBERED_SECONDS = 60.0
# The most weight of changes that a new list holds back from a filled store, beside the page just read. It is one large
# object (`response_limits.OBJECT_BYTES`), little beside a cluster's budget. The changes during a watch's downtime fit,
# unless hundreds of objects changed.
PENDING_BYTES = 4 * 2**20
# The objects of a first list that are stored in one step, in some tens of milliseconds.
OBJECTS_AT_ONCE = 100
# The memory of a listed object's key: a pair, whose texts are the object's, and a set entry.
_KEY_BYTES = 200


def ignore(_: Raw | None, __: Raw | None) -> None:
    """Ignore changes: a later handler reads all objects first."""


def accept_all(_: str) -> bool:
    """Accept the objects of every namespace."""
    return True


class MalformedObject(ValueError):
    """An item is no object of the store's kind; the text is part of a sentence."""


class Store:
    """Objects by namespace and name, with one optional index, and another one by the uid of an owner.

    Within an index group, objects are counted by `counted_value` and found by `search_words`. A `metered` store counts
    the weight of each namespace, and takes no object of a namespace that `accept_namespace` refuses.
    """

    def __init__(
        self,
        on_change: ChangeHandler = ignore,
        *,
        index: Callable[[Raw], str] | None = None,
        counted_value: Callable[[Raw], Hashable] | None = None,
        search_words: Callable[[Raw], Collection[str]] = lambda _: (),
        owner: Callable[[Raw], str] = lambda _: "",
        trim_object: Callable[[Raw], Raw] = trim.without_managed_fields,
        metered: bool = False,
    ) -> None:
        self.synced, self.metered = False, metered
        self.accept_namespace: AcceptNamespace = accept_all
        self.newest_version = -1  # of any list, watch or response to a write
        self.change_count = 0
        self._on_change = on_change
        self._objects: dict[Key, Raw] = {}
        self._readings: dict[Key, dict[Callable[[Raw], Any], Any]] = {}  # by read function
        # By read function: results for all objects, and the keys to read again.
        self._all_readings: dict[Callable[[Raw], Any], tuple[dict[Key, Any], dict[Key, bool]]] = {}
        self._holders: dict[Key, PartHolder] = {}
        self._accounts = WeightAccounts(by_namespace=metered)
        self._listing: Listing | None = None  # the unfinished one
        # Version and time of receipt, oldest first.
        self._deletions: dict[Key, tuple[int, float]] = {}
        self._listed_version = -1  # of the last full list
        self._restoring = False  # a cluster that counts from a lower version is being listed
        self._index, self._counted_value, self._search_words, self._trim_object = (
            index,
            counted_value,
            search_words,
            trim_object,
        )
        self._owner, self._keys_by_owner = owner, defaultdict[str, dict[Key, None]](dict)
        self._groups: dict[str, set[Key]] = defaultdict(set)
        self._counts: dict[str, dict[Hashable, int]] = defaultdict(dict)
        self._keys_by_word: dict[tuple[str, str], dict[Key, None]] = defaultdict(dict)  # by group and word

    @property
    def weight(self) -> int:
        return self._accounts.weight

    @property
    def listed_version(self) -> int:
        """The version of the last full list, or -1."""
        return self._listed_version

    @property
    def used_bytes(self) -> int:
        """The weight of the objects, and of an unfinished listing."""
        return self.weight + (self._listing.weight if self._listing else 0)

    def namespace_weight(self, namespace: str) -> int:
        """The weight of a namespace's objects, in a metered store.

        A listing replaces the stored objects, so the larger of both counts.
        """
        listed = self._listing.namespace_weight(namespace) if self._listing else 0
        return max(self._accounts.namespace_weight(namespace), listed)

    def weighed_namespaces(self) -> set[str]:
        """The namespaces with objects, in a metered store."""
        listed = self._listing.weighed_namespaces() if self._listing else set()
        return {*self._accounts.namespaces(), *listed} - {""}

    def drop_namespace(self, namespace: str) -> None:
        """Drop a namespace's objects without notification.

        An unfinished listing drops them as well, and leaves alone the ones that are stored later.
        """
        for key in [key for key in self._objects if key[0] == namespace]:
            self._remove_from_index(key)
            del self._holders[key]
            self._swap_object(key, None)
        self._accounts.drop(namespace)
        if self._listing:
            self._listing.drop_namespace(namespace)

    def reload_object(self, raw: Raw) -> None:
        """Store a listed object of a namespace that was dropped, without notification.

        A watch goes on meanwhile: what it has stored or deleted since is newer.
        """
        try:
            trimmed = self._accept_object(raw)
        except MalformedObject:
            return
        key, version = key_of(trimmed), version_of(trimmed)
        known = self._objects.get(key)
        if version > (self._deleted_version(key) if known is None else version_of(known)):
            self._store_object(key, trimmed, notify=False)

    def set_handler(self, on_change: ChangeHandler) -> None:
        self._on_change = on_change

    def notify(self, before: Raw | None = None, after: Raw | None = None) -> None:
        """Notify the handler of a change in related data, or that this kind became readable."""
        self._on_change(before, after)

    def __iter__(self) -> Iterator[Raw]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> Raw | None:
        return self._objects.get(key)

    def by_name(self, name: str) -> Raw | None:
        return self._objects.get(("", name))

    def read_cached(self, raw: Raw, read: Callable[[Raw], ReadT]) -> ReadT:
        """The result of `read`, cached while this version of the object is stored.

        `read` must be one function, not a closure for each call.
        """
        key = key_of(raw)
        if self._objects.get(key) is not raw:
            return read(raw)
        results = self._readings.setdefault(key, {})
        if read not in results:
            results[read] = read(raw)
        result: ReadT = results[read]
        return result

    def read_all_cached(self, read: Callable[[Raw], ReadT]) -> Mapping[Key, ReadT]:
        """Cached results for all objects, not to be changed."""
        if read not in self._all_readings:
            self._all_readings[read] = {}, dict.fromkeys(self._objects, True)
        results, stale = self._all_readings[read]
        for key, moves_last in stale.items():
            if moves_last:  # results keep the order of the store
                results.pop(key, None)
            if (raw := self._objects.get(key)) is not None:
                results[key] = self.read_cached(raw, read)
        stale.clear()
        return results

    def by_index(self, value: str) -> list[Raw]:
        return [self._objects[key] for key in self._groups.get(value, ())]

    def owned_by(self, uid: str) -> list[Raw]:
        return [self._objects[key] for key in self._keys_by_owner.get(uid, ())]

    def value_counts(self, value: str) -> Mapping[Any, int]:
        """Counts of a group's non-empty counted values, not to be changed."""
        return self._counts.get(value, {})

    def group_matches(self, value: str, word: str, most: int | None = None) -> list[Raw]:
        """The objects of a group with a search word, or `most` of them."""
        return [self._objects[key] for key in itertools.islice(self._keys_by_word.get((value, word), ()), most)]

    def all_matches(self, word: str) -> Iterator[Raw]:
        return (raw for group in list(self._groups) for raw in self.group_matches(group, word))

    def note_version(self, seen_version: str) -> None:
        self.newest_version = max(self.newest_version, parse_version(seen_version))

    def replace(self, objects: Iterable[Raw], listed_at: str = "", *, restored: bool = False) -> int:
        """Replace the objects by a list; returns the number of rejected items."""
        listing = self.begin_listing(listed_at, restored=restored)
        listing.take_page(objects)
        listing.finish()
        return listing.refused_count

    def begin_listing(self, listed_at: str, *, restored: bool = False) -> "Listing":
        """Begin to replace the objects by a full list, except newer objects; an unfinished listing is abandoned.

        An object may be older in the list than in the store, if etcd was restored and counts on from a higher version.
        If etcd counts from a lower version (`restored`), no stored object is newer.
        """
        self._restoring = restored
        self._listing = Listing(self, parse_version(listed_at), restored=restored)
        return self._listing

    def abandon_listing(self) -> None:
        """Drop an unfinished listing, of which no more pages come."""
        self._listing = None

    def clear(self) -> None:
        """Drop all objects without notification: the caller has reported the cluster as unreachable."""
        for table in (
            self._objects,
            self._readings,
            self._holders,
            self._deletions,
            self._groups,
            self._counts,
            self._keys_by_word,
            self._keys_by_owner,
        ):
            table.clear()
        self._all_readings.clear()
        self.change_count += 1
        self._accounts, self._listing = WeightAccounts(by_namespace=self.metered), None
        self.synced, self._restoring = False, False

    def _finish_listing(self, listed_version: int, *, restored: bool) -> None:
        self._deletions.clear()  # `_listed_version` replaces them: a delayed response is older than this list
        self._listed_version = listed_version
        self.newest_version = listed_version if restored else max(self.newest_version, listed_version)
        self.synced, self._restoring = True, False
        self._listing = None

    def put(self, raw: Raw) -> str:
        """Store a newer state, from a watch or an own write's response; returns a rejection's reason, or empty.

        Versions of one kind in one cluster compare as numbers (Kubernetes KEP-5504).
        """
        try:
            trimmed = self._accept_object(raw)
        except MalformedObject as error:
            return str(error)
        if self._restoring:  # the object may date from before the restore; the watch delivers newer ones
            return ""
        key, version = key_of(trimmed), version_of(trimmed)
        self.newest_version = max(self.newest_version, version)
        if not self.accept_namespace(key[0]):
            return ""
        before = self._objects.get(key)
        known = version_of(before) if before is not None else max(self._listed_version, self._deleted_version(key))
        if version > known:  # false for an own write's response after the deletion's event
            self._store_object(key, trimmed)
        return ""

    def _accept_object(self, raw: Raw) -> Raw:
        if problem := well_formed.malformed_reason(raw):
            raise MalformedObject(problem)
        try:
            trimmed = self._trim_object(raw)
            self._group_and_value(trimmed)
            self._search_words(trimmed)
            self._owner(trimmed)
        except UNREADABLE as error:
            raise MalformedObject(f"it cannot be read ({type(error).__name__})") from None
        return trimmed

    def _group_and_value(self, raw: Raw) -> tuple[str, Hashable]:
        group = self._index(raw) if self._index else ""
        return group, self._counted_value(raw) if self._counted_value else ""

    def _store_object(self, key: Key, raw: Raw, holder: PartHolder | None = None, *, notify: bool = True) -> None:
        group, counted = self._group_and_value(raw)
        interned = self._intern_object(key, raw, holder)  # first: if it raises, the index is unchanged
        self._remove_from_index(key)
        before = self._swap_object(key, interned)
        if self._index:
            self._groups[group].add(key)
            for word in self._search_words(raw):
                self._keys_by_word[group, word][key] = None
            if counted:
                self._counts[group][counted] = self._counts[group].get(counted, 0) + 1
        if owner := self._owner(raw):
            self._keys_by_owner[owner][key] = None
        if notify:
            self._on_change(before, interned)

    def remove(self, raw: Raw) -> str:
        """Delete an object, but not a later object of the same name; returns a rejection's reason, or empty."""
        if problem := well_formed.malformed_reason(raw):
            return problem
        key = key_of(raw)
        self.newest_version = max(self.newest_version, version_of(raw))
        before = self._objects.get(key)
        self._note_deletion(key, version_of(raw))
        is_same = before is not None and meta(before).get("uid") == meta(raw).get("uid")
        # An older deletion may be delivered again after a cut.
        if is_same and before is not None and version_of(raw) >= version_of(before):
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
        self._accounts.release(key[0], self._holders.pop(key))
        self._on_change(self._swap_object(key, None), None)

    def _swap_object(self, key: Key, raw: Raw | None) -> Raw | None:
        """Replace an object's state, or delete it with None; returns the state before.

        All changes pass here: cached results are dropped.
        """
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
        """Mark an object for reading again; `anew`: it was added or deleted.

        Results that were not read for long are dropped, because their marks would grow with every new name.
        """
        for read, (_, stale) in list(self._all_readings.items()):
            if anew:
                stale.pop(key, None)
            stale[key] = anew or stale.get(key, False)
            if len(stale) > 2 * len(self._objects) + OBJECTS_AT_ONCE:
                del self._all_readings[read]

    def _intern_object(self, key: Key, raw: Raw, known: PartHolder | None) -> Raw:
        interned, holder = (raw, known) if known else self._accounts.intern(key[0], raw)
        if before := self._holders.get(key):
            self._accounts.release(key[0], before)
        self._holders[key] = holder
        return interned

    def _remove_from_index(self, key: Key) -> None:
        self._remove_owner(key)
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

    def _remove_owner(self, key: Key) -> None:
        owner = self._owner(self._objects[key]) if key in self._objects else ""
        if owned := self._keys_by_owner.get(owner):
            owned.pop(key, None)
            if not owned:
                del self._keys_by_owner[owner]

    def _remove_word(self, key: Key, group: str, word: str) -> None:
        if matches := self._keys_by_word.get((group, word)):
            matches.pop(key, None)
            if not matches:
                del self._keys_by_word[group, word]

    def _remove_count(self, group: str, counted: Hashable) -> None:
        self._counts[group][counted] -= 1
        if not self._counts[group][counted]:
            del self._counts[group][counted]


class Listing:
    """A full list that is stored page by page.

    Changes are held back until the listing's end. Beyond PENDING_BYTES they are stored sooner, so that two states of
    everything are never in memory. Until the end, each stored object is then in a state that it really had, and deleted
    objects are still stored. An abandoned listing leaves only the changes already stored.
    """

    def __init__(self, store: Store, listed_version: int, *, restored: bool) -> None:
        self._store, self._listed_version, self._restored = store, listed_version, restored
        self._pending: dict[Key, tuple[Raw, PartHolder]] = {}
        self._listed_keys: set[Key] = set()
        self._accounts = WeightAccounts(by_namespace=store.metered)  # of pending objects
        self._unused_weight = 0  # of items not stored
        # Of these, not all objects were taken. Their stored objects are newer than this list: see `reload_object`.
        self._skipped_namespaces: set[str] = set()
        self.refused_count, self.first_refusal = 0, ""

    @property
    def weight(self) -> int:
        """The listing's memory beside the store's.

        Malformed and repeated items count too, so that an endless list of them exceeds the budget.
        """
        pending_weight = 0 if self._store._accounts is self._accounts else self._accounts.weight
        return pending_weight + self._unused_weight + _KEY_BYTES * len(self._listed_keys)

    def namespace_weight(self, namespace: str) -> int:
        return self._accounts.namespace_weight(namespace)

    def weighed_namespaces(self) -> set[str]:
        return self._accounts.namespaces()

    def drop_namespace(self, namespace: str) -> None:
        self._skipped_namespaces.add(namespace)
        self._pending = {key: pending for key, pending in self._pending.items() if key[0] != namespace}
        self._listed_keys = {key for key in self._listed_keys if key[0] != namespace}
        self._accounts.drop(namespace)

    def take_page(self, objects: Iterable[Raw]) -> None:
        for raw in objects:
            try:
                self._take_object(self._store._accept_object(raw))
            except MalformedObject as error:
                self.refused_count, self.first_refusal = self.refused_count + 1, self.first_refusal or str(error)
                self._unused_weight += object_size.weigh_object(raw)
        if self._store.synced and self._accounts.weight > PENDING_BYTES:
            self._store_pending()

    def _take_object(self, raw: Raw) -> None:
        key = key_of(raw)
        if not self._store.accept_namespace(key[0]):
            self._skipped_namespaces.add(key[0])
            return
        known = self._store.get(key)
        if key in self._listed_keys:  # an API server names each object once
            self._unused_weight += object_size.weigh_object(raw)
        elif known is not None and known == raw:
            self._listed_keys.add(key_of(known))  # the stored object's key, so that the new one is freed
        else:
            self._listed_keys.add(key)
            self._pending[key] = self._accounts.intern(key[0], raw)

    def _store_pending(self, most: int | None = None) -> None:
        """Store the pending objects, or `most` of them.

        The store takes this list's version even if the listing does not end, because a later list is compared with that
        version.
        """
        if not self._restored:
            self._store.newest_version = max(self._store.newest_version, self._listed_version)
        shares_accounts = self._store._accounts is self._accounts
        for key in list(itertools.islice(self._pending, most)):
            raw, holder = self._pending.pop(key)  # popped first, so that the object is never in memory twice
            if not self._is_newer_in_store(key) and self._store.get(key) != raw:
                self._store._store_object(key, raw, holder if shares_accounts else None)
            elif shares_accounts:
                self._accounts.release(key[0], holder)
        if not self._pending:
            self._accounts = WeightAccounts(by_namespace=self._store.metered)

    def finish(self) -> None:
        """Complete the list: delete objects that it lacks."""
        for _ in self.finish_in_steps():
            pass

    def finish_in_steps(self) -> Generator[None]:
        """Complete the list; yield between the steps of the store's first list, of perhaps ten thousand objects.

        The store is not synced before the last step, so no reader uses a part of the list.
        """
        store = self._store
        for key in set(store._objects) - self._listed_keys:
            if not (key[0] in self._skipped_namespaces or self._is_newer_in_store(key)):
                store._remove_object(key)
        if not store._objects:
            store._accounts = self._accounts  # objects need not be interned again
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
        """Release pending objects: their parts may be in the store's table already."""
        for key, (_, holder) in self._pending.items() if self._store._accounts is self._accounts else ():
            self._accounts.release(key[0], holder)
        self._pending.clear()

    def _is_newer_in_store(self, key: Key) -> bool:
        known = self._store.get(key)
        return not self._restored and known is not None and 0 < self._listed_version < version_of(known)
