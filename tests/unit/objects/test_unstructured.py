"""Any object of an API server can be read: missing fields are empty, and existing ones are kept."""

import ast
import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects import unstructured as facts
from adapter.objects.placement import Placement
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload
from tests.unit import builders as make


def test_an_empty_object_has_empty_fields() -> None:
    for raw in ({}, {"metadata": None, "status": None}, {"metadata": {}, "status": {"conditions": None}}):
        assert facts.meta(raw) == {}
        assert facts.key_of(raw) == ("", "")
        assert facts.uid_of(raw) == facts.controller_uid(raw) == ""
        assert facts.label(raw, "a") == facts.annotation(raw, "a") == ""
        assert facts.condition(raw, "Ready") == {}
        assert not facts.is_condition_true(raw, "Ready")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
META = st.dictionaries(
    st.sampled_from(["name", "namespace", "uid", "labels", "annotations", "ownerReferences"]), JSON, max_size=6
)


@given(
    st.dictionaries(
        st.sampled_from(["metadata", "spec", "status"]), JSON | META | st.fixed_dictionaries({"conditions": JSON})
    )
)
def test_names_are_texts_whatever_their_type(raw: dict[str, Any]) -> None:
    """They become keys of mappings, and are sorted."""
    read = [
        *facts.key_of(raw),
        facts.uid_of(raw),
        facts.label(raw, "a"),
        facts.annotation(raw, "a"),
        facts.controller_uid(raw),
    ]
    assert all(isinstance(name, str) for name in read) and isinstance(facts.meta(raw), dict)
    assert isinstance(facts.condition(raw, "Ready"), dict)


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    assert facts.key_of({"metadata": {"name": "east"}}) == ("", "east")


def test_labels_and_annotations_are_read_by_their_name() -> None:
    raw = {"metadata": {"labels": {"a": "1"}, "annotations": {"a": "2", "b": None}}}
    assert (facts.label(raw, "a"), facts.annotation(raw, "a"), facts.annotation(raw, "b")) == ("1", "2", "")


@pytest.mark.parametrize("status", ["False", "Unknown", True, None, "true"])
def test_only_the_text_true_counts_as_true(status: object) -> None:
    """An API server writes a text. Any other value is a mistake and must not admit a gang."""
    assert not facts.is_condition_true({"status": {"conditions": [{"type": "Ready", "status": status}]}}, "Ready")


def test_a_controller_is_found_among_the_owners() -> None:
    owners = [{"uid": "a"}, {"uid": "b", "controller": True}, {"uid": "c", "controller": False}]
    assert facts.controller_uid({"metadata": {"ownerReferences": owners}}) == "b"
    assert facts.controller_uid({"metadata": {"ownerReferences": owners[:1]}}) == ""


@pytest.mark.parametrize(
    ("before", "since"),
    [
        pytest.param({}, make.stamp(9), id="the first one"),
        pytest.param({"status": "True", "lastTransitionTime": make.stamp(2)}, make.stamp(2), id="the same status"),
        pytest.param({"status": "False", "lastTransitionTime": make.stamp(2)}, make.stamp(9), id="another status"),
        pytest.param({"status": "True"}, make.stamp(9), id="a condition without a time"),
    ],
)
def test_a_condition_keeps_its_time_while_its_status_is_unchanged(before: dict[str, Any], since: str) -> None:
    wanted = {"type": "Ready", "status": "True", "message": "other words"}
    assert facts.updated_condition({"message": "words", **before}, wanted, make.stamp(9)) == {
        **wanted,
        "lastTransitionTime": since,
    }


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("2026-01-02T03:04:05Z", make.START, id="as metav1.Time"),
        pytest.param("2026-01-02T03:04:05.250000Z", make.at(0.25), id="as metav1.MicroTime"),
        pytest.param("2026-01-02T05:04:05+02:00", make.START, id="with an offset"),
        pytest.param(None, None, id="absent"),
        pytest.param("", None, id="empty"),
        pytest.param("soon", None, id="a word is no time"),
        pytest.param(17, None, id="a number is no time"),
        pytest.param({"at": 1}, None, id="an object is no time"),
        pytest.param("0001-01-01T00:00:00+14:00", None, id="a date before all calendars"),
    ],
)
def test_moment(text: object, want: datetime | None) -> None:
    assert facts.parse_time(text) == want


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param("east-node-7", "east-node-7", id="a plain text"),
        pytest.param("café 🦖", "café 🦖", id="a text in any script"),
        pytest.param("", "", id="an empty text"),
        pytest.param(None, "None", id="an object is no text"),
        pytest.param(-7, "-7", id="a number is no text"),
        pytest.param("a\nERROR b\x1b[2J", "a\N{REPLACEMENT CHARACTER}ERROR b\N{REPLACEMENT CHARACTER}[2J",
            id="a text with a line break, which could forge a log line"),
        pytest.param("x\u202ey\u200dz", "x\N{REPLACEMENT CHARACTER}y\N{REPLACEMENT CHARACTER}z",
            id="a text with invisible characters"),
        pytest.param("x" * 64, "x" * 64, id="a text of the maximum length"),
        pytest.param("x" * 65, "x" * 64 + "…", id="a text one character too long"),
        pytest.param("x" * 1_000_000, "x" * 64 + "…", id="a text far too long"),
    ],
)  # fmt: skip
def test_foreign_text_is_quoted_on_one_line(found: object, want: str) -> None:
    assert facts.printable(found) == want


@given(st.datetimes(datetime(1971, 1, 1), datetime(2999, 1, 1)), st.integers(-14, 14))
def test_a_timestamp_reads_back_to_the_second(when: datetime, hours: int) -> None:
    aware = when.replace(microsecond=0, tzinfo=timezone(timedelta(hours=hours)))
    assert facts.parse_time(facts.format_time(aware)) == aware
    assert facts.format_time(aware + timedelta(microseconds=999_999)) == facts.format_time(aware)


def test_times_are_shown_in_utc() -> None:
    assert facts.format_time(datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))) == make.stamp()
    assert make.START.tzinfo is UTC


@pytest.mark.parametrize("record", [Workload, Placement, Reservation], ids=lambda kind: kind.__name__)
def test_every_field_of_a_record_is_read(record: Any) -> None:
    """The records show what a decision depends on. A field that is never read would mislead."""
    trees = [ast.parse(path.read_text()) for path in Path(facts.__file__).parents[1].rglob("*.py")]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {field.name for field in dataclasses.fields(record)} - read == set()


def test_a_stored_text_has_no_control_characters_but_line_breaks_and_tabs() -> None:
    assert facts.truncate("first\n\tsecond") == "first\n\tsecond"
    assert facts.truncate("\x1b[2Jdone\u202e", 8) == "\N{REPLACEMENT CHARACTER}[2Jdon…"
