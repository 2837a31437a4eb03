"""A job whose pods share one problem gets one Event, written once."""

from dataclasses import replace

import pytest
from aiohttp import web

from adapter.actions import CreatePod, EmitEvent
from adapter.objects.placement import ShareKey, parse_placement
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.objects.workload import Job
from adapter.shell.kube.client import ApiError
from adapter.shell.write.events import EVENT_BURST, EventRecorder
from adapter.worker.dispatch import decide
from tests.unit import apiserver
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import at, make_placement, make_pod, make_workload
from tests.unit.fact_builders import make_worker
from tests.unit.stores import Sight, fill

WORK = make_workload()
PLACE = make_placement(WORK)
JOB = Job("ray.io/v1", "RayJob", "demo", "train", "u")


def worker(number: int) -> Raw:
    pod = make_pod(f"train-abc-worker-{number}", placement=PLACE["metadata"]["name"], slot=f"east/1/r/{number}")
    pod["metadata"]["generateName"] = "train-abc-worker-"
    return pod


class _Strict(Server):
    """A cluster that denies every pod by its name, and records Events."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/events"):
            return await super().handle(request)
        name = (await request.json())["metadata"]["name"]
        return await refuses(403, message=f'pods "{name}" is forbidden: violates PodSecurity')(request)


async def test_one_message_for_many_pods_is_one_event() -> None:
    pods, server = [worker(number) for number in range(5)], _Strict()
    server.lists = [says({"kind": "Event"})] * 5
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight = Sight({"east": 9})
        sight.members["east"].client = client
        fill(sight.manager.placements, PLACE)
        executor, memory = sight.executor(client), sight.memory
        for pod in pods:
            with pytest.raises(ApiError):
                await executor.execute(CreatePod("east", JOB, parse_placement(PLACE), ShareKey("east", 1), pod, pod))
        (note,) = server.asked
        said = 'worker cluster east denies pods of the job: pods "*" is forbidden: violates PodSecurity'
        assert note.body["message"] == said
        place, said = (
            parse_placement(PLACE),
            'the cluster denies its pods: pods "*" is forbidden: violates PodSecurity',
        )
        assert set(memory.unusable_shares(place, map(uid_of, pods)).values()) == {said}
        assert memory.unusable_shares(place, ["of-another"]) == {}, "what was said of pods that are gone counts no more"


@pytest.mark.parametrize(
    ("answer", "said", "unusable"),
    [
        pytest.param(
            refuses(500, "InternalError", 'failed calling webhook "mpod.kb.io": no answer'),
            'A worker for east is not created: failed calling webhook "mpod.kb.io": no answer.',
            False,
            id="a webhook without an answer",
        ),
        pytest.param(
            refuses(409, "Conflict", "quota: changed meanwhile"), "", False, id="a conflict on a resource quota"
        ),
        pytest.param(refuses(429, "TooManyRequests"), "", False, id="a busy server"),
    ],
)
async def test_a_transient_error_is_no_denial(answer: Answer, said: str, unusable: bool) -> None:
    pod, server = worker(0), Server()
    server.lists = [answer, says({"kind": "Event"})]
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight = Sight({"east": 9})
        sight.members["east"].client = client
        fill(sight.manager.placements, PLACE)
        executor, memory = sight.executor(client), sight.memory
        with pytest.raises(ApiError) as trouble:
            await executor.execute(CreatePod("east", JOB, parse_placement(PLACE), ShareKey("east", 1), pod, pod))
        assert trouble.value.status != 404, "nobody asks for a pod that was not made"
    assert [one.body["message"] for one in server.asked[1:]] == ([said] if said else [])
    assert bool(memory.unusable_shares(parse_placement(PLACE), [uid_of(pod)])) is unusable


def test_foreign_pods_of_one_template_are_one_event() -> None:
    told = set()
    for pod in [worker(number) for number in range(3)]:
        (said,) = decide(
            make_worker(pod=pod, placement=parse_placement(PLACE), job=JOB, owns_pod=False), at(5)
        )  # it belongs to no RayCluster of the job
        assert isinstance(said, EmitEvent)
        told.add(said.message)
    (text,) = told
    assert text.startswith("Pod train-abc-worker-* carries the label rayspan.dev/placement but belongs to no")
    assert key_of(worker(1))[1] not in text


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_many_foreign_pods_are_some_events_and_then_a_count(server: Server) -> None:
    """Pods labelled by hand: each has its own message, repeated at each resync."""
    server.lists = [says({"kind": "Event"})] * 10_000
    clock = _Clock()
    async with apiserver.connected(server.url) as client:
        announcer = EventRecorder(client, clock)
        for _ in range(10):
            for number in range(2_000):
                await announcer.record_event(
                    JOB, "RemotePodConflict", f"Pod stranger-{number} is left alone.", warning=True
                )
            clock.now += 60.0
        said = [asked.body["message"] for asked in server.asked]
        assert len(said) == EVENT_BURST + 9, "ten at once, and then one a minute"
        assert (
            said[-1]
            == "Pod stranger-0 is left alone. (And 1000 or more other messages of this kind since the last one.)"
        )
        await announcer.record_event(JOB, "RemotePodRejected", "no room", warning=True)
        await announcer.record_event(replace(JOB, uid="another"), "RemotePodConflict", "Pod x is left alone.")
        assert [asked.body["message"] for asked in server.asked][-2:] == ["no room", "Pod x is left alone."]


async def test_suppressed_events_are_counted(server: Server) -> None:
    server.lists = [says({"kind": "Event"})] * 100
    clock = _Clock()
    async with apiserver.connected(server.url) as client:
        announcer = EventRecorder(client, clock)
        for number in [*range(EVENT_BURST), 90, 91, 91, 92]:
            await announcer.record_event(JOB, "Waits", f"for {number}")
        clock.now += 60.0
        await announcer.record_event(JOB, "Waits", "for 92")
        clock.now += 60.0
        await announcer.record_event(JOB, "Waits", "for 92")
        await announcer.record_event(JOB, "Waits", "for 93")
    said = [asked.body["message"] for asked in server.asked]
    assert said[EVENT_BURST:] == ["for 92 (And 2 other messages of this kind since the last one.)", "for 93"]


async def test_a_lasting_problem_is_recorded_again_before_its_event_expires(server: Server) -> None:
    server.lists = [says({"kind": "Event"})] * 100
    clock = _Clock()
    async with apiserver.connected(server.url) as client:
        announcer = EventRecorder(client, clock)
        for _ in range(61):
            await announcer.record_event(JOB, "Waits", "for room")
            clock.now += 60.0
        assert len(server.asked) == 3, "at once, and each half hour"
        clock.now += 3600.0
        await announcer.record_event(JOB, "Waits", "for room")
        assert list(announcer._histories) == [(JOB.uid, "Waits")]
        clock.now += 3600.0
        await announcer.record_event(JOB, "Other", "thing")
        assert list(announcer._histories) == [(JOB.uid, "Other")], "what nobody says any more is forgotten"


async def test_a_too_long_message_is_recorded(server: Server) -> None:
    """Names of jobs and Events have up to 253 characters, an Event's includes a digest; a message has up to 1024."""
    server.lists = [says({"kind": "Event"})] * 3
    async with apiserver.connected(server.url) as client:
        announcer = EventRecorder(client)
        await announcer.record_event(replace(JOB, name="x" * 253), "Refused", "no. " * 500, warning=True)
        await announcer.record_event(replace(JOB, name="x" * 235 + ".y"), "Refused", "no.", warning=True)
    long, dotted = (asked.body for asked in server.asked)
    assert len(long["metadata"]["name"]) == 253 and long["involvedObject"]["name"] == "x" * 253
    assert len(long["message"]) == 1_024 and long["message"].endswith("…")
    assert ".." not in dotted["metadata"]["name"], "a DNS name"


