"""Every difference between a pod and its remote pod is listed, with its reason if one is known."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.cli.pod_diff import UNKNOWN_REASON, FieldChange, diff_pods
from adapter.objects.unstructured import Raw
from tests.unit.rewrite.test_rewriter import GOLDEN, RECORDED, kuberay_pod, rewrite


def listed(before: Raw, after: Raw) -> dict[str, FieldChange]:
    return {one.path: one for one in diff_pods(before, after)}


@pytest.mark.parametrize("name", RECORDED)
def test_every_change_of_a_recorded_pod_has_a_reason(name: str) -> None:
    pod = yaml.safe_load((GOLDEN / f"{name}.in.yaml").read_text())
    found = diff_pods(pod, rewrite(pod))
    assert [str(one) for one in found if one.reason == UNKNOWN_REASON] == []
    assert "spec.containers[ray-worker].env[RAY_ADDRESS].value" in [one.path for one in found]


def test_equal_pods_have_no_differences() -> None:
    pod = kuberay_pod()
    assert diff_pods(pod, json.loads(json.dumps(pod))) == []


def test_an_unexplained_difference_is_listed() -> None:
    found = listed({"spec": {"moon": "full"}}, {"spec": {"moon": "new"}})
    assert found["spec.moon"] == FieldChange("spec.moon", "full", "new", UNKNOWN_REASON)
    assert str(found["spec.moon"]) == f"spec.moon changed: {UNKNOWN_REASON}: new"


LISTS = [
    ("an entry that went", [{"name": "a"}, {"name": "b"}], [{"name": "b"}], ["v[a]"]),
    ("an entry that came", [{"name": "a"}], [{"name": "a"}, {"name": "b"}], ["v[b]"]),
    ("an entry that changed", [{"name": "a", "x": 1}], [{"name": "a", "x": 2}], ["v[a].x"]),
    (
        "a name that stands twice",
        [{"name": "a", "x": 1}] * 2,
        [{"name": "a", "x": 1}, {"name": "a", "x": 2}],
        ["v[a][1].x"],
    ),
    ("a list without names", ["a", "b"], ["a"], ["v"]),
    ("a list that is empty now", [{"name": "a"}], [], ["v"]),
    ("a number that is text now", 1, "1", ["v"]),
    ("a list that is an object now", [1], {"a": 1}, ["v"]),
    ("nothing that is empty now", None, {}, ["v"]),
]


@pytest.mark.parametrize(("before", "after", "want"), [row[1:] for row in LISTS], ids=[row[0] for row in LISTS])
def test_paths(before: Any, after: Any, want: list[str]) -> None:
    assert [one.path for one in diff_pods({"v": before}, {"v": after})] == want


def test_a_long_value_is_cut_and_has_one_line() -> None:
    (one,) = diff_pods({}, {"x": "a\n" * 200})
    assert len(one.after) == 60 and one.after.endswith(" ...") and "\n" not in one.after


def test_an_empty_value_differs_from_an_absent_one() -> None:
    (one,) = diff_pods({"x": "full"}, {"x": ""})
    assert str(one).startswith("x changed: ")


# No booleans: Python takes True for 1, and a field of Kubernetes with a boolean has no other type.
JSON = st.recursive(
    st.none() | st.integers(0, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.lists(st.builds(lambda n, v: {"name": n, "v": v}, st.sampled_from("xy"), inner), max_size=3)
    ),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)
)
def test_every_difference_is_listed(before: Raw, after: Raw) -> None:
    """Except for the order of named entries, which has no meaning in a pod."""
    if _unordered(before) != _unordered(after):
        assert diff_pods(before, after)
    assert diff_pods(before, json.loads(json.dumps(before))) == []


def _unordered(value: Any) -> str:
    if isinstance(value, dict):
        return str(sorted((key, _unordered(item)) for key, item in value.items()))
    if isinstance(value, list) and all(isinstance(item, dict) and item.get("name") for item in value):
        return str(
            [(name, [_unordered(i) for i in value if i["name"] == name]) for name in sorted({i["name"] for i in value})]
        )
    return str([_unordered(item) for item in value]) if isinstance(value, list) else repr(value)
