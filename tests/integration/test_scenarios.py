"""Placements that are known from other systems come out as expected, with real Kueue in each cluster.

`static` is east, whose nodes exist; `dynamic` is west, where an autoscaler would have to add them. Quota is in cpu, one
for each worker, and stands for GPUs.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed.auditlog import Written, gangs
from hack.testbed.clusters import Cluster, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.nodes import added
from hack.testbed.reader import Raw
from hack.testbed.stage import QUEUE, Stage, plain_pod, pods_by_cluster, ray_cluster

TOGETHER = {"strategy": "AvailableCapacity", "gang": "SameCluster"}
QUICKLY = 15  # seconds in which a spilled gang must be decided on, and a freed cluster be used: half of the resync's


@pytest.mark.long
@pytest.mark.alone
def test_fill_and_spill(stage: Stage, running: Controller) -> None:
    """C1: two of three jobs fill static; the third goes to dynamic, whose quota counts although it has no node yet."""
    with _growing(stage, "west"):
        stage.build({"east": 4, "west": 2}, policy=TOGETHER, node_labels={"west": {"pool": stage.name}})
        for job in ("one", "two", "three"):
            stage.ray_cluster(job, workers=2)
        wait(lambda: all(stage.where(job) for job in ("one", "two", "three")), 60, "three jobs placed", running.tail)
        placed = [stage.where(job) for job in ("one", "two", "three")]
        assert sorted(placed) == ["2 east", "2 east", "2 west"], "made in one second, they have no order"
        west = stage.fleet.workers["west"]
        wait(lambda: len(_unschedulable(west, stage.name)) == 2, 60, "two pods wait for a node", running.tail)
        with added(west, stage.name):
            wait(lambda: stage.running(6), 90, "all six workers run", running.tail)
        assert pods_by_cluster(stage.workers()) == {"east": 4, "west": 2}


@pytest.mark.long
def test_fill_and_spill_divides_a_gang_that_may_be(stage: Stage, running: Controller) -> None:
    """C1a: one place left in static is used, the other worker goes to dynamic."""
    stage.build({"east": 3, "west": 2})
    stage.ray_cluster("one", workers=2)
    wait(lambda: stage.where("one") == "2 east", 60, "the first is in static", running.tail)
    stage.ray_cluster("two", workers=2)
    wait(lambda: stage.where("two") == "1 east, 1 west", 60, "the second is divided", running.tail)


@pytest.mark.long
def test_fill_and_spill_keeps_a_gang_together(stage: Stage, running: Controller) -> None:
    """C1b: the same, but together: static's last place stays free."""
    stage.build({"east": 3, "west": 2}, policy=TOGETHER)
    stage.ray_cluster("one", workers=2)
    wait(lambda: stage.where("one") == "2 east", 60, "the first is in static", running.tail)
    stage.ray_cluster("two", workers=2)
    wait(lambda: stage.where("two") == "2 west", 60, "the second is in dynamic", running.tail)
    assert "east passed over" in stage.placement("two")["spec"]["explanation"]


