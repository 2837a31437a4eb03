"""Fields of a worker that mean nothing in another cluster are warned of, at plan, at apply and by an event."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adapter.admission import job_validation, pod_warnings, warnings
from adapter.admission.pod_warnings import PodSettings
from adapter.objects import trim
from adapter.objects.rayjob import read_job
from adapter.objects.unstructured import Raw, key_of
from adapter.objects.workload import parse_workload
from tests.unit.admission.test_warnings import seen
from tests.unit.builders import JOB, NAMESPACE, START, make_worker_cluster, make_workload
from tests.unit.stores import Sight, fill, make_group, make_ray_job, make_template

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MESH = "$(hostname -I | tr -d ' ').ray-nodes.demo.svc.cluster.local"


def template(spec: Raw | None = None, **container: Any) -> Raw:
    made = make_template("1", **(spec or {}))
    return {"spec": {**made["spec"], "containers": [{**made["spec"]["containers"][0], **container}]}}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(
            template(env=[{"name": "URL", "value": "http://m.demo.svc:80 http://m.demo.svc:80/x"}]),
            ["spec.containers[ray].env[URL] has m.demo.svc: "], id="an address in a variable, told once",
        ),
        pytest.param(
            template(args=["--db", "db.demo.svc.cluster.local:5432"]),
            ["spec.containers[ray].args has db.demo.svc.cluster.local: "], id="in the arguments",
        ),
        pytest.param(
            template(readinessProbe={"exec": {"command": ["curl", "m.demo.svc"]}}),
            ["spec.containers[ray].readinessProbe has m.demo.svc: "], id="in a probe",
        ),
        pytest.param(
            template({"initContainers": [{"name": "fetch", "command": ["nc", "m.demo.svc", "80"]}]}),
            ["spec.initContainers[fetch].command has m.demo.svc: "], id="in an init container",
        ),
        pytest.param(
            template(image="registry.ci.svc:5000/team/ray:1", imagePullPolicy="Never"),
            ["spec.containers[ray].image is registry.ci.svc:5000/team/ray:1: ",
             "spec.containers[ray].imagePullPolicy is Never: "], id="an image that only the manager can pull",
        ),
        pytest.param(
            template({"schedulerName": "kai-scheduler"}), ["spec.schedulerName is kai-scheduler: it is removed"],
            id="a scheduler",
        ),
        pytest.param(template({"schedulerName": "default-scheduler"}), [], id="the default scheduler"),
        pytest.param(
            {**template(), "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}},
            ["metadata.annotations has kueue.x-k8s.io/podset-required-topology: the manager's Kueue would place"],
            id="a topology of the manager's nodes",
        ),
        pytest.param(
            template(env=[{"name": "HEAD", "value": "train-head-svc.demo.svc:6379"}]), [], id="the job's own head",
        ),
        pytest.param(
            template(env=[{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                          {"name": "S3", "value": "https://s3.example.com"}]), [], id="what works everywhere",
        ),
        pytest.param({}, [], id="no template"),
        pytest.param(template(env=[{"name": "A"}] * 999), [], id="an oversized template, which is rejected"),
    ],
)  # fmt: skip
def test_what_only_the_manager_has_is_warned_of(given: Raw, want: list[str]) -> None:
    said = [*pod_warnings.template_warnings(given, ["train-head-svc"])]
    assert len(said) == len(want)
    for warning, start in zip(said, want, strict=True):
        assert warning.startswith(start) and not warning.endswith(".")


def test_what_every_cluster_replaces_is_no_warning() -> None:
    given = template({"schedulerName": "kai"}, image="registry.ci.svc/ray")
    clusters = [make_worker_cluster(pods={"schedulerName": "volcano", "imageRegistries": {"a": "b"}})]
    assert not [*pod_warnings.template_warnings(given, (), PodSettings.of_clusters(clusters))]
    clusters.append(make_worker_cluster("west"))
    assert len([*pod_warnings.template_warnings(given, (), PodSettings.of_clusters(clusters))]) == 2
    assert PodSettings.of_clusters([]) == PodSettings()


@pytest.mark.parametrize(
    ("pods", "namespace", "warned"),
    [
        pytest.param({"schedulers": [{"name": "kai"}]}, "demo", False, id="named in each cluster"),
        pytest.param({"schedulers": [{"name": "*", "as": "volcano"}]}, "demo", False, id="any"),
        pytest.param({"schedulers": [{"name": "kai", "namespaces": ["demo"]}]}, "other", True, id="for others"),
        pytest.param({"schedulers": [{"name": "volcano"}]}, "demo", True, id="another one"),
        pytest.param({"schedulers": "kai"}, "demo", True, id="no list"),
    ],
)
def test_a_scheduler_that_each_cluster_names_is_no_warning(pods: Raw, namespace: str, warned: bool) -> None:
    settings = PodSettings.of_clusters(
        [make_worker_cluster(pods=pods), make_worker_cluster(pods={"schedulerName": "a"})]
    )
    warnings = [*pod_warnings.template_warnings(template({"schedulerName": "kai"}), (), settings, namespace)]
    assert bool(warnings) is warned


@pytest.mark.parametrize(
    ("params", "want"),
    [
        pytest.param({"address": "my-ray:6379"}, ".address is my-ray:6379, a Service of the manager: ", id="a Service"),
        pytest.param({"address": "$X.my-ray.demo.svc:6379"}, ".address is $X.my-ray.demo.svc:6379: ", id="a part"),
        pytest.param({"address": f"{JOB}-head-svc:6379"}, "", id="the head's own Service"),
        pytest.param({"address": "10.0.0.1:6379"}, "", id="an IP"),
        pytest.param({"address": 5}, "", id="no text"),
        pytest.param(
            {"node-ip-address": MESH}, f".node-ip-address is {MESH}, a name that no other cluster resolves: ",
            id="a Service of nodes, left out over there",
        ),
        pytest.param(
            {"node-ip-address": "worker-1"}, ".node-ip-address is worker-1, a name that no other cluster resolves; ",
            id="a host",
        ),
        pytest.param({"node-ip-address": "$MY_POD_IP"}, "", id="the pod's IP"),
        pytest.param({"num-cpus": "1"}, "", id="other parameters"),
    ],
)  # fmt: skip
def test_start_parameters_are_warned_of(params: Raw, want: str) -> None:
    raw = make_ray_job(make_group(2, rayStartParams=params), kind="RayCluster")
    work = parse_workload(make_workload(owner="RayCluster", groups={"workers": 2}))
    groups = [podset for podset in work.podsets if podset.name == "workers"]
    for known in (raw, trim.ray_cluster(raw)):  # the controller keeps less of an object than its user wrote
        said = job_validation.portability_warnings(work, read_job("RayCluster", known), groups, ())
        assert len(said) == bool(want)
        assert not want or said[0].startswith(f"spec.workerGroupSpecs[0].rayStartParams{want}")
    assert not job_validation.portability_warnings(work, read_job("RayCluster", raw), (), ())  # no worker goes


def test_the_name_of_the_heads_service_may_be_chosen() -> None:
    group = make_group(1, rayStartParams={"address": "boss:6379"})
    raw = make_ray_job(group, kind="RayCluster", headGroupSpec={"headService": {"metadata": {"name": "boss"}}})
    work = parse_workload(make_workload(owner="RayCluster", groups={"workers": 1}))
    assert not job_validation.portability_warnings(work, read_job("RayCluster", raw), work.podsets[1:], ())


def test_the_warnings_are_bounded() -> None:
    env = [{"name": f"A{number}", "value": f"a{number}.demo.svc"} for number in range(50)]
    work = parse_workload(make_workload(groups={"workers": 1}))
    groups = [replace(work.podsets[1], template=template(env=env))]
    said = job_validation.portability_warnings(work, read_job("RayJob", make_ray_job()), groups, ())
    assert len(said) == pod_warnings.MAX_WARNINGS


ODD = make_ray_job(make_group(2, rayStartParams={"address": "my-ray:6379"}))
ODD_TEXT = "spec.rayClusterSpec.workerGroupSpecs[0].rayStartParams.address is my-ray:6379, a Service of the manager"


def test_a_warning_at_apply_does_not_keep_the_job_from_a_plan() -> None:
    said = warnings.job_warnings(ODD, seen(), NOW)
    assert said.job_to_plan is ODD
    assert [sentence.partition(": workers")[0] for sentence in said.sentences] == [f"RayJob {JOB}: {ODD_TEXT}"]
    faulty = make_ray_job(make_group(2, rayStartParams={"address": "my-ray:6379"}, template={"spec": {}}))
    said = warnings.job_warnings(faulty, seen(), NOW)
    assert said.job_to_plan is None and len(said.sentences) > 1


def test_a_plan_has_the_warnings_as_notes() -> None:
    answer = asyncio.run(Sight({"east": 9}).preview.preview_plan(ODD, NAMESPACE, START))
    assert answer["fits"]
    assert [note.partition(": workers")[0] for note in answer["notes"]] == [f"RayJob {JOB}: {ODD_TEXT}"]


def test_the_controller_knows_the_warning_of_a_job_that_it_places() -> None:
    sight = Sight({"east": 9})
    work = make_workload(groups={"workers": 2})
    fill(sight.manager.workloads, work)
    job = make_ray_job(make_group(2, rayStartParams={"address": "my-ray:6379"}))
    owner = work["metadata"]["ownerReferences"][0]
    known = trim.ray_job({**job, "metadata": {**job["metadata"], "uid": owner["uid"]}})
    fill(sight.manager.ray_jobs, dict(known))
    gang = sight.facts.gang_observer.facts(key_of(work), START)
    assert gang.job.portability_warning.startswith(f"RayJob {JOB}: {ODD_TEXT}: workers")


def test_labels_and_annotations_that_are_removed_are_warned_of() -> None:
    given = {"metadata": {"labels": {"runai/queue": "vip", "app": "x"}, "annotations": {"iam.amazonaws.com/role": "r"}}}
    said = [*pod_warnings.template_warnings(given)]
    assert [text.partition(":")[0] for text in said] == [
        "metadata.labels has runai/queue",
        "metadata.annotations has iam.amazonaws.com/role",
    ]
    assert said[0].endswith("an administrator sets it in spec.pods.labels of a WorkerCluster")
