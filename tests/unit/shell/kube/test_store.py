"""A store shows the newest state of each object and notifies of changes."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.unstructured import Raw, key_of, label
from adapter.shell.kube.store import OBJECTS_AT_ONCE, REMEMBERED_SECONDS, Store

Change = tuple[str | None, str | None]  # the text of an object before and after


def thing(name: str = "a", version: object = 1, *, uid: str = "", group: str = "", text: str = "") -> dict[str, Any]:
    metadata = {"namespace": "demo", "name": name, "uid": uid or f"uid-{name}", "labels": {"group": group}}
    return {"metadata": metadata | {"resourceVersion": str(version)}, "text": text or f"{name}{version}"}


class Heard:
    """A store with an index, and its notifications."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.store = Store(self._note, index=lambda raw: label(raw, "group"), counted_value=lambda raw: raw["text"][1:])

    def _note(self, before: Raw | None, after: Raw | None) -> None:
        self.changes.append((before["text"] if before else None, after["text"] if after else None))

    def texts(self) -> set[str]:
        return {raw["text"] for raw in self.store}


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_a_store_that_was_never_filled_is_not_synced(heard: Heard) -> None:
    """A caller must then do nothing, and not read it as empty."""
    assert not heard.store.synced
    heard.store.put(thing())
    assert not heard.store.synced, "our own write fills nothing"
    heard.store.replace([])
    assert heard.store.synced


def test_an_object_is_parsed_once_while_it_is_stored(heard: Heard) -> None:
    store, read = heard.store, list[str]()

    def text(raw: Raw) -> str:
        read.append(raw["text"])
        return f"read {raw['text']}"

    def held() -> Raw:
        return store.get(("demo", "a")) or {}

    store.replace([thing("a")])
    first = held()
    assert [store.read_cached(first, text), store.read_cached(first, text), read] == ["read a1", "read a1", ["a1"]]
    assert store.read_cached(first, key_of) == ("demo", "a"), "others read something else of it"
    store.put(thing("a", 2))
    assert [store.read_cached(held(), text), store.read_cached(first, text)] == ["read a2", "read a1"], (
        "another version"
    )
    assert [store.read_cached(held(), text), read] == ["read a2", ["a1", "a2", "a1"]], "and the old one is not kept"
    store.remove(thing("a", 3))
    store.put(thing("a", 4))
    store.read_cached(held(), text)
    store.clear()
    store.replace([first])
    store.read_cached(held(), text)
    assert read[3:] == ["a4", "a1"]


def test_only_changed_objects_are_parsed_again(heard: Heard) -> None:
    store, read = heard.store, list[str]()

    def text(raw: Raw) -> str:
        read.append(raw["text"])
        return f"read {raw['text']}"

    store.replace([thing("a"), thing("b"), thing("c")])
    assert (
        list(store.read_all_cached(text).values())
        == ["read a1", "read b1", "read c1"]
        == [f"read {one}" for one in read]
    )
    store.put(thing("b", 2))
    store.remove(thing("c", 2))
    store.put(thing("d", 2))
    assert list(store.read_all_cached(text).values()) == ["read a1", "read b2", "read d2"] and read[3:] == ["b2", "d2"]
    assert set(store.read_all_cached(key_of).values()) == set(store.read_all_cached(text)), (
        "others read something else of them"
    )
    store.clear()
    assert not store.read_all_cached(text)
    store.replace([thing("a", 9)])
    assert list(store.read_all_cached(text).values()) == ["read a9"]


def test_an_unreadable_object_is_parsed_each_time(heard: Heard) -> None:
    heard.store.replace([thing("a")])
    for _ in range(2):
        with pytest.raises(KeyError):
            heard.store.read_cached(heard.store.get(("demo", "a")) or {}, lambda raw: raw["spec"])


