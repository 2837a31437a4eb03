"""A running gang waits for capacity again, starts again, and has an unreachable, a drained, or a nodeless cluster.

Real Kueue and KubeRay; workers on fake nodes, so no Ray head tells who is alive.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import parse_time
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.preemption import preempt, status, uids, workers_in
from hack.testbed.reader import Raw
from hack.testbed.stage import FAKE_NODE, TOLERATION, Stage, pods_by_cluster, ray_cluster


@pytest.fixture
def east(stage: Stage, running: Controller) -> str:
    """A WorkerCluster of the test's own, which leads to east: nobody else's workers are moved."""
    own = stage.own("east")
    stage.clusters = (own, "west")
    return own


@pytest.fixture
def no_nodes(fleet: Clusters) -> Iterator[Cluster]:
    """East, whose nodes a test cordons."""
    yield fleet.workers["east"]
    fleet.workers["east"].kubectl("uncordon", "--selector=type=kwok")


@pytest.mark.long
def test_without_room_the_job_runs_on_and_gets_its_workers_later(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2, priority=stage.priority("low", 10))
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    preempt(stage)
    wait(lambda: status(stage)["workers"] == "1 of 2", 60, "one has no place", lambda: dump(stage, running))
    wait(lambda: "1 worker needed" in status(stage)["reason"], 30, "it is said what it waits for", running.tail)
    assert stage.check("pi")["state"] == names.CHECK_READY
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(
        lambda: stage.where("pi") == "2 west" and stage.running(2),
        60,
        "it has a place again",
        lambda: dump(stage, running),
    )


@pytest.mark.long
def test_a_policy_may_restart_the_whole_gang(stage: Stage, running: Controller) -> None:
    stage.build({"east": 1, "west": 1}, policy={"onShareLost": "Restart"})
    stage.ray_cluster("pi", workers=2, priority=stage.priority("low", 10))
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    before = {pod["metadata"]["uid"] for pod in stage.workers()}
    first = stage.placement("pi")["metadata"]["name"]
    stage.set_quota(stage.fleet.workers["west"], 2)
    preempt(stage)
    wait(lambda: "restarts" in stage.check("pi").get("message", "") or _other(stage, first), 60,
         "the whole gang starts again", lambda: dump(stage, running))  # fmt: skip
    wait(lambda: stage.where("pi") == "2 west", 90, "it is placed anew", lambda: dump(stage, running))
    wait(lambda: stage.running(2), 60, "and runs", lambda: dump(stage, running))
    assert not before & {pod["metadata"]["uid"] for pod in stage.workers()}


def test_a_cluster_out_of_sight_is_given_up_in_time(stage: Stage, running: Controller, lab: Lab) -> None:
    """Unknown first, replaced after the policy's timeout, and nothing doubled when the cluster is back."""
    stage.build({"east": 2, "west": 3}, policy={"workerLostTimeout": "12s"})
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.running(3), 90, "three workers run", running.tail)
    stayed = uids(stage, "west")
    faults.cut(lab, lab.cluster("east"), way="link")  # also from this machine, on which the controller runs here
    wait(lambda: len(_unknown(stage)) == 2 and status(stage)["state"] == PlacementState.UNKNOWN, 60,
         "nothing is known of two", lambda: dump(stage, running))  # fmt: skip
    assert "is unreachable since" in _unknown(stage)[0]["message"]
    assert stage.running(3), "they are left running meanwhile"
    # The head is on a fake node: it has a minute for its first answer.
    wait(lambda: stage.where("pi") == "3 west", 120, "they are given up and replaced", lambda: dump(stage, running))
    wait(lambda: stage.running(3), 60, "all three run in west", lambda: dump(stage, running))
    assert stayed <= uids(stage, "west")
    faults.heal(lab)
    wait(lambda: not stage.remote()["east"], 60, "what was left in east is gone", lambda: dump(stage, running))
    wait(lambda: not stage.remote("workloads")["east"], 30, "and its quota free", lambda: dump(stage, running))
    assert stage.running(3)


