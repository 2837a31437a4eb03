"""A share that a lagging cluster status does not count is deducted; an affected gang is planned again later."""

import asyncio
import copy
from datetime import datetime, timedelta
from typing import cast

import pytest

from adapter import names
from adapter.actions import Plan
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import format_time
from adapter.objects.workload import parse_workload
from adapter.planning.capacity import STATUS_LAG
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.controller import wiring
from adapter.shell.planning.plans import GangPlanner
from tests.unit import stores
from tests.unit.builders import START, make_cluster_queue, make_placement, make_reservation, make_workload
from tests.unit.stores import Members, Sight, fill, make_template


def two(name: str, check: str) -> Raw:
    """A gang of two workers that ask for a core each."""
    made = make_workload(name=name, check=check, groups={"workers": 2})
    for podset in made["spec"]["podSets"]:
        podset["template"] = make_template("1")
    return made


FIRST, SECOND = two("rayjob-first", names.CHECK_READY), two("rayjob-second", names.CHECK_PENDING)
PLACE = make_placement(FIRST, shares={"east": {"workers": 2}})
MOMENT = timedelta(seconds=1)


def planning(used: int, share: Raw | None = None, queue: Raw | None = None) -> GangPlanner:
    """Two of east's four cores are reserved for the first gang since START, and its status shows `used`."""
    sight = Sight({"east": 4})
    fill(sight.manager.workloads, FIRST, SECOND)
    fill(sight.manager.placements, PLACE)
    fill(sight.members["east"].workloads, share or make_reservation(PLACE))
    fill(sight.members["east"].cluster_queues, queue or make_cluster_queue(4, used=used))
    return wiring.build_planner(sight.manager, cast(Fleet, Members(sight.members.values())), sight.facts, sight.memory)


def test_a_gang_is_replanned_when_no_share_is_counted_twice() -> None:
    plans, plan = planning(used=2), Plan(parse_workload(SECOND), None, ())
    _, made, settles, _ = asyncio.run(plans.plan_round(plan, START + MOMENT))
    assert (made.shares, settles) == ((), START + STATUS_LAG)
    _, made, settles, _ = asyncio.run(plans.plan_round(plan, START + STATUS_LAG))
    assert (sum(share.workers for share in made.shares), settles) == (2, None)


@pytest.mark.parametrize(("queue", "fits"), [(9, 2), (6, 0)])
def test_a_queue_that_was_written_after_the_share_counts_it(queue: int, fits: int) -> None:
    """A gang that waits for the rest need not wait until the delay is over."""
    share, written = make_reservation(PLACE), make_cluster_queue(4, used=2)
    share["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"] = "7", str(queue)
    share["status"]["admission"] = {"clusterQueue": written["metadata"]["name"]}
    _, made, _, _ = asyncio.run(
        planning(2, share, written).plan_round(Plan(parse_workload(SECOND), None, ()), START + MOMENT)
    )
    assert sum(each.workers for each in made.shares) == fits


@pytest.mark.parametrize("ahead", [-600.0, 600.0])
def test_the_age_of_a_share_counts_by_its_clusters_clock(ahead: float) -> None:
    share = make_reservation(PLACE)
    for condition in share["status"]["conditions"]:
        condition["lastTransitionTime"] = format_time(START + timedelta(seconds=ahead))
    plans = planning(2, share)
    stores.put_clock_ahead(plans._snapshot._fleet.caches()["east"], ahead)
    _, made, settles, _ = asyncio.run(plans.plan_round(Plan(parse_workload(SECOND), None, ()), START + MOMENT))
    assert (made.shares, settles) == ((), START + STATUS_LAG)


def test_an_uncounted_share_is_deducted() -> None:
    _, made, _, _ = asyncio.run(planning(used=0).plan_round(Plan(parse_workload(SECOND), None, ()), START + MOMENT))
    assert sum(share.workers for share in made.shares) == 2


@pytest.mark.parametrize(
    ("since", "fits"),
    [
        pytest.param(START, 2, id="the same quota"),
        pytest.param(START + MOMENT, 0, id="quota that was lost and reserved again"),
    ],
)
def test_later_writes_of_kueue_make_a_share_no_younger(since: datetime, fits: int) -> None:
    share, written = make_reservation(PLACE), make_cluster_queue(4, used=2)
    share["metadata"]["resourceVersion"], written["metadata"]["resourceVersion"] = "7", "9"
    share["status"]["admission"] = {"clusterQueue": written["metadata"]["name"]}
    plans, later = planning(2, share, written), copy.deepcopy(share)
    later["metadata"]["resourceVersion"] = "12"
    for condition in later["status"]["conditions"]:
        condition["lastTransitionTime"] = format_time(since)
    plans._snapshot._fleet.caches()["east"].workloads.put(later)
    _, made, _, _ = asyncio.run(plans.plan_round(Plan(parse_workload(SECOND), None, ()), START + 2 * MOMENT))
    assert sum(each.workers for each in made.shares) == fits