async def test_an_event_of_a_services_ray_cluster_is_also_on_the_service(server: Server) -> None:
    """Its user wrote the RayService; while it is upgraded, two RayClusters of it say the same of themselves."""
    server.lists = [says({"kind": "Event"})] * 4
    service = Job("ray.io/v1", "RayService", "demo", "chat", "of-service")
    old, new = (Job("ray.io/v1", "RayCluster", "demo", f"chat-{one}", one, service) for one in ("old", "new"))
    async with apiserver.connected(server.url) as client:
        announcer = EventRecorder(client)
        await announcer.record_event(old, "Waiting", "No room.")
        await announcer.record_event(new, "Waiting", "RayCluster chat-new: no room.", names_job=True)
        await announcer.record_event(old, "Waiting", "No room.")
        await announcer.record_event(new, "Waiting", "RayCluster chat-new: no room.", names_job=True)
    bodies = [asked.body for asked in server.asked]
    assert [(body["involvedObject"]["name"], body["message"]) for body in bodies] == [
        ("chat-old", "No room."),
        ("chat", "RayCluster chat-old: No room."),
        ("chat-new", "RayCluster chat-new: no room."),
        ("chat", "RayCluster chat-new: no room."),
    ]
    assert len({body["metadata"]["name"] for body in bodies}) == 4
