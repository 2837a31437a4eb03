"""The component job-defaults on real API servers: what it adds to a file that KubeRay alone would run."""

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter import names
from hack.testbed import clusters
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import AUTOSCALED, QUEUE, Stage, added, ray_cluster

pytestmark = pytest.mark.alone  # the policies are of the whole cluster

JOB_LINES = 'spec.shutdownAfterJobFinishes: true, the annotation kueue.x-k8s.io/elastic-job: "true", rayStartParams: {}'


@pytest.fixture(scope="module")
def defaulted(fleet: Clusters) -> Iterator[Clusters]:
    with added(fleet.manager, "job-defaults"):
        yield fleet


def test_a_file_for_kuberay_alone_runs(defaulted: Clusters, stage: Stage, running: Controller) -> None:
    """The webhooks of Kueue reject these files in a queue without the label."""
    stage.build({"east": 4})
    bare_job, bare_cluster = _bare_job(stage.name), _bare_cluster(stage.name)
    assert "rayStartParams" in _apply(stage.manager, bare_job, accepted=False)
    assert "rayStartParams" in _apply(stage.manager, bare_cluster, accepted=False)

    stage.manager.kubectl("-n", stage.name, "label", "localqueue", QUEUE, f"{names.JOB_DEFAULTS_LABEL}=true")
    _await_policy(stage, bare_job)
    (warning,) = _warnings(_apply(stage.manager, bare_job))
    assert warning == (
        f"Validation failed for ValidatingAdmissionPolicy '{names.JOB_DEFAULTS_POLICY}' with binding "
        f"'{names.JOB_DEFAULTS_POLICY}': RayJob train: its queue {QUEUE} adds {JOB_LINES}, which Kueue requires. "
        "Write the same into your file to be independent of the queue."
    )
    job = stage.manager.get("rayjobs", "train", stage.name)
    assert job["spec"]["shutdownAfterJobFinishes"] is True
    assert job["metadata"]["annotations"][names.ELASTIC_ANNOTATION] == "true"

    kept = _bare_job(stage.name, name="kept", shutdownAfterJobFinishes=False)
    assert "spec.shutdownAfterJobFinishes: true" in _apply(stage.manager, kept)
    assert stage.manager.get("rayjobs", "kept", stage.name)["spec"]["shutdownAfterJobFinishes"] is True

    _apply(stage.manager, bare_cluster)
    wait(lambda: stage.running(2), 90, "both workers of the RayCluster run in east", running.tail)
    plain = stage.manager.get("rayclusters", "plain", stage.name)
    assert names.ELASTIC_ANNOTATION not in plain["metadata"]["annotations"]


def test_a_complete_file_and_another_queue_stay_as_they_are(defaulted: Clusters, stage: Stage) -> None:
    stage.build({"east": 1})
    stage.manager.kubectl("-n", stage.name, "label", "localqueue", QUEUE, f"{names.JOB_DEFAULTS_LABEL}=true")
    _await_policy(stage, _bare_job(stage.name))
    complete = ray_cluster("complete", stage.name, {"workers": 1})
    assert _warnings(_apply(stage.manager, complete)) == []
    stored = stage.manager.get("rayclusters", "complete", stage.name)
    assert names.DEFAULTED_ANNOTATION not in stored["metadata"].get("annotations", {})
    other = _bare_job(stage.name)
    other["metadata"]["labels"][names.QUEUE_LABEL] = "other"
    assert "rayStartParams" in _apply(stage.manager, other, accepted=False)


def _bare_cluster(namespace: str) -> Raw:
    bare = ray_cluster("plain", namespace, {"workers": 2})
    for group in [bare["spec"]["headGroupSpec"], *bare["spec"]["workerGroupSpecs"]]:
        del group["rayStartParams"]
    return bare


def _bare_job(namespace: str, name: str = "train", **spec: Any) -> Raw:
    """A RayJob with Ray's autoscaler, as KubeRay's users write it."""
    cluster: dict[str, Any] = _bare_cluster(namespace)
    return {
        **cluster,
        "kind": "RayJob",
        "metadata": {**cluster["metadata"], "name": name},
        "spec": {"entrypoint": "python -c 1", "rayClusterSpec": {**cluster["spec"], **AUTOSCALED}, **spec},
    }


def _await_policy(stage: Stage, raw: Raw) -> None:
    """Wait until the API server evaluates the policy with this queue."""
    words = [clusters.program(), f"--kubeconfig={stage.manager.kubeconfig}", "apply", "--dry-run=server", "-f", "-"]

    def is_accepted() -> bool:
        process = subprocess.run(
            words, input=yaml.safe_dump(raw), capture_output=True, text=True, timeout=60, check=False
        )
        return process.returncode == 0

    wait(is_accepted, 60, "the API server applies the policy")


def _apply(manager: Cluster, raw: Raw, *, accepted: bool = True) -> str:
    """The standard error of kubectl as it applies an object."""
    words = [clusters.program(), f"--kubeconfig={manager.kubeconfig}", "apply", "-f", "-"]
    process = subprocess.run(words, input=yaml.safe_dump(raw), capture_output=True, text=True, timeout=60, check=False)
    assert (process.returncode == 0) == accepted, process.stderr
    return process.stderr


def _warnings(text: str) -> list[str]:
    return re.findall(r"^Warning: (.*)$", text, re.MULTILINE)
