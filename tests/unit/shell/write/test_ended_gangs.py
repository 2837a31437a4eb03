"""Ended gangs of an incomplete namespace give their quota back, by what the API server says of their owners."""

from collections.abc import Mapping, Sequence

import pytest

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.kube.client import Client
from adapter.shell.observe.slots import PendingAssignments, SlotObserver
from adapter.shell.write import ended_gangs
from adapter.shell.write.ended_gangs import EndedGangs
from adapter.shell.write.events import EventRecorder
from tests.unit import apiserver
from tests.unit.apiserver import Asked, Server, lists, refuses, says
from tests.unit.builders import NAMESPACE, make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.stores import Sight

WORK = make_workload()
PLACE = make_placement(WORK)
SHARE = make_reservation(PLACE)
FINISHED = [{"type": "Finished", "status": "True"}]
EVICTED = [{"type": "QuotaReserved", "status": "False"}]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_gangs, "SHORTEST_PAUSE", 0.0)


class Manager(Server):
    """Has these Workloads, and takes all writes."""

    def __init__(self, *workloads: Raw, shares: tuple[Raw, ...] = ()) -> None:
        super().__init__()
        self.workloads, self.shares = workloads, shares
        self.denies_writes = False

    def _answer(self, asked: Asked) -> apiserver.Answer:
        if asked.method != "GET":
            return refuses(403) if self.denies_writes else says({"metadata": {}})
        name = asked.query.get("fieldSelector", "").removeprefix("metadata.name=")
        if not name:
            return lists(9, self.shares)
        return lists(9, [raw for raw in self.workloads if raw["metadata"]["name"] == name])


def with_conditions(conditions: Sequence[Mapping[str, str]]) -> Raw:
    return {**WORK, "status": {**WORK["status"], "conditions": conditions}}


def complete_namespace(sight: Sight) -> None:
    sight.manager.namespace_shares.begin_reload(NAMESPACE)
    sight.manager.namespace_shares.end_reload(NAMESPACE)


def make_ended_gangs(sight: Sight, client: Client) -> EndedGangs:
    sight.manager.client = sight.members["east"].client = client
    slots = SlotObserver(sight.manager, sight.fleet, PendingAssignments(), sight.memory)
    return EndedGangs(sight.manager, sight.fleet, slots, sight.memory, sight.executor(client), EventRecorder(client))


async def turn(server: Server, sight: Sight, turns: int = 1) -> list[float | None]:
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        gangs = make_ended_gangs(sight, client)
        return [await gangs.reconcile_namespace(NAMESPACE) for _ in range(turns)]


def deletions(server: Server) -> list[str]:
    return [asked.path.rpartition("/")[0].rpartition("/")[2] for asked in server.asked if asked.method == "DELETE"]


def incomplete(*shares: Raw) -> Sight:
    """The manager lacks the namespace's objects; the worker cluster has the shares."""
    sight = Sight({"east": 9})
    sight.manager.namespace_shares.drop_unreadable(NAMESPACE, "pods")
    sight.members["east"].workloads.replace(shares)
    return sight


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        pytest.param([WORK], [], id="it runs"),
        pytest.param([], ["configmaps", "workloads"], id="it is gone"),
        pytest.param([{**WORK, "metadata": WORK["metadata"] | {"uid": "new"}}], ["configmaps", "workloads"], id="new"),
        pytest.param([with_conditions(FINISHED)], ["configmaps", "workloads"], id="it is finished"),
        pytest.param([with_conditions(EVICTED)], ["configmaps", "workloads"], id="it has no quota"),
    ],
)
async def test_shares_of_ended_gangs_are_deleted(workloads: list[Raw], expected: list[str]) -> None:
    server = Manager(*workloads)
    assert await turn(server, incomplete(SHARE)) == [ended_gangs.TURN_SECONDS]
    assert deletions(server) == expected


@pytest.mark.parametrize("answer", [refuses(500), refuses(403), apiserver.text("nonsense")])
async def test_without_an_answer_nothing_is_deleted_and_another_turn_follows(answer: apiserver.Answer) -> None:
    server = Server(lists=[says({"metadata": {}}), answer])  # the event, and the question
    assert await turn(server, incomplete(SHARE)) == [ended_gangs.TURN_SECONDS]
    assert deletions(server) == []


async def test_a_share_is_deleted_after_its_pods() -> None:
    sight, server = incomplete(SHARE), Manager()
    copy = make_copy(make_pod("p0", placement=PLACE["metadata"]["name"], slot="east/1/workers/0"))
    sight.members["east"].pods.replace([copy])
    await turn(server, sight)
    assert deletions(server) == ["pods"]
    sight.members["east"].pods.replace([])
    await turn(server := Manager(), sight)
    assert deletions(server) == ["configmaps", "workloads"]