@pytest.mark.long
def test_a_queue_that_stands_still_is_passed_by(stage: Stage, running: Controller) -> None:
    """C1: static has capacity, but its queue is strict and stands behind a pod that never fits; its Kueue says
    nothing of the gang."""
    stage.build({"east": 2, "west": 2})
    east = stage.fleet.workers["east"]
    strictly = {"spec": {"queueingStrategy": "StrictFIFO"}}
    east.kubectl("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(strictly))
    east.apply(yaml.safe_dump(plain_pod("giant", stage.name, QUEUE, cpu="8")))
    wait(lambda: east.get("clusterqueues", stage.name)["status"].get("pendingWorkloads") == 1, 30, "the giant waits")
    stage.ray_cluster("one", workers=2)
    wait(lambda: stage.where("one") == "2 west", 60, "the job is in dynamic", running.tail)
    assert stage.placement("one")["spec"]["excluded"][0]["reason"] == "did not admit in time"
    assert "Not admitted within 4s" in stage.told("one", "ReservationTimeout")


def test_full_everywhere_waits_and_starts_when_a_job_ends(stage: Stage, running: Controller) -> None:
    """C1c: the sentence names both clusters; the place that the first one leaves is taken within seconds."""
    stage.build({"east": 2, "west": 0}, policy=TOGETHER)
    stage.ray_cluster("one", workers=2)
    wait(lambda: stage.running(2), 60, "the first runs", running.tail)
    stage.ray_cluster("two", workers=2)
    wait(lambda: stage.state("two") == PlacementState.WAITING, 60, "the second waits", running.tail)
    reason = stage.reason("two")
    assert "east has capacity for 0" in reason and "west has capacity for 0" in reason
    stage.manager.delete("rayclusters", "one", stage.name)
    wait(lambda: stage.leftovers() == [] or stage.where("two"), 60, "the first is gone", running.tail)
    wait(lambda: stage.where("two") == "2 east", QUICKLY, "the second takes its place", running.tail)


@pytest.mark.usefixtures("audited")
def test_two_at_once_never_share_a_place(stage: Stage, running: Controller) -> None:
    """C1d: submitted together with room for one: one is placed, the other waits, and nothing is taken back."""
    stage.build({"east": 2, "west": 0})
    written = Written(stage)
    jobs = ("one", "two")
    for job in jobs:
        stage.ray_cluster(job, workers=2)
    wait(
        lambda: sorted(stage.state(job) for job in jobs) == [PlacementState.PLACED, PlacementState.WAITING],
        60,
        "one of two",
        running.tail,
    )
    wait(lambda: stage.running(2), 60, "it runs", running.tail)
    wait(lambda: stage.reserving() == 1, 10, "one holds quota", running.tail)
    assert not any("ReservationTimeout" in stage.events(job) for job in jobs)
    writes = written.take()
    assert len(gangs(writes)) == 1, "no share was ever asked for the other one"
    assert not [one for one in writes if one.verb == "delete"]


@pytest.mark.usefixtures("audited")
def test_no_worker_starts_before_its_head_can(stage: Stage, running: Controller) -> None:
    """C1e: the head finds no node; its workers are reserved, but no pod of them is made."""
    stage.build({"east": 2, "west": 0})
    written = Written(stage)
    stage.ray_cluster("one", workers=2, head_on={"pool": stage.name})
    wait(lambda: len(stage.workers()) == 2, 60, "the workers are gated", running.tail)
    wait(lambda: _unschedulable(stage.manager, stage.name), 60, "the head finds no node", running.tail)
    assert stage.where("one") == "2 east"
    assert "pods" not in {one.what for one in written.take(["create"])}
    with added(stage.manager, stage.name):
        wait(lambda: stage.running(2), 90, "head and workers run", running.tail)
    assert "pods" in {one.what for one in written.take(["create"])}, "that shows in the logs"


@pytest.mark.parametrize(
    "manager_cpu",
    [
        pytest.param(100, id="both jobs have quota in the manager"),
        pytest.param(3, id="the manager has quota for one job", marks=pytest.mark.long),
    ],
)
def test_a_job_whose_head_finds_no_node_leaves_its_capacity_to_a_younger_one_after_the_start_timeout(
    stage: Stage, running: Controller, manager_cpu: int
) -> None:
    """The job queues again, and its age counts from then. With quota for one job Kueue gives it back at once."""
    stage.build({"east": 2, "west": 0}, manager_cpu=manager_cpu, policy={"workerStartTimeout": "30s"})
    stage.ray_cluster("first", workers=2, head_on={"pool": stage.name})
    wait(lambda: stage.where("first") == "2 east", 60, "its capacity is reserved", running.tail)
    stage.ray_cluster("second", workers=2)
    wait(lambda: "StartTimeout" in stage.events("first"), 90, "its head found no node", running.tail)
    assert "is not ready: it was not scheduled" in stage.told("first", "StartTimeout")
    wait(lambda: stage.where("second") == "2 east", 60, "the younger job has the capacity", running.tail)
    wait(lambda: stage.running(2), 90, "the younger job runs", running.tail)
    assert not stage.where("first")


def test_a_job_of_which_one_worker_is_refused_gives_its_capacity_back_after_the_start_timeout(
    stage: Stage, running: Controller
) -> None:
    """A ResourceQuota of the manager's namespace lets in the head and one of two workers; the job needs both."""
    stage.build({"east": 2, "west": 0}, policy={"workerStartTimeout": "15s"})
    _allow_pods(stage, 2)
    stage.ray_cluster("first", workers=2)
    wait(lambda: stage.where("first") == "2 east", 60, "its capacity is reserved", running.tail)
    share = stage.remote("workloads")["east"][0]["metadata"]["uid"]
    wait(lambda: "StartTimeout" in stage.events("first"), 90, "one worker is refused", running.tail)
    assert "1 worker of the job was not created" in stage.told("first", "StartTimeout")
    assert "a ResourceQuota of the namespace" in stage.told("first", "StartTimeout")
    wait(
        lambda: share not in {each["metadata"]["uid"] for each in stage.remote("workloads")["east"]},
        60,
        "its share is given back",
        running.tail,
    )


@pytest.mark.long
def test_an_elastic_job_whose_added_worker_is_refused_gives_its_share_back_and_runs_on(
    stage: Stage, running: Controller
) -> None:
    stage.build({"east": 2, "west": 2}, policy={"workerStartTimeout": "15s"})
    _allow_pods(stage, 2)
    stage.ray_cluster("first", workers=1, elastic=3, least=1)
    wait(lambda: stage.running(1), 90, "its worker runs", running.tail)
    (worker,) = stage.workers()
    stage.scale("first", 0, 2)
    wait(lambda: stage.where("first") == "2 east", 60, "a share is reserved for the second one", running.tail)
    wait(lambda: "StartTimeout" in stage.events("first"), 90, "the second worker is refused", running.tail)
    assert "a ResourceQuota of the namespace" in stage.told("first", "StartTimeout")
    wait(lambda: stage.where("first") == "1 east" and len(stage.remote("workloads")["east"]) == 1, 60,
         "its share is given back", running.tail)  # fmt: skip
    assert "Capacity is reserved for them again in" in stage.told("first", "StartTimeout")
    assert not stage.placement("first")["spec"].get("excluded"), "no cluster is the cause"
    assert [pod["metadata"]["uid"] for pod in stage.workers()] == [worker["metadata"]["uid"]] and stage.running(1)


@pytest.mark.long
@pytest.mark.usefixtures("audited")
def test_pinned_fills_and_does_not_spill(stage: Stage, running: Controller) -> None:
    """C2: the cluster that the policy does not name sees not one write of ours for these jobs."""
    stage.clusters = ("east",)
    stage.build({"east": 2, "west": 8})
    written = Written(stage)
    for job in ("one", "two"):
        stage.ray_cluster(job, workers=2)
    wait(
        lambda: stage.state("two") == PlacementState.WAITING or stage.state("one") == PlacementState.WAITING,
        60,
        "one waits",
        running.tail,
    )
    first = "one" if stage.where("one") else "two"
    second = "two" if first == "one" else "one"
    stage.manager.delete("rayclusters", first, stage.name)
    wait(lambda: stage.where(second) == "2 east", 60, "the second takes the place", running.tail)
    assert {one.cluster for one in written.take()} == {"east"}


@pytest.mark.alone
@pytest.mark.long
def test_the_right_cluster_by_its_labels(stage: Stage, running: Controller) -> None:
    """C3: a selector chooses; a label that changes moves nobody who runs, and counts for whoever comes next."""
    key = "cluster.class"
    with _labelled(stage, "east", {key: stage.name}), _labelled(stage, "west", {key: "other"}):
        stage.build({"east": 9, "west": 9}, policy={"clusters": {"selector": {"matchLabels": {key: stage.name}}}})
        stage.ray_cluster("one", workers=1)
        wait(lambda: stage.where("one") == "1 east", 60, "east is chosen", running.tail)
        wait(lambda: stage.running(1), 60, "it runs", running.tail)
        _label(stage, "west", {key: stage.name})
        _label(stage, "east", {key: "other"})
        wait(lambda: "to west." in _active(stage), 30, "the check speaks of west", running.tail)
        stage.ray_cluster("two", workers=1)
        wait(lambda: stage.where("two") == "1 west", 60, "west is chosen", running.tail)
        assert stage.where("one") == "1 east" and pods_by_cluster(stage.workers())["east"] == 1


@pytest.mark.long
def test_clusters_are_filled_in_the_order_of_the_policy(stage: Stage, running: Controller) -> None:
    """C4: by the order that was written, which is not that of the alphabet."""
    stage.clusters = ("west", "east")
    stage.build({"east": 1, "west": 1})
    for job, cluster in (("one", "west"), ("two", "east")):
        stage.ray_cluster(job, workers=1)
        wait(lambda job=job, cluster=cluster: stage.where(job) == f"1 {cluster}", 60, cluster, running.tail)  # type: ignore[misc]


@pytest.mark.long
def test_priority_goes_before_age(stage: Stage, running: Controller) -> None:
    """B13: both wait; when room comes, the one of higher priority has it although it came later."""
    stage.build({"east": 0, "west": 0})
    low, high = stage.priority("low", 10), stage.priority("high", 100)
    stage.ray_cluster("early", workers=2, priority=low)
    wait(lambda: stage.state("early") == PlacementState.WAITING, 60, "the early one waits", running.tail)
    stage.ray_cluster("late", workers=2, priority=high)
    wait(lambda: stage.state("late") == PlacementState.WAITING, 60, "the late one waits", running.tail)
    stage.set_quota(stage.fleet.workers["east"], 2)
    wait(lambda: stage.where("late") == "2 east", 60, "the high one is placed", running.tail)
    assert stage.state("early") == PlacementState.WAITING
    shares = stage.remote("workloads")["east"]
    assert [share["spec"]["priority"] for share in shares] == [100]


@pytest.mark.long
@pytest.mark.usefixtures("audited")
def test_four_of_six(stage: Stage, running: Controller) -> None:
    """B17: where three fit nothing is held; where four fit the gang starts with four, and the others wait for
    capacity."""
    stage.build({"east": 2, "west": 1}, policy={"gang": "BestEffort", "minWorkers": 4})
    written = Written(stage)
    stage.ray_cluster("one", workers=6)
    wait(lambda: "4 workers needed at once, 3 fit now" in stage.reason("one"), 60, "it waits", running.tail)
    assert stage.state("one") == PlacementState.WAITING
    assert written.take() == [], "no cluster was asked for anything"
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(lambda: stage.where("one") == "2 east, 2 west", 60, "four are placed", running.tail)
    wait(lambda: stage.running(4), 90, "four run", running.tail)
    assert stage.placement("one")["status"]["workers"] == "4 of 6"
    assert len(stage.workers()) == 6 and sum(map(len, stage.remote().values())) == 4
    kept = {pod["metadata"]["uid"] for pod in stage.workers()}
    stage.set_quota(stage.fleet.workers["west"], 4)
    wait(lambda: stage.running(6), 90, "all six run", running.tail)
    assert {pod["metadata"]["uid"] for pod in stage.workers()} == kept, "nobody was made anew"


@pytest.mark.long
@pytest.mark.usefixtures("audited")
def test_a_part_of_a_job_that_starts_only_whole_is_refused(stage: Stage, running: Controller) -> None:
    """A RayJob whose submitter waits for every worker would wait for ever; the sentence names the way out."""
    stage.build({"east": 9, "west": 9}, policy={"gang": "BestEffort", "minWorkers": 1})
    written = Written(stage)
    stage.manager.apply(yaml.safe_dump(_ray_job(stage, "K8sJobMode")))
    wait(
        lambda: "submit it with SidecarMode" in stage.events("job").get("Rejected", ""),
        60,
        "it is refused",
        running.tail,
    )
    assert written.take() == [], "no cluster was asked for anything"


@pytest.mark.alone
@pytest.mark.long
def test_quota_without_a_device_is_passed_over(stage: Stage, running: Controller) -> None:
    """B23: east has quota for a device that no node of it has: the workers go to west, and the reason is told."""
    device = "example.com/gpu"
    stage.build({"east": 4, "west": 4}, resource=device)
    stage.ray_cluster("one", workers=2, more={device: "1"})
    short = f"east has capacity for 0 (no node there has allocatable {device}: is its device plugin ready?)"
    wait(lambda: short in stage.reason("one"), 60, "no cluster has the device", running.tail)
    assert stage.state("one") == PlacementState.WAITING
    with added(stage.fleet.workers["west"], stage.name, {device: "8"}):
        wait(lambda: stage.where("one") == "2 west", 60, "west has it now", running.tail)
        stage.manager.delete("rayclusters", "one", stage.name)
        wait(lambda: stage.leftovers() == [], 60, "nothing is left", running.tail)


@pytest.mark.long
def test_a_worker_group_in_its_zone(stage: Stage, running: Controller) -> None:
    """A worker group may ask for a zone on its template; the others go where there is room."""
    stage.build({"east": 9, "west": 9})
    made = yaml.safe_load(_two_groups(stage))
    stage.manager.apply(yaml.safe_dump(made))
    wait(lambda: stage.where("one") == "1 east, 2 west", 60, "each is where it belongs", running.tail)


# --- what a scenario needs besides queues -----------------------------------------------------------------------------


def _two_groups(stage: Stage) -> str:
    made = ray_cluster("one", stage.name, {"any": 1, "near": 2})
    made["spec"]["workerGroupSpecs"][1]["template"]["metadata"] = {"annotations": {names.ZONE_ANNOTATION: "west"}}
    return yaml.safe_dump(made)


def _ray_job(stage: Stage, mode: str) -> Raw:
    spec = ray_cluster("job", stage.name, {"workers": 2})["spec"]
    asked = {
        "requests": {"cpu": "100m"}
    }  # the default submitter asks for memory, too, which the stage's queues do not cover
    submitter = {"name": "submitter", "image": "rayproject/ray:2.60.0", "resources": asked}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "job", "namespace": stage.name, "labels": {names.QUEUE_LABEL: "ray"}},
        "spec": {
            "entrypoint": "true",
            "submissionMode": mode,
            "shutdownAfterJobFinishes": True,
            "suspend": True,
            "rayClusterSpec": spec,
            "submitterPodTemplate": {"spec": {"restartPolicy": "Never", "containers": [submitter]}},
        },
    }


