"""A job is rejected before it holds quota if KubeRay would give its pods what cannot work remotely."""

import sys

import pytest

from adapter import names
from adapter.admission import job_validation
from adapter.objects.placement import placement_name
from adapter.objects.rayjob import read_job, read_ray_cluster, read_ray_job
from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, parse_workload
from tests.unit import builders
from tests.unit.stores import Sight, make_group, make_ray_job

FINE: Raw = {"name": "ray-worker", "image": "ray", "resources": {"requests": {"cpu": "1"}}}
REFUSED = [
    (
        {"enableInTreeAutoscaling": True},
        '{}.enableInTreeAutoscaling is true, and metadata.annotations lacks kueue.x-k8s.io/elastic-job: "true": ',
    ),
    ({"tlsOptions": {"enabled": True}}, "{}.tlsOptions is set: "),
    ({"tlsOptions": {}}, "{}.tlsOptions is set: "),
    ({"authOptions": {"enableK8sTokenAuth": True}}, "{}.authOptions.enableK8sTokenAuth is true: "),
    (
        {"workerGroupSpecs": [make_group(1), make_group(2, minReplicas=4, maxReplicas=8)]},
        "{}.workerGroupSpecs[1].replicas is 2 and minReplicas 4: KubeRay creates 4 workers of the group, and Kueue "
        "would hold quota for 2; set replicas to 4",
    ),
    (
        {"workerGroupSpecs": [make_group(None, minReplicas=2)]},
        "{}.workerGroupSpecs[0].replicas is 0 and minReplicas 2: KubeRay creates 2 workers of the group, and Kueue "
        "would hold quota for 0; set replicas to 2",
    ),
    (
        {"workerGroupSpecs": [make_group(4, minReplicas=0, maxReplicas=2)]},
        "{}.workerGroupSpecs[0].replicas is 4 and maxReplicas 2: KubeRay creates 2 workers of the group, and Kueue "
        "would hold quota for 4; set replicas to 2",
    ),
    (
        {"workerGroupSpecs": [make_group(4, suspend=True)]},
        "{}.workerGroupSpecs[0].suspend is true: KubeRay creates no workers of the group, and Kueue would hold quota "
        "for 4; leave it out, or set replicas to 0",
    ),
    (
        {"workerGroupSpecs": [make_group(1, numOfHosts=0)]},
        "{}.workerGroupSpecs[0].numOfHosts is 0: KubeRay creates no workers of the group, and Kueue would hold quota "
        "for 1; set 1",
    ),
    (
        {"workerGroupSpecs": [make_group(1, labels={"ray.io/replica-host-index": "0"})]},
        "{}.workerGroupSpecs[0].labels has ray.io/replica-host-index: KubeRay writes it on each host of a replica; "
        "remove it",
    ),
    (
        {"workerGroupSpecs": [make_group(1, numOfHosts=257)]},
        "{}.workerGroupSpecs[0].numOfHosts is 257, and a replica has at most 256 hosts; use more replicas",
    ),
    (
        {"workerGroupSpecs": [make_group(1), make_group(1, labels={"rayspan.dev/cluster": "east"})]},
        "{}.workerGroupSpecs[1].labels has rayspan.dev/cluster: the key is reserved for Rayspan; remove it",
    ),
]
ALLOWED: list[Raw] = [
    {},
    {"enableInTreeAutoscaling": False},
    {"tlsOptions": {"enabled": False}},
    {"tlsOptions": None},
    {"rayVersion": "2.52.0", "authOptions": {"mode": "token", "secretName": "s"}},
    {"authOptions": {"enableK8sTokenAuth": False}},
    {"workerGroupSpecs": [make_group(2, numOfHosts=4)]},
    {"workerGroupSpecs": [make_group(1, numOfHosts=1), make_group(0, name="b", numOfHosts=0)]},
    {"workerGroupSpecs": [make_group(2, minReplicas=0, maxReplicas=8), make_group(0, name="b", maxReplicas=8)]},
    {"workerGroupSpecs": [make_group(0, suspend=True, minReplicas=4), make_group(None, name="b")]},
    {"workerGroupSpecs": [make_group(1, labels={"ray.io/availability-zone": "east"}), make_group(1, labels=None)]},
    {"workerGroupSpecs": None},
]


