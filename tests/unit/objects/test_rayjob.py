"""A job of an API server is read whatever its fields have, and its worker groups are told from its other podsets."""

import pytest

from adapter import names
from adapter.objects import rayjob
from adapter.objects.unstructured import Raw
from adapter.objects.workload import parse_workload
from tests.unit.builders import make_workload


@pytest.mark.parametrize(
    ("kind", "mode", "podsets", "want"),
    [
        pytest.param("RayJob", "K8sJobMode", "head a b submitter", "a b", id="head and submitter are no worker groups"),
        pytest.param("RayJob", "", "head a submitter", "a", id="a RayJob has a submitter by default"),
        pytest.param("RayJob", "HTTPMode", "head submitter", "submitter",
            id="a group called submitter, of a job without a submitter"),
        pytest.param("RayJob", "SidecarMode", "head submitter a", "submitter a",
            id="a group called submitter, of a job with a sidecar submitter"),
        pytest.param("RayJob", "K8sJobMode", "head submitter a", "submitter a",
            id="a group called submitter, of a job whose mode changed before Kueue counts again"),
        pytest.param("RayCluster", "", "head a submitter", "a submitter", id="a cluster has no submitter"),
        pytest.param("RayCluster", "", "other head a", "head a",
            id="the first podset is the head, whatever the names of the others"),
        pytest.param("RayJob", None, "head a submitter", "a submitter", id="the job is unknown"),
        pytest.param("RayJob", "K8sJobMode", "", "", id="no podsets"),
        pytest.param("Job", "", "main a", "", id="a job of another kind has none"),
        pytest.param("", "", "main a", "", id="a Workload without an owner"),
    ],
)  # fmt: skip
def test_which_podsets_are_worker_groups(kind: str, mode: str | None, podsets: str, want: str) -> None:
    raw = make_workload(owner=kind)
    raw["spec"]["podSets"] = [{"name": name, "count": 1} for name in podsets.split()]
    job: Raw = {} if mode is None else {"spec": {"submissionMode": mode} if mode else {}}
    # `kind` is set even if the spec is empty.
    found = rayjob.worker_podsets(
        parse_workload(raw), rayjob.read_job(kind, job if mode is None else {"kind": kind, **job})
    )
    assert " ".join(podset.name for podset in found) == want


MALFORMED: Raw = {
    "metadata": {"name": "x"},
    "spec": {
        "workerGroupSpecs": [1, {"replicas": "x", "numOfHosts": True, "labels": []}],
        "autoscalerOptions": {"env": 1},
    },
    "status": {"state": 7},
}


@pytest.mark.parametrize("kind", names.RAY_KINDS)
@pytest.mark.parametrize("spec", [MALFORMED["spec"], {"rayClusterSpec": MALFORMED["spec"]}, None, "text"])
def test_a_malformed_job_is_read_without_an_error(kind: str, spec: object) -> None:
    job = rayjob.read_job(kind, {**MALFORMED, "spec": spec})
    assert (job.is_known, job.status.state, job.cluster.desired_workers({""})) == (True, "", 0)
    assert rayjob.autoscaler_env(job) is None


def test_an_unknown_job_keeps_its_kind() -> None:
    job = rayjob.UNKNOWN_JOBS["RayJob"]
    assert (job, job.kind, job.is_known, job.has_submitter) == (rayjob.read_ray_job({}), "RayJob", False, False)
