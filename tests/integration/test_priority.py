"""A job's priority counts in the worker clusters as it does in the manager."""

import json

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed.auditlog import Written
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import QUEUE, Stage, plain_pod

pytestmark = pytest.mark.long

PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}


@pytest.mark.parametrize(("value", "want"), [(1000, 1000), (2_000_000_000, 1_000_000_000)])
def test_the_number_goes_along_and_stays(stage: Stage, running: Controller, value: int, want: int) -> None:
    """The worker cluster does not have the class. Kueue keeps the number, before the first pod and after it.

    It is at most the WorkerCluster's maximum, which keeps the system's own priorities out.
    """
    stage.build({"east": 1, "west": 0})
    stage.ray_cluster("pi", workers=1, priority=stage.priority("high", value))
    wait(lambda: stage.running(1), 90, "the worker runs", running.tail)
    spec = stage.remote("workloads")["east"][0]["spec"]
    assert spec["priority"] == want
    assert "priorityClassRef" not in spec
    assert stage.workload("pi")["spec"]["priorityClassRef"]["name"] == f"{stage.name}-high"


def test_a_gang_of_higher_priority_preempts_one_of_lower(stage: Stage, running: Controller) -> None:
    """In the cluster whose queue says so; the lower one waits for its share there, and has it back afterwards."""
    stage.build({"east": 2, "west": 0})
    _let_preempt(stage)
    stage.ray_cluster("low", workers=2, priority=stage.priority("low", 10))
    wait(lambda: stage.where("low") == "2 east", 90, "the lower one has its share", running.tail)
    wait(lambda: stage.running(2), 60, "and runs", running.tail)

    stage.ray_cluster("high", workers=2, priority=stage.priority("high", 1000))
    wait(lambda: stage.where("high") == "2 east", 90, "the higher one has it now", lambda: _dump(stage, running))
    said = "in east by preempting gangs of lower priority"
    wait(lambda: said in stage.events("high").get("Placed", ""), 10, "the job says how")
    wait(lambda: _admitted(stage) == [1000], 60, "Kueue has taken it from the lower one")
    wait(lambda: _ready(stage, "high") == 2, 60, "the higher one runs", lambda: _dump(stage, running))
    assert _ready(stage, "low") == 0

    stage.manager.delete("raycluster", "high", stage.name, wait=False)
    wait(lambda: _ready(stage, "low") == 2, 120, "the lower one runs again", lambda: _dump(stage, running))


@pytest.mark.usefixtures("audited")
def test_where_the_queue_preempts_nobody_the_higher_one_waits(stage: Stage, running: Controller) -> None:
    """From its submission until it waits, no share is made for it and no worker of the lower one is touched."""
    stage.build({"east": 2, "west": 0})
    written = Written(stage)
    stage.ray_cluster("low", workers=2, priority=stage.priority("low", 10))
    wait(lambda: stage.running(2), 90, "the lower one runs", running.tail)
    assert {one.what for one in written.take(["create"])} >= {"workloads", "pods"}, "what is made shows in the log"
    stage.ray_cluster("high", workers=2, priority=stage.priority("high", 1000))
    wait(lambda: stage.state("high") == PlacementState.WAITING, 60, "the higher one waits", running.tail)
    assert written.take(["create", "delete", "deletecollection"]) == []
    assert _admitted(stage) == [10]
    assert stage.running(2)


def test_others_in_the_queue_are_preempted_and_preempt_by_the_number(stage: Stage, running: Controller) -> None:
    """A pod of the worker cluster's own users: between two gangs, it preempts the lower one and not the higher one."""
    stage.build({"east": 2, "west": 0})
    _let_preempt(stage)
    stage.ray_cluster("high", workers=1, priority=stage.priority("high", 1000))
    stage.ray_cluster("low", workers=1, priority=stage.priority("low", 10))
    wait(lambda: stage.running(2), 90, "both run", running.tail)

    east = stage.fleet.workers["east"]
    stage.add(east, "WorkloadPriorityClass", {"value": 500})
    east.apply(yaml.safe_dump_all([_pod("first", stage), _pod("second", stage)]))
    wait(lambda: _admitted(stage) == [1000], 60, "the lower gang gave way", running.tail)
    wait(lambda: _gated(stage) == [False, True], 30, "one of the two pods has its place, the other waits")
    assert _ready(stage, "high") == 1


def _let_preempt(stage: Stage) -> None:
    stage.fleet.workers["east"].kubectl(
        "patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(PREEMPTION)
    )


def _admitted(stage: Stage) -> list[int]:
    """The priorities of our shares that hold quota in east."""
    shares = stage.remote("workloads")["east"]
    held = (share for share in shares if condition(share, names.QUOTA_RESERVED).get("status") == "True")
    return sorted(share["spec"]["priority"] for share in held)


def _gated(stage: Stage) -> list[bool]:
    """Whether Kueue still holds each of the two pods."""
    pods = (stage.fleet.workers["east"].get("pods", name, stage.name) for name in ("first", "second"))
    return sorted(bool(pod["spec"].get("schedulingGates")) for pod in pods)


def _ready(stage: Stage, cluster: str) -> int:
    """How many workers of a RayCluster are mirrored as ready."""
    pods = stage.manager.items("pods", stage.name, f"{names.RAY_GCS_CLUSTER_LABEL}={cluster},ray.io/node-type=worker")
    return sum(condition(pod, "Ready").get("status") == "True" for pod in pods)


def _pod(name: str, stage: Stage) -> Raw:
    made = plain_pod(name, stage.name, QUEUE)
    made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = stage.name
    return made


def _dump(stage: Stage, running: Controller) -> str:
    said = {job: (stage.placement(job).get("status") or {}).get("reason") for job in ("low", "high")}
    return f"{said} {stage.check('high')}\n{running.tail()}"
