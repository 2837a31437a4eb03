"""The order in which a worker's objects are written, and the version of the pod that a write needs."""

from contextlib import nullcontext
from typing import Any

import pytest

from adapter.actions import AssignSlot, CreatePod
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.references import Reference
from adapter.objects.unstructured import uid_of
from adapter.objects.worker_pod import Slot
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.transient_state import TransientState
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, refuses, says, text
from tests.unit.builders import make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.stores import Sight

PLACE = make_placement(make_workload())
SLOT = Slot(ShareKey("east", 1), "role-workers", 0)
POD = make_pod(placement=PLACE["metadata"]["name"], slot=SLOT)
SECRET = {"kind": "Secret", "metadata": {"name": "token", "uid": "s", "resourceVersion": "1"}, "type": "Opaque"}
WANTED = {Reference("Secret", "token"): "spec.imagePullSecrets"}


async def do(
    action: Any, *answers: Answer, trouble: type[Exception] | None = None, memory: TransientState | None = None
) -> list[apiserver.Asked]:
    """Do an action with one server for both clusters; return its requests in order."""
    server = Server(lists=list(answers))
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight = Sight({"east": 9})
        sight.memory = memory or sight.memory
        sight.manager.client = sight.members["east"].client = client
        with pytest.raises(trouble) if trouble else nullcontext():
            await sight.executor(client).execute(action)
    return server.asked


def made() -> CreatePod:
    body = make_copy(POD)
    body["metadata"]["ownerReferences"] = make_reservation(PLACE)["metadata"]["ownerReferences"]
    return CreatePod("east", None, parse_placement(PLACE), ShareKey("east", 1), POD, body, WANTED)


@pytest.mark.parametrize(
    ("answers", "trouble", "writes"),
    [
        pytest.param(
            [says(SECRET)] * 2 + [says(made().body)], None, ["secrets", "pods"], id="all objects can be copied"
        ),
        pytest.param(
            [says(SECRET), refuses(403)], ApiError, ["secrets"], id="the worker cluster denies the copied object"
        ),
        pytest.param([refuses(404, "NotFound")], Unreachable, [], id="the manager has no such Secret"),
    ],
)
async def test_referenced_objects_are_written_before_the_pod(
    answers: list[Answer], trouble: type[Exception] | None, writes: list[str]
) -> None:
    """A pod that came first would wait in its worker cluster, and for ever if its process dies between the two."""
    memory = TransientState()
    asked = await do(made(), *answers, trouble=trouble, memory=memory)
    assert [one.path.rpartition("/")[2] for one in asked if one.method == "POST"] == writes
    assert memory.sent_pods == {uid_of(POD)}, "whatever came of it: who hears of no answer does not know"
    assert memory.creations_in_flight == 0, "it is over"
    assert memory.created_pods == (set() if trouble else {uid_of(POD)})


@pytest.mark.parametrize(
    ("answer", "trouble", "unknown"),
    [
        pytest.param(says(made().body), None, False, id="the remote pod was created"),
        pytest.param(refuses(403), ApiError, False, id="the create was denied"),
        pytest.param(
            refuses(500, "InternalError", 'failed calling webhook "x": no'),
            ApiError,
            False,
            id="an admission webhook without an answer",
        ),
        pytest.param(refuses(504, "Timeout"), ApiError, True, id="a timeout of the API server"),
        pytest.param(text("", 502), ApiError, True, id="an error of a proxy"),
    ],
)
async def test_whether_a_remote_pod_may_still_appear(
    answer: Answer, trouble: type[Exception] | None, unknown: bool
) -> None:
    """Its pod may not be sent elsewhere while it may."""
    memory = TransientState()
    await do(made(), says(SECRET), says(SECRET), answer, trouble=trouble, memory=memory)
    assert memory.unanswered_pods == ({uid_of(POD)} if unknown else set())


async def test_a_denied_copied_object_does_not_answer_an_earlier_create() -> None:
    memory = TransientState()
    memory.unanswered_pods.add(uid_of(POD))
    await do(made(), says(SECRET), refuses(403), trouble=ApiError, memory=memory)
    assert memory.unanswered_pods == {uid_of(POD)}


async def test_a_slot_is_assigned_by_the_pods_version() -> None:
    """A concurrent assignment changes the version: the write fails with a conflict, and the pod is reconciled again."""
    pod = {**POD, "metadata": POD["metadata"] | {"uid": "u7", "resourceVersion": "41"}}
    (asked,) = await do(AssignSlot(pod, "east", SLOT), says(pod))
    assert (asked.method, asked.path.rpartition("/")[2]) == ("PATCH", "status")
    meant = {key: asked.body["metadata"].get(key) for key in ("uid", "resourceVersion")}
    assert meant == {"uid": "u7", "resourceVersion": "41"}
