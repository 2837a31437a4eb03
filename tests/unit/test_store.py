"""A store shows the newest state of each object that was told of, and says what changed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.facts import Raw, key_of, label
from adapter.shell.store import Store

Change = tuple[str | None, str | None]  # the text of an object before and after


def thing(name: str = "a", version: object = 1, *, uid: str = "", group: str = "", text: str = "") -> dict[str, Any]:
    metadata = {"namespace": "demo", "name": name, "uid": uid or f"uid-{name}", "labels": {"group": group}}
    return {"metadata": metadata | {"resourceVersion": str(version)}, "text": text or f"{name}{version}"}


class Heard:
    """A store with an index, and what it told."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.store = Store(self._note, index=lambda raw: label(raw, "group"))

    def _note(self, before: Raw | None, after: Raw | None) -> None:
        self.changes.append((before["text"] if before else None, after["text"] if after else None))

    def texts(self) -> set[str]:
        return {raw["text"] for raw in self.store}


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_a_store_that_was_never_filled_is_not_synced(heard: Heard) -> None:
    """Whoever asks must do nothing then, rather than read `none`."""
    assert not heard.store.synced
    heard.store.put(thing())
    assert not heard.store.synced, "our own write fills nothing"
    heard.store.replace([])
    assert heard.store.synced


def test_objects_are_found_by_their_key(heard: Heard) -> None:
    heard.store.replace([thing("a"), thing("b")])
    found = heard.store.get(("demo", "a"))
    assert found is not None
    assert found["text"] == "a1"
    assert heard.store.get(("other", "a")) is None
    assert heard.store.named("a") is None
    assert len(heard.store) == 2


def test_a_cluster_scoped_object_is_found_by_its_name(heard: Heard) -> None:
    heard.store.put({"metadata": {"name": "east"}, "text": "e"})
    assert heard.store.named("east") is not None


def test_a_change_is_told_with_before_and_after(heard: Heard) -> None:
    heard.store.put(thing(version=1))
    heard.store.put(thing(version=2))
    heard.store.remove(thing(version=3))
    assert heard.changes == [(None, "a1"), ("a1", "a2"), ("a2", None)]
    assert heard.texts() == set()


@pytest.mark.parametrize(
    "version", [pytest.param(5, id="the same"), pytest.param(4, id="older"), pytest.param("", id="none")]
)
def test_a_stale_version_is_ignored(heard: Heard, version: object) -> None:
    """The answer to our own write often comes before the watch's event of an earlier one."""
    heard.store.put(thing(version=5, text="new"))
    heard.store.put(thing(version=version, text="stale"))
    assert heard.texts() == {"new"}
    assert len(heard.changes) == 1


def test_versions_are_numbers_and_not_words(heard: Heard) -> None:
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


def test_the_deletion_of_what_is_unknown_is_ignored(heard: Heard) -> None:
    heard.store.remove(thing())
    assert heard.changes == []


def test_a_full_list_removes_what_vanished_and_tells_of_the_difference_only(heard: Heard) -> None:
    heard.store.replace([thing("a"), thing("b"), thing("c")])
    heard.changes.clear()
    heard.store.replace([thing("b"), thing("c", 2), thing("d")])
    assert heard.texts() == {"b1", "c2", "d1"}
    assert sorted(heard.changes, key=str) == [("a1", None), ("c1", "c2"), (None, "d1")]


def test_a_list_may_be_read_once_only(heard: Heard) -> None:
    heard.store.replace(thing(name) for name in "ab")
    assert heard.texts() == {"a1", "b1"}


def test_a_loop_survives_changes_made_in_it(heard: Heard) -> None:
    heard.store.replace([thing("a"), thing("b")])
    for raw in heard.store:
        heard.store.remove(raw)
    assert len(heard.store) == 0


# --- index -----------------------------------------------------------------------------------------------------------


def group(heard: Heard, value: str) -> set[str]:
    return {raw["text"] for raw in heard.store.group(value)}


def test_the_index_follows_each_object(heard: Heard) -> None:
    heard.store.replace([thing("a", group="x"), thing("b", group="x"), thing("c", group="y")])
    assert (group(heard, "x"), group(heard, "y"), group(heard, "z")) == ({"a1", "b1"}, {"c1"}, set())
    heard.store.put(thing("a", 2, group="y"))
    assert (group(heard, "x"), group(heard, "y")) == ({"b1"}, {"a2", "c1"})
    heard.store.remove(thing("c", 2, group="elsewhere now"))
    heard.store.replace([thing("a", 2, group="y")])
    assert (group(heard, "x"), group(heard, "y")) == (set(), {"a2"})


def test_the_index_is_right_when_a_change_is_told() -> None:
    """Whoever is woken by it asks for the group at once."""
    found: list[int] = []
    store = Store(lambda *_: found.append(len(store.group("x"))), index=lambda raw: label(raw, "group"))
    store.put(thing("a", group="x"))
    store.put(thing("b", group="x"))
    store.remove(thing("a", group="x"))
    assert found == [1, 2, 1]


def test_a_store_without_an_index_has_no_groups() -> None:
    store = Store(lambda *_: None)
    store.put(thing(group="x"))
    assert store.group("x") == []


# --- found wanting ---------------------------------------------------------------------------------------------------


def test_what_was_deleted_does_not_come_back_by_a_late_answer(heard: Heard) -> None:
    heard.store.put(thing(version=5))
    heard.store.remove(thing(version=7))
    heard.store.put(thing(version=6))
    assert heard.texts() == set()


def test_a_late_event_of_an_earlier_object_is_ignored(heard: Heard) -> None:
    heard.store.put(thing(version=8, uid="new"))
    heard.store.put(thing(version=6, uid="old"))
    assert heard.texts() == {"a8"}


# --- property --------------------------------------------------------------------------------------------------------

OBJECTS = st.builds(
    lambda name, version, value: thing(name, version, group=value),
    st.sampled_from("abc"),
    st.integers(1, 20),
    st.sampled_from("xy"),
)
STEPS = st.lists(st.one_of(OBJECTS, st.lists(OBJECTS, max_size=3)), max_size=12)


@given(STEPS)
def test_index_and_changes_tell_the_same_as_the_objects(steps: list[dict[str, Any] | list[dict[str, Any]]]) -> None:
    heard = Heard()
    for step in steps:
        if isinstance(step, list):
            heard.store.replace(step)
            assert {key_of(raw) for raw in heard.store} == {key_of(raw) for raw in step}
        elif step["text"].endswith("0"):
            heard.store.remove(step)
        else:
            heard.store.put(step)
    assert group(heard, "x") | group(heard, "y") == heard.texts()
    assert group(heard, "x") == {raw["text"] for raw in heard.store if label(raw, "group") == "x"}
    balance = sum((after is not None) - (before is not None) for before, after in heard.changes)
    assert balance == len(heard.store)
