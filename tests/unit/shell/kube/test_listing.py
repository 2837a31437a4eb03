"""A list in pages leaves a store as a list in one piece does, and never holds everything twice."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.unstructured import Key, Raw, key_of, label, meta, uid_of, version_of
from adapter.shell.kube import object_size
from adapter.shell.kube import store as stores
from adapter.shell.kube.store import Listing, Store

NAMES = "abcd"


def thing(name: str = "a", at: int = 1, *, uid: str = "", size: int = 0) -> dict[str, Any]:
    metadata = {"namespace": "demo", "name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(at)}
    return {"metadata": metadata | {"labels": {"group": "xy"[at % 2]}}, "text": f"{name}{at}" + "." * size}


def paged(objects: Sequence[Raw], size: int) -> Iterator[Sequence[Raw]]:
    return (objects[start : start + size] for start in range(0, len(objects), size))


class Heard:
    """A store with an index, and its notifications."""

    def __init__(self) -> None:
        self.changes: list[tuple[Raw | None, Raw | None]] = []
        self.store = Store(self._note, index=lambda raw: label(raw, "group"), counted_value=lambda raw: raw["text"])

    def _note(self, before: Raw | None, after: Raw | None) -> None:
        self.changes.append((before, after))

    def gone(self) -> list[str]:
        return [before["text"] for before, after in self.changes if before and after is None]

    def texts(self) -> set[str]:
        return {raw["text"] for raw in self.store}


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def all_goes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is held back."""
    monkeypatch.setattr(stores, "PENDING_BYTES", 0)


# --- what it changes -------------------------------------------------------------------------------------------------


def test_the_changes_of_a_list_are_shown_at_once(heard: Heard) -> None:
    heard.store.replace([thing("a", 1), thing("b", 2)], "5")
    heard.changes.clear()
    listing = heard.store.begin_listing("9")
    listing.take_page([thing("a", 7)])
    listing.take_page([thing("c", 8)])
    assert (heard.texts(), heard.changes) == ({"a1", "b2"}, [])
    listing.finish()
    assert (heard.texts(), heard.gone()) == ({"a7", "c8"}, ["b2"])


@pytest.mark.usefixtures("all_goes_in")
def test_a_restore_to_a_version_before_an_incomplete_list_is_noticed(heard: Heard) -> None:
    """What went in of it may be of a time that never was."""
    heard.store.replace([thing("a", 1)], "4")
    heard.store.begin_listing("6").take_page([thing("a", 6)])
    assert heard.store.newest_version == 6
    heard.store.begin_listing("5", restored=heard.store.newest_version > 5).finish()
    assert (heard.texts(), heard.store.newest_version) == (set(), 5)


@pytest.mark.usefixtures("all_goes_in")
def test_large_pages_are_stored_before_the_end_without_deletions(heard: Heard) -> None:
    heard.store.replace([thing("a", 1), thing("b", 2)], "5")
    listing = heard.store.begin_listing("9")
    listing.take_page([thing("a", 7)])
    assert heard.texts() == {"a7", "b2"}
    listing.take_page([thing("c", 8)])
    assert (heard.texts(), heard.gone()) == ({"a7", "b2", "c8"}, [])
    listing.finish()
    assert (heard.texts(), heard.gone()) == ({"a7", "c8"}, ["b2"])


@pytest.mark.usefixtures("all_goes_in")
def test_a_first_list_is_shown_at_its_end_whatever_its_size(heard: Heard) -> None:
    """Half of one is a list in which most is missing."""
    listing = heard.store.begin_listing("9")
    listing.take_page([thing("a", 7)])
    listing.take_page([thing("b", 8)])
    assert (heard.texts(), heard.store.synced) == (set(), False)
    listing.finish()
    assert (heard.texts(), heard.store.synced) == ({"a7", "b8"}, True)


