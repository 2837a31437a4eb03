"""Which pods belong to a RayCluster, by its uid, and how many workers it wants, counted as KubeRay does."""

import pytest

from adapter.objects import raycluster
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Job, parse_workload
from tests.unit.builders import make_condition, make_meta, make_pod, make_ray_cluster, make_workload

POD = make_pod()
ORPHAN: Raw = {**POD, "metadata": {**POD["metadata"], "ownerReferences": []}}
JOB = parse_workload(make_workload()).job
RAY_CLUSTER = make_ray_cluster()
ITSELF = Job("ray.io/v1", "RayCluster", "demo", "train-abc", "uid-of-train-abc")


def head(name: str, *, owner: str = "uid-of-train-abc", address: str = "10.0.0.1", deleting: bool = False) -> Raw:
    owners = [{"kind": "RayCluster", "name": "train-abc", "uid": owner, "controller": True}]
    meta = make_meta(name, ownerReferences=owners, deleting=deleting)
    return {"metadata": meta, "status": {"podIP": address} if address else {}}


@pytest.mark.parametrize(
    ("heads", "want"),
    [
        pytest.param([], None, id="no head"),
        pytest.param([head("h")], "h", id="one head"),
        pytest.param([head("h", address="")], None, id="a head without an address"),
        pytest.param([head("h", deleting=True)], None, id="a head that is being deleted"),
        pytest.param([head("old", deleting=True), head("new")], "new", id="a head that replaces one being deleted"),
        pytest.param([head("new", address=""), head("h")], "h", id="of two heads the one with an address"),
        pytest.param([head("h", owner="an earlier one")], None, id="a head of an earlier RayCluster of this name"),
        pytest.param([{"metadata": {"name": "h"}, "status": None}], None, id="a pod without an owner"),
    ],
)
def test_which_pod_is_the_head(heads: list[Raw], want: str | None) -> None:
    found = raycluster.find_head(POD, heads)
    assert (found and found["metadata"]["name"]) == want


@pytest.mark.parametrize(
    ("heads", "want"),
    [
        pytest.param([head("h", address="")], "h", id="a head without an address"),
        pytest.param([head("new", address=""), head("h")], "h", id="of two heads the one with an address"),
        pytest.param([head("h", deleting=True)], None, id="a head that is being deleted"),
        pytest.param([head("h", owner="an earlier one")], None, id="a head of an earlier RayCluster of this name"),
    ],
)
def test_a_head_that_starts_is_found(heads: list[Raw], want: str | None) -> None:
    found = raycluster.find_starting_head(POD, heads)
    assert (found and found["metadata"]["name"]) == want


@pytest.mark.parametrize(
    ("pod", "ray_cluster", "job", "want"),
    [
        pytest.param(POD, RAY_CLUSTER, JOB, True, id="a pod of the job's RayCluster"),
        pytest.param(POD, RAY_CLUSTER, ITSELF, True, id="a pod of the RayCluster that is the job"),
        pytest.param(POD, make_ray_cluster(owner="another"), JOB, False, id="a pod of another job's RayCluster"),
        pytest.param(POD, make_ray_cluster(name="other"), JOB, False, id="a pod of another RayCluster"),
        pytest.param(POD, RAY_CLUSTER, None, False, id="a Workload without a job"),
        pytest.param(POD, None, JOB, None, id="a pod of a RayCluster that is deleted, or not observed yet"),
        pytest.param(ORPHAN, None, JOB, False, id="a pod without an owner"),
        pytest.param(ORPHAN, RAY_CLUSTER, JOB, False, id="a pod with the RayCluster's name in a label only"),
    ],
)
def test_whether_a_pod_belongs_to_a_job(pod: Raw, ray_cluster: Raw | None, job: Job | None, want: bool | None) -> None:
    assert raycluster.belongs_to_job(pod, ray_cluster, job) is want


