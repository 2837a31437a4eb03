"""The memory of JSON is estimated before it is parsed, also for JSON that is made to need much."""

import tracemalloc
from typing import Any

import orjson
import pytest
import yaml

from adapter.shell.kube import object_size
from hack.lab.base.paths import REPO
from tests.unit import builders

POD = yaml.safe_load((REPO / "tests/unit/rewrite/golden/kuberay-1.6.2/gpu.in.yaml").read_text())
WORKLOAD = builders.make_workload()


def taken(said: bytes) -> int:
    """The bytes that it takes once it is read."""
    tracemalloc.start()
    try:
        kept = orjson.loads(said)
        return tracemalloc.get_traced_memory()[0] if kept else 0
    finally:
        tracemalloc.stop()


def _versions(raw: Any, count: int = 200) -> list[Any]:
    return [{**raw, "metadata": {**raw["metadata"], "name": f"a-{number}"}} for number in range(count)]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(_versions(POD), id="pods"),
        pytest.param(_versions(WORKLOAD), id="Workloads"),
        pytest.param([{}] * 20_000, id="empty objects"),
        pytest.param([[]] * 20_000, id="empty lists"),
        pytest.param([""] * 20_000, id="empty texts"),
        pytest.param([{f"k{number}": {}} for number in range(20_000)], id="objects of one key"),
        pytest.param(
            [{f"k{number}-{n}": 300 for n in range(6)} for number in range(5_000)], id="objects that just grew"
        ),
        pytest.param([{str(number): 2**40 + number for number in range(50_000)}], id="one object of many numbers"),
        pytest.param([float(number) for number in range(20_000)], id="numbers"),
        pytest.param(["x" * 100_000 + "\U0001f600"] * 10, id="long texts with one wide character"),
    ],
)
def test_no_object_takes_much_more_than_its_estimate(found: Any) -> None:
    said = orjson.dumps(found)
    real = taken(said)
    assert 0.9 * real < object_size.weigh_json(said) == object_size.weigh_object(found)


@pytest.mark.parametrize("raw", [POD, WORKLOAD], ids=["a pod", "a Workload"])
def test_the_estimate_of_usual_objects_is_about_twice_their_memory(raw: Any) -> None:
    said = orjson.dumps(_versions(raw))
    assert 1.5 < object_size.weigh_json(said) / taken(said) < 2.5


@pytest.mark.parametrize(("before", "inside", "after"), [(b'{"x":', b"1", b"}"), (b"[", b'"\xc3\xa4"', b"]")])
def test_deeply_nested_objects_have_an_estimate(before: bytes, inside: bytes, after: bytes) -> None:
    said = before * 1_000 + inside + after * 1_000
    found = orjson.loads(said)
    with pytest.raises(TypeError):
        orjson.dumps(found)
    assert 0.9 * taken(said) < object_size.weigh_object(found) < 3 * object_size.weigh_json(said)
