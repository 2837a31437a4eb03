"""Deeds that people do beside the gangs: a job that KubeRay rejects, a deleted Placement, a short readiness clock."""

from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from adapter.objects.kuberay_rules import kuberay_faults
from hack.testbed import kueueconfig
from hack.testbed.clusters import Clusters
from hack.testbed.kuberay_refusals import KUBERAY_REFUSALS
from hack.testbed.reader import Raw
from hack.testbed.readinessclock import SET, SET_BACK, ReadinessClock, with_clock
from hack.testbed.stage import Stage
from hack.trials.chaos import faults, rejections
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground, Load
from hack.trials.chaos.picking import NOBODY


def fault(kind: str, number: int = 1, pick: int = 0) -> Fault:
    return Fault(number, kind, "", "", 0.0, "", False, pick)


class Manager:
    """A cluster that records the orders it takes."""

    name = "mgr"

    def __init__(self, *placements: str) -> None:
        self.orders: list[str] = []
        self._placements: list[Raw] = [{"metadata": {"name": name}} for name in placements]

    def apply(self, text: str) -> None:
        made = yaml.safe_load(text)
        self.orders.append(f"apply {made['kind']} {made['metadata']['name']}")

    def kubectl(self, *words: str) -> None:
        self.orders.append(" ".join(words))

    def items(self, kind: str, namespace: str) -> list[Raw]:
        assert (kind, namespace) == ("placements", "chaos")
        return self._placements

    def get(self, kind: str, name: str) -> Raw:
        assert kind == "workercluster"
        return {"spec": {"podsReadyTimeout": "30m"} if name == "east" else {}}


def ground(manager: Manager) -> Ground:
    fleet = SimpleNamespace(manager=manager, workers={"east": manager, "west": manager})
    stage = Stage(cast(Clusters, fleet), "chaos")
    place = SimpleNamespace(load=Load(stage, 1), stage=stage, cluster=lambda name: manager)
    return cast(Ground, place)


def test_each_reason_to_be_rejected_by_kuberay_comes_in_its_turn() -> None:
    jobs = [
        rejections.rejected_job("chaos", fault("job-rejected", pick, pick)) for pick in range(len(KUBERAY_REFUSALS))
    ]
    assert len({job["metadata"]["name"] for job in jobs}) == len(jobs)
    assert {job["kind"] for job in jobs} == {"RayCluster", "RayJob"}
    assert all(kuberay_faults(job["kind"], job) for job in jobs)


def test_a_rejected_job_stands_until_the_next_fault() -> None:
    manager = Manager()
    place = ground(manager)
    name = faults.DEEDS["job-rejected"](place, fault("job-rejected", 12, 3))
    assert manager.orders == [f"apply RayCluster {name}"]
    assert set(place.load.rejected) == {name}
    place.load.struck()
    assert not place.load.rejected
    assert manager.orders[1].startswith(f"-n chaos delete RayCluster {name} ")


@pytest.mark.parametrize(
    ("placements", "want"),
    [pytest.param((), NOBODY, id="none is there"), pytest.param(("gang-2-b", "gang-1-a"), "gang-2-b", id="one of two")],
)
def test_a_placement_is_deleted_by_hand(placements: tuple[str, ...], want: str) -> None:
    manager = Manager(*placements)
    assert faults.DEEDS["placement-deleted"](ground(manager), fault("placement-deleted", pick=1)) == want
    deletes = [f"-n chaos delete placements.rayspan.dev {want} --ignore-not-found --wait=false"]
    assert manager.orders == (deletes if placements else [])


def test_the_readiness_clock_is_set_to_a_minute_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, done = Manager(), list[str]()
    monkeypatch.setattr(kueueconfig, "restart", lambda clusters: done.append(f"restart {len(clusters)}"))
    monkeypatch.setattr(kueueconfig, "changed", lambda cluster, change: _Config(done))
    stage, clock = ground(manager).stage, ReadinessClock()
    assert clock.turn(stage) == SET
    assert done == ["change", "change", "change", "restart 3"]
    assert [order.split()[-1] for order in manager.orders] == ['"1m"}}', '"1m"}}']
    assert clock.turn(stage) == SET_BACK
    assert done[4:] == ["restore", "restore", "restore", "restart 3"]
    assert [order.split()[-1] for order in manager.orders[2:]] == ["null}}", '"30m"}}']
    clock.set_back()
    assert len(done) == 8, "it is right already"


class _Config:
    """Kueue's configuration as it is changed for a while."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def __enter__(self) -> None:
        self._done.append("change")

    def __exit__(self, *_: object) -> None:
        self._done.append("restore")


def test_an_evicted_workload_queues_again_at_once() -> None:
    changed = with_clock({"kind": "Configuration", "waitForPodsReady": {"timeout": "30m"}})
    assert changed["waitForPodsReady"]["timeout"] == changed["waitForPodsReady"]["recoveryTimeout"] == "1m"
    assert changed["waitForPodsReady"]["requeuingStrategy"]["backoffBaseSeconds"] == 1
    assert changed["kind"] == "Configuration"
