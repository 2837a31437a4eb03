"""A gang becomes pods in the worker clusters, and leaves nothing behind."""

import json

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, pods_by_cluster


def test_gang_spans_two_clusters(stage: Stage, running: Controller) -> None:
    """Four workers, room for two in each cluster: all of the protocol, from the queue to the mirrored status."""
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=4)
    wait(lambda: stage.running(4), 90, "four workers run", running.tail)

    check = stage.check("pi")
    assert check["state"] == names.CHECK_READY
    assert [update["name"] for update in check["podSetUpdates"]] == ["workers"], "the head stays as it is"
    assert check["message"] == "2 of 4 workers to east, 2 to west."
    assert pods_by_cluster(stage.workers()) == {"east": 2, "west": 2}
    assert {c: len(pods) for c, pods in stage.remote().items() if pods} == {"east": 2, "west": 2}
    place = stage.placement("pi")
    assert (place["status"]["state"], place["status"]["workers"], place["status"]["where"]) == (
        PlacementState.PLACED,
        "4 of 4",
        "2 east, 2 west",
    )
    assert stage.told("pi", "Placed") == check["message"]


def test_workers_are_gated_and_mirrored(stage: Stage, running: Controller) -> None:
    """The manager's pods never get a node there, and show what their copies do."""
    stage.build({"east": 2, "west": 0})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)

    copies = {pod["metadata"]["name"]: pod for pod in stage.remote()["east"]}
    for pod in stage.workers():
        assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == [names.GATE]
        assert "nodeName" not in pod["spec"]
        assert pod["metadata"]["labels"][names.CLUSTER_LABEL] == "east"
        assert pod["spec"]["nodeSelector"][names.LOCK_NODE_SELECTOR] == names.LOCK_NODE_SELECTOR_VALUE
        copy = copies[pod["metadata"]["name"]]
        assert pod["status"]["podIP"] == copy["status"]["podIP"]
        assert pod["status"]["phase"] == "Running"
        told, name = condition(pod, names.DISPATCHED_CONDITION), pod["metadata"]["name"]
        assert told["status"] == "True" and f"on node {copy['spec']['nodeName']}; its log:" in told["message"]
        assert f"`kubectl --context east -n {stage.name} logs {name}`" in told["message"]
    heads = stage.manager.items("pods", stage.name, f"{names.RAY_NODE_TYPE_LABEL}=head")
    assert all(names.PLACEMENT_LABEL not in head["metadata"]["labels"] for head in heads)


@pytest.mark.parametrize(
    "how",
    [
        "raycluster/pi",
        pytest.param("raycluster/pi --cascade=foreground", marks=pytest.mark.long),
        pytest.param("namespace/{namespace}", marks=pytest.mark.long),
    ],
)
def test_deleted_job_leaves_nothing(stage: Stage, running: Controller, how: str) -> None:
    """What was made in the worker clusters goes with the job, or with its namespace, and the quota is free."""
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)

    words = how.format(namespace=stage.name).split()
    stage.manager.kubectl("-n", stage.name, "delete", *words, "--wait=false")
    # Of a namespace Kubernetes deletes the pods first, and looks again after half of the longest grace period, and
    # again; the job
    # is there until then.
    wait(lambda: not stage.manager.items("rayclusters", stage.name), 180, "the job is gone", running.tail)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: f"{stage.leftovers()}\n{running.tail()}")
    wait(lambda: not stage.manager.items("placements", stage.name), 60, "the Placement is gone")
    wait(lambda: not stage.reserving(), 30, "the quota is free")


def test_quota_is_held_until_the_last_worker_is_gone(stage: Stage, running: Controller) -> None:
    """Nothing in the manager waits for a worker that takes long to end, and its quota is not given away before its
    end."""
    stage.build({"east": 2, "west": 0})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    east, last = stage.fleet.workers["east"], stage.remote()["east"][0]["metadata"]["name"]
    _finalizers(east, last, stage.name, ["example.com/ends-slowly"])
    (share,), (anchor,) = stage.remote("workloads")["east"], stage.remote("configmaps")["east"]

    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.workload("pi") and not stage.workers(), 60, "the manager forgot the job", running.tail)
    wait(lambda: [pod["metadata"]["name"] for pod in stage.remote()["east"]] == [last], 60, "one worker is left")
    stage.ray_cluster("next", workers=2)
    wait(lambda: stage.state("next") == PlacementState.WAITING, 60, "the next one waits for its quota", running.tail)
    left = [one["metadata"]["uid"] for kind in ("workloads", "configmaps") for one in stage.remote(kind)["east"]]
    assert left == [share["metadata"]["uid"], anchor["metadata"]["uid"]]

    _finalizers(east, last, stage.name, None)
    wait(lambda: stage.running(2), 60, "the next one runs", running.tail)
    (now,) = stage.remote("workloads")["east"]
    assert now["metadata"]["uid"] != share["metadata"]["uid"]