@pytest.mark.usefixtures("all_goes_in")
def test_an_incomplete_list_leaves_newer_states_and_deletes_nothing(heard: Heard) -> None:
    heard.store.replace([thing("a", 1), thing("b", 2)], "5")
    heard.store.begin_listing("9").take_page([thing("a", 7)])
    assert (heard.texts(), heard.store.synced, heard.gone()) == ({"a7", "b2"}, True, [])
    heard.store.put(thing("b", 6))
    assert heard.texts() == {"a7", "b6"}, "the answer to a write counts as ever"
    heard.store.replace([thing("a", 7)], "10")
    assert (heard.texts(), heard.gone()) == ({"a7"}, ["b6"])


@pytest.mark.usefixtures("all_goes_in")
def test_an_answer_newer_than_the_list_is_kept(heard: Heard) -> None:
    heard.store.replace([thing("a", 1), thing("b", 2), thing("c", 3)], "5")
    listing = heard.store.begin_listing("9")
    listing.take_page([thing("a", 7)])
    for newer in (thing("a", 10), thing("b", 11), thing("c", 12), thing("d", 13)):
        heard.store.put(newer)
    listing.take_page([thing("b", 8)])
    listing.finish()
    assert (heard.texts(), heard.gone()) == ({"a10", "b11", "c12", "d13"}, [])


@pytest.mark.usefixtures("all_goes_in")
def test_answers_during_the_list_of_a_restored_cluster_are_ignored(heard: Heard) -> None:
    """It may precede the restore and have a higher version, so that no watch event would be newer."""
    heard.store.replace([thing("a", 90), thing("b", 95)], "100")
    listing = heard.store.begin_listing("50", restored=True)
    listing.take_page([thing("a", 40)])
    assert heard.texts() == {"a40", "b95"}
    heard.store.put(thing("a", 120))
    heard.store.put(thing("c", 121))
    assert heard.store.newest_version == 100, "until the end: a list that is begun anew is of a restored cluster, too"
    listing.finish()
    assert (heard.texts(), heard.store.newest_version) == ({"a40"}, 50)
    heard.store.put(thing("a", 51))
    assert heard.texts() == {"a51"}


def test_an_incomplete_list_of_a_restored_cluster_is_dropped_by_the_next(heard: Heard) -> None:
    heard.store.replace([thing("a", 90)], "100")
    heard.store.begin_listing("50", restored=True).take_page([thing("a", 40)])
    listing = heard.store.begin_listing("101")
    heard.store.put(thing("b", 102))
    listing.take_page([thing("a", 60)])
    listing.finish()
    assert heard.texts() == {"a60", "b102"}


def test_a_store_forgotten_during_a_list_is_filled_as_for_the_first_time(heard: Heard) -> None:
    heard.store.replace([thing("a", 90)], "100")
    heard.store.begin_listing("50", restored=True)
    heard.store.clear()
    heard.store.put(thing("b", 101))
    assert heard.texts() == {"b101"}


# --- what it weighs --------------------------------------------------------------------------------------------------


def test_unchanged_objects_are_not_kept_twice(heard: Heard) -> None:
    there = [thing(str(number), 1, size=5_000) for number in range(50)]
    heard.store.replace(there, "5")
    heard.changes.clear()
    known = list(heard.store)
    listing = heard.store.begin_listing("9")
    for page in paged([thing(str(number), 1, size=5_000) for number in range(50)], 10):
        listing.take_page(page)
    assert listing.weight < object_size.weigh_object(there) / 20
    listing.finish()
    assert heard.changes == []
    assert all(heard.store.get(key_of(one)) is one for one in known) and len(known) == len(there)


@pytest.mark.parametrize("held", [0, 60_000])
@given(
    sizes=st.lists(st.integers(0, 20_000), min_size=1, max_size=30),
    changed=st.integers(0, 2**30),
    per=st.integers(1, 9),
)
def test_a_list_beside_a_store_weighs_at_most_one_list_and_one_page(
    held: int, sizes: list[int], changed: int, per: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "PENDING_BYTES", held)
        store = Store()
        store.replace([thing(str(at), 1, size=size) for at, size in enumerate(sizes)], "5")
        fresh = [thing(str(at), 1 + (changed >> at & 1), size=size) for at, size in enumerate(sizes)]
        most, listing = store.weight, store.begin_listing("9")
        for page in paged(fresh, per):
            most = max(most, store.weight + listing.weight + object_size.weigh_object(page))
            listing.take_page(page)
            most = max(most, store.weight + listing.weight)
        listing.finish()
        assert store.weight == sum(map(object_size.weigh_object, fresh))
        assert most <= store.weight + held + max(
            map(object_size.weigh_object, paged(fresh, per))
        ) + stores._KEY_BYTES * len(fresh)


