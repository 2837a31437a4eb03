"""The controller comes to the same end when it is killed after any of its steps: its memory is lost, the API objects
are not.

It starts before the stage, so that its start costs no extra time. It does nothing for the stage until there is a job.
"""

import pytest

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.preemption import lend
from hack.testbed.stage import Stage

# Every kind of write on the way from the queue to running workers; the second one where two clusters or pods are
# concerned.
FORWARD = [
    ("Plan", 1),
    ("DryRunPod", 1),
    ("Plan", 2),
    ("Reserve", 1),
    ("Reserve", 2),
    ("UpdatePlacementStatus", 1),
    ("SetCheck", 1),
    ("SetCheck", 2),
    ("EmitEvent", 1),
    ("AssignSlot", 1),
    ("CreatePod", 1),
    ("CreatePod", 2),
    ("PatchPodStatus", 1),
]
# Of an elastic job, whose pods come with no slots: of others none is written.
ELASTIC = {"AssignSlot": 2}
# Of those after which something of ours stands that nobody has written down yet, the two that hold quota or a pod
# elsewhere.
TELLING = [("Reserve", 2), ("CreatePod", 1)]
BACKWARD = [("DeleteShare", 1), ("DeleteShare", 2)]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        pytest.param(*step, id=f"{step[0]}-{step[1]}", marks=() if step in TELLING else pytest.mark.long)
        for step in FORWARD
    ],
)
def test_killed_on_the_way_there(stage: Stage, process: Controller, kind: str, count: int) -> None:
    """One copy for each worker and one share for each cluster, whatever was lost."""
    process.start(die_after=(kind, count, stage.name))
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2, elastic=ELASTIC.get(kind, 0))
    process.wait_for_death()
    process.start()
    wait(lambda: stage.running(2), 90, "two workers run", process.tail)

    copies = {pod["metadata"]["name"]: c for c, pods in stage.remote().items() for pod in pods}
    wanted = {pod["metadata"]["name"]: pod["metadata"]["labels"][names.CLUSTER_LABEL] for pod in stage.workers()}
    assert copies == wanted
    assert {c: len(found) for c, found in stage.remote("workloads").items() if found} == {"east": 1, "west": 1}
    assert {c: len(found) for c, found in stage.remote("configmaps").items() if found} == {"east": 1, "west": 1}


@pytest.mark.long
@pytest.mark.parametrize(("kind", "count"), BACKWARD, ids=[f"{kind}-{count}" for kind, count in BACKWARD])
def test_killed_on_the_way_back(stage: Stage, process: Controller, kind: str, count: int) -> None:
    """A job deleted while the controller dies leaves nothing behind."""
    process.start(die_after=(kind, count, stage.name))
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", process.tail)
    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    process.wait_for_death()
    process.start()
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: f"{stage.leftovers()}\n{process.tail()}")


@pytest.mark.long
def test_killed_while_a_copy_goes(stage: Stage, process: Controller) -> None:
    """A worker that is deleted in the manager takes its copy with it, and the next one gets its slot."""
    process.start(die_after=("DeletePod", 1, stage.name))
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", process.tail)
    gone = stage.workers()[0]["metadata"]["name"]
    stage.manager.delete("pod", gone, stage.name, wait=False)
    process.wait_for_death()
    process.start()
    wait(lambda: stage.running(2), 90, "two workers run again", process.tail)
    wanted = {pod["metadata"]["name"] for pod in stage.workers()}
    wait(
        lambda: {pod["metadata"]["name"] for pods in stage.remote().values() for pod in pods} == wanted,
        60,
        "one copy each",
    )
    assert gone not in wanted


@pytest.mark.long
def test_job_deleted_while_the_controller_is_away(stage: Stage, process: Controller) -> None:
    """What the controller never saw being deleted is found by what is left of it."""
    process.start()
    stage.build({"east": 1, "west": 1})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", process.tail)
    process.stop()
    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.workload("pi") and not stage.workers(), 60, "the manager forgot the job")
    process.start()
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: f"{stage.leftovers()}\n{process.tail()}")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Deactivate", "Reactivate"])
def test_killed_while_a_gang_makes_room_for_others(stage: Stage, process: Controller, kind: str) -> None:
    """A gang that was taken out of the queue goes back into it, whoever took it out; the one behind it runs."""
    process.start(die_after=(kind, 1, stage.name))
    stage.build({"east": 1, "west": 0}, manager_cpu=3)
    stage.ray_cluster("large", workers=2)
    wait(lambda: stage.state("large") == PlacementState.WAITING, 60, "the large one waits", process.tail)
    stage.ray_cluster("small", workers=1)
    process.wait_for_death()
    process.start()
    wait(lambda: stage.running(1), 90, "the small one runs", process.tail)
    wait(lambda: stage.workload("large")["spec"].get("active", True), 30, "the large one queues again", process.tail)
    assert names.DEACTIVATED_AT_ANNOTATION not in stage.workload("large")["metadata"]["annotations"]


@pytest.mark.long
def test_killed_before_a_share_that_preempts(stage: Stage, process: Controller) -> None:
    """The share that is asked for last is asked for by the next process."""
    process.start(die_after=("Reserve", 1, stage.name))
    stage.build({"east": 1, "west": 2})
    lend(stage, "west", 2)
    stage.ray_cluster("pi", workers=3)
    process.wait_for_death()
    process.start()
    wait(lambda: stage.running(3), 90, "three workers run", process.tail)
    assert {c: len(found) for c, found in stage.remote("workloads").items() if found} == {"east": 1, "west": 1}
