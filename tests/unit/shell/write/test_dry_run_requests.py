"""Dry runs in a worker cluster: one for all jobs of a shape, with a short timeout."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, cast

import pytest
from aiohttp import web

from adapter import names
from adapter.actions import DryRunPod, Plan
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import Workload, parse_workload
from adapter.rewrite import dry_run_pod
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.shell.controller.enqueue import GANG
from adapter.shell.controller.event_handlers import EventHandlers
from adapter.shell.controller.reconciler import Reconciler
from adapter.shell.observe import dry_run_answers
from adapter.shell.observe.dry_run_answers import DryRunAnswers
from adapter.shell.write import dry_run_requests as writer
from tests.unit import apiserver, builders
from tests.unit.apiserver import Answer, Server, refuses, says
from tests.unit.builders import at, make_target, make_workload
from tests.unit.stores import Sight, fill, make_template


def gang(name: str = "train", **template: Any) -> Raw:
    raw = make_workload(name=name, groups={"workers": 2})
    raw["spec"]["podSets"][1]["template"] = make_template("1", **template)
    return raw


def ask(raw: Raw, cluster: str = "east") -> DryRunPod:
    work = parse_workload(raw)
    podset, target = work.podsets[1], make_target(cluster)
    return DryRunPod(work, podset, target, dry_run_pod.build_pod(podset.template, podset.name, target, work.namespace))


def with_sidecar(cpu: str = "500m") -> Answer:
    """The API server adds a container to pods, and takes all else as it is."""

    async def answer(request: web.Request) -> web.StreamResponse:
        made = await request.json()
        if request.path.endswith("/pods"):
            made["spec"]["containers"].append({"name": "mesh", "resources": {"requests": {"cpu": cpu}}})
        return await says(made)(request)

    return answer


async def asked(server: Server, actions: Iterable[DryRunPod], sight: Sight) -> None:
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        for member in sight.members.values():
            member.client = client
        sight.manager.client = client
        for action in actions:
            await sight.executor(client).execute(action)


def known(sight: Sight, raw: Raw) -> dict[str, DryRunResult]:
    work = parse_workload(raw)
    return dict(sight.facts.dry_run_answers.answers_for(work, work.podsets[1]))


def noted(trials: DryRunAnswers, cluster: str, work: Workload, tried: DryRunResult) -> None:
    """Have it said, with nothing changed meanwhile."""
    trials.add_answer(cluster, work, work.podsets[1], tried, trials.circumstances(cluster, work.namespace))


async def test_the_answer_of_a_dry_run_is_what_is_reserved() -> None:
    sight, server = Sight({"east": 9}), Server(lists=[with_sidecar()])
    await asked(server, [ask(gang())], sight)
    (request,) = server.asked
    assert (request.method, request.path) == ("POST", f"/api/v1/namespaces/{builders.NAMESPACE}/pods")
    assert request.query == {"dryRun": "All"}
    assert known(sight, gang())["east"].request["cpu"] == 1500


async def test_jobs_of_one_shape_share_a_dry_run() -> None:
    sight, server = Sight({"east": 9, "west": 9}), Server(lists=[with_sidecar()] * 9)
    first, like, other = gang(), gang("like"), gang("other", runtimeClassName="kata")
    await asked(server, [ask(first), ask(first), ask(like), ask(first, "west"), ask(other)], sight)
    assert len(server.asked) == 3
    assert set(known(sight, like)) == {"east", "west"} and set(known(sight, other)) == {"east"}


@pytest.mark.parametrize(
    ("answer", "refused", "unknown"),
    [
        pytest.param(refuses(403, message="violates PodSecurity"), "violates PodSecurity", "", id="denied"),
        pytest.param(refuses(500, message="webhook down"), "", "webhook down", id="an internal error"),
        pytest.param(says({"kind": "Pod"}), "", "its answer cannot be read: KeyError", id="an answer without a pod"),
        pytest.param(says([]), "", "what answers there is no Kubernetes API server", id="an answer that is no object"),
    ],
)
async def test_every_answer_is_cached(answer: Answer, refused: str, unknown: str) -> None:
    """Also trouble: else it would be asked at every look."""
    sight, server = Sight({"east": 9}), Server(lists=[answer])
    await asked(server, [ask(gang())] * 2, sight)
    found = known(sight, gang())["east"]
    assert (found.denied_reason, found.unknown_reason, len(server.asked)) == (refused, unknown, 1)


async def test_a_hanging_webhook_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "DRY_RUN_SECONDS", 0.2)
    sight, server = Sight({"east": 9}), Server()
    server.lists = [apiserver.silence(server)]
    await asked(server, [ask(gang())], sight)
    assert known(sight, gang())["east"].unknown_reason.startswith("no answer within")


async def test_a_dry_run_without_a_turn_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait says nothing of the pod: a cached answer would keep the share from what the cluster adds."""
    monkeypatch.setattr(writer, "TURN_SECONDS", 0.1)
    monkeypatch.setattr(writer, "DRY_RUN_SECONDS", 1.0)
    monkeypatch.setattr(writer, "DRY_RUNS_AT_ONCE", 1)
    sight, server = Sight({"east": 9}), Server()
    server.lists = [apiserver.silence(server)] * 3
    shapes = [gang(f"job-{number}", runtimeClassName=f"kata-{number}") for number in range(3)]
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.members["east"].client = client
        executor = sight.executor(client)
        await asyncio.gather(*(executor.execute(ask(shape)) for shape in shapes))
    assert [known(sight, shape).keys() for shape in shapes] == [{"east"}, set(), set()]


