"""What is dropped of an object, nobody reads: every reader says the same of what is left."""

from typing import Any

import pytest
import yaml

from adapter import names
from adapter.admission import refusal
from adapter.objects import raycluster, slim
from adapter.quota import nodes
from hack.lab.base.paths import REPO
from tests.unit import stores

JOBS = [
    (path.stem, one)
    for path in sorted((REPO / "tests" / "corpus").glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text())
    if one and one.get("kind") in names.RAY_KINDS
]


def test_there_are_jobs_to_try() -> None:
    assert len(JOBS) > 10


@pytest.mark.parametrize("job", [one for _, one in JOBS], ids=[name for name, _ in JOBS])
def test_a_job_without_its_templates_is_judged_the_same(job: dict[str, Any]) -> None:
    kind = job["kind"]
    left = (slim.ray_job if kind == "RayJob" else slim.ray_cluster)(job)
    assert refusal.of_job(kind, left) == refusal.of_job(kind, job)
    assert refusal.waits_for_all(kind, left) == refusal.waits_for_all(kind, job)
    groups = {"workers", "small", "large"}
    assert raycluster.workers(left, groups) == raycluster.workers(job, groups)


def test_what_is_long_of_a_job_is_not_kept() -> None:
    job = stores.make_ray_job(entrypoint="python x.py", runtimeEnvYAML="pip: []", submitterPodTemplate={"spec": {}})
    job["metadata"]["managedFields"] = [{}]
    left = slim.ray_job(job)
    assert "containers" in str(job) and "containers" not in str(left)
    assert set(left["spec"]) == {"shutdownAfterJobFinishes", "rayClusterSpec"}
    assert left["metadata"] == {key: value for key, value in job["metadata"].items() if key != "managedFields"}
    assert "containers" not in str(slim.ray_cluster(stores.make_ray_job(kind="RayCluster")))


@pytest.mark.parametrize("spec", [None, {"rayClusterSpec": 5}, {"rayClusterSpec": {"workerGroupSpecs": [5]}}])
def test_an_odd_job_stays_as_odd_as_it_was(spec: Any) -> None:
    odd = {"metadata": {"name": "a"}, "spec": spec}
    assert slim.ray_job(odd) == odd


NODE = {
    "apiVersion": "v1",
    "metadata": {"name": "n", "uid": "u", "labels": {"zone": "a"}, "annotations": {"long": "x"}, "managedFields": [{}]},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "providerID": "p"},
    "status": {
        "images": [{"names": ["x"]}],
        "allocatable": {"cpu": "4"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def test_a_node_without_its_images_is_read_the_same() -> None:
    left = slim.node(NODE)
    kept, whole = nodes.read([left]), nodes.read([NODE])
    assert (kept.labels, kept.taints, kept.machines) == (whole.labels, whole.taints, whole.machines)
    assert kept.count == whole.count == 1
    assert "images" not in left["status"] and "annotations" not in left["metadata"]
    assert left["metadata"]["uid"] == "u"


def test_what_kubectl_notes_down_is_not_kept() -> None:
    noted = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "ours": "kept"}
    assert slim.bare({"metadata": {"name": "a", "annotations": noted}})["metadata"]["annotations"] == {"ours": "kept"}
    plain = {"metadata": {"name": "a", "annotations": {"ours": "kept"}}}
    assert slim.bare(plain) is plain


def test_a_namespace_keeps_its_labels() -> None:
    left = slim.namespace({"metadata": {"name": "a", "labels": {"x": "y"}, "annotations": {"long": "x"}}})
    assert left["metadata"] == {"name": "a", "labels": {"x": "y"}}
