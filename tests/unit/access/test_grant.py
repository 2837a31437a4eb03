"""Which grants are good, for which key and until when, and which are swept?"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.access import grant
from adapter.access.grant import EXEC, LIFETIME, LOG, MAX_PER_NAMESPACE, Grant
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


def test_what_is_asked_for_is_read_back_and_the_key_is_not_in_it() -> None:
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
        pytest.param(timedelta(), KEY, True, id="at once"),
        pytest.param(LIFETIME - timedelta(seconds=1), KEY, True, id="at its end"),
        pytest.param(LIFETIME, KEY, False, id="over"),
        pytest.param(timedelta(), "j" * 43, False, id="another key"),
        pytest.param(timedelta(), "", False, id="no key"),
        pytest.param(timedelta(), grant.hash_key(KEY), False, id="what stands in the object"),
    ],
)
def test_a_grant_opens_for_its_key_and_for_five_minutes(age: timedelta, key: str, wanted: bool) -> None:
    found = grant.parse(raw(age))
    assert found is not None and grant.accepts_key(found, key, NOW) is wanted


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": None}, id="no spec"),
        pytest.param({"spec": {**raw()["spec"], "subresource": "attach"}}, id="a subresource that is none"),
        pytest.param({"spec": {**raw()["spec"], "podUID": 5}}, id="a uid that is no text"),
        pytest.param({"spec": {**raw()["spec"], "command": [["ls"]]}}, id="a command that is no words"),
        pytest.param({"metadata": {**raw()["metadata"], "creationTimestamp": "soon"}}, id="no time"),
        pytest.param(
            {"metadata": {**raw()["metadata"], "deletionTimestamp": "2026-11-25T12:00:00Z"}}, id="being deleted"
        ),
    ],
)
def test_what_cannot_be_read_is_no_grant(change: Raw) -> None:
    assert grant.parse({**raw(), **change}) is None


FIELDS = st.sampled_from(["pod", "podUID", "subresource", "container", "keyHash", "command"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(FIELDS, JSON))
def test_nothing_that_stands_there_breaks_the_reader(spec: Raw) -> None:
    grant.parse({**raw(), "spec": {**raw()["spec"], **spec}})


def test_those_that_are_over_are_swept_and_good_ones_stay() -> None:
    old, fresh, odd = raw(LIFETIME, name="old"), raw(name="fresh"), {**raw(name="odd"), "spec": {}}
    going = {**old, "metadata": {**old["metadata"], "deletionTimestamp": "2026-11-25T12:00:00Z"}}
    assert grant.grants_to_delete([old, fresh, odd, going], NOW) == [old, odd]


def test_of_a_namespace_that_has_too_many_the_oldest_go() -> None:
    many = [raw(timedelta(milliseconds=1000 * n), name=f"g-{n}") for n in range(100)]
    crowd = [raw(timedelta(seconds=n % 200), name=f"g-{n}") for n in range(MAX_PER_NAMESPACE)]
    last = raw(timedelta(seconds=250), name="last")
    other = [{**one, "metadata": {**one["metadata"], "namespace": "other"}} for one in many]
    assert grant.grants_to_delete([*other, last, *crowd], NOW) == [last]
