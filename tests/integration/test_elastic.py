"""A RayCluster that changes its size while it runs scales up in any cluster with capacity, and gives back what it
leaves."""

import json

import pytest

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed.clusters import condition, wait
from hack.testbed.controller import Controller
from hack.testbed.preemption import preempt
from hack.testbed.reader import Raw
from hack.testbed.stage import AUTOSCALED, Stage, pods_by_cluster

QUICKLY = 15  # seconds in which room is used: half of the resync's


def test_it_grows_into_the_next_cluster_and_shrinks_again(stage: Stage, running: Controller) -> None:
    """Nothing that runs is touched; the shares that are left go, and their quota with them."""
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=2, elastic=8, least=2)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    before, place = _uids(stage), stage.placement("pi")["metadata"]
    assert pods_by_cluster(stage.workers()) == {"east": 2}
    assert stage.reserving() == 1, "what it always has came together"

    stage.scale("pi", 0, 4)
    wait(lambda: stage.running(4), 90, "four workers run", running.tail)
    assert before.items() <= _uids(stage).items(), "nobody was restarted"
    assert pods_by_cluster(stage.workers()) == {"east": 2, "west": 2}
    after = stage.placement("pi")
    assert after["metadata"]["uid"] == place["uid"] and after["metadata"]["name"] == place["name"]
    assert after["spec"]["workload"]["uid"] == stage.workload("pi")["metadata"]["uid"]
    wait(lambda: stage.reason("pi") == "All workers are placed: 2 east, 2 west.", 30, "it says so", running.tail)

    away = [name for name, pod in _named(stage).items() if pod["metadata"]["labels"][names.CLUSTER_LABEL] == "west"]
    stage.scale("pi", 0, 2, without=away)
    wait(lambda: not stage.remote("workloads")["west"], 60, "the empty shares are gone", running.tail)
    wait(lambda: stage.reserving() == 1, 30, "and their quota is free")
    assert _uids(stage) == before and stage.running(2)
    assert stage.placement("pi")["spec"]["wanted"] == 2


def test_a_worker_that_leaves_gives_back_exactly_what_it_held(stage: Stage, running: Controller) -> None:
    """Within seconds, without touching others: single-worker shares, and the workers that the job started with
    beyond its minimum."""
    stage.build({"east": 3, "west": 4})
    stage.ray_cluster("pi", workers=3, elastic=8, least=1)
    wait(lambda: stage.running(3), 90, "three workers run", running.tail)
    stage.scale("pi", 0, 6)
    wait(lambda: stage.running(6), 90, "six workers run", running.tail)
    assert _held(stage) == {"east": 3, "west": 3}
    assert sorted(map(_size, stage.remote("workloads")["west"])) == [1, 1, 1]

    for cluster, left in (("west", {"east": 3, "west": 2}), ("east", {"east": 2, "west": 2})):
        named = {n: p for n, p in _named(stage).items() if p["metadata"]["labels"][names.CLUSTER_LABEL] == cluster}
        goes = min(
            named, key=lambda name: _round(named[name])
        )  # not of the share that came together, the last of the first plan
        stayed = {name: uid for name, uid in _uids(stage).items() if name != goes}
        stage.scale("pi", 0, sum(left.values()), without=[goes])
        wait(lambda: goes not in _copies(stage, cluster), 30, "its copy is gone", running.tail)  # noqa: B023
        wait(lambda: _held(stage) == left, 5, "and exactly its quota", running.tail)  # noqa: B023
        wait(lambda: stage.reason("pi").startswith("All workers are placed"), 30, "it says so", running.tail)
        assert _uids(stage) == stayed, "nobody was restarted"


@pytest.mark.long
def test_one_worker_that_is_preempted_is_replaced_by_one(stage: Stage, running: Controller) -> None:
    """Whatever onShareLost says: that is for the workers that the job always has. All others stay the same pods."""
    stage.build({"east": 2, "west": 3}, policy={"onShareLost": "Restart"})
    stage.ray_cluster("pi", workers=2, elastic=8, least=2, priority=stage.priority("low", 10))
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    stage.scale("pi", 0, 4)
    wait(lambda: stage.running(4), 90, "four workers run", running.tail)
    before = _uids(stage)
    preempt(stage, "west", 2)
    wait(lambda: "ShareLost" in stage.events("pi"), 60, "one is lost", running.tail)
    assert stage.told("pi", "ShareLost").startswith("Workers were lost, 1 in west: its workers were stopped there")
    wait(lambda: _held(stage) == {"east": 2, "west": 1}, 60, "three shares stand", running.tail)
    wait(
        lambda: stage.reason("pi").startswith("3 of 4 workers are placed: 2 east, 1 west"),
        90,  # the one who preempted may not hold yet what it was given: a reservation is tried in vain before
        "it waits",
        running.tail,
    )
    stage.set_quota(stage.fleet.workers["east"], 3)
    wait(lambda: stage.running(4), 90, "it runs elsewhere", running.tail)
    assert len(before.items() & _uids(stage).items()) == 3, "the three others are the same"
    assert _held(stage) == {"east": 3, "west": 1}