def test_each_change_is_counted(heard: Heard) -> None:
    store, counts = heard.store, list[int]()
    for change in (
        lambda: store.replace([thing("a"), thing("b")]),
        lambda: store.replace([thing("a"), thing("b")]),
        lambda: store.put(thing("a")),
        lambda: store.put(thing("a", 2)),
        lambda: store.remove(thing("b", 3)),
        store.clear,
    ):
        change()
        counts.append(store.change_count)
    assert counts == [2, 2, 2, 3, 4, 5]


def test_objects_are_found_by_their_key(heard: Heard) -> None:
    heard.store.replace([thing("a"), thing("b")])
    found = heard.store.get(("demo", "a"))
    assert found is not None
    assert found["text"] == "a1"
    assert heard.store.get(("other", "a")) is None
    assert heard.store.by_name("a") is None
    assert len(heard.store) == 2


def test_a_cluster_scoped_object_is_found_by_its_name(heard: Heard) -> None:
    heard.store.put({"metadata": {"name": "east"}, "text": "e"})
    assert heard.store.by_name("east") is not None


def test_a_change_is_notified_with_both_states(heard: Heard) -> None:
    heard.store.put(thing(version=1))
    heard.store.put(thing(version=2))
    heard.store.remove(thing(version=3))
    assert heard.changes == [(None, "a1"), ("a1", "a2"), ("a2", None)]
    assert heard.texts() == set()


@pytest.mark.parametrize(
    "version",
    [pytest.param(5, id="the same version"), pytest.param(4, id="an older version"), pytest.param("", id="no version")],
)
def test_a_stale_version_is_ignored(heard: Heard, version: object) -> None:
    """The answer to our own write often comes before the watch's event of an earlier one."""
    heard.store.put(thing(version=5, text="new"))
    heard.store.put(thing(version=version, text="stale"))
    assert heard.texts() == {"new"}
    assert len(heard.changes) == 1


def test_versions_are_compared_as_numbers(heard: Heard) -> None:
    heard.store.put(thing(version=9))
    heard.store.put(thing(version=10))
    assert heard.texts() == {"a10"}


def test_another_object_of_the_same_name_replaces_the_earlier(heard: Heard) -> None:
    heard.store.put(thing(version=5))
    heard.store.put(thing(version=6, uid="another"))
    assert heard.changes == [(None, "a5"), ("a5", "a6")]


def test_the_deletion_of_an_earlier_object_is_ignored(heard: Heard) -> None:
    heard.store.put(thing(version=6, uid="another"))
    heard.store.remove(thing(version=5))
    assert heard.texts() == {"a6"}
    assert heard.changes == [(None, "a6")]


def test_the_deletion_of_an_unknown_object_is_ignored(heard: Heard) -> None:
    heard.store.remove(thing())
    assert heard.changes == []


def test_a_list_removes_missing_objects_and_notifies_of_differences_only(heard: Heard) -> None:
    heard.store.replace([thing("a"), thing("b"), thing("c")])
    heard.changes.clear()
    heard.store.replace([thing("b"), thing("c", 2), thing("d")])
    assert heard.texts() == {"b1", "c2", "d1"}
    assert sorted(heard.changes, key=str) == [("a1", None), ("c1", "c2"), (None, "d1")]


def test_a_list_may_be_an_iterator(heard: Heard) -> None:
    heard.store.replace(thing(name) for name in "ab")
    assert heard.texts() == {"a1", "b1"}


def test_a_loop_over_a_store_may_change_it(heard: Heard) -> None:
    heard.store.replace([thing("a"), thing("b")])
    for raw in heard.store:
        heard.store.remove(raw)
    assert len(heard.store) == 0


# --- index -----------------------------------------------------------------------------------------------------------


def group(heard: Heard, value: str) -> set[str]:
    return {raw["text"] for raw in heard.store.by_index(value)}


