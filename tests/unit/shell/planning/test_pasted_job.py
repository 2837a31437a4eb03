"""The fine-tuning job with limits and replicas only: its requests are read as Kueue and KubeRay read them.

One message lists what Kueue's webhooks reject.
"""

import asyncio

import pytest
import yaml

from adapter import names
from adapter.admission import job_validation, pod_validation
from adapter.objects import job_manifest, raycluster, rayjob
from adapter.objects.job_manifest import InvalidJob
from adapter.objects.pod_requests import pod_requests
from adapter.objects.unstructured import Raw
from hack.lab.base.paths import REPO
from tests.unit.builders import NAMESPACE, QUEUE, START
from tests.unit.stores import Sight, fill

GPU = "nvidia.com/gpu"
GI = 2**30
SAMPLE = REPO / "manifests" / "samples" / "rayjob-llama-finetune.yaml"
ROOM = {"cpu": "64", "memory": "512Gi", GPU: "8"}  # half of what the workers ask for, in each worker cluster


def corpus(name: str) -> Raw:
    read: Raw = yaml.safe_load((REPO / "tests" / "corpus" / f"{name}.yaml").read_text())
    return read


PASTED, COMPLETED = corpus("llama-finetune-pasted"), corpus("llama-finetune")


def group(raw: Raw) -> Raw:
    (one,) = raw["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    found: Raw = one
    return found


def defaulted(raw: Raw) -> Raw:
    """The worker group as the API server keeps it: with the defaults of KubeRay's CRD."""
    return {"minReplicas": 0, "maxReplicas": 2**31 - 1, "numOfHosts": 1, **group(raw)}


def sight(room: Raw) -> Sight:
    """Two worker clusters that have this, in their queues and on one node."""
    found = Sight({"east": 1, "west": 1})
    rows = [{"name": name, "nominalQuota": amount} for name, amount in room.items()]
    groups = [{"coveredResources": [*room], "flavors": [{"name": "any", "resources": rows}]}]
    for member in found.members.values():
        (queue,) = member.cluster_queues
        fill(member.cluster_queues, {**queue, "spec": {**queue["spec"], "resourceGroups": groups}, "status": {}})
        (node,) = member._node_objects
        fill(member._node_objects, {**node, "status": {**node["status"], "allocatable": {**room, "pods": "99"}}})
    return found


def asked(raw: Raw, room: Raw) -> Raw:
    queued = {**raw, "metadata": {**raw["metadata"], "labels": {names.QUEUE_LABEL: QUEUE}}}
    return asyncio.run(sight(room).preview.preview_plan(queued, NAMESPACE, START))


def test_the_shipped_sample_is_what_is_pasted_and_three_lines() -> None:
    shipped = yaml.safe_load(SAMPLE.read_text())
    assert shipped["spec"] == COMPLETED["spec"]
    lines = {"shutdownAfterJobFinishes": True, "rayClusterSpec": COMPLETED["spec"]["rayClusterSpec"]}
    assert {**PASTED, "spec": {**PASTED["spec"], **lines}} == COMPLETED
    before, after = PASTED["spec"]["rayClusterSpec"], COMPLETED["spec"]["rayClusterSpec"]
    assert after == {
        "headGroupSpec": {"rayStartParams": {}, **before["headGroupSpec"]},
        "workerGroupSpecs": [{"rayStartParams": {}, **group(PASTED)}],
    }


def test_podsets_and_requests_come_from_replicas_and_limits() -> None:
    head, workers = job_manifest.parse(COMPLETED, NAMESPACE).podsets
    assert [(one.name, one.count) for one in (head, workers)] == [("head", 1), ("gpu-workers", 4)]
    assert pod_requests(head.template["spec"]) == {"cpu": 8_000, "memory": 32 * GI, GPU: 1, "pods": 1}
    assert pod_requests(workers.template["spec"]) == {"cpu": 16_000, "memory": 128 * GI, GPU: 4, "pods": 1}


@pytest.mark.parametrize("raw", [PASTED, COMPLETED], ids=["pasted", "completed"])
def test_kuberay_and_kueue_count_the_same_without_min_and_max(raw: Raw) -> None:
    for one in raycluster.read_spec({"workerGroupSpecs": [group(raw), defaulted(raw)]}).groups:
        assert one.desired_workers == one.quota_workers == 4


@pytest.mark.parametrize("raw", [PASTED, COMPLETED], ids=["pasted", "completed"])
def test_its_workers_may_run_in_worker_clusters(raw: Raw) -> None:
    assert job_validation.job_problem(rayjob.read_ray_job(raw)) == ""
    assert pod_validation.template_problem(group(raw)["template"]) is None


def test_one_message_has_the_lines_that_kueue_requires() -> None:
    with pytest.raises(InvalidJob) as said:
        asked(PASTED, ROOM)
    assert str(said.value) == (
        "RayJob llama-finetune lacks shutdownAfterJobFinishes: true in spec, and rayStartParams: {} in headGroupSpec "
        "and workerGroupSpecs[0] of spec.rayClusterSpec: Kueue's webhooks reject a RayJob in a queue without them; "
        "add each line there, or, if its queue has the label rayspan.dev/job-defaults, use the output of `kubectl "
        "create --dry-run=server -o yaml`."
    )


def test_a_completed_job_is_planned() -> None:
    answer = asked(COMPLETED, ROOM)
    assert (answer["fits"], answer["sentence"]) == (True, "2 of 4 workers to east, 2 to west.")
    each = {"cpu": "16", "memory": "128Gi", GPU: "4"}
    assert answer["groups"] == [{"name": "gpu-workers", "workers": 4, "request": each}]


def test_missing_gpus_are_reported_by_limits_alone() -> None:
    answer = asked(COMPLETED, {**ROOM, GPU: "7"})
    assert not answer["fits"]
    assert ("east has capacity for 1 (nvidia.com/gpu in flavor any: 7 free of 7, one worker needs 4)") in answer[
        "sentence"
    ]
