"""A job that can never run remotely is rejected in one sentence: what, where, why, and the remedy."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.admission import job_validation, pod_validation, policy
from adapter.admission.policy import ResolvedPolicy
from adapter.objects.rayjob import read_ray_cluster, read_ray_job
from adapter.objects.specs import parse_dispatch_policy
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Job, PodSet, parse_workload
from tests.unit.builders import CHECK, make_policy, make_worker_cluster, make_workload
from tests.unit.stores import make_ray_job, make_template

JOB = make_ray_job()
CHOSEN = ResolvedPolicy(parse_dispatch_policy(make_policy(clusters=["east"])), ("east",))
EAST, WITH_ACCOUNT = make_worker_cluster("east"), make_worker_cluster("west", pods={"serviceAccountName": "ray"})


def group(name: str = "workers", **spec: Any) -> PodSet:
    return PodSet(name, 1, make_template("1", **spec), frozenset())


HOST = group("second", hostNetwork=True)
ACCOUNT = group(serviceAccountName="mine")
MISPLACED = "RayJob train: worker group second: spec.hostNetwork is true: "
ACCOUNTED = "RayJob train: worker group workers: spec.serviceAccountName is mine: "
PART = ResolvedPolicy(parse_dispatch_policy(make_policy(clusters=["east"], gang="BestEffort", minWorkers=1)), ("east",))


@pytest.mark.parametrize(
    ("owner", "job", "podsets", "chosen", "clusters", "want"),
    [
        pytest.param("RayJob", JOB, [group()], CHOSEN, [EAST], "", id="a job that can run remotely"),
        pytest.param("RayJob", {}, [], None, [], "", id="a job of which nothing is known"),
        pytest.param(
            "Job", JOB, [HOST], CHOSEN, [EAST],
            "AdmissionCheck rayspan dispatches RayJob and RayCluster only, found a Job; use another queue.",
            id="a job of another kind",
        ),
        pytest.param(
            "RayService", JOB, [HOST], CHOSEN, [EAST],
            "RayService train: AdmissionCheck rayspan dispatches the RayClusters of a RayService, each as its own "
            "job, but Kueue queues the RayService as one job. Remove ray.io/rayservice from integrations.frameworks ",
            id="a RayService that Kueue takes for one job",
        ),
        pytest.param(
            "", JOB, [HOST], CHOSEN, [EAST],
            "AdmissionCheck rayspan dispatches RayJob and RayCluster only, found a pod; use another queue.",
            id="a pod without a job",
        ),
        pytest.param(
            "RayJob", make_ray_job(rayClusterSpec={"tlsOptions": {}}), [HOST], CHOSEN, [EAST],
            "RayJob train: spec.rayClusterSpec.tlsOptions is set: ",
            id="a fault of the job is named before those of its groups",
        ),
        pytest.param("RayJob", JOB, [group(), HOST], CHOSEN, [EAST], MISPLACED, id="a fault of one worker group"),
        pytest.param("RayJob", JOB, [ACCOUNT], CHOSEN, [EAST], ACCOUNTED, id="a service account that no cluster has"),
        pytest.param(
            "RayJob", JOB, [ACCOUNT], CHOSEN, [WITH_ACCOUNT, EAST], "", id="one cluster replaces the service account",
        ),
        pytest.param("RayJob", JOB, [ACCOUNT], CHOSEN, [], ACCOUNTED, id="none of the clusters is registered"),
        pytest.param(
            "RayJob", JOB, [ACCOUNT], None, [], "", id="nothing is rejected while no policy can be read",
        ),
        pytest.param(
            "RayJob", JOB, [group()], PART, [EAST],
            "RayJob train: its spec.submissionMode K8sJobMode starts the job only ",
            id="a part of the gang could never start the job",
        ),
        pytest.param(
            "RayJob", make_ray_job(submissionMode="SidecarMode"), [group()], PART, [EAST], "",
            id="a part of the gang can start the job",
        ),
    ],
)  # fmt: skip
def test_the_rejection_of_a_workload(
    owner: str, job: Raw, podsets: Iterable[PodSet], chosen: ResolvedPolicy | None, clusters: Iterable[Raw], want: str
) -> None:
    said = job_validation.workload_rejection(
        parse_workload(make_workload(owner=owner)), read_ray_job(job), CHECK, podsets, chosen, clusters
    )
    assert said.startswith(want) and bool(said) is bool(want)
    assert not said or said.endswith(".")


@pytest.mark.parametrize(
    ("template", "want"),
    [
        pytest.param({}, "", id="an empty template"),
        pytest.param({"metadata": {"labels": {"team": "a"}, "annotations": None}}, "", id="a label of the user"),
        pytest.param({"metadata": {"annotations": {"rayspan.dev/zone": "z"}}}, "", id="the annotation of a zone"),
        pytest.param({"metadata": {"annotations": {"rayspan.dev/region": "r"}}}, "", id="the annotation of a region"),
        pytest.param(
            {"metadata": {"annotations": {"rayspan.dev/podset-required-topology": "rack"}}}, "", id="a topology"
        ),
        pytest.param(
            {"metadata": {"labels": {"ray.io/worker-group-replica-name": "a"}}},
            "metadata.labels has ray.io/worker-group-replica-name: KubeRay writes it",
            id="a label by which KubeRay knows the hosts of a replica",
        ),
        pytest.param({"spec": {"nodeSelector": {"rayspan.dev/pool": "remote"}}}, "", id="the node selector of a pool"),
        pytest.param(
            {"metadata": {"labels": {"rayspan.dev/manager": "x"}}}, "metadata.labels has rayspan.dev/manager: ",
            id="a label of remote pods",
        ),
        pytest.param(
            {"metadata": {"labels": {"rayspan.dev/placement": "old-1"}}}, "metadata.labels has rayspan.dev/placement: ",
            id="the label of an earlier placement",
        ),
        pytest.param(
            {"metadata": {"annotations": {"rayspan.dev/slot": "s"}}}, "metadata.annotations has rayspan.dev/slot: ",
            id="the annotation of a slot",
        ),
        pytest.param(
            {"spec": {"nodeSelector": {"rayspan.dev/remote": "no"}}}, "spec.nodeSelector has rayspan.dev/remote: ",
            id="another value of the lock",
        ),
    ],
)  # fmt: skip
def test_a_template_must_not_have_our_marks(template: Raw, want: str) -> None:
    said = next(pod_validation.reserved_key_problems(template), "")
    assert said.startswith(want) and bool(said) is bool(want)


LONG = "x" * 100_000
CUT = "x" * 64 + "…"


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"nodeName": LONG}, f"spec.nodeName is {CUT}: "),
        ({"nodeName": "a\nERROR b"}, "spec.nodeName is a\N{REPLACEMENT CHARACTER}ERROR b: "),
        ({"serviceAccountName": LONG}, f"spec.serviceAccountName is {CUT}: "),
        ({"volumes": [{"name": LONG, "hostPath": {"path": LONG}}]}, f"spec.volumes[{CUT}].hostPath is {CUT}: "),
        (
            {"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": LONG}}}]},
            f"spec.volumes[v].csi.nodePublishSecretRef is {CUT}: ",
        ),
        (
            {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {"volumeName": LONG}}}}]},
            f"spec.volumes[v].ephemeral.volumeClaimTemplate.spec.volumeName is {CUT}: ",
        ),
        (
            {"resourceClaims": [{"name": LONG, "resourceClaimName": LONG}]},
            f"spec.resourceClaims[{CUT}].resourceClaimName is {CUT}: ",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchFields": [{"key": LONG, "values": [LONG]}]}],
                        },
                    },
                },
            },
            f"spec.affinity.nodeAffinity has matchFields {CUT} {CUT}: ",
        ),
        ({"nodeSelector": {f"rayspan.dev/{LONG}": ""}}, f"spec.nodeSelector has rayspan.dev/{'x' * 52}…: "),
    ],
)  # fmt: skip
def test_a_rejection_quotes_the_template_and_keeps_the_remedy(spec: Raw, want: str) -> None:
    """A check takes 32 768 characters and an event 1 024: the end of the message must not be cut."""
    said = job_validation.workload_rejection(
        parse_workload(make_workload()), read_ray_job(JOB), CHECK, [group(**spec)], CHOSEN, [EAST]
    )
    assert said.startswith(f"RayJob train: worker group workers: {want}")
    assert said.endswith(job_validation.RESUBMIT) and len(said) < 1_024


def test_marks_in_a_template_reject_the_job() -> None:
    marked = PodSet(
        "workers", 1, {**make_template("1"), "metadata": {"labels": {"rayspan.dev/manager": "x"}}}, frozenset()
    )
    said = job_validation.workload_rejection(
        parse_workload(make_workload()), read_ray_job(JOB), CHECK, [marked], CHOSEN, [EAST]
    )
    assert said.startswith("RayJob train: worker group workers: metadata.labels has rayspan.dev/manager: ")


def test_a_rejection_names_its_remedy() -> None:
    work = parse_workload(make_workload())
    refused = job_validation.workload_rejection(work, read_ray_job(JOB), CHECK, [HOST], CHOSEN, [EAST])
    assert refused.endswith(f". {job_validation.RESUBMIT}"), "the job is to be changed"
    assert job_validation.job_rejection(work, "too large").endswith(". Then delete the job, and submit it again.")
    assert job_validation.missing_sources_message(work, "no Secret s") == "RayJob train: no Secret s."
    assert job_validation.job_rejection(work, "") == job_validation.missing_sources_message(work, "") == ""


def test_a_workload_without_a_job_is_named() -> None:
    assert (
        job_validation.missing_sources_message(parse_workload(make_workload(owner="")), "no Secret s")
        == "Workload rayjob-train: no Secret s."
    )


def test_defaults_without_a_policy() -> None:
    """A running job is neither given up nor stopped when no policy can be read: the policy's defaults apply."""
    default = ResolvedPolicy(parse_dispatch_policy(make_policy()), ())
    for read in (
        policy.reservation_timeout,
        policy.worker_lost_timeout,
        policy.worker_start_timeout,
        policy.share_lost_action,
        policy.needs_same_cluster,
    ):
        assert read(None) == read(default)