async def test_hanging_dry_runs_of_one_namespace_delay_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "DRY_RUN_SECONDS", 0.5)
    monkeypatch.setattr(writer, "DRY_RUNS_AT_ONCE", 1)
    sight, server = Sight({"east": 9}), Server()
    server.lists = [apiserver.silence(server), with_sidecar(), *[apiserver.silence(server)] * 3]
    shapes, honest = [gang(f"job-{number}", runtimeClassName=f"kata-{number}") for number in range(4)], gang("honest")
    for shape in shapes:
        shape["metadata"]["namespace"] = "mallory"
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.members["east"].client = client
        executor = sight.executor(client)
        await asyncio.gather(*(executor.execute(ask(raw)) for raw in (*shapes, honest)))
    assert known(sight, honest)["east"].request["cpu"] == 1500
    assert all(known(sight, shape)["east"].unknown_reason for shape in shapes)


# --- how long an answer counts ---------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> Any:
        return at(self.seconds)


def remembered(sight: Sight, clock: Clock, tried: DryRunResult, raw: Raw) -> DryRunAnswers:
    found, work = DryRunAnswers(sight.fleet, sight.facts.targets, clock), parse_workload(raw)
    noted(found, "east", work, tried)
    return found


@pytest.mark.parametrize(
    ("tried", "counts_for"),
    [
        pytest.param(DryRunResult(reserved_template={"spec": {}}), dry_run_answers.VALID_FOR, id="an answer"),
        pytest.param(DryRunResult(unknown_reason="down"), dry_run_answers.VALID_FOR, id="no answer"),
        pytest.param(
            DryRunResult(denied_reason="no"),
            dry_run_answers.REFUSAL_VALID_FOR,
            id="a denial",
        ),
    ],
)
def test_an_answer_is_valid_for_a_limited_time(tried: DryRunResult, counts_for: timedelta) -> None:
    clock, work = Clock(), parse_workload(gang())
    found = remembered(Sight({"east": 9}), clock, tried, gang())
    clock.seconds = counts_for.total_seconds() - 1
    assert "east" in found.answers_for(work, work.podsets[1])
    clock.seconds += 1
    assert not found.answers_for(work, work.podsets[1])


