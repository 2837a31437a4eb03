"""What is known of a worker pod's job: once that goes, no copy may be made on what is left of its shares."""

import pytest

from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from tests.unit.builders import JOB, NAMESPACE, make_placement, make_pod, make_workload
from tests.unit.stores import Sight, fill

WORK = make_workload()
PLACE = make_placement(WORK)
RAY_JOB: Raw = {"metadata": {"name": JOB, "namespace": NAMESPACE, "uid": "uid-of-job"}}
LEAVING: Raw = {"metadata": {**RAY_JOB["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("work", "jobs", "gone"),
    [
        pytest.param(WORK, [RAY_JOB], False, id="it is there"),
        pytest.param(WORK, [LEAVING], True, id="it is being deleted"),
        pytest.param(WORK, [], True, id="it is gone"),
        pytest.param(make_workload(deleting=True), [RAY_JOB], True, id="its Workload is being deleted"),
    ],
)
def test_whether_the_job_goes(work: Raw, jobs: list[Raw], gone: bool) -> None:
    sight, pod = Sight({"east": 8}), make_pod(placement=PLACE["metadata"]["name"], slot="east/1/role-workers/0")
    fill(sight.manager.workloads, work)
    fill(sight.manager.ray_jobs, *jobs)
    fill(sight.manager.placements, PLACE)
    fill(sight.manager.pods, pod)
    assert sight.facts.worker_observer.facts(key_of(pod)).owner.deleted is gone
