"""EndpointSlice writes: none when slices are up to date, and changes only of the observed version."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.actions import Action, DeleteEndpointSlice, EmitEvent, PutEndpointSlice
from adapter.objects.unstructured import RawDict as Raw
from adapter.worker import endpoint_objects
from adapter.worker.endpoint_objects import ServiceFacts
from adapter.worker.service_endpoints import Backend
from tests.unit.builders import make_ray_cluster, make_service, make_serving, make_serving_copy

BOTH = make_service(ipFamilies=["IPv4", "IPv6"])
RAY_CLUSTER = make_ray_cluster(owner="uid-of-chat")


def decide(*pods: Raw, service: Raw | None = BOTH, current: tuple[Raw, ...] = ()) -> list[Action]:
    backends = tuple(Backend(pod, make_serving_copy(pod), reachable=True) for pod in pods)
    return endpoint_objects.decide(ServiceFacts(service, RAY_CLUSTER, backends, current))


def stored(body: Any, version: str = "7", **more: Any) -> Raw:
    """The body as an API server lists it: without its kind, with the server's own fields."""
    metadata = {**body["metadata"], "uid": "u", "resourceVersion": version, "generation": 1}
    return {"metadata": metadata, **{key: body[key] for key in ("addressType", "endpoints", "ports")}, **more}


def after(current: dict[str, Raw], actions: list[Action]) -> dict[str, Raw]:
    """The slices after the actions."""
    for action in actions:
        if isinstance(action, PutEndpointSlice):
            current = {**current, action.body["metadata"]["name"]: stored(action.body)}
        elif isinstance(action, DeleteEndpointSlice):
            current = {name: raw for name, raw in current.items() if raw is not action.endpoint_slice}
    return current


def put_slice(*pods: Raw, **more: Any) -> PutEndpointSlice:
    (action,) = decide(*pods, **more)
    assert isinstance(action, PutEndpointSlice)
    return action


def test_a_slice_is_created_once() -> None:
    put = put_slice(make_serving())
    assert "resourceVersion" not in put.body["metadata"]
    assert (put.regarding.kind, put.regarding.name, put.reason) == (
        "RayService",
        "chat",
        "IPv4: 1 of 1 workers ready",
    )
    assert decide(make_serving(), current=(stored(put.body),)) == []


def test_a_changed_slice_is_restored_by_its_observed_version() -> None:
    body = put_slice(make_serving()).body
    (endpoint,) = body["endpoints"]
    changes: tuple[Raw, ...] = (
        {"endpoints": [{**endpoint, "nodeName": "n"}]},
        {"endpoints": [{**endpoint, "addresses": ["10.9.9.9"]}]},
        {"ports": []},
        {"metadata": {**stored(body)["metadata"], "ownerReferences": []}},
    )
    for changed in changes:
        again = put_slice(make_serving(), current=(stored(body, **changed),))
        assert again.body["metadata"]["resourceVersion"] == "7" and again.body["endpoints"] == [endpoint]
    labelled = {**stored(body)["metadata"], "labels": {**body["metadata"]["labels"], "of": "somebody"}}
    assert decide(make_serving(), current=(stored(body, metadata=labelled),)) == [], "labels of others stay"


def test_a_slice_is_deleted_with_the_last_worker_of_its_family() -> None:
    four, six = make_serving("a"), make_serving("b", address="fd00::1")
    current = after({}, decide(four, six))
    assert sorted(current) == ["chat-serve-svc-rayspan-ipv4", "chat-serve-svc-rayspan-ipv6"]
    (deletion,) = decide(four, current=tuple(current.values()))
    assert isinstance(deletion, DeleteEndpointSlice) and deletion.endpoint_slice["addressType"] == "IPv6"
    actions = decide(current=tuple(current.values()))
    assert [type(action) for action in actions] == [DeleteEndpointSlice, DeleteEndpointSlice] and after(
        current, actions
    ) == {}


def test_a_slice_that_cannot_be_restored_is_deleted_first() -> None:
    body = put_slice(make_serving()).body
    changed = stored(body, addressType="FQDN")
    (deletion,) = decide(make_serving(), current=(changed,))
    assert isinstance(deletion, DeleteEndpointSlice)
    another = stored({**body, "metadata": {**body["metadata"], "name": "another"}})
    (deletion,) = decide(make_serving(), current=(stored(body), another))
    assert isinstance(deletion, DeleteEndpointSlice) and deletion.endpoint_slice is another


@pytest.mark.parametrize("service", [None, {**BOTH, "metadata": {**BOTH["metadata"], "deletionTimestamp": "x"}}])
def test_a_deleted_service_loses_its_slices(service: Raw | None) -> None:
    """A finalizer may keep it longer than its workers; one without the label is not watched any more."""
    body = put_slice(make_serving()).body
    (deletion,) = decide(make_serving("another"), service=service, current=(stored(body),))
    assert isinstance(deletion, DeleteEndpointSlice) and deletion.regarding.name in ("chat", "chat-serve-svc")


def test_a_service_beyond_the_limit_loses_its_slices_with_an_event() -> None:
    body = stored(put_slice(make_serving()).body)
    deletion, event = endpoint_objects.decide(
        ServiceFacts(BOTH, RAY_CLUSTER, current_slices=(body,), exceeds_limit=True)
    )
    assert isinstance(deletion, DeleteEndpointSlice) and deletion.endpoint_slice is body
    assert (
        isinstance(event, EmitEvent)
        and "more than 4 Services" in event.message
        and event.regarding.kind == "RayService"
    )


def test_a_service_without_an_owner_loses_its_slices() -> None:
    body = put_slice(make_serving()).body
    (deletion,) = decide(make_serving(), service=make_service(owner=""), current=(stored(body),))
    assert isinstance(deletion, DeleteEndpointSlice) and deletion.regarding.kind == "Service"


def test_workers_beyond_the_limit_are_reported_on_the_rayservice() -> None:
    *_, event = decide(*(make_serving(f"w{n}") for n in range(1001)))
    assert (
        isinstance(event, EmitEvent)
        and event.regarding.kind == "RayService"
        and "of which 1 get no request" in event.message
    )


@given(
    st.lists(
        st.lists(
            st.builds(
                make_serving,
                name=st.sampled_from("abc"),
                address=st.sampled_from(["10.1.0.1", "fd00::1"]),
                ready=st.booleans(),
                deleting=st.booleans(),
            ),
            max_size=3,
            unique_by=lambda pod: pod["metadata"]["name"],
        ),
        max_size=4,
    )
)
def test_one_write_for_each_family_and_none_at_the_second_reconcile(course: list[list[Raw]]) -> None:
    current: dict[str, Raw] = {}
    for pods in course:
        actions = decide(*pods, current=tuple(current.values()))
        assert len(actions) <= 2
        current = after(current, actions)
        assert decide(*pods, current=tuple(current.values())) == []