def job(kind: str, cluster: Raw) -> Raw:
    """A job whose RayCluster spec has the fields of `cluster`; a RayJob has that spec inside its own."""
    raw = make_ray_job(kind=kind)
    holder = raw["spec"]["rayClusterSpec"] if kind == "RayJob" else raw["spec"]
    holder |= cluster
    return raw


@pytest.mark.parametrize(("kind", "where"), [("RayJob", "spec.rayClusterSpec"), ("RayCluster", "spec")])
@pytest.mark.parametrize(("cluster", "want"), REFUSED, ids=[row[1] for row in REFUSED])
def test_a_job_that_cannot_run_remotely_is_rejected(kind: str, where: str, cluster: Raw, want: str) -> None:
    said = job_validation.job_problem(read_job(kind, job(kind, cluster)))
    assert said.startswith(want.format(where))
    assert not said.endswith("."), "a fragment, which the caller puts into a sentence"


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster"])
@pytest.mark.parametrize("cluster", ALLOWED, ids=str)
def test_a_job_that_can_run_remotely_is_accepted(kind: str, cluster: Raw) -> None:
    assert job_validation.job_problem(read_job(kind, job(kind, cluster))) == ""


def test_a_resize_in_place_is_rejected() -> None:
    raw = make_ray_job()
    raw["metadata"]["annotations"] = {"ray.io/ippr": "{}"}
    assert job_validation.job_problem(read_ray_job(raw)).startswith("metadata.annotations has ray.io/ippr: ")


def elastic(kind: str, value: str = "true", **cluster: object) -> Raw:
    raw = job(kind, dict(cluster))
    raw["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": value}
    return raw


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster"])
@pytest.mark.parametrize("autoscaled", [True, False])
def test_an_elastic_job_with_the_annotation_is_accepted(kind: str, autoscaled: bool) -> None:
    assert job_validation.job_problem(read_job(kind, elastic(kind, enableInTreeAutoscaling=autoscaled))) == ""
    refused = job_validation.job_problem(read_job(kind, elastic(kind, "false", enableInTreeAutoscaling=autoscaled)))
    assert ("lacks kueue.x-k8s.io/elastic-job" in refused) is autoscaled


def test_an_elastic_job_whose_bounds_differ_from_its_replicas_is_rejected() -> None:
    """Workers that KubeRay creates beyond the replicas would wait for ever: Kueue never has quota for them."""
    said = job_validation.job_problem(
        read_ray_cluster(elastic("RayCluster", workerGroupSpecs=[make_group(1, minReplicas=2)]))
    )
    assert "replicas is 1 and minReplicas 2" in said and said.endswith("set replicas to 2")


