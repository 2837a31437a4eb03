"""EndpointSlices are written once, by their version, and failures are reported."""

from contextlib import nullcontext

import pytest

from adapter.actions import Action, DeleteEndpointSlice, PutEndpointSlice
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Job
from adapter.shell.kube.client import ApiError
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.stores import Sight, fill

ABOUT = Job("ray.io/v1", "RayService", "demo", "chat", "uid-of-chat")


def slice_(version: str = "") -> Raw:
    stands = {"uid": "u", "resourceVersion": version} if version else {}
    return {"metadata": {"namespace": "demo", "name": "chat-rayspan-ipv4", **stands}, "endpoints": []}


async def do(action: Action, *answers: Answer, trouble: bool = False) -> tuple[Sight, list[apiserver.Asked]]:
    server = Server(lists=[*answers, says({"metadata": {}})])  # the last one is of an event
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight = Sight({"east": 9})
        sight.manager.client = client
        fill(sight.manager.slices)
        with pytest.raises(ApiError) if trouble else nullcontext():
            await sight.executor(client).execute(action)
    return sight, server.asked


@pytest.mark.parametrize(("version", "method"), [("", "POST"), ("7", "PATCH")])
async def test_a_slice_is_created_or_changed_by_its_observed_version(version: str, method: str) -> None:
    sight, (asked,) = await do(PutEndpointSlice(ABOUT, slice_(version), "why"), says(slice_("8")))
    assert (asked.method, asked.body["metadata"].get("resourceVersion", "")) == (method, version)
    assert len(sight.manager.slices) == 1, "the next look sees it, whenever the watch tells"


async def test_a_slice_is_deleted_by_its_observed_version() -> None:
    _, (asked,) = await do(DeleteEndpointSlice(ABOUT, slice_("7"), "why"), says({"kind": "Status"}))
    assert (asked.method, asked.body["preconditions"]) == ("DELETE", {"uid": "u"})


@pytest.mark.parametrize(
    ("action", "answer", "said"),
    [
        pytest.param(
            PutEndpointSlice(ABOUT, slice_(), "why"), refuses(403), "cannot be written (no)", id="no right to create"
        ),
        pytest.param(
            PutEndpointSlice(ABOUT, slice_("7"), "why"), refuses(422), "cannot be written (no)", id="denied by a policy"
        ),
        pytest.param(
            PutEndpointSlice(ABOUT, slice_(), "why"), refuses(409, "AlreadyExists"), "is not Rayspan's", id="a namesake"
        ),
        pytest.param(
            DeleteEndpointSlice(ABOUT, slice_("7"), "why"),
            refuses(403),
            "cannot be deleted (no)",
            id="no right to delete",
        ),
    ],
)
async def test_a_denial_is_reported_and_not_retried_before_the_resync(
    action: Action, answer: Answer, said: str
) -> None:
    _, (_, event) = await do(action, answer)
    assert event.body["involvedObject"]["kind"] == "RayService" and event.body["reason"] == "RequestsViaHead"
    assert said in event.body["message"]


@pytest.mark.parametrize(
    ("answer", "trouble"), [(refuses(409, "Conflict"), True), (refuses(500), True), (refuses(404, "NotFound"), False)]
)
async def test_a_transient_error_is_raised_and_a_missing_object_is_not(answer: Answer, trouble: bool) -> None:
    _, asked = await do(PutEndpointSlice(ABOUT, slice_("7"), "why"), answer, trouble=trouble)
    assert len(asked) == 1
