"""How many workers of a gang run, as its minimum counts them."""

from typing import Any

import pytest

from adapter import names
from adapter.gang.gang_facts import WorkerCounts
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.shell.kube.client import Unreachable
from tests.unit.builders import (
    START,
    make_condition,
    make_copy,
    make_meta,
    make_placement,
    make_pod,
    make_ray_cluster,
    make_workload,
    stamp,
)
from tests.unit.stores import Sight, fill

WORK = make_workload(check=names.CHECK_READY, owner="RayCluster")
(OWNER,) = WORK["metadata"]["ownerReferences"]
PLACED = make_placement(WORK, placedRound=1, state=PlacementState.PLACED)
SERVICE = {"apiVersion": "ray.io/v1", "kind": names.RAY_SERVICE, "name": "chat", "uid": "of-chat", "controller": True}


def ray_cluster(*owners: Raw, **spec: Any) -> Raw:
    groups = [{"groupName": "workers", "replicas": 4, "minReplicas": 2, "maxReplicas": 4}]
    return {
        "metadata": make_meta(OWNER["name"], uid=OWNER["uid"], ownerReferences=list(owners), creationTimestamp=stamp()),
        "spec": {"workerGroupSpecs": groups, "suspend": False, **spec},
    }


def worker(name: str, slot: str, *, ready: bool = True, **more: Any) -> Raw:
    pod = make_pod(name, placement=PLACED["metadata"]["name"], slot=slot, **{"dispatched": True, **more})
    pod["metadata"]["ownerReferences"] = [{"kind": "RayCluster", "uid": OWNER["uid"], "controller": True}]
    pod["status"].setdefault("conditions", []).append(make_condition("Ready", ready))
    return pod


EAST = [worker("a", "east/1/role-workers/0"), worker("b", "east/1/role-workers/1", ready=False)]
WEST = [worker("c", "west/1/role-workers/0", ready=False)]


FORGED = worker("d", "west/1/role-workers/1")
FORGED["metadata"]["ownerReferences"] = [{**FORGED["metadata"]["ownerReferences"][0], "uid": "uid-of-another"}]


def counts(
    *pods: Raw, cluster: Raw | None = None, lost: str = "", remote: Raw | None = None, **policy: Any
) -> WorkerCounts | None:
    sight = Sight({"east": 9, "west": 9}, **{"minWorkersTimeout": "5m", **policy})
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.placements, PLACED)
    fill(sight.manager.ray_clusters, cluster or ray_cluster())
    fill(sight.manager.pods, *pods)
    if remote:
        fill(sight.members["west"].pods, remote)
    if lost:
        sight.members[lost]._note_error("probe", Unreachable("no answer"))
    return sight.facts.gang_observer.facts(key_of(WORK), START).pods.worker_counts


@pytest.mark.parametrize(
    ("pods", "lost", "running", "unknown"),
    [
        pytest.param([*EAST, *WEST], "", 1, 0, id="a worker that is not ready does not run"),
        pytest.param([*EAST, *WEST], "west", 1, 1, id="one in an unreachable cluster may run"),
        pytest.param([*EAST], "east", 1, 1, id="one that ran in an unreachable cluster keeps its last state"),
        pytest.param([*EAST, FORGED], "", 1, 0, id="a pod of another RayCluster with its label does not count"),
        pytest.param([*EAST, worker("c", "west/1/role-workers/0", ready=False, dispatched=False)], "west", 1, 0,
                     id="one that was never created there does not run"),
        pytest.param([*EAST, worker("c", "west/1/role-workers/0", phase="Failed")], "west", 1, 0,
                     id="one that counts as lost does not run"),
        pytest.param([worker("a", "east/1/role-workers/0", deleting=True)], "", 0, 0, id="one that is being deleted"),
        pytest.param([], "", 0, 0, id="KubeRay has created none"),
    ],
)  # fmt: skip
def test_which_workers_run(pods: list[Raw], lost: str, running: int, unknown: int) -> None:
    assert counts(*pods, lost=lost) == WorkerCounts(running, desired=4, fewest=2, unknown=unknown, created=START)


def test_a_remote_pod_that_is_ready_runs_before_its_manager_pod_says_so() -> None:
    """As when a controller starts."""
    (pod,) = WEST
    copy = make_copy(pod)
    copy["status"]["conditions"] = [make_condition("Ready")]
    assert counts(*EAST, pod, remote=copy) == WorkerCounts(2, desired=4, fewest=2, created=START)
    assert counts(*EAST, pod, remote=copy, lost="west") == WorkerCounts(1, 4, 2, unknown=1, created=START)


@pytest.mark.parametrize(
    ("cluster", "policy"),
    [
        pytest.param(ray_cluster(), {"minWorkersTimeout": None}, id="its policy has no such timeout"),
        pytest.param(ray_cluster(SERVICE), {}, id="a RayService serves with the workers that it has"),
        pytest.param(ray_cluster(suspend=True), {}, id="Kueue suspends it"),
    ],
)
def test_where_no_minimum_applies(cluster: Raw, policy: Raw) -> None:
    assert counts(*EAST, cluster=cluster, **policy) is None


@pytest.mark.parametrize(("status", "applies"), [("Running", True), ("Complete", False), ("Retrying", True)])
def test_a_finished_job_has_no_minimum(status: str, applies: bool) -> None:
    """KubeRay deletes its workers before Kueue notices the end."""
    work = make_workload(check=names.CHECK_READY)
    cluster = make_ray_cluster()
    job = make_meta("train", uid="uid-of-job")
    sight = Sight({"east": 9, "west": 9}, minWorkersTimeout="5m")
    fill(sight.manager.workloads, work)
    fill(sight.manager.placements, make_placement(work, placedRound=1, state=PlacementState.PLACED))
    fill(sight.manager.ray_clusters, {**cluster, "spec": ray_cluster()["spec"]})
    fill(
        sight.manager.ray_jobs,
        {"metadata": job, "status": {"jobDeploymentStatus": status, "rayClusterName": cluster["metadata"]["name"]}},
    )
    assert bool(sight.facts.gang_observer.facts(key_of(work), START).pods.worker_counts) is applies