@pytest.mark.parametrize("feature", [True, False])
def test_a_kueue_without_elastic_jobs_is_named(feature: bool) -> None:
    work = builders.make_workload(owner="RayCluster")
    if feature:
        work["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = "true"
    said = job_validation.workload_rejection(
        parse_workload(work), read_ray_cluster(elastic("RayCluster")), builders.CHECK, (), None, ()
    )
    assert ("ElasticJobsViaWorkloadSlices" in said) is not feature


@pytest.mark.parametrize("marked", ["own", "other"])
@pytest.mark.parametrize("changes", [True, False])
def test_marks_of_our_check_in_an_elastic_job_are_accepted(marked: str, changes: bool) -> None:
    """Kueue leaves them when it stops the job, and adds them again when it admits it."""
    raw = builders.make_workload(owner="RayCluster")
    if changes:
        raw["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = "true"
    own = placement_name(parse_workload(raw))
    labels = {"rayspan.dev/placement": own if marked == "own" else "train-00000000"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeSelector": {"rayspan.dev/remote": "only"}, "containers": [FINE]},
    }
    podset = PodSet("workers", 2, template, frozenset())
    said = job_validation.workload_rejection(
        parse_workload(raw), read_ray_cluster({}), builders.CHECK, [podset], None, ()
    )
    assert ("the key is reserved for Rayspan" in said) is not (marked == "own" and changes)


def test_an_unknown_job_is_not_rejected() -> None:
    assert job_validation.job_problem(read_ray_job({})) == job_validation.job_problem(read_ray_cluster({})) == ""


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster"])
def test_the_managers_object_is_validated(kind: str) -> None:
    """Both kinds are looked up, because the Workload has none of these fields."""
    sight, raw = Sight({"east": 4}), job(kind, {"tlsOptions": {"enabled": True}})
    raw["metadata"]["uid"] = "uid-of-the-job"
    (sight.manager.ray_jobs if kind == "RayJob" else sight.manager.ray_clusters).replace([raw])
    work = builders.make_workload()
    (owner,) = work["metadata"]["ownerReferences"]
    owner |= {"kind": kind, "name": builders.JOB, "uid": "uid-of-the-job"}
    found = sight.facts.job_problems.rejection_reason(parse_workload(work), builders.CHECK, None)
    assert (
        f"{kind} {builders.JOB}: " in found and "tlsOptions is set" in found and found.endswith("and submit it again.")
    )


def test_a_workload_keeps_no_old_state_of_a_worker_cluster() -> None:
    """Clusters change all the time: each of thousands of jobs would keep another old state in memory."""
    sight, work = Sight({"east": 4}), builders.make_workload()
    clusters = sight.manager.worker_clusters
    clusters.replace([builders.make_worker_cluster("east")])
    sight.manager.workloads.replace([work])
    asked = sight.manager.read_workload(next(iter(sight.manager.workloads)))
    held = clusters.by_name("east")
    before = sys.getrefcount(held)
    sight.facts.job_problems.rejection_reason(asked, builders.CHECK, sight.facts.policies.policy_of(builders.CHECK)[0])
    assert sys.getrefcount(held) == before


@pytest.mark.parametrize("kind", names.RAY_KINDS)
@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        pytest.param({}, False, id="Ray's autoscaler is off"),
        pytest.param({"enableInTreeAutoscaling": True}, True, id="autoscalerOptions is missing"),
        pytest.param({"enableInTreeAutoscaling": True, "autoscalerOptions": {"env": None}}, True, id="env is null"),
        pytest.param(
            {"enableInTreeAutoscaling": True, "autoscalerOptions": {"env": [{"name": "RAY_OTHER", "value": "1"}]}},
            True,
            id="env has another variable",
        ),
        pytest.param(
            {
                "enableInTreeAutoscaling": True,
                "autoscalerOptions": {"env": [{"name": "RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", "value": "60"}]},
            },
            False,
            id="env has the idle time-out of pending nodes",
        ),
        pytest.param(
            {
                "enableInTreeAutoscaling": True,
                "autoscalerOptions": {
                    "env": [{"name": "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", "value": "90"}]
                },
            },
            False,
            id="env has the time-out of allocations",
        ),
        pytest.param(
            {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}}, True, id="autoscaler v2"
        ),
        pytest.param(
            {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v1"}},
            False,
            id="autoscaler v1 gives up no pending worker",
        ),
    ],
)
def test_a_job_with_rays_autoscaler_is_warned_about_its_time_out(kind: str, cluster: Raw, told: bool) -> None:
    work = parse_workload(builders.make_workload(owner=kind))
    said = job_validation.autoscaler_timeout_warning(work, read_job(kind, job(kind, cluster)))
    assert ("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S to 60" in said) is told and bool(said) is told