def test_an_answer_is_not_valid_for_a_changed_cluster() -> None:
    """The namespace is under another level of Pod Security by now; or the cluster gives its pods something else."""
    sight, work = Sight({"east": 9}), parse_workload(gang())
    found = remembered(sight, Clock(), DryRunResult(denied_reason="no"), gang())
    labelled = {"metadata": {"name": builders.NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    fill(sight.members["east"].namespaces, labelled)
    assert not found.answers_for(work, work.podsets[1])


async def test_an_answer_belongs_to_the_facts_before_its_request() -> None:
    """The namespace's labels change while a webhook thinks, which may have read the former ones."""
    sight, server = Sight({"east": 9}), Server()

    async def thinks(request: web.Request) -> web.StreamResponse:
        fill(sight.members["east"].namespaces, {"metadata": {"name": builders.NAMESPACE, "labels": {"mesh": "on"}}})
        return await with_sidecar()(request)

    server.lists = [thinks, with_sidecar()]
    await asked(server, [ask(gang())], sight)
    assert known(sight, gang()) == {}
    await asked(server, [ask(gang())], sight)
    assert known(sight, gang())["east"].request["cpu"] == 1500


def test_a_frequently_used_shape_is_not_evicted_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run_answers, "MOST_ANSWERS", 3)
    sight, often = Sight({"east": 9}), gang()
    others = (gang(f"job-{number}", runtimeClassName=f"kata-{number}") for number in range(3))
    found = DryRunAnswers(sight.fleet, sight.facts.targets, Clock())
    for raw in (often, next(others), often, *others):
        noted(found, "east", parse_workload(raw), DryRunResult(unknown_reason="down"))
    assert found.answers_for(parse_workload(often), parse_workload(often).podsets[1])


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run_answers, "MOST_ANSWERS", 3)
    sight, clock = Sight({"east": 9}), Clock()
    shapes = [gang(f"job-{number}", runtimeClassName=f"kata-{number}") for number in range(9)]
    found = DryRunAnswers(sight.fleet, sight.facts.targets, clock)
    for raw in shapes:
        noted(found, "east", parse_workload(raw), DryRunResult(unknown_reason="down"))
    left = [raw for raw in shapes if found.answers_for(parse_workload(raw), parse_workload(raw).podsets[1])]
    assert left == shapes[-3:]


def test_one_namespace_evicts_no_answer_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run_answers, "MOST_ANSWERS", 3)
    sight, honest = Sight({"east": 9}), gang("honest")
    found = DryRunAnswers(sight.fleet, sight.facts.targets, Clock())
    noted(found, "east", parse_workload(honest), DryRunResult(unknown_reason="down"))
    for number in range(9):
        raw = gang(f"job-{number}", runtimeClassName=f"kata-{number}")
        raw["metadata"]["namespace"] = "mallory"
        noted(found, "east", parse_workload(raw), DryRunResult(unknown_reason="down"))
    assert found.answers_for(parse_workload(honest), parse_workload(honest).podsets[1])


# --- how a plan comes to be written ----------------------------------------------------------------------------------


async def test_a_plan_is_written_when_its_clusters_have_answered() -> None:
    """East has capacity for the template but not for its webhook's result, so the next dry run is in west."""
    sight, server, raw = Sight({"east": 2, "west": 9}), Server(), gang()
    fill(sight.manager.workloads, raw)
    key, work = parse_workload(raw).key, parse_workload(raw)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        for member in sight.members.values():
            member.client = client
        executor = sight.executor(client)
        asked_of = []
        for _ in range(9):
            server.lists, before = [with_sidecar()], len(server.asked)
            await executor.execute(Plan(work, None, ()))
            if len(server.asked) > before:
                break
            untried = sight.facts.gang_observer.facts(key, builders.START).dry_runs.missing_for_plan
            asked_of += [cluster for cluster, _ in untried]
            for cluster, _ in untried:
                server.lists = [with_sidecar()]
                await executor.execute(ask(raw, cluster))
        written = server.asked[-1].body
    assert asked_of == ["east", "west"]
    assert {share["cluster"]: share["groups"][0]["count"] for share in written["spec"]["shares"]} == {
        "east": 1,
        "west": 1,
    }
    assert written["kind"] == names.PLACEMENT_KIND


async def test_a_plan_is_not_postponed_for_ever() -> None:
    """When the last of many clusters rejects the pod, the first answer has already expired."""
    fleet = {f"cluster-{number:02}": 9 for number in range(80)}
    sight, server, raw, clock = Sight(fleet), Server(), gang(), Clock()
    sight.facts.dry_run_answers._clock = clock
    fill(sight.manager.workloads, raw)
    key, work = parse_workload(raw).key, parse_workload(raw)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        executor = sight.executor(client)
        server.lists = [with_sidecar()]
        for _ in range(2 * len(fleet)):
            await executor.execute(Plan(work, None, ()))
            if server.asked:
                break
            for cluster, _ in sight.facts.gang_observer.facts(key, builders.START).dry_runs.missing_for_plan:
                noted(sight.facts.dry_run_answers, cluster, work, DryRunResult(denied_reason="no"))
            clock.seconds += 1
    assert [one.path.rsplit("/", 1)[-1] for one in server.asked] == ["placements"]
    assert not sight.facts.gang_observer.waits_for_answers(key), "its Placement wakes it"