@pytest.mark.parametrize(
    "idle",
    [
        pytest.param(thing("a", 1, size=9_000), id="an object that was listed before"),
        pytest.param({"x": "." * 9_000}, id="an item that is no object"),
    ],
)
def test_items_without_effect_count_for_the_budget(heard: Heard, idle: Any) -> None:
    """Otherwise an endless list of such items would be read for ever."""
    heard.store.replace([thing("a", 1, size=9_000)], "5")
    listing = heard.store.begin_listing("9")
    listing.take_page([thing("a", 1, size=9_000)])
    before = listing.weight
    for _ in range(5):
        listing.take_page([idle])
    assert listing.weight - before > 5 * 9_000


# --- properties ------------------------------------------------------------------------------------------------------

OBJECTS = st.builds(thing, st.sampled_from(NAMES), st.integers(1, 20), uid=st.sampled_from(["u", "v"]))
LISTS = st.lists(OBJECTS, unique_by=key_of, max_size=4)


def whole(known: Iterable[Raw], objects: Iterable[Raw], listed: int, *, restored: bool) -> set[str]:
    """What a store holds after a list that came at once."""
    newer = {key_of(raw): raw for raw in known if not restored and version_of(raw) > listed > 0}
    return {raw["text"] for raw in {**{key_of(raw): raw for raw in objects}, **newer}.values()}


@given(
    known=LISTS,
    written=st.lists(OBJECTS, max_size=4),
    objects=LISTS,
    listed=st.integers(0, 25),
    per=st.integers(1, 4),
    held=st.sampled_from([0, 500, 10**6]),
    restored=st.booleans(),
    fresh=st.booleans(),
)
def test_pages_give_the_result_of_one_list(
    known: list[Raw],
    written: list[Raw],
    objects: list[Raw],
    listed: int,
    per: int,
    held: int,
    restored: bool,
    fresh: bool,
) -> None:
    heard = Heard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "PENDING_BYTES", held)
        if not fresh:
            heard.store.replace(known, "10")
        for one in written:
            heard.store.put(one)
        right, shown = whole(list(heard.store), objects, listed, restored=restored), heard.texts()
        heard.changes.clear()
        listing = heard.store.begin_listing(str(listed), restored=restored)
        for page in paged(objects, per):
            listing.take_page(page)
            assert heard.store.synced != fresh and heard.gone() == []
            if fresh or held > 500:
                assert heard.texts() == shown
        listing.finish()
    assert heard.texts() == right and heard.store.synced
    assert heard.store.weight == sum(map(object_size.weigh_object, heard.store))
    for value in "xy":
        assert {raw["text"] for raw in heard.store.by_index(value)} == set(heard.store.value_counts(value))
    assert all(before != after for before, after in heard.changes), "what is as it was is no news"


STEPS = st.one_of(
    st.tuples(st.just("begin"), st.integers(0, 25), st.booleans()),
    st.tuples(st.just("page"), LISTS),
    st.tuples(st.just("end")),
    st.tuples(st.sampled_from(("put", "remove")), OBJECTS),
    st.tuples(st.just("forget")),
)


