"""Common parts of objects are kept and weighed once; objects are unchanged, and nothing stays after them."""

import copy
import json
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects import trim
from adapter.objects.unstructured import key_of
from adapter.objects.worker_pod import without_template_slots
from adapter.rewrite import rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.shell.kube import interning, object_size
from adapter.shell.kube.interning import PartTable
from adapter.shell.kube.store import Store
from adapter.worker import manager_pod_status
from hack.lab.base.paths import REPO
from tests.unit import builders

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "worker" * 20, "é"]) | st.floats(0, 1),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)
_OBJECTS = st.lists(st.fixed_dictionaries({"spec": _JSON, "status": _JSON, "data": _JSON}), min_size=1, max_size=6)
PODS = sorted((REPO / "tests/unit/rewrite/golden").glob("*/*.in.yaml"))


def pod(name: str, **spec: Any) -> dict[str, Any]:
    env = [{"name": f"SETTING_{number}", "value": "on"} for number in range(20)]
    about = {"name": name, "namespace": "demo", "uid": name, "resourceVersion": "1"}
    return {"metadata": about, "spec": {"containers": [{"name": "ray", "env": env, "args": ["x" * 300]}], **spec}}


@given(_OBJECTS)
def test_interned_objects_are_unchanged_and_leave_nothing_behind(objects: list[dict[str, Any]]) -> None:
    parts, before = PartTable(), copy.deepcopy(objects)
    taken = [parts.intern_object(one) for one in objects]
    assert json.dumps([made for made, _ in taken]) == json.dumps(before), "letter by letter: 1 is not true"
    assert objects == before, "what came in is not changed"
    for _, holder in taken:
        parts.release_parts(holder)
    assert parts.weight == 0 and not parts._parts_by_json


@given(_OBJECTS)
def test_shared_parts_weigh_once_until_their_last_holder_is_gone(
    objects: list[dict[str, Any]],
) -> None:
    parts = PartTable()
    first = [parts.intern_object(one)[1] for one in objects]
    weighed = parts.weight
    twins = [parts.intern_object(copy.deepcopy(one))[1] for one in objects]
    assert parts.weight == weighed
    for holder in first:
        parts.release_parts(holder)
    assert parts.weight == weighed, "whoever came first is gone, and what it brought is still held"
    assert [one.weight for one in twins] == [one.weight for one in first]


def test_unshared_parts_weigh_their_size() -> None:
    """Unshared parts allow no more objects in a store."""
    store = Store()
    odd = {
        "metadata": {"name": "a", "resourceVersion": "1"},
        "spec": {"x": [[{"n": [number]}] for number in range(2000)]},
    }
    store.put(odd)
    assert store.weight >= object_size.weigh_object(odd)


def test_pods_of_one_template_take_a_part_of_their_size() -> None:
    store, plain = Store(), object_size.weigh_object(pod("p-0", hostname="p-0"))
    for number in range(100):
        store.put(pod(f"p-{number}", hostname=f"p-{number}"))
    assert store.weight < 100 * plain / 4
    one, other = (store.get(("demo", name)) or {} for name in ("p-1", "p-2"))
    assert one["spec"]["containers"][0]["env"] is other["spec"]["containers"][0]["env"]
    store.replace([], "9")
    assert store.weight == 0


def test_too_deeply_nested_objects_are_not_interned() -> None:
    deep: Any = {}
    for _ in range(600):
        deep = {"a": deep}
    odd = {"status": {"met": {"before": "that"}}, "spec": deep}
    parts = PartTable()
    made, holder = parts.intern_object(odd)
    assert made == odd and holder.weight > 600 * 100
    parts.release_parts(holder)
    assert parts.weight == 0


def test_endless_nesting_beside_shared_parts_leaves_no_part_behind() -> None:
    """An API server may send anything in any field; the store accepts the object as usual, or not at all."""
    deep: Any = {}
    for _ in range(600):
        deep = {"a": deep}
    store = Store(index=lambda _: "one group", counted_value=lambda _: "a slot")
    for version in range(4):
        odd = {"metadata": {"name": "a", "uid": "a", "resourceVersion": str(version)}, "status": {"met": {"b": "c"}}}
        store.put({**odd, "more": deep})
        assert store.value_counts("one group") == {"a slot": 1}
    store.replace([], "9")
    assert (store.weight, store.value_counts("one group")) == (0, {})


def test_a_part_is_interned_again_after_all_its_holders_are_gone() -> None:
    store = Store()
    for version in ("1", "2", "3"):
        one = pod("p-0")
        one["metadata"] |= {"resourceVersion": version}
        store.replace([one], version)
        weighed = store.weight
        store.replace([], str(int(version) * 10))
        assert store.weight == 0 and not store._accounts._accounts
    assert weighed > 0


def test_a_changed_copy_of_an_object_changes_no_other() -> None:
    """Pods share parts: a change in place would change all pods of a gang."""
    store = Store()
    for path in PODS:
        for name in ("one", "other"):
            raw = yaml.safe_load(path.read_text())
            raw["metadata"] |= {"name": f"{path.stem}-{name}"}
            store.put(raw)
    before = {key_of(raw): json.dumps(raw) for raw in store}
    assert len(before) == 2 * len(PODS) > 20
    how: dict[str, Any] = {"role": "workers", "slot": "east/1/workers/0", "anchor_uid": "uid"}
    for raw in store:
        rewriter.remote_pod(raw, head=HeadAddress.from_pod(raw, "10.9.9.9"), target=builders.make_target("east"), **how)
        manager_pod_status.status_patch(raw, raw, "east")
        manager_pod_status.failed_patch(raw, reason="a", message="b", now=builders.stamp())
        without_template_slots(raw)
        trim.manager_pod(raw)
    assert {key_of(raw): json.dumps(raw) for raw in store} == before


@pytest.mark.parametrize(
    ("made_up", "kept"),
    [
        pytest.param(
            {"x": [{"n": number} for number in range(40_000)]}, True, id="an object with a hundred times a pod's values"
        ),
        pytest.param({"x": [{"n": number} for number in range(400)]}, False, id="an object like a pod"),
    ],
)
def test_objects_far_larger_than_a_pod_are_not_interned(made_up: Any, kept: bool) -> None:
    """Interning it would block the loop for as long as its author likes."""
    parts, raw = PartTable(), {"metadata": {"name": "a"}, "spec": made_up}
    made, holder = parts.intern_object(raw)
    assert (made is raw, bool(parts._parts_by_json)) == (kept, not kept)
    assert kept == (holder.weight == object_size.weigh_object(raw)) and made == raw


def test_parts_deeper_than_any_field_of_a_pod_are_not_interned() -> None:
    deep: Any = {"text": "x" * 5000}
    for _ in range(200):
        deep = {"a": deep}
    dumped = list[int]()

    def dumps(one: Any) -> bytes:
        dumped.append(1)
        return orjson.dumps(one)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interning, "orjson", SimpleNamespace(dumps=dumps))
        parts, raw = PartTable(), {"spec": deep}
        made, holder = parts.intern_object(raw)
    assert made == raw and len(dumped) <= interning._DEEPEST and holder.weight == object_size.weigh_object(raw)
