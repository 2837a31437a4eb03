"""Does a stock RayJob span the clusters, seen from inside Ray, and is it gone when its owner deletes it?"""

import subprocess
import sys

import pytest

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed.clusters import Cluster, wait
from hack.testbed.rayjob import QUEUE, SAMPLE, Job


def test_rayjob_spans_both_clusters(job: Job) -> None:
    """Four workers, two in each cluster by quota: one RayCluster, work done in every zone, addresses of both networks."""
    job.submit()
    job.wait_for_workers()
    addresses = {pod["status"]["podIP"]: pod["metadata"]["labels"][names.CLUSTER_LABEL] for pod in job.pods()}
    assert sorted(addresses.values()) == ["east", "east", "west", "west"]
    assert job.wait_for_end() == "SUCCEEDED", job.output()

    result = job.result()
    assert result["ok"] and 3.1 < result["pi"] < 3.2
    workers = [node for node in result["nodes"] if not node["head"]]
    assert {node["address"]: node["cluster"] for node in workers} == addresses
    assert {node["cluster"]: node["zone"] for node in workers} == {"east": "east", "west": "west"}
    assert all(node["tasks"] > 0 for node in workers), workers
    assert job.events()["Placed"] == "2 of 4 workers to east, 2 to west."


def test_a_plan_says_beforehand_where_it_will_run(job: Job) -> None:
    """`rayspan plan` for the sample, through the API server and the Service to the Deployment; nothing is submitted."""
    done = subprocess.run(
        [sys.executable, "-m", "adapter", "plan", "-f", str(SAMPLE), "--kubeconfig", str(job.manager.kubeconfig)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.endswith("Fits: 2 of 4 workers to east, 2 to west.\n"), done.stdout
    assert not job.status() and not job.placement()


@pytest.mark.long  # with pods that end at once: tests/integration/test_gang.py
def test_deleted_in_the_middle(pair: Job) -> None:
    """A job that is deleted while its workers run leaves no pod, Workload or copy in any cluster within 60 s."""
    pair.submit()
    pair.wait_for_workers()
    assert pair.leftovers()
    pair.delete()
    pair.wait_until_gone()
    wait(lambda: not any(_reserving(cluster) for cluster in pair.fleet.workers.values()), 30, "the quota is free")


def _reserving(cluster: Cluster) -> int:
    return int(cluster.get("clusterqueues", QUEUE)["status"]["reservingWorkloads"])