@pytest.mark.parametrize(
    ("group", "want"),
    [
        ({"replicas": 2}, 2),
        ({"replicas": 2, "minReplicas": 4}, 4),
        ({"minReplicas": 1}, 1),
        ({"replicas": 2, "numOfHosts": 3}, 6),
        ({"replicas": 2, "suspend": True}, 0),
        ({"replicas": 4, "maxReplicas": 2}, 2),
        ({"replicas": 4, "maxReplicas": 0}, 0),
        ({"replicas": 1, "minReplicas": 4, "maxReplicas": 2}, 4),
        ({"replicas": 2, "numOfHosts": 0}, 0),
        ({}, 0),
    ],
)
def test_how_many_workers_a_ray_cluster_wants(group: Raw, want: int) -> None:
    listed = [{"groupName": "Workers", **group}, {"groupName": "others", "replicas": 9}]
    assert raycluster.read_spec({"workerGroupSpecs": listed}).desired_workers({"workers"}) == want


@pytest.mark.parametrize(
    ("group", "want"),
    [
        ({"replicas": 3, "minReplicas": 2}, 2),
        ({"replicas": 3, "minReplicas": 2, "numOfHosts": 4}, 8),
        ({"replicas": 3, "minReplicas": 2, "suspend": True}, 0),
        ({"replicas": 3}, 0),
    ],
)
def test_to_how_many_workers_an_autoscaler_may_reduce_a_ray_cluster(group: Raw, want: int) -> None:
    listed = [{"groupName": "Workers", **group}, {"groupName": "others", "replicas": 9, "minReplicas": 9}]
    assert raycluster.read_spec({"workerGroupSpecs": listed}).fewest_workers({"workers"}) == want


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": {"workerGroupSpecs": None}}])
def test_an_empty_ray_cluster_wants_no_workers(raw: Raw) -> None:
    assert read_ray_cluster(raw).cluster.desired_workers({"workers"}) == 0


@pytest.mark.parametrize(
    ("owner", "want"),
    [
        pytest.param({"kind": "RayService", "controller": True}, "chat", id="owned by a RayService"),
        pytest.param({"kind": "RayService"}, "", id="mentions a RayService as a plain owner"),
        pytest.param({"kind": "RayJob", "controller": True}, "", id="owned by a RayJob"),
        pytest.param(None, "", id="created by a user"),
    ],
)
def test_which_ray_service_owns_a_ray_cluster(owner: Raw | None, want: str) -> None:
    owners = [{"apiVersion": "ray.io/v1", "name": "chat", "uid": "u", **owner}] if owner else []
    found = raycluster.owning_service({"metadata": make_meta("chat-abc", ownerReferences=owners)})
    assert found == (Job("ray.io/v1", "RayService", "demo", "chat", "u") if want else None)


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"apiVersion": "example.com/v1"}, id="an owner of another API group"),
        pytest.param({"name": "a\nforged line"}, id="an owner name that looks like a log line"),
        pytest.param({"name": "a" * 300}, id="an owner with a long name"),
        pytest.param({"name": ""}, id="an owner without a name"),
        pytest.param({"uid": "u" * 1_000_000}, id="an owner with a uid of a megabyte"),
    ],
)
def test_a_forged_owner_is_ignored(forged: Raw) -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "chat", "uid": "u", "controller": True, **forged}
    assert raycluster.owning_service({"metadata": make_meta("chat-abc", ownerReferences=[owner])}) is None


PROVISIONED = make_condition("RayClusterProvisioned")


@pytest.mark.parametrize(
    ("status", "is_complete"),
    [
        pytest.param({"state": "ready"}, True, id="all of its pods ran"),
        pytest.param({"state": "suspended"}, False, id="it was suspended after that"),
        pytest.param({"conditions": [PROVISIONED]}, False, id="all pods run that exist, which may be too few"),
        pytest.param(None, False, id="it has no status yet"),
    ],
)
def test_which_ray_cluster_was_complete(status: Raw | None, is_complete: bool) -> None:
    assert raycluster.was_complete({"status": status}) is is_complete


def test_kuberay_says_why_it_could_not_create_pods_until_it_can() -> None:
    failure = {**make_condition("RayClusterReplicaFailure"), "message": "exceeded quota"}
    assert raycluster.creation_failure({"status": {"conditions": [failure]}}) == "exceeded quota"
    assert raycluster.creation_failure({"status": {"conditions": [{**failure, "status": "False"}]}}) == ""
    assert raycluster.creation_failure({}) == ""
