"""Objects as every API server writes them pass; any other one gets a message."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects import unstructured as objects
from adapter.objects.well_formed import malformed_reason

WHOLE: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "demo",
        "uid": "u",
        "resourceVersion": "5",
        "creationTimestamp": None,
        "labels": {"a": "b"},
        "annotations": {},
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u"}],
    },
    "spec": {"anything": [1]},
    "status": {"conditions": [{"type": "Ready"}]},
}


@pytest.mark.parametrize(
    "whole",
    [
        WHOLE,
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "system:controller:a.b", "namespace": "a" * 63, "labels": None}},
    ],
)
def test_a_well_formed_object_passes(whole: object) -> None:
    assert malformed_reason(whole) == ""


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"name": 5}, "its metadata.name is not a string, or is empty"),
        ({"name": ""}, "its metadata.name is not a string, or is empty"),
        ({"name": ".."}, "no object can have its metadata.name"),
        ({"name": "a/b"}, "no object can have its metadata.name"),
        ({"name": "a\nERROR b"}, "no object can have its metadata.name"),
        ({"namespace": ["demo"]}, "its metadata.namespace is not the name of a namespace"),
        ({"namespace": "."}, "its metadata.namespace is not the name of a namespace"),
        ({"namespace": "a\nERROR b"}, "its metadata.namespace is not the name of a namespace"),
        ({"namespace": "a" * 64}, "its metadata.namespace is not the name of a namespace"),
        ({"uid": {"a": 1}}, "its metadata.uid is not text"),
        ({"resourceVersion": 5}, "its metadata.resourceVersion is not text"),
        ({"deletionTimestamp": 5}, "its metadata.deletionTimestamp is not text"),
        ({"labels": ["a"]}, "its metadata.labels is not a map of strings"),
        ({"labels": {"a": None}}, "its metadata.labels is not a map of strings"),
        ({"annotations": {"a": {}}}, "its metadata.annotations is not a map of strings"),
        ({"ownerReferences": {"uid": "u"}}, "its metadata.ownerReferences is not a list of references"),
        ({"ownerReferences": ["u"]}, "its metadata.ownerReferences is not a list of references"),
        ({"ownerReferences": [{"uid": ["u"]}]}, "its metadata.ownerReferences is not a list of references"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(metadata: dict[str, Any], why: str) -> None:
    assert malformed_reason({**WHOLE, "metadata": WHOLE["metadata"] | metadata}) == why


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "it is not a JSON object"),
        ([], "it is not a JSON object"),
        ({}, "its metadata is not a JSON object"),
        (WHOLE | {"metadata": "a"}, "its metadata is not a JSON object"),
        (WHOLE | {"spec": []}, "its spec is not a JSON object"),
        (WHOLE | {"status": "Ready"}, "its status is not a JSON object"),
        (WHOLE | {"status": {"conditions": {"type": "Ready"}}}, "its status.conditions is not a list of JSON objects"),
        (WHOLE | {"status": {"conditions": ["Ready"]}}, "its status.conditions is not a list of JSON objects"),
    ],
)
def test_a_part_of_a_wrong_type_is_named(found: object, why: str) -> None:
    assert malformed_reason(found) == why


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FIELDS = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "labels",
    "annotations",
    "ownerReferences",
    "deletionTimestamp",
]


@given(
    st.dictionaries(st.sampled_from(FIELDS), ANYTHING),
    st.dictionaries(st.sampled_from(["spec", "status"]), ANYTHING),
)
def test_any_well_formed_object_can_be_read(metadata: dict[str, Any], rest: dict[str, Any]) -> None:
    found = {"metadata": {"name": "a"} | metadata, **rest}
    if malformed_reason(found):
        return
    assert all(isinstance(one, str) for one in (*objects.key_of(found), objects.uid_of(found)))
    assert isinstance(objects.label(found, "a") + objects.annotation(found, "a") + objects.controller_uid(found), str)
    objects.is_condition_true(found, "Ready")
    objects.condition_true_since(found, "Ready")
