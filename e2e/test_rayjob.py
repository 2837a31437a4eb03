"""Does a stock RayJob span the clusters, seen from inside Ray, and is it gone when its owner deletes it?"""

import json
import subprocess
import sys

import pytest

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import rayspec
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.rayjob import NAMESPACE, QUEUE, SAMPLE, Job


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


@pytest.mark.long  # on fake nodes: tests/integration/test_waiting.py
def test_too_large_waits_and_starts_when_quota_is_raised(job: Job) -> None:
    """It waits with a sentence that names each cluster's shortfall, holds nothing, and a raised quota starts it."""
    east, west = job.fleet.workers["east"], job.fleet.workers["west"]
    _set_cpu(east, "200m")
    _set_cpu(west, "100m")
    try:
        job.workers = 2
        job.submit(change=rayspec.soon_ready)
        wait(lambda: "Waiting" in job.events(), 60, "it waits with a sentence", job.dump)
        reason = job.placement()["status"]["reason"]
        assert "2 workers needed at once, 1 fit now" in reason
        assert "east has room for 1 (" in reason and "west has room for 0 (" in reason
        assert job.events()["Waiting"] == reason
        _set_cpu(west, "400m")
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        assert {node["cluster"] for node in job.result()["nodes"]} == {"manager", "east", "west"}
    finally:
        _set_cpu(east, "400m")
        _set_cpu(west, "400m")


@pytest.mark.long  # on fake nodes: tests/integration/test_refusals.py
def test_a_broken_cluster_does_not_stop_the_others(job: Job) -> None:
    """West's kubeconfig is overwritten with nonsense: its condition and event say so, and the job runs in east."""
    manager = job.manager
    before = manager.get("secrets", "west", names.SYSTEM_NAMESPACE)["data"][names.KUBECONFIG_KEY]
    _set_kubeconfig(manager, "bm9uc2Vuc2U=")
    try:
        wait(lambda: not _connected(manager), 30, "west is not connected")
        message = condition(manager.get("workerclusters", "west"), names.CONNECTED)["message"]
        assert message.startswith("Secret west in rayspan-system holds no usable kubeconfig")
        job.workers = 2
        job.submit(change=rayspec.soon_ready)
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        assert {node["cluster"] for node in job.result()["nodes"]} == {"manager", "east"}
        told = [
            e["message"] for e in manager.items("events", NAMESPACE) if e["involvedObject"]["kind"] == "WorkerCluster"
        ]
        assert message in told
    finally:
        _set_kubeconfig(manager, before)
    wait(lambda: _connected(manager), 30, "west is connected again")


def _reserving(cluster: Cluster) -> int:
    return int(cluster.get("clusterqueues", QUEUE)["status"]["reservingWorkloads"])


def _connected(manager: Cluster) -> bool:
    return condition(manager.get("workerclusters", "west"), names.CONNECTED).get("status") == "True"


def _set_kubeconfig(manager: Cluster, data: str) -> None:
    patch = json.dumps({"data": {names.KUBECONFIG_KEY: data}})
    manager.kubectl("-n", names.SYSTEM_NAMESPACE, "patch", "secret", "west", "--type=merge", "-p", patch)


def _set_cpu(cluster: Cluster, amount: str) -> None:
    path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
    patch = json.dumps([{"op": "replace", "path": path, "value": amount}])
    cluster.kubectl("patch", "clusterqueue", QUEUE, "--type=json", "-p", patch)
