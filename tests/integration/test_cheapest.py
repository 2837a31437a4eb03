"""The strategy Cheapest follows the prices of real WorkerClusters, against the order of the policy.

tests/unit/planning/test_cheapest.py has the order in each class of quota.
"""

import json

import pytest
import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.unstructured import uid_of
from hack.testbed import plandoor
from hack.testbed.clusters import wait
from hack.testbed.controller import Controller
from hack.testbed.stage import Stage, pods_by_cluster, ray_cluster
from hack.testbed.workerclusters import set_prices

pytestmark = pytest.mark.long

DEAR, CHEAP = {"cpu": "9"}, {"cpu": "1"}


@pytest.fixture
def clusters(stage: Stage, running: Controller) -> tuple[str, str]:
    """WorkerClusters of the test's own, in the policy's order: east is dear, and west is cheap."""
    east, west = stage.own("east"), stage.own("west")
    stage.clusters = (east, west)
    set_prices(stage.fleet, {east: DEAR, west: CHEAP})
    return east, west


@pytest.mark.alone  # there is one Service, which leads to its controller
def test_a_gang_fills_the_cheap_cluster_and_spills_as_planned(
    stage: Stage, running: Controller, clusters: tuple[str, str]
) -> None:
    east, west = clusters
    stage.build({"east": 4, "west": 2}, policy={"strategy": "Cheapest"})
    job, config = ray_cluster("pi", stage.name, {"workers": 3}), stage.manager.kubeconfig
    with plandoor.opened(stage.manager, running):
        wait(lambda: plandoor.plan(config, job).returncode == 0, 20, "the controller knows the queues", running.tail)
        planned = json.loads(plandoor.plan(config, job, "-o", "json").stdout)
        table = plandoor.plan(config, job).stdout
    rows = [
        (row["cluster"], row["chosen"], row["pricePerHour"], row["pricePerHourOfAll"]) for row in planned["clusters"]
    ]
    assert rows == [(west, 2, "2.00", "3.00"), (east, 1, "9.00", "27.00")]
    assert "IF ALL" in table and table.endswith(
        f"Fits: 2 of 3 workers to {west}, 1 to {east}.\nPrice per hour: 11.00.\n"
    )

    stage.manager.apply(yaml.safe_dump(job))
    wait(lambda: stage.where("pi") == f"2 {west}, 1 {east}", 60, "it is placed as planned", running.tail)
    placement = stage.placement("pi")["spec"]
    assert placement["explanation"] == planned["sentence"]
    assert [entry["cluster"] for entry in placement["considered"]] == [west, east]


def test_an_edited_price_counts_for_a_scale_up_and_moves_no_worker(
    stage: Stage, running: Controller, clusters: tuple[str, str]
) -> None:
    east, west = clusters
    stage.build({"east": 4, "west": 4}, policy={"strategy": "Cheapest"})
    stage.ray_cluster("pi", workers=2, elastic=4)
    wait(lambda: stage.where("pi") == f"2 {west}" and stage.running(2), 90, "two run in west", running.tail)
    before = {uid_of(pod) for pod in stage.workers()}
    set_prices(stage.fleet, {east: CHEAP, west: DEAR})
    stage.scale("pi", 0, 4)
    wait(lambda: stage.running(4), 90, "it grows", running.tail)
    assert pods_by_cluster(stage.workers()) == {west: 2, east: 2}
    first = {uid_of(pod) for pod in stage.workers() if pod["metadata"]["labels"][names.CLUSTER_LABEL] == west}
    assert first == before


def test_a_gang_that_waits_is_planned_again_by_an_edited_price(
    stage: Stage, running: Controller, clusters: tuple[str, str]
) -> None:
    east, west = clusters

    def considered() -> list[str]:
        return [entry["cluster"] for entry in (stage.placement("pi").get("spec") or {}).get("considered") or ()]

    stage.build({"east": 1, "west": 1}, policy={"strategy": "Cheapest"})
    stage.ray_cluster("pi", workers=3)
    wait(lambda: stage.state("pi") == PlacementState.WAITING, 60, "it waits", running.tail)
    assert considered() == [west, east]
    set_prices(stage.fleet, {east: CHEAP, west: DEAR})
    wait(lambda: considered() == [east, west], 60, "it is planned by the new prices", running.tail)
    stage.set_quota(stage.fleet.workers["east"], 4)
    wait(lambda: stage.where("pi") == f"3 {east}", 60, "all go to the cluster that is cheap now", running.tail)
