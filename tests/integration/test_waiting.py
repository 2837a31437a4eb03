"""A gang that cannot be placed holds nothing, says why, and starts when it can."""

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from hack.testbed.auditlog import Written
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage


@pytest.mark.long
@pytest.mark.usefixtures("audited")
def test_too_large_waits_and_starts_when_quota_is_raised(stage: Stage, running: Controller) -> None:
    """Nothing is ever asked for, the sentence names each cluster's shortfall, and a raised quota is enough."""
    stage.build({"east": 2, "west": 1})
    written = Written(stage)
    stage.ray_cluster("pi", workers=4)
    wait(lambda: "4 workers needed at once, 3 fit now" in stage.reason("pi"), 60, "it waits", running.tail)
    reason = stage.reason("pi")
    assert stage.state("pi") == PlacementState.WAITING
    assert "east has capacity for 2" in reason and "west has capacity for 1" in reason
    wait(lambda: stage.events("pi").get("Waiting") == reason, 10, "the job says so")
    wait(lambda: stage.check("pi")["message"] == reason, 10, "its check says the same", running.tail)
    assert written.take() == [], "while it waits, no cluster is asked for anything"

    stage.set_quota(stage.fleet.workers["west"], 2)
    wait(lambda: stage.running(4), 90, "four workers run", running.tail)
    made = {(one.cluster, one.what) for one in written.take(["create"])}
    assert made >= {(name, what) for name in ("east", "west") for what in ("workloads", "pods")}, (
        "that shows in the logs"
    )


@pytest.mark.usefixtures("audited")
def test_share_that_is_not_admitted_takes_the_others_back(stage: Stage, running: Controller) -> None:
    """West reserves but does not admit: no Ready, east's share is given back, the next round does without west."""
    stage.build({"east": 1, "west": 1}, timeout="5s")
    stage.hold_admission("west")
    written = Written(stage)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: "ReservationTimeout" in stage.events("pi"), 60, "the round is withdrawn", running.tail)
    assert stage.check("pi")["state"] == names.CHECK_PENDING
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "it waits", running.tail)
    assert stage.leftovers() == []
    assert "did not admit in time" in stage.reason("pi")
    made = written.take(["create"])
    assert {one.cluster for one in made if one.what == "workloads"} == {"east", "west"}, (
        "both were asked for their share"
    )
    assert [one for one in made if one.what == "pods"] == [], "no worker started on a part of the gang"

    stage.set_quota(stage.fleet.workers["east"], 2)
    wait(lambda: stage.running(2), 90, "both run in east", running.tail)
    assert stage.placement("pi")["status"]["where"] == "2 east"
    assert {one.cluster for one in written.take(["create"])} == {"east"}, "the next round did not ask west"


@pytest.mark.parametrize(
    "strict",
    [pytest.param(True, id="StrictFIFO"), pytest.param(False, id="BestEffortFIFO", marks=pytest.mark.long)],
)
def test_gang_gives_way_to_others(stage: Stage, running: Controller, strict: bool) -> None:
    """While others queue behind, a gang without capacity gives the manager's quota back; it is planned again in its
    order."""
    stage.build({"east": 1, "west": 0}, manager_cpu=3, strict=strict)
    stage.ray_cluster("large", workers=2)
    wait(lambda: stage.state("large") == PlacementState.WAITING, 60, "the large one waits", running.tail)
    stage.ray_cluster("small", workers=1)
    wait(lambda: stage.running(1), 120, "the small one runs", running.tail)
    assert "Deactivated" in stage.events("large")
    wait(lambda: stage.workload("large")["spec"].get("active", True), 30, "the large one queues again", running.tail)

    stage.set_quota(stage.fleet.workers["east"], 2)
    stage.manager.delete("rayclusters", "small", stage.name)
    wait(lambda: stage.running(2), 120, "the large one runs in its turn", running.tail)


@pytest.mark.long
def test_a_cluster_whose_kueue_says_no_is_not_waited_for(stage: Stage, running: Controller) -> None:
    """East has the quota, but a LimitRange there forbids such a worker since a dry run. West is chosen long before
    the timeout."""
    stage.build({"east": 3, "west": 2}, timeout="2m")
    stage.ray_cluster("first", workers=1)
    wait(lambda: stage.running(1), 60, "one runs in east", running.tail)
    limits = [{"type": "Container", "max": {"cpu": "500m"}}]
    meta = {"name": "small", "namespace": stage.name}
    made = {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": limits}}
    stage.fleet.workers["east"].apply(yaml.safe_dump(made))
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.where("pi") == "2 west", 30, "west has it", running.tail)
    assert "did not admit in time" in stage.placement("pi")["spec"]["explanation"]
    wait(lambda: stage.running(3), 60, "all run", running.tail)