def test_the_index_follows_each_object(heard: Heard) -> None:
    heard.store.replace([thing("a", group="x"), thing("b", group="x"), thing("c", group="y")])
    assert (group(heard, "x"), group(heard, "y"), group(heard, "z")) == ({"a1", "b1"}, {"c1"}, set())
    heard.store.put(thing("a", 2, group="y"))
    assert (group(heard, "x"), group(heard, "y")) == ({"b1"}, {"a2", "c1"})
    heard.store.remove(thing("c", 2, group="elsewhere now"))
    heard.store.replace([thing("a", 2, group="y")])
    assert (group(heard, "x"), group(heard, "y")) == (set(), {"a2"})


def test_objects_are_found_by_their_owner() -> None:
    store = Store(owner=lambda raw: label(raw, "group"))
    store.replace([thing("a", group="x"), thing("b", group="x"), thing("c")])
    assert [raw["text"] for raw in store.owned_by("x")] == ["a1", "b1"]
    store.put(thing("a", 2, group="y"))
    assert [raw["text"] for raw in store.owned_by("x")] == ["b1"]
    assert [raw["text"] for raw in store.owned_by("y")] == ["a2"]
    store.remove(thing("b", 2, group="x"))
    assert store.owned_by("x") == []
    assert store.owned_by("") == [], "no owner has the empty uid"
    store.clear()
    assert store.owned_by("y") == []


def test_the_index_is_current_at_a_notification() -> None:
    """A listener may read the group at once."""
    found: list[int] = []
    store = Store(lambda *_: found.append(len(store.by_index("x"))), index=lambda raw: label(raw, "group"))
    store.put(thing("a", group="x"))
    store.put(thing("b", group="x"))
    store.remove(thing("a", group="x"))
    assert found == [1, 2, 1]


def test_an_event_without_a_change_is_not_counted(heard: Heard) -> None:
    heard.store.replace([thing("a", group="x", text="a"), thing("b", group="x", text="b!")])
    assert heard.store.value_counts("x") == {"!": 1}
    assert heard.store.value_counts("nobody's") == {}


def test_an_answer_to_a_write_is_trimmed_like_a_list(heard: Heard) -> None:
    made = thing()
    heard.store.put({**made, "metadata": made["metadata"] | {"managedFields": [{}]}})
    assert heard.store.get(("demo", "a")) == made


def test_a_store_without_an_index_has_no_groups() -> None:
    store = Store(lambda *_: None)
    store.put(thing(group="x"))
    assert store.by_index("x") == []


# --- found wanting ---------------------------------------------------------------------------------------------------


def test_a_late_answer_does_not_restore_a_deleted_object(heard: Heard) -> None:
    heard.store.put(thing(version=5))
    heard.store.remove(thing(version=7))
    heard.store.put(thing(version=6))
    assert heard.texts() == set()


@pytest.mark.parametrize(("later", "shown"), [(REMEMBERED_SECONDS - 1, set()), (REMEMBERED_SECONDS + 1, {"a6"})])
def test_a_deletion_is_forgotten_when_no_answer_can_come(
    heard: Heard, monkeypatch: pytest.MonkeyPatch, later: float, shown: set[str]
) -> None:
    """Or memory would grow with each object that ever was; the next deletion clears away."""
    heard.store.remove(thing(version=7))
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + later)
    heard.store.remove(thing("b", 8))
    heard.store.put(thing(version=6))
    assert heard.texts() == shown


def test_a_late_event_of_an_earlier_object_is_ignored(heard: Heard) -> None:
    heard.store.put(thing(version=8, uid="new"))
    heard.store.put(thing(version=6, uid="old"))
    assert heard.texts() == {"a8"}


# --- lists and versions ----------------------------------------------------------------------------------------------


def test_an_object_newer_than_a_list_is_kept(heard: Heard) -> None:
    """The answer to our own create may come while the pages of a list are still read."""
    heard.store.replace([thing("a", 8)], "10")
    heard.store.put(thing("b", 12))
    heard.store.replace([thing("a", 8)], "11")
    assert heard.texts() == {"a8", "b12"}
    heard.store.replace([thing("a", 8)], "12")
    assert heard.texts() == {"a8"}, "the list is as new as it, and does not hold it"


