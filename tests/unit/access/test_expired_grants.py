"""Which WorkerAccesses a sweep deletes, in the order in which an API server lists them."""

from collections.abc import Iterable
from datetime import timedelta

import pytest

from adapter.access import expired_grants
from adapter.access.expired_grants import MAX_PER_NAMESPACE, ExpiredGrants
from adapter.access.grant import LIFETIME
from adapter.objects.unstructured import Raw
from tests.unit.access.test_grant import NOW, raw


def selected(objects: Iterable[Raw], first_namespace: str = "") -> ExpiredGrants:
    expired = ExpiredGrants(first_namespace)
    for listed in objects:
        expired.add_object(listed, NOW)
    return expired


def names_of(objects: Iterable[Raw], first_namespace: str = "") -> list[str]:
    return [ref.name for ref in selected(objects, first_namespace).refs]


def test_expired_and_malformed_grants_are_selected_and_valid_ones_are_not() -> None:
    old, fresh, odd = raw(LIFETIME, name="old"), raw(name="fresh"), {**raw(name="odd"), "spec": {}}
    deleting = {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-11-25T12:00:00Z"}}
    assert names_of([old, fresh, odd, deleting]) == ["old", "odd"]


def test_the_oldest_of_too_many_grants_of_a_namespace_are_selected() -> None:
    other = [raw(timedelta(seconds=n), name=f"g-{n}", namespace="alpha") for n in range(100)]
    crowd = [raw(timedelta(seconds=n % 200), name=f"g-{n}") for n in range(MAX_PER_NAMESPACE)]
    oldest = raw(timedelta(seconds=250), name="oldest")
    assert names_of([*other, oldest, *crowd]) == ["oldest"]


def test_namespaces_full_of_valid_grants_hide_no_expired_grant_of_a_later_one() -> None:
    """20 namespaces whose names come first, each with as many as are valid at once."""
    crowd = (raw(name=f"g-{n}", namespace=f"a-{i:02}") for i in range(20) for n in range(MAX_PER_NAMESPACE))
    expired = ExpiredGrants()
    for listed in crowd:
        expired.add_object(listed, NOW)
        assert len(expired._valid) <= MAX_PER_NAMESPACE, "only those of one namespace are remembered"
    expired.add_object(raw(LIFETIME, name="old", namespace="research"), NOW)
    assert [ref.name for ref in expired.refs] == ["old"]


def test_sweeps_with_too_many_deletions_reach_each_namespace_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace gets a part of each sweep; etcd sorts `a-b` before `a`."""
    monkeypatch.setattr(expired_grants, "MAX_DELETIONS", 4)
    monkeypatch.setattr(expired_grants, "MAX_DELETIONS_OF_NAMESPACE", 3)
    listed = [raw(LIFETIME, name=f"{n}", namespace=namespace) for namespace in ("a-b", "a", "b") for n in range(5)]
    first = selected(listed)
    assert [(ref.namespace, ref.name) for ref in first.refs] == [("a-b", "0"), ("a-b", "1"), ("a-b", "2"), ("a", "0")]
    second = selected(listed, first.next_namespace)
    assert [(ref.namespace, ref.name) for ref in second.refs] == [("a", "0"), ("a", "1"), ("a", "2"), ("b", "0")]
    third = selected(listed, second.next_namespace)
    assert [ref.namespace for ref in third.refs] == ["b"] * 3
    assert third.next_namespace == "", "the next sweep begins with the first namespace"
