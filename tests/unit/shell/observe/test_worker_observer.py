"""The facts about a worker pod's job: once it is deleted, no remote pod may be created."""

import pytest

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.worker.dispatch import decide
from tests.unit.builders import (
    JOB,
    NAMESPACE,
    at,
    make_copy,
    make_placement,
    make_pod,
    make_ray_cluster,
    make_workload,
    stamp,
)
from tests.unit.fact_builders import with_facts
from tests.unit.stores import Sight, fill, put_clock_ahead

WORK = make_workload()
PLACE = make_placement(WORK)
OTHER: Raw = {"metadata": {**WORK["metadata"], "uid": "uid-of-another"}}
RAY_JOB: Raw = {"metadata": {"name": JOB, "namespace": NAMESPACE, "uid": "uid-of-job"}}
LEAVING: Raw = {"metadata": {**RAY_JOB["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("work", "jobs", "gone"),
    [
        pytest.param(WORK, [RAY_JOB], False, id="the job exists"),
        pytest.param(WORK, [LEAVING], True, id="the job is being deleted"),
        pytest.param(WORK, [], True, id="the job is gone"),
        pytest.param(make_workload(deleting=True), [RAY_JOB], True, id="the Workload is being deleted"),
    ],
)
def test_whether_the_job_is_deleted(work: Raw, jobs: list[Raw], gone: bool) -> None:
    sight, pod = Sight({"east": 8}), make_pod(placement=PLACE["metadata"]["name"], slot="east/1/role-workers/0")
    fill(sight.manager.workloads, work)
    fill(sight.manager.ray_jobs, *jobs)
    fill(sight.manager.placements, PLACE)
    fill(sight.manager.pods, pod)
    assert sight.facts.worker_observer.facts(key_of(pod)).owner.deleted is gone


@pytest.mark.parametrize(
    ("work", "known"),
    [
        pytest.param(make_workload(conditions=[names.FINISHED]), (True, True), id="its Workload is finished"),
        pytest.param(make_workload(conditions=[names.EVICTED]), (False, None), id="its Workload is evicted"),
        pytest.param({**make_workload(conditions=[names.FINISHED]), **OTHER}, (False, None),
            id="another Workload of that name is finished"),
        pytest.param(WORK, (False, True), id="its Workload holds quota"),
    ],
)  # fmt: skip
def test_whether_the_job_is_finished(work: Raw, known: tuple[bool, bool | None]) -> None:
    sight, pod = Sight({"east": 8}), make_pod(placement=PLACE["metadata"]["name"], slot="east/1/role-workers/0")
    fill(sight.manager.workloads, work)
    fill(sight.manager.ray_jobs, RAY_JOB)
    fill(sight.manager.ray_clusters, make_ray_cluster())
    fill(sight.manager.placements, PLACE)
    fill(sight.manager.pods, pod)
    facts = sight.facts.worker_observer.facts(key_of(pod))
    assert (facts.owner.finished, facts.owner.owns_pod, facts.clusters.reachable) == (*known, True)


@pytest.mark.parametrize("ahead", [-95.0, 95.0])
@pytest.mark.parametrize(("overdue", "stuck"), [(-30, False), (59, False), (60, True)])
def test_when_a_remote_pod_is_stuck_by_its_clusters_clock(ahead: float, overdue: float, stuck: bool) -> None:
    """Its cluster writes the end of its grace period by its own clock."""
    sight = Sight({"east": 8})
    pod = make_pod(placement=PLACE["metadata"]["name"], slot="east/1/role-workers/0", dispatched=True)
    remote_pod = make_copy(pod, deleting=True)
    remote_pod["metadata"]["deletionTimestamp"] = stamp(1000 + ahead - overdue)
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.ray_jobs, RAY_JOB)
    fill(sight.manager.placements, PLACE)
    fill(sight.manager.pods, pod)
    fill(sight.members["east"].pods, remote_pod)
    put_clock_ahead(sight.members["east"], ahead)
    worker = with_facts(sight.facts.worker_observer.facts(key_of(pod)), owns_pod=True)
    actions = decide(worker, at(1000))
    assert any("RemotePodStuck" in str(action) for action in actions) is stuck