def test_a_state_newer_than_the_listed_one_is_kept(heard: Heard) -> None:
    heard.store.put(thing("a", 12))
    heard.store.replace([thing("a", 9)], "10")
    assert heard.changes == [(None, "a12")]


@pytest.mark.parametrize(
    ("version", "taken"),
    [pytest.param(9, False, id="older"), pytest.param(10, False, id="as old"), pytest.param(11, True, id="newer")],
)
def test_an_unlisted_object_must_be_newer_than_the_list(heard: Heard, version: int, taken: bool) -> None:
    """An answer that comes late is of an object that was deleted before the list."""
    heard.store.replace([], "10")
    heard.store.put(thing("a", version))
    assert bool(heard.texts()) is taken


def test_a_listed_object_need_not_be_newer_than_the_list(heard: Heard) -> None:
    heard.store.replace([thing("a", 3)], "10")
    heard.store.put(thing("a", 11))
    assert heard.changes == [(None, "a3"), ("a3", "a11")]


def test_a_deletion_is_not_forgotten_by_the_list_that_follows(heard: Heard) -> None:
    heard.store.put(thing("a", 5))
    heard.store.remove(thing("a", 7))
    heard.store.replace([], "8")
    heard.store.put(thing("a", 6))
    assert heard.texts() == set()


def test_the_list_of_a_restored_cluster_is_believed(heard: Heard) -> None:
    """That cluster's etcd was restored from a backup."""
    heard.store.replace([thing("a", 90), thing("b", 95)], "100")
    heard.store.put(thing("c", 120))
    heard.changes.clear()
    assert heard.store.newest_version == 120
    heard.store.replace([thing("a", 40)], "50", restored=True)
    assert heard.store.newest_version == 50
    assert heard.texts() == {"a40"}
    assert sorted(heard.changes, key=str) == [("a90", "a40"), ("b95", None), ("c120", None)]


def test_after_a_restore_its_own_versions_count(heard: Heard) -> None:
    heard.store.replace([thing("a", 90)], "100")
    heard.store.remove(thing("a", 101))
    heard.store.replace([], "50", restored=True)
    heard.store.put(thing("a", 50))
    assert heard.texts() == set()
    heard.store.put(thing("a", 51))
    assert heard.texts() == {"a51"}
    heard.store.replace([], "52")
    assert heard.texts() == set()


@pytest.mark.parametrize("text", ["other", "a90"])
def test_a_list_decides_about_all_objects_not_newer_than_it(heard: Heard, text: str) -> None:
    """An etcd may come back from a backup and count on from higher up: its objects are as old as in the backup."""
    heard.store.replace([thing("a", 90)], "100")
    heard.store.replace([thing("a", 40, text=text)], "1000")
    assert heard.texts() == {text}
    heard.store.put(thing("a", 1001))
    assert heard.texts() == {"a1001"}


@pytest.mark.parametrize("take", ["replace", "put", "remove", "passed"])
def test_the_highest_version_is_recorded_from_every_source(heard: Heard, take: str) -> None:
    tell: dict[str, Callable[[], object]] = {
        "replace": lambda: heard.store.replace([thing("a", 7)], "9"),
        "put": lambda: heard.store.put(thing("a", 9)),
        "remove": lambda: heard.store.remove(thing("a", 9)),
        "passed": lambda: heard.store.note_version("9"),
    }
    heard.store.note_version("5")
    tell[take]()
    assert heard.store.newest_version == 9
    heard.store.note_version("8")
    heard.store.note_version("9" * 30)
    heard.store.note_version("soon")
    assert heard.store.newest_version == 9


def test_the_same_list_once_more_changes_nothing(heard: Heard) -> None:
    heard.store.replace([thing("a", 5)], "10")
    heard.store.put(thing("b", 12))
    heard.changes.clear()
    heard.store.replace([thing("a", 5)], "10")
    assert heard.changes == []