@given(steps=st.lists(STEPS, min_size=2, max_size=14), held=st.sampled_from([0, 500, 10**6]))
def test_parsed_values_always_belong_to_the_stored_state(steps: list[tuple[Any, ...]], held: int) -> None:
    """For any history: nothing of a deleted object stays, and the count of changes shows every change."""
    told = list[int]()  # the count of changes when each was told

    def tell(_: Raw | None, after: Raw | None) -> None:
        told.append(store.change_count)
        assert after is None or (store.get(key_of(after)) is after and store.read_cached(after, _read) == _read(after))

    store = Store(tell)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "PENDING_BYTES", held)
        listing = store.begin_listing("1")
        for what, *how in steps:
            before, count, heard = {key_of(raw): raw for raw in store}, store.change_count, len(told)
            listing = _stepped(store, listing, what, how)
            after = {key_of(raw): raw for raw in store}
            same = before.keys() == after.keys() and all(before[key] is raw for key, raw in after.items())
            assert same or store.change_count > count
            assert told[heard:] == list(range(count + 1, count + 1 + len(told) - heard)), "counted before it is told"
            assert all(store.read_cached(raw, _read) == _read(raw) for raw in store)
            assert all(store.read_cached(raw, _read) == _read(raw) for raw in before.values()), (
                "nor of what is held no more"
            )
            assert store._readings.keys() <= after.keys()


def _read(raw: Raw) -> tuple[object, ...]:
    return meta(raw).get("resourceVersion"), uid_of(raw), raw["text"]


def _stepped(store: Store, listing: Listing, what: str, how: list[Any]) -> Listing:
    match what, how:
        case "begin", [listed, restored]:
            return store.begin_listing(str(listed), restored=restored)
        case "page", [objects]:
            listing.take_page(objects)
        case "end", _:
            listing.finish()
        case "put", [raw]:
            store.put(raw)
        case "remove", [raw]:
            store.remove(raw)
        case _:
            store.clear()
    return listing


@dataclass
class Cluster:
    """A server with one version counter and a backup, and its reflector: a list in pages, then a watch."""

    heard: Heard = field(default_factory=Heard)
    there: dict[Key, Raw] = field(default_factory=dict)
    at: int = 1
    writes: int = 0
    log: list[tuple[int, str, Raw]] = field(default_factory=list)
    answers: list[Raw] = field(default_factory=list)  # to writes of ours: they come whenever they come
    backup: tuple[int, dict[Key, Raw]] = (1, {})
    restored: bool = False  # since a list was begun
    listing: Listing | None = None
    pages: list[Sequence[Raw]] = field(default_factory=list)
    listed: int = 0
    place: int | None = None  # of the watch; None: list first

    def write(self, name: str) -> None:
        self.at, self.writes, key = self.at + 1, self.writes + 1, ("demo", name)
        uid = uid_of(self.there[key]) if key in self.there else f"uid{self.writes}"
        raw = self.there[key] = thing(name, self.at, uid=uid)
        raw["text"] += f" by write {self.writes}"  # after a restore, another thing is written at the same version
        self.answers.append(raw)
        self.log.append((self.at, "put", raw))

    def delete(self, name: str) -> None:
        if ("demo", name) in self.there:
            self.at += 1
            last = self.there.pop(("demo", name))
            metadata = last["metadata"] | {"resourceVersion": str(self.at)}
            self.log.append((self.at, "remove", {**last, "metadata": metadata}))

    def answer(self, name: str) -> None:
        for raw in [one for one in self.answers if key_of(one)[1] == name][-2:]:
            self.heard.store.put(raw)

    def save(self, _: str) -> None:
        self.backup = self.at, dict(self.there)

    def restore(self, _: str) -> None:
        """All connections are cut."""
        self.at, there = self.backup
        self.there, self.listing, self.place, self.restored = dict(there), None, None, True
        self.log = [one for one in self.log if one[0] <= self.at]

    def cut(self, _: str) -> None:
        """A list breaks off; or the watch does, from a version that is too old by then."""
        self.listing, self.place = None, None

    def follow(self, _: str) -> None:
        """The next page, or what the watch tells."""
        if self.place is not None:
            self._watch()
            return
        if self.listing is None:
            behind = self.at < self.heard.store.newest_version
            if self.restored and not behind:
                # No API server answers while its etcd is restored, and the versions pass these afterwards.
                self.answers.clear()
            self.pages = [*paged(sorted(self.there.values(), key=key_of), 2)] or [[]]
            self.listing, self.listed = self.heard.store.begin_listing(str(self.at), restored=behind), self.at
        self.listing.take_page(self.pages.pop(0))
        if not self.pages:
            self.listing.finish()
            if self.restored:
                self.answers = [raw for raw in self.answers if self.there.get(key_of(raw)) is raw]
            self.listing, self.place, self.restored = None, self.listed, False
            self._watch()

    def _watch(self) -> None:
        assert self.place is not None
        for at, how, raw in self.log:
            if at > self.place:
                getattr(self.heard.store, how)(raw)
        self.place = self.at


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "delete", "answer", "follow", "follow", "follow", "cut", "save", "restore"]),
        st.sampled_from(NAMES),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from([0, 500, 10**6]))
