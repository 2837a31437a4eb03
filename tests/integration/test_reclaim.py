"""Does a gang get back what others borrowed from its queue, and does a round that is given up cost them nothing?"""

import pytest

from adapter.objects.placement import PlacementState
from hack.testbed.auditlog import Written
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.preemption import borrowers, lend, uids
from hack.testbed.stage import Stage
from hack.trials.gangs import tenants


def test_borrowed_quota_comes_back(stage: Stage, running: Controller) -> None:
    """West's quota is lent out: the gang takes what is free in east, then has the borrowers in west preempted."""
    stage.build({"east": 1, "west": 2})
    lend(stage, "west", 2)
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.where("pi") == "1 east, 2 west", 60, "it is placed", running.tail)
    assert borrowers(stage, "west") == []
    assert "in west by taking back quota that others borrowed" in stage.placement("pi")["spec"]["explanation"]
    wait(lambda: stage.running(3), 60, "three run", running.tail)


@pytest.mark.long
@pytest.mark.usefixtures("audited")
def test_a_round_that_is_given_up_has_preempted_nobody(stage: Stage, running: Controller) -> None:
    """East has room and never admits: west is not asked before, so the borrowers there stay."""
    stage.build({"east": 1, "west": 2}, timeout="5s")
    stage.hold_admission("east")
    lend(stage, "west", 2)
    before = borrowers(stage, "west")
    written = Written(stage)
    stage.ray_cluster("pi", workers=3)
    wait(lambda: "ReservationTimeout" in stage.events("pi"), 60, "the round is given up", running.tail)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "it waits", running.tail)
    assert stage.leftovers() == []
    assert {one.cluster for one in written.take(["create"])} == {"east"}, "west was not asked"
    assert borrowers(stage, "west") == before and len(before) == 2


def test_a_reclaim_takes_little_more_than_is_asked_back(stage: Stage, running: Controller) -> None:
    """B asks for its half of each cluster: of A's eight workers four run on untouched, and the others come back."""
    tenants.build(stage, gpus=2, policy={"borrowingShares": 8})
    tenants.submit(stage, "borrower", workers=8)
    wait(lambda: stage.running(8), 60, "tenant A runs on its own quota and on B's", running.tail)
    assert [share.get("borrows", False) for share in _shares(stage, "borrower")] == [False] * 2 + [True] * 4
    before = {name: uids(stage, name) for name in stage.clusters}
    tenants.submit(stage, "owner", workers=4, tenant=tenants.B)
    wait(lambda: stage.where("owner") == "2 east, 2 west", 60, "tenant B has its own back", running.tail)
    wait(lambda: stage.running(8), 60, "both tenants have four workers", running.tail)
    survivors = {name: before[name] & uids(stage, name) for name in stage.clusters}
    assert {name: len(pods) for name, pods in survivors.items()} == {"east": 2, "west": 2}
    wait(lambda: stage.where("borrower") == "2 east, 2 west", 30, "tenant A keeps the rest", running.tail)
    stage.manager.kubectl("delete", "raycluster", "-n", stage.name, "owner")
    wait(lambda: stage.where("borrower") == "4 east, 4 west", 60, "the lost workers come back", running.tail)
    wait(lambda: stage.running(8), 60, "all of A's workers run", running.tail)
    assert all(survivors[name] <= uids(stage, name) for name in stage.clusters), "no survivor was restarted"


def _shares(stage: Stage, job: str) -> list[dict[str, object]]:
    shares: list[dict[str, object]] = stage.placement(job)["spec"]["shares"]
    return shares
