"""How many Events does a job get whose many pods have one trouble? One, and it is written once."""

import pytest
from aiohttp import web

from adapter.actions import CreatePod, Say
from adapter.dispatch import decide
from adapter.facts import Raw, key_of
from adapter.placement import placement
from adapter.shell.client import ApiError
from adapter.shell.events import Announcer
from adapter.shell.execute import Executor
from adapter.worker import Worker
from adapter.workload import Job
from tests.unit import apiserver
from tests.unit.apiserver import Server, refuses, says
from tests.unit.builders import at, make_placement, make_pod, make_workload
from tests.unit.sight import Sight, fill

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
        fill(sight.home.placements, PLACE)
        executor = Executor(sight.home, sight.fleet, sight.observer, Announcer(client))
        for pod in pods:
            with pytest.raises(ApiError):
                await executor.do(CreatePod("east", JOB, pod, pod))
        (note,) = server.asked
        said = 'worker cluster east refuses pods of the job: pods "*" is forbidden: violates PodSecurity'
        assert note.body["message"] == said
        assert set(executor.memory.unusable(placement(PLACE)).values()) == {
            'the cluster refuses its pods: pods "*" is forbidden: violates PodSecurity'
        }


def test_strangers_of_one_template_are_told_of_once() -> None:
    told = set()
    for pod in [worker(number) for number in range(3)]:
        (said,) = decide(
            Worker(pod, {}, placement(PLACE), JOB, False, "", {}, {}, ()), at(5)
        )  # it belongs to no RayCluster of the job
        assert isinstance(said, Say)
        told.add(said.message)
    (text,) = told
    assert text.startswith("Pod train-abc-worker-* carries the label rayspan.dev/placement but belongs to no")
    assert key_of(worker(1))[1] not in text
