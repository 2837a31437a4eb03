"""Whatever an API server gives is read: what is missing is empty, what is there is not lost."""

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


def test_an_object_without_anything_reads_as_nothing() -> None:
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
def test_whatever_types_an_object_has_its_names_are_texts(raw: dict[str, Any]) -> None:
    """They become keys of dicts, and are sorted."""
    read = [
        *facts.key_of(raw),
        facts.uid_of(raw),
        facts.label(raw, "a"),
        facts.annotation(raw, "a"),
        facts.controller_uid(raw),
    ]
    assert all(isinstance(one, str) for one in read) and isinstance(facts.meta(raw), dict)
    assert isinstance(facts.condition(raw, "Ready"), dict)


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    assert facts.key_of({"metadata": {"name": "east"}}) == ("", "east")


def test_labels_and_annotations_are_read_by_their_name() -> None:
    raw = {"metadata": {"labels": {"a": "1"}, "annotations": {"a": "2", "b": None}}}
    assert (facts.label(raw, "a"), facts.annotation(raw, "a"), facts.annotation(raw, "b")) == ("1", "2", "")


@pytest.mark.parametrize("status", ["False", "Unknown", True, None, "true"])
def test_only_the_word_true_is_true(status: object) -> None:
    """An API server writes the string; everything else is somebody's mistake and must not admit a gang."""
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
        pytest.param({"status": "True"}, make.stamp(9), id="one without a time"),
    ],
)
def test_a_condition_keeps_its_time_while_its_status_is_the_same(before: dict[str, Any], since: str) -> None:
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
        pytest.param("soon", None, id="a word"),
        pytest.param(17, None, id="a number"),
        pytest.param({"at": 1}, None, id="an object"),
        pytest.param("0001-01-01T00:00:00+14:00", None, id="before all calendars"),
    ],
)
def test_moment(text: object, want: datetime | None) -> None:
    assert facts.parse_time(text) == want


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param("east-node-7", "east-node-7", id="what is plain"),
        pytest.param("café 🦖", "café 🦖", id="in any writing"),
        pytest.param("", "", id="nothing"),
        pytest.param(None, "None", id="no text"),
        pytest.param(-7, "-7", id="a number"),
        pytest.param("a\nERROR b\x1b[2J", "a\N{REPLACEMENT CHARACTER}ERROR b\N{REPLACEMENT CHARACTER}[2J", id="what would begin a line of a log"),
        pytest.param("x\u202ey\u200dz", "x\N{REPLACEMENT CHARACTER}y\N{REPLACEMENT CHARACTER}z", id="what hides"),
        pytest.param("x" * 64, "x" * 64, id="as long as may be"),
        pytest.param("x" * 65, "x" * 64 + "…", id="longer"),
        pytest.param("x" * 1_000_000, "x" * 64 + "…", id="far longer"),
    ],
)  # fmt: skip
def test_what_others_wrote_is_quoted_so_that_a_sentence_stays_one(found: object, want: str) -> None:
    assert facts.printable(found) == want


@given(st.datetimes(datetime(1971, 1, 1), datetime(2999, 1, 1)), st.integers(-14, 14))
def test_a_timestamp_reads_back_to_the_second(when: datetime, hours: int) -> None:
    aware = when.replace(microsecond=0, tzinfo=timezone(timedelta(hours=hours)))
    assert facts.parse_time(facts.format_time(aware)) == aware
    assert facts.format_time(aware + timedelta(microseconds=999_999)) == facts.format_time(aware)


def test_times_are_told_in_utc() -> None:
    assert facts.format_time(datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))) == make.stamp()
    assert make.START.tzinfo is UTC


@pytest.mark.parametrize("record", [Workload, Placement, Reservation], ids=lambda kind: kind.__name__)
def test_a_record_holds_nothing_that_nobody_reads(record: Any) -> None:
    """What a decision depends on can be seen in the records; what is read by none misleads."""
    trees = [ast.parse(path.read_text()) for path in Path(facts.__file__).parents[1].rglob("*.py")]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {field.name for field in dataclasses.fields(record)} - read == set()
