"""The pods of a RayCluster are told by its uid, and its workers are counted as KubeRay does."""

import pytest

from adapter.objects import raycluster
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.unstructured import Raw
from adapter.objects.workload import Job, parse_workload
from tests.unit.builders import make_meta, make_pod, make_ray_cluster, make_workload

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
        pytest.param([], None, id="there is none"),
        pytest.param([head("h")], "h", id="the one"),
        pytest.param([head("h", address="")], None, id="it has no address yet"),
        pytest.param([head("h", deleting=True)], None, id="its address is about to go"),
        pytest.param([head("old", deleting=True), head("new")], "new", id="the next one"),
        pytest.param([head("new", address=""), head("h")], "h", id="the one with an address"),
        pytest.param([head("h", owner="an earlier one")], None, id="of an earlier RayCluster of this name"),
        pytest.param([{"metadata": {"name": "h"}, "status": None}], None, id="of nobody"),
    ],
)
def test_which_pod_is_the_head(heads: list[Raw], want: str | None) -> None:
    found = raycluster.find_head(POD, heads)
    assert (found and found["metadata"]["name"]) == want


@pytest.mark.parametrize(
    ("pod", "ray_cluster", "job", "want"),
    [
        pytest.param(POD, RAY_CLUSTER, JOB, True, id="the job's RayCluster has it"),
        pytest.param(POD, RAY_CLUSTER, ITSELF, True, id="the job is the RayCluster that has it"),
        pytest.param(POD, make_ray_cluster(owner="another"), JOB, False, id="its RayCluster is another job's"),
        pytest.param(POD, make_ray_cluster(name="other"), JOB, False, id="another RayCluster has it"),
        pytest.param(POD, RAY_CLUSTER, None, False, id="the Workload is of no job"),
        pytest.param(POD, None, JOB, None, id="its RayCluster is deleted, or not heard of yet"),
        pytest.param(ORPHAN, None, JOB, False, id="nobody has it"),
        pytest.param(ORPHAN, RAY_CLUSTER, JOB, False, id="it only says the RayCluster's name"),
    ],
)
def test_whether_a_pod_is_the_jobs(pod: Raw, ray_cluster: Raw | None, job: Job | None, want: bool | None) -> None:
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
def test_how_many_workers_it_is_to_have(group: Raw, want: int) -> None:
    listed = [{"groupName": "Workers", **group}, {"groupName": "others", "replicas": 9}]
    assert raycluster.read_spec({"workerGroupSpecs": listed}).desired_workers({"workers"}) == want


@pytest.mark.parametrize("raw", [{}, {"spec": None}, {"spec": {"workerGroupSpecs": None}}])
def test_one_of_which_nothing_is_known_is_to_have_none(raw: Raw) -> None:
    assert read_ray_cluster(raw).cluster.desired_workers({"workers"}) == 0


@pytest.mark.parametrize(
    ("owner", "want"),
    [
        pytest.param({"kind": "RayService", "controller": True}, "chat", id="of a service"),
        pytest.param({"kind": "RayService"}, "", id="which only mentions it"),
        pytest.param({"kind": "RayJob", "controller": True}, "", id="of a job"),
        pytest.param(None, "", id="a user's own"),
    ],
)
def test_which_service_it_is_of(owner: Raw | None, want: str) -> None:
    owners = [{"apiVersion": "ray.io/v1", "name": "chat", "uid": "u", **owner}] if owner else []
    found = raycluster.owning_service({"metadata": make_meta("chat-abc", ownerReferences=owners)})
    assert found == (Job("ray.io/v1", "RayService", "demo", "chat", "u") if want else None)


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"apiVersion": "example.com/v1"}, id="of somebody else's kind"),
        pytest.param({"name": "a\nforged line"}, id="a line of a log"),
        pytest.param({"name": "a" * 300}, id="a long name"),
        pytest.param({"name": ""}, id="no name"),
        pytest.param({"uid": "u" * 1_000_000}, id="a uid of a megabyte"),
    ],
)
def test_an_owner_that_somebody_made_up_is_none(forged: Raw) -> None:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayService", "name": "chat", "uid": "u", "controller": True, **forged}
    assert raycluster.owning_service({"metadata": make_meta("chat-abc", ownerReferences=[owner])}) is None
