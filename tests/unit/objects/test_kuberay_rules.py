"""A job that KubeRay rejects is named in advance, with the field and the remedy; a sound job is not."""

from collections.abc import Mapping
from typing import Any

import pytest

from adapter.admission import job_validation
from adapter.objects import job_manifest, trim
from adapter.objects.kuberay_rules import KUBERAY_RULES, MAX_FAULTS, kuberay_faults, service_faults
from adapter.objects.rayjob import read_job
from hack.testbed.kuberay_refusals import KUBERAY_REFUSALS, KubeRayRefusal, as_ray_job, refused_job
from hack.testbed.stage import ray_cluster

SOUND = ray_cluster("train", "team", {"workers": 2})
TITLES = [refusal.title for refusal in KUBERAY_REFUSALS]


@pytest.mark.parametrize("refusal", KUBERAY_REFUSALS, ids=TITLES)
def test_a_job_that_kuberay_rejects_is_rejected_with_the_field(refusal: KubeRayRefusal) -> None:
    body = refused_job(SOUND, refusal)
    path = "spec.rayClusterSpec" if body["kind"] == "RayJob" else "spec"
    problem = job_validation.job_problem(read_job(body["kind"], body))
    assert problem.startswith(refusal.sentence.format(path, path)) and "; " in problem and not problem.endswith(".")


@pytest.mark.parametrize("refusal", KUBERAY_REFUSALS, ids=TITLES)
def test_the_cached_job_is_rejected_in_the_same_words(refusal: KubeRayRefusal) -> None:
    body = refused_job(SOUND, refusal)
    trimmed = (trim.ray_job if body["kind"] == "RayJob" else trim.ray_cluster)(body)
    assert kuberay_faults(body["kind"], trimmed) == kuberay_faults(body["kind"], body)


@pytest.mark.parametrize("refusal", [each for each in KUBERAY_REFUSALS if each.job is None and not each.name])
def test_a_rayjob_is_rejected_for_its_raycluster(refusal: KubeRayRefusal) -> None:
    body = as_ray_job(refused_job(SOUND, refusal))
    assert kuberay_faults("RayJob", body)[0].startswith(
        refusal.sentence.format("spec.rayClusterSpec", "spec.rayClusterSpec")
    )


def test_each_rule_has_a_job_that_breaks_it() -> None:
    assert {refusal.rule for refusal in KUBERAY_REFUSALS} == {rule.title for rule in KUBERAY_RULES}
    assert len(set(TITLES)) == len(TITLES)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="a stock job"),
        pytest.param(
            {"gcsFaultToleranceOptions": {"redisAddress": "a", "redisPassword": {"value": "p"}}},
            id="fault tolerance by options",
        ),
        pytest.param({"authOptions": {"mode": "token"}}, id="token mode with a version"),
        pytest.param({"authOptions": {"mode": "disabled"}, "rayVersion": ""}, id="no token mode, no version"),
    ],
)
def test_a_sound_job_breaks_no_rule(fields: Mapping[str, Any]) -> None:
    body = {**SOUND, "spec": {**SOUND["spec"], **fields}}
    assert kuberay_faults("RayCluster", body) == ()
    assert kuberay_faults("RayJob", as_ray_job(body, submissionMode="SidecarMode", backoffLimit=2)) == ()
    assert kuberay_faults("RayJob", as_ray_job(body, submissionMode="InteractiveMode", backoffLimit=0)) == ()


@pytest.mark.parametrize("key", ["ray.io/availability-zone", "a", "example.com/a_b.c"])
def test_a_label_of_kubernetes_breaks_no_rule(key: str) -> None:
    body = refused_job(SOUND, KubeRayRefusal("", "", "", "", group={"labels": {key: "", "b": "east-1"}}))
    assert kuberay_faults("RayCluster", body) == ()


@pytest.mark.parametrize("key", ["/a", "a/", "A.com/a", "a/b/c", "a" * 64, "-a"])
def test_a_label_that_kubernetes_does_not_take_is_named(key: str) -> None:
    body = refused_job(SOUND, KubeRayRefusal("", "", "", "", group={"labels": {key: ""}}))
    assert kuberay_faults("RayCluster", body)


@pytest.mark.parametrize(("name", "rejected"), [("a" * 53, False), ("a" * 54, True)])
def test_a_generated_name_counts_with_its_suffix(name: str, rejected: bool) -> None:
    metadata = {"generateName": name[:-5]}
    assert bool(kuberay_faults("RayCluster", {**SOUND, "metadata": metadata})) is rejected


def test_the_number_of_faults_is_bounded() -> None:
    labels = {f"a b {number}": "" for number in range(100)}
    body = refused_job(SOUND, KubeRayRefusal("", "", "", "", group={"labels": labels}))
    assert len(kuberay_faults("RayCluster", body)) == MAX_FAULTS


def test_a_rayservice_that_kuberay_rejects_is_named() -> None:
    head = {"headService": {"metadata": {"name": "a"}}}
    service = {"metadata": {"name": "s" * 48}, "spec": {"rayClusterConfig": {"headGroupSpec": head}}}
    name, head_service = service_faults(service)
    assert name.startswith("metadata.name has 48 characters, and KubeRay rejects more than 47")
    assert "headService.metadata.name is set" in head_service
    assert job_validation.service_problem(service) == name


def test_deletion_rules_without_shutdown_are_told_to_go() -> None:
    """The advice to add shutdownAfterJobFinishes would lead into KubeRay's rejection."""
    (refusal,) = [each for each in KUBERAY_REFUSALS if each.title == "deletion rules"]
    body = refused_job(SOUND, refusal)
    del body["spec"]["shutdownAfterJobFinishes"]
    (fault,) = job_manifest.parse_partially(body, "team").faults
    assert "deletionRules cannot be used in a queue" in fault and "lacks" not in fault
