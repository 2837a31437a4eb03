"""Test that a RayJob that fails runs again over both worker clusters, with the quota that it had.

KubeRay makes another RayCluster for `backoffLimit`, while to Kueue the RayJob stays admitted.
"""

import json
from typing import Any

import pytest

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed.clusters import wait
from hack.testbed.rayjob import JOB_SECONDS, NAMESPACE, Job
from hack.testbed.stage import pods_by_cluster

pytestmark = pytest.mark.long

EVERYWHERE = {"east": 1, "west": 1}
# A task in each zone; then it waits for a file on the head, and fails unless its ConfigMap has another file.
PROGRAM = """
import json, pathlib, sys, time
import ray

@ray.remote(num_cpus=1)
def place():
    return ray.get_runtime_context().get_node_id()

again = pathlib.Path("/home/ray/samples/again").exists()
ray.init(logging_level="ERROR")
tasks = {zone: place.options(label_selector={"ray.io/availability-zone": zone}).remote() for zone in ("east", "west")}
ran = json.dumps({zone: ray.get(task, timeout=240) for zone, task in tasks.items()})
pathlib.Path("/tmp/written").write_text(ran)
pathlib.Path("/tmp/written").rename("/tmp/ran")
while not pathlib.Path("/tmp/end").exists():
    time.sleep(0.5)
sys.exit(None if again else "It fails.")
"""


def test_a_job_that_fails_runs_again_over_both_clusters(pair: Job) -> None:
    """The second attempt runs on the shares of the first: no worker of it waits, and none has quota twice."""
    pair.submit(PROGRAM, backoffLimit=1)
    first = _wait_for_tasks(pair, than="")
    cluster, placement, quota = _ray_cluster(pair), pair.placement()["metadata"]["uid"], _reserved(pair)
    assert pods_by_cluster(pair.pods()) == EVERYWHERE

    again = json.dumps({"data": {"again": ""}})
    pair.manager.kubectl("patch", "configmap", pair.name, "--type=merge", "-p", again)
    _on_head(pair, "touch", "/tmp/end")
    second = _wait_for_tasks(pair, than=cluster)
    assert pair.status()["failed"] == 1
    assert set(second) == set(first) and not {*second.values()} & {*first.values()}, "all of its nodes are new"
    assert pods_by_cluster(pair.pods()) == EVERYWHERE
    assert pair.placement()["metadata"]["uid"] == placement, "it was admitted once"
    assert _reserved(pair) == quota

    _on_head(pair, "touch", "/tmp/end")
    wait(lambda: pair.status().get("jobDeploymentStatus") == "Complete", JOB_SECONDS, "it is complete", pair.dump)
    assert pair.status()["jobStatus"] == "SUCCEEDED"
    assert (pair.status()["failed"], pair.status()["succeeded"]) == (1, 1)


def _wait_for_tasks(job: Job, *, than: str) -> dict[str, str]:
    """The Ray node of the task in each zone, once they ran in another RayCluster `than` this one."""

    def ran() -> Any:
        if _ray_cluster(job) in ("", than):
            return None
        try:
            return json.loads(_on_head(job, "cat", "/tmp/ran"))
        except LabError:  # it does not run yet, or has not written it
            return None

    found: dict[str, str] = wait(ran, 2 * JOB_SECONDS, "a task has run in each zone", job.dump)
    return found


def _ray_cluster(job: Job) -> str:
    return str(job.status().get("rayClusterName") or "")


def _on_head(job: Job, *words: str) -> str:
    """Run a command on the head of its RayCluster; raises LabError while there is none."""
    selector = f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD},{names.RAY_GCS_CLUSTER_LABEL}={_ray_cluster(job)}"
    heads = job.manager.items("pods", NAMESPACE, selector)
    if not heads:
        raise LabError(f"{job.name} has no head.")
    return job.manager.kubectl("exec", heads[0]["metadata"]["name"], "-c", "ray-head", "--", *words)


def _reserved(job: Job) -> dict[str, list[int]]:
    """The number of workers of each share, in each worker cluster."""
    shares = {
        name: worker.items("workloads", NAMESPACE, names.MANAGER_LABEL) for name, worker in job.fleet.workers.items()
    }
    return {name: [podset["count"] for share in shares[name] for podset in share["spec"]["podSets"]] for name in shares}