def test_a_drained_cluster_is_left_one_by_one(stage: Stage, running: Controller, east: str) -> None:
    stage.build({"east": 3, "west": 3})
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.running(3), 90, "three workers run in east", running.tail)
    assert pods_by_cluster(stage.workers()) == {east: 3}
    _drain(stage, east)
    away: list[int] = []

    def left() -> bool:
        away.append(3 - sum(condition(pod, "Ready").get("status") == "True" for pod in stage.workers()))
        return pods_by_cluster(stage.workers()) == {"west": 3} and stage.running(3)

    wait(left, 120, "all run in west", lambda: dump(stage, running))
    assert max(away) <= 1, "more than one was away at once"
    wait(lambda: stage.where("pi") == "3 west", 30, "the share in east is given back", lambda: dump(stage, running))
    wait(lambda: not stage.remote("workloads")["east"], 30, "and gone", lambda: dump(stage, running))
    wait(lambda: workers_in(stage.fleet, east) == 0, 30, "east says that nobody is left", running.tail)


@pytest.mark.long
def test_who_has_no_other_place_stays_in_a_drained_cluster(stage: Stage, running: Controller, east: str) -> None:
    stage.build({"east": 2, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run in east", running.tail)
    _drain(stage, east)
    wait(lambda: stage.where("pi") == f"1 {east}, 1 west" or pods_by_cluster(stage.workers()) == {east: 1, "west": 1},
         60, "one has moved", lambda: dump(stage, running))  # fmt: skip
    wait(lambda: stage.running(2), 30, "both run", lambda: dump(stage, running))
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(
        lambda: pods_by_cluster(stage.workers()) == {"west": 2},
        60,
        "the other one follows",
        lambda: dump(stage, running),
    )


@pytest.mark.long
def test_a_worker_whose_image_cannot_be_pulled_starts_elsewhere(stage: Stage, running: Controller) -> None:
    """East's real node pulls, in vain. West's WorkerCluster sends its pods to fake nodes, which run any image."""
    west = stage.own("west")
    stage.clusters = ("east", west)
    pods = {"pods": {"nodeSelector": FAKE_NODE, "tolerations": [TOLERATION]}}
    stage.manager.kubectl("patch", "workercluster", west, "--type=merge", "--patch", json.dumps({"spec": pods}))
    stage.build({"east": 1, "west": 1})
    made: Raw = ray_cluster("pi", stage.name, {"workers": 1}, "100m")
    spec = made["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    made["spec"]["workerGroupSpecs"][0]["template"]["spec"] = {
        "containers": [{**spec["containers"][0], "image": "example.invalid/no/such:1"}]
    }
    stage.manager.apply(json.dumps(made))
    wait(lambda: "WorkerFailing" in stage.events("pi"), 60, "east's words are known", lambda: dump(stage, running))
    told = stage.told("pi", "WorkerFailing")
    assert "of a worker in east does not start, " in told and "example.invalid/no/such:1" in told
    (pod,) = stage.workers()
    state = pod["status"]["initContainerStatuses"][0]["state"]["waiting"]
    assert state["reason"] in ("ErrImagePull", "ImagePullBackOff"), "as `kubectl rayspan why` reads it"
    wait(lambda: pods_by_cluster(stage.workers()) == {west: 1} and stage.running(1), 150, "it runs in west",
         lambda: dump(stage, running))  # fmt: skip
    assert "in east within 60s: its container wait-gcs-ready waits, " in stage.told("pi", "StartTimeout")


@pytest.mark.alone  # nodes are cordoned
@pytest.mark.long
def test_a_worker_that_finds_no_node_starts_elsewhere(stage: Stage, running: Controller, no_nodes: Cluster) -> None:
    """For example a spot node is reclaimed and not replaced: its worker moves, quota first, and the other one stays."""
    stage.build({"east": 2, "west": 1}, policy={"workerStartTimeout": "10s"})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run in east", running.tail)
    assert pods_by_cluster(stage.workers()) == {"east": 2}
    no_nodes.kubectl("cordon", "--selector=type=kwok")
    lost, stayed = (pod["metadata"] for pod in stage.remote()["east"])
    no_nodes.kubectl("delete", "pod", lost["name"], "--namespace", stage.name, "--wait=false")
    wait(lambda: "StartTimeout" in stage.events("pi"), 60, "its worker found no node", lambda: dump(stage, running))
    assert "it was not scheduled" in stage.told("pi", "StartTimeout")
    wait(
        lambda: pods_by_cluster(stage.workers()) == {"east": 1, "west": 1} and stage.running(2),
        60,
        "it runs in west",
        lambda: dump(stage, running),
    )
    assert uids(stage, "east") == {stayed["uid"]}
    assert [one["cluster"] for one in stage.placement("pi")["spec"]["excluded"]] == ["east"]


@pytest.mark.alone  # nodes are cordoned
@pytest.mark.long
def test_a_worker_that_no_node_takes_leaves_a_cluster_that_cannot_grow_after_a_minute(
    stage: Stage, running: Controller, no_nodes: Cluster
) -> None:
    """The policy's time is 15 minutes. Without capacity elsewhere the worker stays, and moves when there is some."""
    stage.build({"east": 2, "west": 0})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run in east", running.tail)
    no_nodes.kubectl("cordon", "--selector=type=kwok")
    no_nodes.kubectl("delete", "pods", "--all", "--namespace", stage.name, "--wait=false")
    wait(lambda: "StartTimeout" in stage.events("pi"), 120, "no node takes its workers", lambda: dump(stage, running))
    assert "2 in east within 60s: it was not scheduled" in stage.told("pi", "StartTimeout")
    assert pods_by_cluster(stage.workers()) == {"east": 2}, "there is no capacity elsewhere"
    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(lambda: pods_by_cluster(stage.workers()) == {"west": 2} and stage.running(2), 60, "both run in west",
         lambda: dump(stage, running))  # fmt: skip
    wait(lambda: stage.where("pi") == "2 west", 30, "the share in east is given back", lambda: dump(stage, running))


@pytest.mark.alone  # nodes are cordoned
@pytest.mark.long
def test_a_worker_that_no_node_takes_waits_in_a_cluster_that_can_grow(
    stage: Stage, running: Controller, no_nodes: Cluster
) -> None:
    own = stage.own("east")
    stage.clusters = (own, "west")
    patch = json.dumps({"spec": {"canGrow": True}})
    stage.manager.kubectl("patch", "workercluster", own, "--type=merge", "-p", patch)
    stage.build({"east": 1, "west": 1})
    no_nodes.kubectl("cordon", "--selector=type=kwok")
    stage.ray_cluster("pi", workers=1)
    over = timedelta(seconds=75)
    wait(lambda: _unschedulable_for(stage) > over, 150, "no node takes its worker", lambda: dump(stage, running))
    assert "StartTimeout" not in stage.events("pi") and pods_by_cluster(stage.workers()) == {own: 1}
    no_nodes.kubectl("uncordon", "--selector=type=kwok")
    wait(lambda: stage.running(1), 60, "it runs on a node that came", lambda: dump(stage, running))


def _unschedulable_for(stage: Stage) -> timedelta:
    """How long no node has taken the one pod in east."""
    scheduled = [condition(pod, "PodScheduled") for pod in stage.remote()["east"]]
    since = [parse_time(entry.get("lastTransitionTime")) for entry in scheduled if entry.get("status") == "False"]
    return datetime.now(UTC) - since[0] if since and since[0] else timedelta(0)


def _other(stage: Stage, first: str) -> bool:
    return bool((stage.placement("pi").get("metadata") or {}).get("name", first) != first)


def _unknown(stage: Stage) -> list[Raw]:
    found = (condition(pod, names.DISPATCHED_CONDITION) for pod in stage.workers())
    return [one for one in found if one.get("status") == "Unknown"]


def _drain(stage: Stage, name: str) -> None:
    patch = json.dumps({"spec": {"draining": True}})
    stage.manager.kubectl("patch", "workercluster", name, "--type=merge", "-p", patch)
