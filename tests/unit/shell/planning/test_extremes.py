"""Every job that a tenant can submit is planned or rejected with a message, in bounded time."""

import asyncio
import copy
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings

from adapter.actions import Action, EmitEvent, Plan, SetCheck, UpdatePlacementStatus
from adapter.gang import lifecycle
from adapter.objects import job_manifest
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import gang_key
from hack.testbed import extremes, sentence
from tests.unit import builders
from tests.unit.bounded import soon
from tests.unit.builders import CHECK, NAMESPACE, START
from tests.unit.rayschema import SCHEMAS
from tests.unit.stores import Sight, fill

hostile = settings(suppress_health_check=list(HealthCheck))


def submitted(job: Raw) -> tuple[Raw, Raw] | None:
    """The job and Kueue's Workload for it, as API servers return them; None if they would reject it."""
    try:
        asked = job_manifest.parse(job, NAMESPACE)
    except InvalidJob:
        return None
    job = copy.deepcopy(job)
    job["metadata"] |= {"namespace": NAMESPACE, "uid": "uid-of-job"}
    job["spec"] = {**job["spec"], "suspend": True}  # as Kueue's webhook leaves it
    work: Raw = dict(job_manifest.build_workload(asked, builders.QUEUE, [CHECK], ["any"], 0, START))
    (owner,) = work["metadata"]["ownerReferences"]
    owner |= {"name": job["metadata"]["name"], "uid": "uid-of-job"}
    work["metadata"] |= {"name": "rayjob-train", "uid": "uid-of-work"}
    return job, work


def sentences(actions: list[Action]) -> Iterator[str]:
    for one in actions:
        match one:
            case SetCheck() | EmitEvent():
                yield one.message
            case UpdatePlacementStatus():
                yield str(one.status["reason"])


@hostile
@given(extremes.jobs(SCHEMAS))
def test_an_extreme_job_is_planned_or_rejected(job: Raw) -> None:
    if (found := submitted(job)) is None:
        return
    sight, (job, work) = Sight({"east": 2, "west": 2}), found
    fill(sight.manager.ray_jobs if job["kind"] == "RayJob" else sight.manager.ray_clusters, job)
    fill(sight.manager.workloads, work)
    with soon():
        actions = lifecycle.decide(sight.facts.gang_observer.facts(gang_key(work), START), START)
    assert actions
    plans = [one for one in actions if isinstance(one, Plan)]
    said = list(sentences(actions))
    for plan in plans:
        with soon():
            body, _, _, _ = asyncio.run(sight.planning.plan_round(plan, START))
        said.append(body["spec"]["explanation"])
        placed = sum(group["count"] for share in body["spec"]["shares"] for group in share["groups"])
        assert placed in (0, body["spec"]["wanted"]) and placed <= 4, "all of it or nothing, and never beyond quota"
    assert said
    for one in said:
        assert sentence.fault(one) == "", one


@hostile
@given(extremes.jobs(SCHEMAS))
def test_a_preview_of_an_extreme_job_is_answered(job: Raw) -> None:
    """No API server has validated the job."""
    sight = Sight({"east": 2, "west": 2})
    with soon():
        try:
            said = asyncio.run(sight.preview.preview_plan(job, NAMESPACE, START))["sentence"]
        except InvalidJob as error:
            said = str(error)
    assert sentence.fault(said) == "", said
