"""The cyclic garbage collector runs seldom, and never over objects that were frozen after the first lists."""

import gc
from collections.abc import Iterator

import pytest

from adapter.shell import gc_tuning
from adapter.shell.kube.store import Store


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def _pod(name: str, version: int) -> dict[str, object]:
    env = [{"name": f"SETTING_{number}", "value": {"of": name, "as": version}} for number in range(50)]
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}, "spec": {"env": env}}


def test_a_thousand_pods_are_parsed_without_a_collection() -> None:
    gc_tuning.collect_rarely()
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    kept = [_pod(str(number), 1) for number in range(400)]
    assert gc.get_stats()[0]["collections"] == before and len(kept) == 400
    assert all(threshold > 0 for threshold in gc.get_threshold()), "it is looked for, for cycles there are"


def test_frozen_objects_are_not_scanned_and_are_freed_by_reference_count() -> None:
    store = Store()
    for number in range(100):
        store.put(_pod(str(number), 1))
    gc_tuning.freeze_objects()
    frozen = gc.get_freeze_count()
    assert not any(one is store._objects for one in gc.get_objects()) and frozen > 100 * 50
    store.replace([_pod(str(number), 2) for number in range(100)], "9")
    assert gc.get_freeze_count() < frozen - 100 * 50, "each state before has gone"