def test_a_reflector_by_pages_shows_the_servers_objects(steps: list[tuple[str, str]], held: int) -> None:
    """Through lists that break off, restores, and answers to writes between two pages."""
    cluster = Cluster()
    heard = cluster.heard
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stores, "PENDING_BYTES", held)
        for what, name in steps:
            known, synced = len(heard.changes), heard.store.synced
            getattr(cluster, what)(name)
            assert heard.store.synced or not synced
            alive = {uid_of(raw) for raw in cluster.there.values()}
            for before, after in heard.changes[known:]:
                assert after or uid_of(before or {}) not in alive, "what is there is never gone"
            if cluster.place is not None and what == "follow":
                assert heard.texts() == {raw["text"] for raw in cluster.there.values()}


# --- a first list of many --------------------------------------------------------------------------------------------

MANY = [
    thing(f"n{number}", 1) | {"spec": {"like": {"all": "others"}, "own": {"of": number}}}
    for number in range(stores.OBJECTS_AT_ONCE * 2 + 1)
]


def _first(heard: Heard) -> Listing:
    listing = heard.store.begin_listing("9")
    listing.take_page(MANY)
    return listing


def test_a_first_list_is_stored_in_pieces_and_counts_from_its_end(heard: Heard) -> None:
    """Ten thousand pods take a second to put away, in which the Lease is to be renewed."""
    there = list[int]()
    for _ in _first(heard).finish_in_steps():
        there.append(len(heard.store))
        assert not heard.store.synced
    assert (there, len(heard.store), heard.store.synced) == (
        [stores.OBJECTS_AT_ONCE, 2 * stores.OBJECTS_AT_ONCE],
        len(MANY),
        True,
    )
    assert [before for before, _ in heard.changes] == [None] * len(MANY), "each was told of once"


def test_a_later_list_is_stored_at_once(heard: Heard) -> None:
    """Another task may read the store between two pieces."""
    heard.store.replace([], "5")
    assert list(_first(heard).finish_in_steps()) == [] and len(heard.store) == len(MANY)


def test_an_event_between_two_pieces_precedes_the_list(heard: Heard) -> None:
    """The answer to a write of ours, say."""
    ending = _first(heard).finish_in_steps()
    next(ending)
    last = f"n{len(MANY) - 1}"
    heard.store.put(thing(last, 10))
    assert list(ending) == [None]
    assert heard.store.get(("demo", last)) == thing(last, 10) and len(heard.store) == len(MANY)
    known = Heard()
    known.store.replace([*MANY[:-1], thing(last, 10)], "10")
    assert heard.store.weight == known.store.weight, "of the state that lost nothing is held"


def test_a_first_list_cancelled_between_two_pieces_leaves_the_stored_ones(heard: Heard) -> None:
    """The cluster becomes unreachable just then, and everything is listed again."""
    ending = _first(heard).finish_in_steps()
    next(ending)
    ending.close()
    assert (len(heard.store), heard.store.synced) == (stores.OBJECTS_AT_ONCE, False)
    known = Heard()
    known.store.replace(MANY[: stores.OBJECTS_AT_ONCE], "9")
    assert heard.store.weight == known.store.weight
    heard.store.replace(MANY, "12")
    assert (len(heard.store), heard.store.synced) == (len(MANY), True)
    heard.store.replace([], "13")
    assert heard.store.weight == 0