def test_what_does_not_fit_waits_and_runs_when_room_comes(stage: Stage, running: Controller) -> None:
    """A part of the growth starts at once; the rest is told what it waits for, and is not made anew."""
    stage.build({"east": 2, "west": 1})
    stage.ray_cluster("pi", workers=2, elastic=8)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    stage.scale("pi", 0, 4)
    wait(lambda: stage.running(3), 90, "a third worker runs", running.tail)
    wait(lambda: stage.reason("pi").startswith("3 of 4 workers are placed"), 30, "it says what it lacks", running.tail)
    assert stage.check("pi")["state"] == names.CHECK_READY
    assert stage.told("pi", "Waiting").startswith(
        "3 of 4 workers are placed: 2 east, 1 west; the others start as soon as there is capacity"
    )
    before = _uids(stage)
    (waits,) = (pod for pod in stage.workers() if names.CLUSTER_LABEL not in pod["metadata"]["labels"])
    assert [gate["name"] for gate in waits["spec"]["schedulingGates"]] == [names.GATE]

    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(lambda: stage.running(4), QUICKLY, "the fourth runs", running.tail)
    assert _uids(stage) == before, "it waited, and nobody was restarted"


@pytest.mark.long
def test_room_goes_to_whose_turn_it_is(stage: Stage, running: Controller) -> None:
    """By priority, then by the time that a running job has waited, one worker at a time.

    The one that waits longer is not recreated, and keeps its workers.
    """
    stage.build({"east": 3, "west": 0})
    low, high = stage.priority("low", 10), stage.priority("high", 1000)
    for number, (job, priority) in enumerate({"older": low, "younger": low, "urgent": high}.items(), 1):
        stage.ray_cluster(job, workers=1, elastic=4, least=1, priority=priority)
        wait(lambda: stage.running(number), 90, f"{job} runs", running.tail)  # noqa: B023
    for job in ("younger", "older", "urgent"):
        stage.scale(job, 0, 2)
        wait(lambda: stage.reason(job).startswith("1 of 2 workers are placed"), 60, f"{job} waits", running.tail)  # noqa: B023
    wait(lambda: len(stage.workers()) == 6, 30, "all are there", running.tail)
    before, served = _uids(stage), list[str]()
    for room, job in enumerate(("urgent", "younger", "older"), 4):
        stage.set_quota(stage.fleet.workers["east"], room)
        wait(lambda: stage.running(room), QUICKLY, f"{job} has it", running.tail)  # noqa: B023
        served += [one for one in ("urgent", "younger", "older") if one not in served and _placed(stage, one) == 2]
    assert served == ["urgent", "younger", "older"]
    assert _uids(stage) == before, "nobody was made anew"


@pytest.mark.long
def test_who_has_no_quota_in_the_manager_takes_none_elsewhere(stage: Stage, running: Controller) -> None:
    """Kueue's own gate holds what the manager has no quota for, and nothing is reserved for that."""
    stage.build({"east": 8}, manager_cpu=4)
    stage.ray_cluster("pi", workers=2, elastic=8)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    before = _uids(stage)
    stage.scale("pi", 0, 6)
    wait(lambda: len(stage.workers()) == 6, 60, "KubeRay made them", running.tail)
    wait(lambda: sum(map(_held_by_kueue, stage.workers())) == 4, 30, "Kueue holds four", running.tail)
    assert stage.running(2) and stage.placement("pi")["spec"]["wanted"] == 2
    assert len(stage.remote()["east"]) == 2

    stage.set_quota(stage.manager, 8)
    wait(lambda: stage.running(6), 90, "all run once there is quota", running.tail)
    assert before.items() <= _uids(stage).items()


@pytest.mark.long
def test_a_group_of_nobody_is_scaled_up(stage: Stage, running: Controller) -> None:
    """Its template was given to us when the job started, so its pods do not run in the manager."""
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=0, groups={"first": 2, "second": 0}, elastic=4)
    wait(lambda: stage.running(2), 90, "two workers run", running.tail)
    stage.scale("pi", 1, 2)
    wait(lambda: stage.running(4), 90, "those of the second group run", running.tail)
    assert pods_by_cluster(stage.workers()) == {"east": 2, "west": 2}


