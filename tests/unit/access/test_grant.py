"""The validity of grants: key and lifetime."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.access import grant
from adapter.access.grant import EXEC, LIFETIME, LOG, Grant
from adapter.objects.unstructured import Raw

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
KEY = "k" * 43
POD = {"metadata": {"namespace": "default", "name": "worker-a", "uid": "u-1"}}


def raw(age: timedelta = timedelta(), *, name: str = "kubectl-1", namespace: str = "default", **spec: Any) -> Raw:
    made = grant.manifest(POD, spec.pop("subresource", LOG), KEY)
    created = (NOW - age).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"namespace": namespace, "name": name, "uid": f"uid-of-{name}", "creationTimestamp": created}
    return {**made, "metadata": metadata, "spec": {**made["spec"], **spec}}


def good(**spec: Any) -> Grant:
    found = grant.parse(raw(**spec))
    assert found is not None
    return found


def test_a_grant_is_read_back_without_its_key() -> None:
    made = grant.manifest(POD, EXEC, KEY, container="ray", command=["ls", "-l"], stdin=True, tty=False)
    assert made["metadata"] == {"generateName": "kubectl-", "namespace": "default"}
    assert KEY not in str(made) and "tty" not in made["spec"]
    found = grant.parse({**made, "metadata": {**raw()["metadata"]}})
    assert found is not None
    assert (found.pod, found.pod_uid, found.container, found.command) == ("worker-a", "u-1", "ray", ("ls", "-l"))
    assert (found.stdin, found.tty, found.is_single_use) == (True, False, True)
    assert not good().is_single_use


@pytest.mark.parametrize(
    ("age", "key", "wanted"),
    [
        pytest.param(timedelta(), KEY, True, id="a new grant"),
        pytest.param(LIFETIME - timedelta(seconds=1), KEY, True, id="a grant just before its end"),
        pytest.param(LIFETIME, KEY, False, id="an expired grant"),
        pytest.param(timedelta(), "j" * 43, False, id="another key"),
        pytest.param(timedelta(), "", False, id="no key"),
        pytest.param(timedelta(), grant.hash_key(KEY), False, id="the hash that the object holds"),
    ],
)
def test_a_grant_opens_for_its_key_and_for_five_minutes(age: timedelta, key: str, wanted: bool) -> None:
    found = grant.parse(raw(age))
    assert found is not None and grant.accepts_key(found, key, NOW) is wanted


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": None}, id="no spec"),
        pytest.param({"spec": {**raw()["spec"], "subresource": "attach"}}, id="an unknown subresource"),
        pytest.param({"spec": {**raw()["spec"], "podUID": 5}}, id="a uid that is a number"),
        pytest.param({"spec": {**raw()["spec"], "command": [["ls"]]}}, id="a command that is a list of lists"),
        pytest.param(
            {"metadata": {**raw()["metadata"], "creationTimestamp": "soon"}},
            id="a creation time that cannot be read",
        ),
        pytest.param(
            {"metadata": {**raw()["metadata"], "deletionTimestamp": "2026-11-25T12:00:00Z"}},
            id="a grant that is being deleted",
        ),
    ],
)
def test_an_unreadable_grant_is_invalid(change: Raw) -> None:
    assert grant.parse({**raw(), **change}) is None


FIELDS = st.sampled_from(["pod", "podUID", "subresource", "container", "keyHash", "command"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(FIELDS, JSON))
def test_no_spec_breaks_the_reader(spec: Raw) -> None:
    grant.parse({**raw(), "spec": {**raw()["spec"], **spec}})
