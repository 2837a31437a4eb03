"""The real stores learn from the answers of a worker cluster's Kueue, and one gang asks for all."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import Plan
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.quota import kueue_answers
from adapter.quota.kueue_answers import REPEAT_SECONDS, Answers, Question
from adapter.rewrite.dry_run_pod import DryRunResult
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from tests.unit import apiserver, builders
from tests.unit.apiserver import Server, says
from tests.unit.builders import NAMESPACE, QUEUE, START, make_condition
from tests.unit.stores import Sight, fill, make_group, make_ray_job

RDMA = "rdma/hca"
NODE = {
    "metadata": {"name": "node"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "99", "pods": "99", RDMA: "9"},
    },
}


def make_sight(cores: int = 4) -> tuple[Sight, WorkerClusterCache]:
    sight = Sight({"east": cores})
    east = sight.members["east"]
    fill(east._node_objects, NODE)
    return sight, east


def preview(sight: Sight) -> Raw:
    group = make_group(2)
    group["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", RDMA: "1"}}
    return asyncio.run(sight.preview.preview_plan(make_ray_job(group), NAMESPACE, START))


def make_share(*, queue: str = QUEUE, **status: Any) -> Raw:
    requests = {"cpu": "1", RDMA: "1"}
    template = {"spec": {"containers": [{"name": "ray", "resources": {"requests": requests}}]}}
    return {
        "metadata": builders.make_meta("other-1"),
        "spec": {"queueName": queue, "podSets": [{"name": "role", "count": 2, "template": template}]},
        "status": status,
    }


def make_admitted_share() -> Raw:
    assignment = {"name": "role", "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "2"}}
    admission = {"clusterQueue": "team-a", "podSetAssignments": [assignment]}
    return make_share(admission=admission, conditions=[make_condition(names.QUOTA_RESERVED)])


def make_denied_share() -> Raw:
    message = f"couldn't assign flavors to pod set role: resource {RDMA} unavailable in ClusterQueue"
    return make_share(conditions=[make_condition(names.QUOTA_RESERVED, False, message=message)])


def test_an_answer_before_the_first_list_teaches_nothing() -> None:
    """It may be older than what the ClusterQueue covers, or than Kueue's configuration."""
    _, east = make_sight()
    later = make_admitted_share()
    later["status"]["conditions"][0]["observedGeneration"] = 2
    east.workloads.replace([make_admitted_share()])
    east.workloads.replace([later])
    assert not east.kueue_answers


def test_a_job_whose_resource_no_queue_covers_is_sent_to_ask() -> None:
    sight, east = make_sight()
    document = preview(sight)
    assert document["fits"] is True
    assert document["sentence"] == (
        f"2 of 2 workers to east. ClusterQueue team-a does not cover {RDMA} in east: the share there shows whether "
        "Kueue counts that."
    )
    assert not east.kueue_answers, "a preview asks nothing"


@pytest.mark.parametrize(
    ("share", "fits", "text"),
    [
        pytest.param(make_admitted_share(), True, "2 of 2 workers to east.", id="Kueue ignores the resource"),
        pytest.param(make_denied_share(), False, "which Kueue there counts", id="Kueue counts the resource"),
    ],
)
def test_the_answer_to_one_share_serves_all_jobs_of_the_queue(share: Raw, fits: bool, text: str) -> None:
    sight, east = make_sight()
    answered = list[tuple[str, str]]()
    east._listeners = replace(east._listeners, on_kueue_answer=lambda *answer: answered.append(answer))
    east.workloads.replace([make_share()])
    assert answered == []
    east.workloads.replace([share])
    assert answered == [("east", "team-a")]
    document = preview(sight)
    assert document["fits"] is fits and text in document["sentence"]
    assert "the share there shows" not in document["sentence"]
    assert document.get("never") is not fits
    assert "raise a quota" not in document["sentence"]


async def test_a_written_plan_that_asks_is_recorded_and_keeps_other_gangs_from_asking() -> None:
    sight, east = make_sight()
    raw = builders.make_workload(groups={"workers": 2})
    template = {"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1", RDMA: "1"}}}]}}
    raw["spec"]["podSets"][1]["template"] = template
    workload, dry_runs = parse_workload(raw), sight.facts.dry_run_answers
    unknown, circumstances = DryRunResult(unknown_reason="down"), dry_runs.circumstances("east", NAMESPACE)
    dry_runs.add_answer("east", workload, workload.podsets[1], unknown, circumstances)
    server = Server(lists=[says(builders.make_placement(raw))])
    async with apiserver.serving(server), apiserver.connected(server.url) as client:
        sight.manager.client = client
        await sight.executor(client).execute(Plan(workload, None, ()))
    (write,) = server.asked
    assert [share["cluster"] for share in write.body["spec"]["shares"]] == ["east"]
    (question,) = east.kueue_answers[NAMESPACE, "team-a"].awaited
    assert question.uncovered == {RDMA}
    assert dict(question.requested)[RDMA] == 2


def test_one_gang_asks_for_all_until_kueue_has_answered() -> None:
    sight, east = make_sight()
    requested = {"cpu": 2000, RDMA: 2, "pods": 2}
    east.record_question((NAMESPACE, QUEUE), Question(frozenset({RDMA}), frozenset(requested.items())))
    document = preview(sight)
    assert (document["fits"], document["never"]) == (False, False)
    assert "whether Kueue there counts that is not known yet" in document["sentence"]


def test_answers_are_looked_through_only_when_one_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reads the answers of a hundred clusters, each with those of many namespaces."""
    _, east = make_sight()
    east.record_question((NAMESPACE, QUEUE), Question(frozenset({RDMA}), frozenset()))
    times, searches, drop_expired = [time.monotonic()], list[float](), kueue_answers.drop_expired

    def search(answers: Answers, now: float) -> Answers:
        searches.append(now)
        return drop_expired(answers, now)

    monkeypatch.setattr(kueue_answers, "drop_expired", search)
    monkeypatch.setattr(time, "monotonic", lambda: times[-1])
    for later in (10, 20, REPEAT_SECONDS + 1, REPEAT_SECONDS + 11):
        times.append(times[0] + later)
        assert bool(east.kueue_answers[NAMESPACE, "team-a"].awaited) == (later < REPEAT_SECONDS)
    assert searches == [times[3]]


def test_a_share_of_an_unknown_queue_teaches_nothing() -> None:
    _, east = make_sight()
    east.workloads.replace([make_share(queue="elsewhere")])
    east.workloads.replace([make_share(queue="elsewhere", **make_denied_share()["status"])])
    assert not east.kueue_answers