def test_the_settings_of_a_policy_apply() -> None:
    spec = {"reservationTimeout": "1m", "workerLostTimeout": "2m", "workerStartTimeout": "3m", "onShareLost": "Restart"}
    chosen = ResolvedPolicy(parse_dispatch_policy(make_policy(**spec)), ())
    told = policy.reservation_timeout(chosen), policy.worker_lost_timeout(chosen), policy.share_lost_action(chosen)
    assert (told[0].total_seconds(), told[1].total_seconds(), told[2]) == (60, 120, "Restart")
    assert policy.worker_start_timeout(chosen).total_seconds() == 180
    assert not policy.needs_same_cluster(chosen)
    assert policy.needs_same_cluster(ResolvedPolicy(parse_dispatch_policy(make_policy(gang="SameCluster")), ()))


SERVICE = Job("ray.io/v1", "RayService", "demo", "chat", "u")
RESTARTS = ResolvedPolicy(parse_dispatch_policy(make_policy(clusters=["east"], onShareLost="Restart")), ("east",))


@pytest.mark.parametrize(
    ("service", "chosen", "warned"),
    [
        pytest.param(SERVICE, RESTARTS, True, id="a RayService that restarts on a lost share"),
        pytest.param(SERVICE, CHOSEN, False, id="a RayService whose lost workers are replaced"),
        pytest.param(SERVICE, None, False, id="no policy can be read"),
        pytest.param(None, RESTARTS, False, id="a RayCluster without a RayService"),
    ],
)
def test_a_service_that_may_restart_as_a_whole_is_warned(
    service: Job | None, chosen: ResolvedPolicy | None, warned: bool
) -> None:
    work = parse_workload(make_workload(owner="RayCluster"))
    assert work.job
    said = job_validation.restart_warning(replace(work, job=replace(work.job, service=service)), chosen)
    assert bool(said) is warned
    assert not said or ("RayService chat answers no requests" in said and said.endswith("."))


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, "", id="no upgrade strategy"),
        pytest.param({"upgradeStrategy": {"type": "NewCluster"}}, "", id="a new RayCluster for each upgrade"),
        pytest.param({"upgradeStrategy": None}, "", id="a null upgrade strategy"),
        pytest.param(
            {"upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}}, "spec.upgradeStrategy.type is ",
            id="an incremental upgrade",
        ),
    ],
)  # fmt: skip
def test_an_incremental_upgrade_is_rejected(spec: Raw, want: str) -> None:
    said = job_validation.service_problem({"spec": spec})
    assert said.startswith(want) and bool(said) is bool(want)


