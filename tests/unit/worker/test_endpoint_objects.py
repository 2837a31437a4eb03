"""What is written so that requests go straight: nothing when all is well, and what stands is changed in the version that was seen."""

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


def decide(*pods: Raw, service: Raw | None = BOTH, standing: tuple[Raw, ...] = ()) -> list[Action]:
    backends = tuple(Backend(pod, make_serving_copy(pod), reachable=True) for pod in pods)
    return endpoint_objects.decide(ServiceFacts(service, RAY_CLUSTER, backends, standing))


def stored(body: Any, version: str = "7", **more: Any) -> Raw:
    """As the API server shows it, in a list: without its kind, and with what is its own."""
    metadata = {**body["metadata"], "uid": "u", "resourceVersion": version, "generation": 1}
    return {"metadata": metadata, **{key: body[key] for key in ("addressType", "endpoints", "ports")}, **more}


def after(standing: dict[str, Raw], actions: list[Action]) -> dict[str, Raw]:
    """What stands when these are done."""
    for action in actions:
        if isinstance(action, PutEndpointSlice):
            standing = {**standing, action.body["metadata"]["name"]: stored(action.body)}
        elif isinstance(action, DeleteEndpointSlice):
            standing = {name: one for name, one in standing.items() if one is not action.endpoint_slice}
    return standing


def one(*pods: Raw, **more: Any) -> PutEndpointSlice:
    (found,) = decide(*pods, **more)
    assert isinstance(found, PutEndpointSlice)
    return found


def test_a_slice_is_made_and_then_nothing_is_to_be_done() -> None:
    made = one(make_serving())
    assert "resourceVersion" not in made.body["metadata"]
    assert (made.regarding.kind, made.regarding.name, made.reason) == (
        "RayService",
        "chat",
        "IPv4: 1 of 1 workers ready",
    )
    assert decide(make_serving(), standing=(stored(made.body),)) == []


def test_what_somebody_changed_is_put_right_in_the_version_that_was_seen() -> None:
    made = one(make_serving()).body
    (endpoint,) = made["endpoints"]
    oddities: tuple[Raw, ...] = (
        {"endpoints": [{**endpoint, "nodeName": "n"}]},
        {"endpoints": [{**endpoint, "addresses": ["10.9.9.9"]}]},
        {"ports": []},
        {"metadata": {**stored(made)["metadata"], "ownerReferences": []}},
    )
    for odd in oddities:
        again = one(make_serving(), standing=(stored(made, **odd),))
        assert again.body["metadata"]["resourceVersion"] == "7" and again.body["endpoints"] == [endpoint]
    labelled = {**stored(made)["metadata"], "labels": {**made["metadata"]["labels"], "of": "somebody"}}
    assert decide(make_serving(), standing=(stored(made, metadata=labelled),)) == [], "what is not ours may stand"


def test_a_slice_goes_with_its_last_worker_and_each_family_by_itself() -> None:
    four, six = make_serving("a"), make_serving("b", address="fd00::1")
    standing = after({}, decide(four, six))
    assert sorted(standing) == ["chat-serve-svc-rayspan-ipv4", "chat-serve-svc-rayspan-ipv6"]
    (gone,) = decide(four, standing=tuple(standing.values()))
    assert isinstance(gone, DeleteEndpointSlice) and gone.endpoint_slice["addressType"] == "IPv6"
    actions = decide(standing=tuple(standing.values()))
    assert [type(action) for action in actions] == [DeleteEndpointSlice, DeleteEndpointSlice] and after(
        standing, actions
    ) == {}


def test_a_slice_of_ours_that_cannot_be_put_right_goes_first() -> None:
    made = one(make_serving()).body
    odd = stored(made, addressType="FQDN")
    (gone,) = decide(make_serving(), standing=(odd,))
    assert isinstance(gone, DeleteEndpointSlice)
    another = stored({**made, "metadata": {**made["metadata"], "name": "another"}})
    (gone,) = decide(make_serving(), standing=(stored(made), another))
    assert isinstance(gone, DeleteEndpointSlice) and gone.endpoint_slice is another


@pytest.mark.parametrize("service", [None, {**BOTH, "metadata": {**BOTH["metadata"], "deletionTimestamp": "x"}}])
def test_a_service_that_goes_leads_nowhere(service: Raw | None) -> None:
    """A finalizer may keep it, with its address, for longer than its workers; one without the label is followed no more."""
    made = one(make_serving()).body
    (gone,) = decide(make_serving("another"), service=service, standing=(stored(made),))
    assert isinstance(gone, DeleteEndpointSlice) and gone.regarding.name in ("chat", "chat-serve-svc")


def test_one_service_too_many_leads_nowhere_and_is_told_so() -> None:
    made = stored(one(make_serving()).body)
    gone, said = endpoint_objects.decide(ServiceFacts(BOTH, RAY_CLUSTER, current_slices=(made,), exceeds_limit=True))
    assert isinstance(gone, DeleteEndpointSlice) and gone.endpoint_slice is made
    assert (
        isinstance(said, EmitEvent) and "more than 4 Services" in said.message and said.regarding.kind == "RayService"
    )


def test_a_service_that_is_nobodys_any_more_loses_its_slices() -> None:
    made = one(make_serving()).body
    (gone,) = decide(make_serving(), service=make_service(owner=""), standing=(stored(made),))
    assert isinstance(gone, DeleteEndpointSlice) and gone.regarding.kind == "Service"


def test_who_is_left_out_is_told_to_the_rayservice() -> None:
    *_, said = decide(*(make_serving(f"w{n}") for n in range(1001)))
    assert (
        isinstance(said, EmitEvent)
        and said.regarding.kind == "RayService"
        and "of which 1 get no request" in said.message
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
def test_one_write_for_each_family_and_the_second_look_finds_nothing_to_do(course: list[list[Raw]]) -> None:
    standing: dict[str, Raw] = {}
    for pods in course:
        actions = decide(*pods, standing=tuple(standing.values()))
        assert len(actions) <= 2
        standing = after(standing, actions)
        assert decide(*pods, standing=tuple(standing.values())) == []