def _active(stage: Stage) -> str:
    return str(condition(stage.manager.get("admissionchecks.kueue.x-k8s.io", stage.name), names.ACTIVE).get("message"))


def _allow_pods(stage: Stage, count: int) -> None:
    """Let the manager create so many pods in the stage's namespace."""
    metadata = {"name": "few", "namespace": stage.name}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": str(count)}}}
    stage.manager.apply(yaml.safe_dump(quota))
    wait(lambda: stage.manager.get("resourcequota", "few", stage.name).get("status"), 30, "the quota is enforced")


def _unschedulable(cluster: Cluster, namespace: str) -> list[Raw]:
    pods = cluster.items("pods", namespace)
    return [pod for pod in pods if condition(pod, "PodScheduled").get("reason") == "Unschedulable"]


@contextmanager
def _growing(stage: Stage, name: str) -> Iterator[None]:
    _patch(stage, name, {"canGrow": True})
    try:
        yield
    finally:
        _patch(stage, name, {"canGrow": None})


@contextmanager
def _labelled(stage: Stage, name: str, labels: Raw) -> Iterator[None]:
    _label(stage, name, labels)
    try:
        yield
    finally:
        _label(stage, name, dict.fromkeys(labels))


def _label(stage: Stage, name: str, labels: Raw) -> None:
    _patch(stage, name, {"labels": labels})


def _patch(stage: Stage, name: str, spec: Raw) -> None:
    stage.manager.kubectl("patch", "workercluster", name, "--type=merge", "-p", json.dumps({"spec": spec}))
