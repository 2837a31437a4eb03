"""Admission warnings from filled stores, and the controller's plan over a socket: one request of at most a second."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.objects.unstructured import Raw
from adapter.shell.admission import object_warnings
from adapter.shell.admission.object_warnings import ObjectWarnings
from adapter.shell.admission.warning_cache import WarningCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from tests.unit.apiserver import Answer, Server, connected, refuses, says, serving
from tests.unit.builders import (
    CHECK,
    NAMESPACE,
    make_check,
    make_cluster_queue,
    make_policy,
    make_worker_cluster,
)
from tests.unit.stores import make_group, make_local_queue, make_ray_job, make_template

FITS = says({"fits": True, "sentence": "4 of 4 workers to east."})
SAID = ["RayJob train fits now: 4 of 4 workers to east."]


def known(client: Client) -> WarningCache:
    found = WarningCache(client)
    lists: Any = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}
    found.cluster_queues.replace([make_cluster_queue(99, name="all", **lists)])
    found.local_queues.replace([make_local_queue("all")])
    found.checks.replace([make_check()])
    found.policies.replace([make_policy(clusters=["east"])])
    found.worker_clusters.replace([make_worker_cluster("east")])
    found.multikueue_configs.replace([])
    return found


@asynccontextmanager
async def advising(*answers: Answer) -> AsyncIterator[tuple[ObjectWarnings, Server, WarningCache]]:
    async with serving(Server(lists=[*answers])) as server, connected(server.url) as client:
        found = known(client)
        yield ObjectWarnings(found, client), server, found


async def test_a_valid_job_gets_its_plan_as_a_warning() -> None:
    async with advising(FITS) as (some, server, _):
        assert await some.warnings_for(make_ray_job()) == SAID
    (asked,) = server.asked
    assert (asked.method, asked.path) == (
        "POST",
        "/api/v1/namespaces/rayspan-system/services/rayspan-controller:plan/proxy/plan",
    )
    assert asked.body == {"namespace": NAMESPACE, "object": make_ray_job()}


async def test_a_rejected_job_gets_no_plan() -> None:
    async with advising() as (some, server, _):
        (said,) = await some.warnings_for(make_ray_job(make_group(1, template=make_template("1", hostNetwork=True))))
    assert "spec.hostNetwork is true" in said and server.asked == []


async def test_without_an_answer_no_plan_is_shown_or_requested_for_a_while() -> None:
    async with advising() as (some, server, _):  # it never answers
        began = time.monotonic()
        assert await some.warnings_for(make_ray_job()) == []
        assert object_warnings.PLAN_SECONDS <= time.monotonic() - began < 5, "before the client gives up"
        assert await some.warnings_for(make_ray_job()) == []
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (refuses(403), False),
        (refuses(503, "NotReady"), False),
        (refuses(422, "InvalidJob"), True),
        (says({"fits": "?"}), True),
    ],
    ids=["forbidden", "the controller is not ready", "no plan for this job", "an answer of another version"],
)
async def test_an_error_is_not_shown_as_a_plan(answer: Answer, again: bool) -> None:
    async with advising(answer, FITS) as (some, _, __):
        assert await some.warnings_for(make_ray_job()) == []
        assert await some.warnings_for(make_ray_job()) == (SAID if again else [])


async def test_one_plan_is_requested_at_a_time() -> None:
    async with advising() as (some, server, _):
        first = asyncio.create_task(some.warnings_for(make_ray_job()))
        await server.until(lambda: len(server.asked) == 1)
        assert await some.warnings_for(make_ray_job()) == []
        assert not first.done()
        await first
    assert len(server.asked) == 1


async def test_unreadable_stores_lead_to_no_warnings() -> None:
    """Nothing is said while a list was not read yet, or is old: an empty cache means that nothing is known."""
    astray = make_ray_job(queue="gold")
    async with advising() as (some, _, found):
        assert len(await some.warnings_for(astray)) == 1
        found.on_run_failed(Unreachable("gone"))
        assert await some.warnings_for(astray) == []
        assert await ObjectWarnings(WarningCache(found.client), found.client).warnings_for(astray) == []


async def test_a_cluster_without_multikueue_is_cached() -> None:
    async with advising(FITS) as (some, _, found):
        found.multikueue_configs.synced = False
        (row,) = (row for row in found._watched_kinds if row.resource == resources.MULTIKUEUE_CONFIGS)
        found._on_follow_result(row, ApiError(404, "NotFound", "no"))
        assert found.is_current and await some.warnings_for(make_ray_job()) == SAID
        assert found.admin_objects().configs is None


@pytest.mark.parametrize(
    "odd", [{}, {"spec": []}, {"metadata": 3}, {"spec": {"rayClusterSpec": {"workerGroupSpecs": [[]]}}}]
)
async def test_an_invalid_object_fails_no_answer(odd: Raw) -> None:
    async with advising() as (some, _, __):
        assert isinstance(await some.warnings_for({"kind": "RayJob", **odd}), list)
        assert isinstance(await some.warnings_for({**make_ray_job(), **odd}), list)


async def test_objects_of_admins_get_warnings() -> None:
    async with advising() as (some, _, __):
        assert await some.warnings_for({**make_policy(clusters=["east"]), "kind": "DispatchPolicy"}) == []
        (said,) = await some.warnings_for({**make_policy(clusters=["west"]), "kind": "DispatchPolicy"})
        assert "which does not exist" in said
        (said,) = await some.warnings_for({**make_worker_cluster("north"), "kind": "WorkerCluster"})
        assert "no DispatchPolicy considers it" in said