def test_a_store_is_synced_at_the_notifications_of_its_first_list() -> None:
    """A listener may decide at once."""
    synced: list[bool] = []
    store = Store(lambda *_: synced.append(store.synced))
    store.replace([thing("a"), thing("b")], "10")
    assert synced == [True, True]


# --- what is no object -----------------------------------------------------------------------------------------------

NEW = thing(version=9)
POISON = [
    pytest.param({**NEW, "metadata": NEW["metadata"] | {"uid": {"a": 1}}}, id="an invalid uid"),
    pytest.param({**NEW, "metadata": NEW["metadata"] | {"labels": {"group": ["x"]}}}, id="a label that is a list"),
    pytest.param({**NEW, "metadata": NEW["metadata"] | {"name": 5}}, id="a name that is a number"),
    pytest.param({**NEW, "text": 5}, id="an object that the index function rejects"),
    pytest.param(["metadata"], id="a list"),
]


@pytest.mark.parametrize("poison", POISON)
def test_an_invalid_object_changes_nothing(heard: Heard, poison: Any) -> None:
    heard.store.replace([thing("a", 2, group="x")], "5")
    assert heard.store.put(poison)
    assert heard.store.replace([thing("b", 6, group="x"), poison], "7") == 1
    heard.store.remove(poison)
    assert heard.changes == [(None, "a2"), ("a2", None), (None, "b6")]
    assert (heard.texts(), group(heard, "x"), dict(heard.store.value_counts("x"))) == ({"b6"}, {"b6"}, {"6": 1})
    heard.store.replace([thing("a", 8, group="x")], "9")
    assert (heard.texts(), group(heard, "x"), dict(heard.store.value_counts("x"))) == ({"a8"}, {"a8"}, {"8": 1})


def test_a_store_keeps_the_fields_used_of_its_kind() -> None:
    store = Store(trim_object=lambda raw: {"metadata": raw["metadata"]})
    store.put(thing("a", 1))
    store.replace([thing("a", 1), thing("b", 2)], "3")
    assert [set(raw) for raw in store] == [{"metadata"}] * 2


# --- property --------------------------------------------------------------------------------------------------------

OBJECTS = st.builds(
    lambda name, version, value: thing(name, version, group=value),
    st.sampled_from("abc"),
    st.integers(1, 20),
    st.sampled_from("xy"),
)
STEPS = st.lists(st.one_of(OBJECTS, st.lists(OBJECTS, max_size=3)), max_size=12)


@given(STEPS, st.integers(0, 2**12))
def test_index_and_notifications_agree_with_the_objects(
    steps: list[dict[str, Any] | list[dict[str, Any]]], draw: int
) -> None:
    heard = Heard()
    for step in steps:
        if draw % 2:  # who goes through all now and then
            assert list(heard.store.read_all_cached(_text).items()) == [
                (key_of(raw), raw["text"]) for raw in heard.store
            ]
        draw //= 2
        if isinstance(step, list):
            heard.store.replace(step)
            assert {key_of(raw) for raw in heard.store} == {key_of(raw) for raw in step}
        elif step["text"].endswith("0"):
            heard.store.remove(step)
        else:
            heard.store.put(step)
    assert group(heard, "x") | group(heard, "y") == heard.texts()
    assert group(heard, "x") == {raw["text"] for raw in heard.store if label(raw, "group") == "x"}
    for value in ("x", "y"):
        assert heard.store.value_counts(value) == Counter(raw["text"][1:] for raw in heard.store.by_index(value))
    balance = sum((after is not None) - (before is not None) for before, after in heard.changes)
    assert balance == len(heard.store)
    assert list(heard.store.read_all_cached(_text).items()) == [(key_of(raw), raw["text"]) for raw in heard.store]


def test_a_slow_reader_of_changes_is_not_waited_for(heard: Heard) -> None:
    store, names = heard.store, [f"n{number}" for number in range(OBJECTS_AT_ONCE + 9)]
    store.read_all_cached(_text)
    for name in names:
        store.put(thing(name))
        store.remove(thing(name, 2))
    assert not store._all_readings, "what came and went is not noted for ever"
    store.put(thing("a"))
    assert list(store.read_all_cached(_text).values()) == ["a1"]


