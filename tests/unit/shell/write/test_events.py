"""How many Events does a job get whose many pods have one trouble? One, and it is written once."""

import pytest
from aiohttp import web

from adapter.actions import CreatePod, Say
from adapter.objects.placement import placement
from adapter.objects.raw import Raw, key_of, uid_of
from adapter.objects.workload import Job
from adapter.rewrite.headaddress import HeadAddress
from adapter.shell.kube.client import ApiError
from adapter.worker.dispatch import decide
from adapter.worker.facts import Worker
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import at, make_placement, make_pod, make_workload
from tests.unit.stores import Sight, fill

WORK = make_workload()
PLACE = make_placement(WORK)
JOB = Job("ray.io/v1", "RayJob", "demo", "train", "u")


def worker(number: int) -> Raw:
    pod = make_pod(f"train-abc-worker-{number}", placement=PLACE["metadata"]["name"], slot=f"east/1/r/{number}")
    pod["metadata"]["generateName"] = "train-abc-worker-"
    return pod


class _Strict(Server):
    """A cluster that wants no pods, and names each; it notes what is said in Events."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/events"):
            return await super().handle(request)
        name = (await request.json())["metadata"]["name"]
        return await refuses(403, message=f'pods "{name}" is forbidden: violates PodSecurity')(request)


async def test_what_a_cluster_says_of_each_pod_is_said_once() -> None:
    pods, server = [worker(number) for number in range(5)], _Strict()
    server.lists = [says({"kind": "Event"})] * 5
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight = Sight({"east": 9})
        sight.members["east"].client = client
        fill(sight.manager.placements, PLACE)
        executor, memory = sight.executor(client), sight.memory
        for pod in pods:
            with pytest.raises(ApiError):
                await executor.do(CreatePod("east", JOB, placement(PLACE), ("east", 1), pod, pod))
        (note,) = server.asked
        said = 'worker cluster east refuses pods of the job: pods "*" is forbidden: violates PodSecurity'
        assert note.body["message"] == said
        place, said = placement(PLACE), 'the cluster refuses its pods: pods "*" is forbidden: violates PodSecurity'
        assert set(memory.unusable(place, map(uid_of, pods)).values()) == {said}
        assert memory.unusable(place, ["of-another"]) == {}, "what was said of pods that are gone counts no more"


@pytest.mark.parametrize(
    ("answer", "said", "unusable"),
    [
        pytest.param(
            refuses(500, "InternalError", 'failed calling webhook "mpod.kb.io": no answer'),
            'A worker for east is not made: failed calling webhook "mpod.kb.io": no answer.',
            False,
            id="a webhook that does not answer",
        ),
        pytest.param(
            refuses(409, "Conflict", "quota: changed meanwhile"), "", False, id="a quota that others book, too"
        ),
        pytest.param(refuses(429, "TooManyRequests"), "", False, id="a busy server"),
    ],
)
async def test_what_passes_is_no_refusal(answer: Answer, said: str, unusable: bool) -> None:
    pod, server = worker(0), Server()
    server.lists = [answer, says({"kind": "Event"})]
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight = Sight({"east": 9})
        sight.members["east"].client = client
        fill(sight.manager.placements, PLACE)
        executor, memory = sight.executor(client), sight.memory
        with pytest.raises(ApiError) as trouble:
            await executor.do(CreatePod("east", JOB, placement(PLACE), ("east", 1), pod, pod))
        assert trouble.value.status != 404, "nobody asks for a pod that was not made"
    assert [one.body["message"] for one in server.asked[1:]] == ([said] if said else [])
    assert bool(memory.unusable(placement(PLACE), [uid_of(pod)])) is unusable


def test_strangers_of_one_template_are_told_of_once() -> None:
    told = set()
    for pod in [worker(number) for number in range(3)]:
        (said,) = decide(
            Worker(pod, {}, placement(PLACE), JOB, False, HeadAddress(), {}, {}, ()), at(5)
        )  # it belongs to no RayCluster of the job
        assert isinstance(said, Say)
        told.add(said.message)
    (text,) = told
    assert text.startswith("Pod train-abc-worker-* carries the label rayspan.dev/placement but belongs to no")
    assert key_of(worker(1))[1] not in text