class Told:
    """A fake of the event handlers."""

    def after_actions(self, _: object) -> None:
        """No other gang must be enqueued."""


def looking(sight: Sight, client: Any) -> Reconciler:
    unasked: Any = None
    return Reconciler(
        manager=sight.manager,
        fleet=sight.fleet,
        gang_observer=sight.facts.gang_observer,
        worker_observer=unasked,
        service_observer=unasked,
        assignments=unasked,
        executor=sight.executor(client),
        condition_writer=unasked,
        quota_aggregator=unasked,
        ended_gangs=unasked,
        event_handlers=cast(EventHandlers, Told()),
    )


async def test_a_gang_gets_its_round_from_its_first_reconcile_without_an_event() -> None:
    """Plan, dry run, plan: each reconcile requeues at once, as no write enqueues the gang."""
    sight, server, raw = Sight({"east": 9}), Server(), gang()
    fill(sight.manager.workloads, raw)
    job = {"metadata": {"name": builders.JOB, "namespace": builders.NAMESPACE, "uid": "uid-of-job"}, "spec": {}}
    fill(sight.manager.ray_jobs, job)
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = sight.members["east"].client = client
        looks = looking(sight, client)
        server.lists = [with_sidecar()] * 9
        after = [await looks.reconcile((GANG, *parse_workload(raw).key)) for _ in range(3)]
    assert [one.path.rsplit("/", 1)[-1] for one in server.asked] == ["pods", "placements"]
    assert after[0] == 0.0 and after[1] is not None and after[1] < 0.1
    assert after[2] is None, "its Placement wakes it"


async def test_a_hanging_webhook_is_waited_for_once_for_all_worker_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "DRY_RUN_SECONDS", 1.0)
    raw = make_workload(groups={f"group-{number}": 1 for number in range(4)})
    for podset in raw["spec"]["podSets"][1:]:
        podset["template"] = make_template("1")
    work, target = parse_workload(raw), make_target("east")
    sight, server = Sight({"east": 9}), Server()
    server.lists = [apiserver.silence(server)] * 9
    pods = [(one, dry_run_pod.build_pod(one.template, one.name, target, work.namespace)) for one in work.podsets[1:]]
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.members["east"].client = client
        async with asyncio.timeout(4 * 1.0):
            await looking(sight, client)._execute_actions(
                work.key, [DryRunPod(work, one, target, pod) for one, pod in pods]
            )
    assert all(sight.facts.dry_run_answers.answers_for(work, one)["east"].unknown_reason for one, _ in pods)


async def test_a_cluster_that_denies_the_pod_is_passed_over_with_its_message() -> None:
    sight, server, raw = Sight({"east": 9, "west": 9}), Server(), gang()
    fill(sight.manager.workloads, raw)
    work = parse_workload(raw)
    noted(sight.facts.dry_run_answers, "east", work, DryRunResult(denied_reason="violates PodSecurity"))
    noted(sight.facts.dry_run_answers, "west", work, DryRunResult(unknown_reason="down"))
    body, made, _, _ = await sight.planning.plan_round(Plan(work, None, ()), builders.START)
    assert [share["cluster"] for share in body["spec"]["shares"]] == ["west"]
    want = "2 of 2 workers to west; east passed over: it denies the pods of worker group workers: violates PodSecurity."
    assert body["spec"]["explanation"] == want and not made.untested
    assert server.asked == []


async def test_a_gang_denied_everywhere_waits_and_is_replanned() -> None:
    """It is not called hopeless: an admin of that cluster may change his mind, or a ResourceQuota has room again."""
    sight, raw = Sight({"east": 9}), gang()
    fill(sight.manager.workloads, raw)
    work = parse_workload(raw)
    noted(sight.facts.dry_run_answers, "east", work, DryRunResult(denied_reason="exceeded quota"))
    body, made, again, _ = await sight.planning.plan_round(Plan(work, None, ()), builders.START)
    assert body["spec"]["shares"] == [] and not made.never_fits
    assert "east has capacity for 0 (it denies the pods of worker group workers: exceeded quota)" in made.sentence
    (tried,) = known(sight, raw).values()
    assert again == tried.valid_until