def _finalizers(cluster: Cluster, pod: str, namespace: str, wanted: list[str] | None) -> None:
    """Let a pod stay after its deletion, as one does that takes its grace, or let it go."""
    patch = json.dumps({"metadata": {"finalizers": wanted}})
    cluster.kubectl("-n", namespace, "patch", "pod", pod, "--type=merge", "-p", patch)


@pytest.mark.long
def test_two_worker_groups_are_one_gang(stage: Stage, running: Controller) -> None:
    """Each worker group gets its own podset in each share; the one for which there is least room is placed first."""
    stage.build({"east": 3, "west": 3})
    stage.ray_cluster("pi", workers=0, groups={"big": 2, "small": 4})
    wait(lambda: stage.running(6), 90, "six workers run", running.tail)
    shares = {
        s["cluster"]: {g["name"]: g["count"] for g in s["groups"]} for s in stage.placement("pi")["spec"]["shares"]
    }
    assert shares == {"east": {"small": 3}, "west": {"big": 2, "small": 1}}


def test_deleted_copy_is_replaced(stage: Stage, running: Controller) -> None:
    """A pod that is deleted in its worker cluster fails in the manager, and KubeRay's next one takes its slot."""
    stage.build({"east": 1, "west": 0})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "the worker runs", running.tail)
    first = stage.workers()[0]

    east = stage.fleet.workers["east"]
    east.delete("pod", first["metadata"]["name"], stage.name, wait=False)

    def replaced() -> bool:
        names_ = [pod["metadata"]["name"] for pod in stage.workers()]
        return first["metadata"]["name"] not in names_ and stage.running(1)

    wait(replaced, 90, "another worker runs in its place", running.tail)
    assert len(stage.remote()["east"]) == 1


@pytest.mark.long
def test_what_may_run_in_the_manager_gets_no_copy(stage: Stage, running: Controller) -> None:
    """A pod of the gang's RayCluster that has our label without the gate: it gets an event, and no remote pod."""
    stage.build({"east": 2})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "the worker runs", running.tail)
    owner = stage.manager.get("rayclusters", "pi", stage.name)["metadata"]
    of = {
        "apiVersion": names.RAY_API_VERSION,
        "kind": "RayCluster",
        "name": "pi",
        "uid": owner["uid"],
        "controller": True,
    }
    made = _pod(stage, "loose", {names.RAY_GCS_CLUSTER_LABEL: "pi"})
    made["metadata"]["ownerReferences"] = [of]
    stage.manager.apply(yaml.safe_dump(made))
    place = stage.placement("pi")["metadata"]["name"]
    stage.manager.kubectl("-n", stage.name, "label", "pod", "loose", f"{names.PLACEMENT_LABEL}={place}")
    wait(lambda: "PodNotGated" in stage.events("loose"), 30, "the pod says so", running.tail)
    assert len(stage.remote()["east"]) == 1


def test_no_label_dodges_the_gate(stage: Stage) -> None:
    """A pod with the lock is gated, whatever its labels; a remote pod is not, where the manager is a worker cluster
    as well."""
    stage.build({"east": 1})
    marks = {names.PLACEMENT_LABEL: "x-1", names.MANAGER_LABEL: "x"}
    lock = {names.LOCK_NODE_SELECTOR: names.LOCK_NODE_SELECTOR_VALUE}
    for selector, want in ((lock, [names.GATE]), ({}, []), ({"disk": "ssd"}, [])):
        pod = _pod(stage, "asked", marks)
        pod["spec"]["nodeSelector"] = selector
        said = stage.manager.kubectl("create", "--dry-run=server", "-o", "yaml", "-f", "-", input=yaml.safe_dump(pod))
        found = yaml.safe_load(said)["spec"].get("schedulingGates") or []
        assert [gate["name"] for gate in found] == want


def _pod(stage: Stage, name: str, labels: dict[str, str]) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": stage.name, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "rayproject/ray:2.60.0"}]},
    }


@pytest.mark.long
def test_foreign_pod_is_left_alone(stage: Stage, running: Controller) -> None:
    """A label is easily forged: a pod that is not of the gang's RayCluster gets no slot, and the job says so."""
    stage.build({"east": 2, "west": 0})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "the worker runs", running.tail)
    place = stage.placement("pi")["metadata"]["name"]
    stage.manager.apply(
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: stranger, namespace: {stage.name}, labels: "
        f"{{{names.PLACEMENT_LABEL}: "
        f"{place}}}}}, spec: {{containers: [{{name: c, image: 'rayproject/ray:2.60.0'}}]}}}}"
    )
    wait(lambda: "RemotePodConflict" in stage.events("pi"), 30, "an event tells of the stranger", running.tail)
    assert names.SLOT_ANNOTATION not in stage.manager.get("pods", "stranger", stage.name)["metadata"].get(
        "annotations", {}
    )
    assert len(stage.remote()["east"]) == 1