async def test_shares_are_listed_where_the_namespace_is_incomplete() -> None:
    sight, server = Sight({"east": 9}), Manager(shares=(SHARE,))
    sight.members["east"].namespace_shares.drop_unreadable(NAMESPACE, "pods")
    await turn(server, sight)
    assert deletions(server) == ["configmaps", "workloads"]
    (listed,) = [asked for asked in server.asked if "labelSelector" in asked.query]
    assert listed.query["labelSelector"] == f"{names.MANAGER_LABEL}=mgr,{names.CLUSTER_LABEL}=east"


async def test_every_gang_is_asked_about_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended_gangs, "GANGS_PER_TURN", 2)
    works = [make_workload(name=f"w{number}") for number in range(5)]
    server = Manager(*works)
    await turn(server, incomplete(*(make_reservation(make_placement(work)) for work in works)), turns=3)
    asked = [asked.query["fieldSelector"][-2:] for asked in server.asked if asked.method == "GET"]
    assert asked == ["w0", "w1", "w2", "w3", "w4", "w0"]


async def test_elastic_jobs_are_listed_once_in_a_turn() -> None:
    """A list has all jobs of a namespace, and a turn has up to GANGS_PER_TURN of them."""
    works = [make_workload(name=f"RayJob/train{number}") for number in range(3)]
    works = [{**work, "metadata": {**work["metadata"], "uid": work["metadata"]["name"]}} for work in works]
    running = {"metadata": {"namespace": NAMESPACE, "name": "train1", "uid": "RayJob/train1"}, "spec": {}}
    server = Manager(shares=(running,))
    sight = incomplete(*(make_reservation(make_placement(work, attempt=f"a{n}")) for n, work in enumerate(works)))
    await turn(server, sight)
    assert [asked.path.rpartition("/")[2] for asked in server.asked if asked.method == "GET"] == ["rayjobs"]
    assert deletions(server) == ["configmaps", "workloads"] * 2


async def test_the_event_says_what_to_do_and_a_complete_namespace_ends_the_turns() -> None:
    sight, server = incomplete(), Manager()
    await turn(server, sight)
    (event,) = [asked.body for asked in server.asked if asked.path.endswith("/events")]
    assert (event["reason"], event["involvedObject"]["kind"]) == ("NamespaceIncomplete", "Namespace")
    assert event["message"] == (
        "Namespace demo is incomplete: in the manager cluster, it has an object among its pods that is too large to be "
        "read; make it smaller, or delete it. Until then its jobs are left as they are there: none is placed, and what "
        "runs goes on."
    )
    complete_namespace(sight)
    assert await turn(server, sight) == [None]


async def test_the_event_is_replaced_once_the_namespace_is_complete() -> None:
    sight, server = incomplete(), Manager()
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        gangs = make_ended_gangs(sight, client)
        await gangs.reconcile_namespace(NAMESPACE)
        complete_namespace(sight)
        assert [await gangs.reconcile_namespace(NAMESPACE) for _ in range(2)] == [None, None]
    before, after = [asked.body for asked in server.asked if asked.path.endswith("/events")]
    assert before["metadata"]["name"] == after["metadata"]["name"]
    assert (before["type"], after["type"]) == ("Warning", "Normal")
    assert after["message"] == "Namespace demo is complete again."


async def test_an_event_that_was_denied_is_written_in_the_next_turn() -> None:
    sight, server = incomplete(), Manager()
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        gangs = make_ended_gangs(sight, client)
        await gangs.reconcile_namespace(NAMESPACE)
        complete_namespace(sight)
        server.denies_writes = True
        assert await gangs.reconcile_namespace(NAMESPACE) == ended_gangs.TURN_SECONDS
        server.denies_writes = False
        assert await gangs.reconcile_namespace(NAMESPACE) is None
    *_, last = [asked.body for asked in server.asked if asked.path.endswith("/events")]
    assert last["message"] == "Namespace demo is complete again."


async def test_all_namespaces_together_have_a_turn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is reported at once, and the questions to the API server wait."""
    monkeypatch.setattr(ended_gangs, "SHORTEST_PAUSE", 200.0)
    sight, server, first, second, third = incomplete(SHARE), Manager(WORK), NAMESPACE, "team-b", "team-c"
    for namespace in (second, third):
        sight.manager.namespace_shares.drop_unreadable(namespace, "pods")
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        gangs = make_ended_gangs(sight, client)
        delays = [await gangs.reconcile_namespace(namespace) for namespace in (first, second, third, first)]
    assert delays[0] == ended_gangs.TURN_SECONDS
    assert [round((delay or 0) / 200) for delay in delays[1:]] == [1, 2, 3]
    reported = [asked.body["involvedObject"]["name"] for asked in server.asked if asked.path.endswith("/events")]
    assert reported == [first, second, third]
    assert len([asked for asked in server.asked if asked.method == "GET"]) == 1