def _text(raw: Raw) -> str:
    return str(raw["text"])


@given(st.lists(st.tuples(st.sampled_from(["write", "delete", "list", "late"]), st.sampled_from("abc"))))
def test_a_store_shows_the_servers_objects_despite_late_answers(steps: list[tuple[str, str]]) -> None:
    """A server with one counter of versions; answers to writes come in time and, any number of times, late."""
    heard, server, version = Heard(), dict[str, dict[str, Any]](), 1
    answers: list[dict[str, Any]] = []
    for what, name in steps:
        version += 1
        if what == "write":
            born = server[name]["metadata"]["uid"] if name in server else f"uid{version}"
            server[name] = thing(name, version, uid=born)
            answers.append(server[name])
            heard.store.put(server[name])
        elif what == "delete" and name in server:
            heard.store.remove(thing(name, version, uid=server.pop(name)["metadata"]["uid"]))
        elif what == "list":
            heard.store.replace(list(server.values()), str(version))
        elif answers:
            heard.store.put(answers[len(steps) % len(answers)])
        assert heard.texts() == {raw["text"] for raw in server.values()}


def test_members_of_a_group_are_found_by_a_key(heard: Heard) -> None:
    def read(field: str) -> Callable[[Any], str]:
        return lambda raw: str(raw["metadata"].get("labels", {}).get(field, ""))

    slot = read("slot")
    store = Store(index=read("group"), search_words=lambda raw: (slot(raw), "all") if slot(raw) else ("",))

    def names(group: str, slot: str) -> set[str]:
        return {key_of(raw)[1] for raw in store.group_matches(group, slot)}

    def labelled(name: str, version: int, **labels: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version), "labels": labels}}

    for raw in (labelled("a", 1, group="x", slot="0"), labelled("b", 1, group="x"), labelled("c", 1, group="y")):
        store.put(raw)
    assert (names("x", "0"), names("x", ""), names("y", ""), names("y", "0")) == ({"a"}, {"b"}, {"c"}, set())
    store.put(labelled("b", 2, group="x", slot="0"))
    store.put(labelled("c", 2, group="x"))
    assert (names("x", "0"), names("x", ""), names("y", ""), names("x", "all")) == (
        {"a", "b"},
        {"c"},
        set(),
        {"a", "b"},
    )
    store.remove(labelled("a", 3, group="x", slot="0"))
    assert names("x", "0") == names("x", "all") == {"b"}
    store.replace([], "9")
    assert not store._keys_by_word


def test_the_weight_of_a_store_follows_its_objects(heard: Heard) -> None:
    store = heard.store
    store.put(thing("a", 1))
    first = store.weight
    store.put(thing("b", 2))
    assert store.weight == 2 * first
    store.put(thing("a", 3, text="a" * 1000))
    assert 900 < store.weight - 2 * first < 1100
    store.put(thing("a", 2, text="a" * 5000))
    assert store.weight < 2 * first + 1100, "an old state is not kept"
    store.remove(thing("a", 4))
    store.replace([thing("b", 5), thing("c", 5)], "9")
    assert store.weight == 2 * first
    store.replace([], "10")
    assert store.weight == 0 and not store._holders


def test_a_forgotten_store_is_unsynced(heard: Heard) -> None:
    heard.store.replace([thing("a", 5, group="g")], "7")
    told = list(heard.changes)
    heard.store.clear()
    assert (len(heard.store), heard.store.weight, heard.store.synced, heard.store.newest_version) == (0, 0, False, 7)
    assert heard.store.by_index("g") == [] and heard.store.value_counts("g") == {} and heard.changes == told
    heard.store.replace([thing("a", 5, group="g")], "7")
    assert heard.texts() == {"a5"} and len(heard.store.by_index("g")) == 1