@pytest.mark.parametrize(
    ("service", "spec", "told"),
    [
        pytest.param(SERVICE, {"spec": {"suspend": False}}, True, id="suspend is false"),
        pytest.param(SERVICE, {"spec": {}}, True, id="suspend is missing"),
        pytest.param(SERVICE, {"spec": {"suspend": True}}, False, id="suspend is true"),
        pytest.param(SERVICE, {}, False, id="a job of which nothing is known"),
        pytest.param(None, {"spec": {"suspend": False}}, False, id="a user's own RayCluster, which Kueue suspends"),
    ],
)
def test_a_raycluster_that_kuberay_started_before_its_admission(service: Job | None, spec: Raw, told: bool) -> None:
    work = parse_workload(make_workload(owner="RayCluster"))
    assert work.job
    said = job_validation.started_early_message(
        replace(work, job=replace(work.job, service=service)), read_ray_cluster(spec)
    )
    assert bool(said) is told
    assert not told or said.endswith("apply kustomize/components/rayservice.")


@pytest.mark.parametrize("service", [SERVICE, None])
def test_a_raycluster_may_be_elastic_with_and_without_a_service(service: Job | None) -> None:
    work = replace(parse_workload(make_workload(owner="RayCluster")), elastic=True)
    assert work.job
    annotated = {"annotations": {names.ELASTIC_ANNOTATION: "true"}}
    job = read_ray_cluster({"metadata": annotated, "spec": {"enableInTreeAutoscaling": True}})
    workload = replace(work, job=replace(work.job, service=service))
    assert job_validation.workload_rejection(workload, job, CHECK, [], CHOSEN, [EAST]) == ""