@pytest.mark.long
def test_one_that_begins_with_no_worker_grows(stage: Stage, running: Controller) -> None:
    """It has no Placement before it wants a place; and then it takes what there is."""
    stage.build({"east": 1})
    stage.ray_cluster("pi", workers=0, groups={"workers": 0}, elastic=4)
    wait(lambda: stage.check("pi").get("state") == names.CHECK_READY, 60, "its check is ready", running.tail)
    wait(lambda: stage.manager.get("rayclusters", "pi", stage.name)["spec"].get("suspend") is False, 60, "it runs")
    stage.scale("pi", 0, 2)
    wait(lambda: stage.running(1), 90, "one worker runs", running.tail)
    wait(lambda: stage.reason("pi").startswith("1 of 2 workers are placed"), 30, "the other one waits", running.tail)


@pytest.mark.long
def test_it_starts_again_under_the_same_name_and_leaves_nothing(stage: Stage, running: Controller) -> None:
    """Stopped by hand after it grew: its shares go, and the next start takes the name that stands in its templates."""
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=1, elastic=4)
    wait(lambda: stage.running(1), 90, "one worker runs", running.tail)
    stage.scale("pi", 0, 3)
    wait(lambda: stage.running(3), 90, "three workers run", running.tail)
    name, slice_ = stage.placement("pi")["metadata"]["name"], stage.workload("pi")["metadata"]["name"]

    _active(stage, slice_, "false")
    wait(lambda: not stage.workers() and not stage.reserving(), 90, "it is stopped", running.tail)
    _active(stage, slice_, "true")
    wait(lambda: stage.running(3), 90, "three workers run again", running.tail)
    assert stage.placement("pi")["metadata"]["name"] == name

    stage.manager.delete("raycluster", "pi", stage.name, wait=False)
    wait(lambda: not stage.leftovers(), 60, "nothing is left", lambda: f"{stage.leftovers()}\n{running.tail()}")
    wait(lambda: not stage.manager.items("placements", stage.name), 60, "the Placement is gone")
    wait(lambda: not stage.reserving(), 30, "the quota is free")


def _named(stage: Stage) -> dict[str, Raw]:
    return {pod["metadata"]["name"]: pod for pod in stage.workers()}


def _uids(stage: Stage) -> dict[str, str]:
    """The workers by their names: a pod that was made anew has another uid."""
    return {name: pod["metadata"]["uid"] for name, pod in _named(stage).items()}


def _placed(stage: Stage, job: str) -> int:
    """How many workers of a job run."""
    mine = [pod for pod in stage.workers() if pod["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL] == job]
    return sum(condition(pod, "Ready").get("status") == "True" for pod in mine)


def _held(stage: Stage) -> dict[str, int]:
    """For how many workers each cluster's shares hold quota."""
    return {name: sum(map(_size, shares)) for name, shares in stage.remote("workloads").items()}


def _size(share: Raw) -> int:
    return sum(int(one["count"]) for one in share["spec"]["podSets"])


def _copies(stage: Stage, cluster: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in stage.remote()[cluster]}


def _round(pod: Raw) -> int:
    """Which share a worker is on."""
    return int(pod["metadata"]["annotations"][names.SLOT_ANNOTATION].split("/")[1])


def _held_by_kueue(pod: Raw) -> bool:
    return names.ELASTIC_GATE in {gate["name"] for gate in pod["spec"].get("schedulingGates", ())}


def _active(stage: Stage, workload: str, value: str) -> None:
    patch = f'{{"spec": {{"active": {value}}}}}'
    stage.manager.kubectl("-n", stage.name, "patch", "workload", workload, "--type=merge", "-p", patch)


def test_autoscaling_that_a_running_job_gets_without_the_annotation_is_rejected(
    stage: Stage, running: Controller
) -> None:
    """By Kueue's webhook, at once. A RayService has a guard of ours for it: test_serving.py."""
    stage.build({"east": 1})
    stage.ray_cluster("pi", workers=1)
    wait(lambda: stage.running(1), 90, "its worker runs", running.tail)
    patch = json.dumps({"spec": AUTOSCALED})
    with pytest.raises(LabError, match="can use autoscaling only as an elastic job"):
        stage.manager.kubectl("-n", stage.name, "patch", "raycluster", "pi", "--type=merge", "-p", patch)
    assert stage.running(1)
