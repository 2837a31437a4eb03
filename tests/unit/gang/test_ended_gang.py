"""An elastic job of an incomplete namespace has ended when it is gone, suspended or finished."""

import pytest

from adapter.gang.ended_gang import has_job_ended
from adapter.objects import trim
from adapter.objects.rayjob import read_job
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import Job


@pytest.mark.parametrize(
    ("uid", "spec", "status", "expected"),
    [
        pytest.param("uid", {}, {}, False, id="new"),
        pytest.param("uid", {}, {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, False, id="running"),
        pytest.param("uid", {}, {"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, False, id="retrying"),
        pytest.param("uid", {}, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, True, id="complete"),
        pytest.param("uid", {}, {"jobDeploymentStatus": "Failed"}, True, id="failed"),
        pytest.param("uid", {"suspend": True}, {}, True, id="suspended"),
        pytest.param("other", {}, {}, True, id="another of its name"),
    ],
)
def test_a_job_has_ended(uid: str, spec: Raw, status: Raw, expected: bool) -> None:
    raw = {"metadata": {"namespace": "demo", "name": "train", "uid": uid}, "spec": spec, "status": status}
    job = Job("ray.io/v1", "RayJob", "demo", "train", "uid")
    assert has_job_ended(job, [read_job("RayJob", trim.ray_job(raw))]) is expected
