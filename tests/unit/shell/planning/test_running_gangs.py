"""A gang that runs and lacks workers has its place in the scheduling order, like a gang that waits for its start."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from adapter import names
from adapter.actions import Plan
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.planning import ordering
from adapter.planning.rounds import PlanResult
from tests.unit import builders
from tests.unit.builders import make_placement, make_workload
from tests.unit.stores import Sight, fill, make_template

STARVED = -ordering.STARVED_AFTER.total_seconds() - 60
HOURS_AGO = -3 * 60 * 60


def gang(name: str, count: int, *, created: float = 0, priority: int = 0, **more: Any) -> Raw:
    raw = make_workload(name=name, groups={"workers": count}, **more)
    raw["metadata"]["creationTimestamp"] = builders.stamp(created)
    raw["spec"]["priority"] = priority
    for podset in raw["spec"]["podSets"]:
        podset["template"] = make_template("1")
    return raw


def running(name: str, count: int, **more: Any) -> Raw:
    return gang(name, count, check=names.CHECK_READY, **more)


def placed(workload: Raw, since: float | None = None, **shares: int) -> Raw:
    """Its Placement with so many workers in each cluster; `since`: since when the others wait for a slot."""
    raw = make_placement(workload, shares={cluster: {"workers": count} for cluster, count in shares.items()})
    raw["spec"]["waitingSince"] = None if since is None else builders.stamp(since)
    return raw


def plan(sight: Sight, workload: Raw, now: datetime = builders.START) -> PlanResult:
    policy, _ = sight.facts.policies.policy_of(builders.CHECK)
    return asyncio.run(sight.planning.plan_gang(parse_workload(workload), builders.CHECK, policy, (), now))


def workers(result: PlanResult) -> Mapping[str, int]:
    return {share.cluster: share.workers for share in result.plan.shares}


def note_no_capacity(sight: Sight, placement: Raw, unusable_slots: Mapping[str, int] | None = None) -> None:
    """The last plan of this gang found nothing, and nothing has changed since."""
    version = sight.fleet.capacity_versions.version
    sight.memory.note_plan(placement["metadata"]["uid"], version, None, None, unusable_slots or {})


@pytest.mark.parametrize("priority", [0, 1000], ids=["it is older", "its priority is higher"])
@pytest.mark.parametrize(
    ("shares", "unusable_slots", "policy", "want"),
    [
        pytest.param({}, {}, {}, {}, id="all of its workers were lost"),
        pytest.param({"west": 2}, {}, {}, {}, id="four of its six workers were lost"),
        pytest.param({"west": 2, "north": 4}, {}, {}, {}, id="four of its six workers must leave a drained cluster"),
        pytest.param({"west": 6}, {"workers": 4}, {}, {}, id="four of its six workers did not start in time"),
        pytest.param({"west": 2}, {}, {"gang": "BestEffort", "minWorkers": 2}, {}, id="it started with two workers"),
        pytest.param({"west": 2}, {}, {"gang": "SameCluster"}, {"east": 4}, id="it must stay in a full cluster"),
        pytest.param({"west": 6}, {}, {}, {"east": 4}, id="it lacks no worker"),
    ],
)
def test_a_running_gang_that_lacks_workers_is_planned_before_a_younger_one(
    shares: Mapping[str, int], unusable_slots: Mapping[str, int], policy: Raw, want: Mapping[str, int], priority: int
) -> None:
    """Its four workers fit into east, and the younger gang of four would take their capacity."""
    sight = Sight({"east": 4, "west": 0, "north": 0}, **policy)
    sight.members["north"].spec = sight.members["north"].spec.model_copy(update={"draining": True})
    old, young = running("old", 6, created=HOURS_AGO, priority=priority), gang("young", 4)
    placement = placed(old, HOURS_AGO, **shares)
    if not shares:
        fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(6))
    fill(sight.manager.workloads, old, young)
    fill(sight.manager.placements, placement)
    note_no_capacity(sight, placement, unusable_slots)
    sight.fleet.capacity_versions.mark_all_changed()
    assert workers(plan(sight, young)) == want


@pytest.mark.parametrize(("move_from", "want"), [("north", {}), ("", {"east": 4})], ids=["it moves", "it stays"])
def test_a_running_gang_that_its_job_moves_is_planned_before_a_younger_one(
    move_from: str, want: Mapping[str, int]
) -> None:
    sight = Sight({"east": 4, "west": 0, "north": 0})
    old, young = running("old", 6, created=HOURS_AGO), gang("young", 4)
    annotations = {names.MOVE_FROM_ANNOTATION: move_from}
    fill(sight.manager.ray_jobs, {"metadata": builders.make_meta("train", uid="uid-of-job", annotations=annotations)})
    young["metadata"]["ownerReferences"][0] |= {"name": "another", "uid": "uid-of-another"}
    placement = placed(old, HOURS_AGO, west=2, north=4)
    fill(sight.manager.workloads, old, young)
    fill(sight.manager.placements, placement)
    note_no_capacity(sight, placement)
    sight.fleet.capacity_versions.mark_all_changed()
    assert workers(plan(sight, young)) == want


def test_a_running_gang_whose_workers_are_withheld_takes_nothing_from_a_younger_one() -> None:
    """The manager cluster refuses their pods, so they could not use the capacity."""
    sight = Sight({"east": 4, "west": 0})
    old, young = running("old", 6, created=HOURS_AGO), gang("young", 4)
    placement = placed(old, HOURS_AGO, west=2)
    fill(sight.manager.workloads, old, young)
    fill(sight.manager.placements, placement)
    uid, version = placement["metadata"]["uid"], sight.fleet.capacity_versions.version
    sight.memory.note_plan(uid, version, None, None, withheld_workers={"workers": 4})
    sight.fleet.capacity_versions.mark_all_changed()
    assert workers(plan(sight, young)) == {"east": 4}


def test_a_running_gang_whose_worker_group_has_no_share_is_planned_before_a_younger_one() -> None:
    """Its spare slots are of another group, and there is capacity for either gang."""
    sight = Sight({"east": 4, "west": 0})
    old, young = running("old", 2, created=HOURS_AGO), gang("young", 4)
    old["spec"]["podSets"].append({"name": "more", "count": 4, "template": make_template("1")})
    placement = placed(old, HOURS_AGO, west=6)
    fill(sight.manager.workloads, old, young)
    fill(sight.manager.placements, placement)
    note_no_capacity(sight, placement)
    sight.fleet.capacity_versions.mark_all_changed()
    assert workers(plan(sight, young)) == {}


@pytest.mark.parametrize(
    ("policy", "since", "want"),
    [
        pytest.param({}, STARVED, {}, id="it has waited for long"),
        pytest.param({"gang": "SameCluster"}, STARVED, {}, id="it has waited for long, and needs one cluster"),
        pytest.param({}, -60, {"east": 1}, id="it lost them a minute ago"),
        pytest.param({}, None, {"east": 1}, id="no plan has recorded yet since when it waits"),
    ],
)
def test_a_running_gang_that_has_waited_long_for_lost_workers_holds_capacity(
    policy: Raw, since: float | None, want: Mapping[str, int]
) -> None:
    """It needs two workers at once, a quarter of eight; one fits."""
    sight = Sight({"east": 8}, **policy)
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(8, used=7))
    old, young = running("old", 8, created=HOURS_AGO), gang("young", 1)
    placement = placed(old, since)
    fill(sight.manager.workloads, old, young)
    fill(sight.manager.placements, placement)
    note_no_capacity(sight, placement)
    result = plan(sight, young)
    assert workers(result) == want
    assert ("Capacity is held for RayJob train" in result.hold_note) is not bool(want)


def test_a_running_gang_pauses_by_the_time_since_it_lost_its_workers() -> None:
    """It ran for a week. It holds for as long as it has waited since, not as long as it ran."""
    sight = Sight({"east": 8})
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(8, used=7))
    old, young = running("old", 8, created=-7 * 24 * 60 * 60), gang("young", 1)
    placement = placed(old, STARVED)
    fill(sight.manager.workloads, old, young)
    fill(sight.manager.placements, placement)
    note_no_capacity(sight, placement)
    (hold,) = plan(sight, young).holds
    assert hold.until - builders.START < ordering.HOLD_PERIOD


# --- elastic jobs ----------------------------------------------------------------------------------------------------


def elastic(name: str, count: int, **more: Any) -> Raw:
    raw = running(name, count, owner="RayCluster", **more)
    raw["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    return raw


def with_elastic_job(sight: Sight, workload: Raw, placement: Raw, created: float) -> None:
    """An elastic job's object runs, and its Placement belongs to it."""
    owner = workload["metadata"]["ownerReferences"][0]
    job = builders.make_meta(owner["name"], uid=owner["uid"], creationTimestamp=builders.stamp(created))
    fill(sight.manager.ray_clusters, {"metadata": job, "spec": {"suspend": False}})
    placement["spec"]["job"] = {"apiVersion": "ray.io/v1", **{key: owner[key] for key in ("kind", "name", "uid")}}
    fill(sight.manager.placements, placement)


@pytest.mark.parametrize("hours", [0, 1, 24, 240])
def test_an_old_elastic_job_that_wants_more_leaves_capacity_to_a_gang_that_waits_for_longer(hours: int) -> None:
    """The job is a week old, wants a hundred workers for ever, and got its last one five minutes ago."""
    now = builders.START + timedelta(hours=hours, minutes=7)
    since = (now - builders.START).total_seconds() - 300
    sight = Sight({"east": 8})
    grows, big = elastic("grows", 100, created=-60), gang("big", 8, created=HOURS_AGO)
    big["metadata"]["ownerReferences"][0]["uid"] = "uid-of-big-job"
    fill(sight.manager.workloads, grows, big)
    with_elastic_job(sight, grows, placed(grows, since, west=4), created=-7 * 24 * 60 * 60)
    assert workers(plan(sight, big, now)) == {"east": 8}
    action = Plan(parse_workload(grows), None, (), parse_placement(placed(grows, west=4)).shares)
    _, made, _, _ = asyncio.run(sight.planning.plan_round(action, now))
    assert made.shares == ()


@pytest.mark.parametrize(
    ("since", "slice_created", "want"),
    [
        pytest.param(-400, -900, {}, id="it waits for longer since its last worker"),
        pytest.param(-60, -900, {"east": 1}, id="it got a worker a minute ago"),
        pytest.param(None, -400, {}, id="it asked for more a while ago"),
        pytest.param(None, -60, {"east": 1}, id="it asked for more a minute ago"),
    ],
)
def test_an_elastic_job_grows_in_the_order_of_its_wait_for_more_workers(
    since: float | None, slice_created: float, want: Mapping[str, int]
) -> None:
    """There is capacity for the two workers that it lacks, or for a gang that waits for five minutes."""
    sight = Sight({"east": 2})
    grows, young = elastic("grows", 3, created=slice_created), gang("young", 1, created=-300)
    fill(sight.manager.workloads, grows, young)
    with_elastic_job(sight, grows, placed(grows, since, east=1), created=HOURS_AGO)
    assert workers(plan(sight, young)) == want


def test_an_elastic_job_that_waits_for_its_start_has_the_age_of_its_job() -> None:
    """Its Workload was made anew a minute ago."""
    sight = Sight({"east": 2})
    starts, young = elastic("starts", 2, created=-60), gang("young", 1, created=-300)
    starts["status"]["admissionChecks"][0]["state"] = names.CHECK_PENDING
    fill(sight.manager.workloads, starts, young)
    with_elastic_job(sight, starts, placed(starts), created=HOURS_AGO)
    (job,) = sight.manager.ray_clusters
    fill(sight.manager.ray_clusters, {**job, "spec": {"suspend": True}})
    assert workers(plan(sight, young)) == {}


def test_a_same_cluster_elastic_job_that_must_leave_its_cluster_holds_capacity() -> None:
    """All of its workers move together, so a single free slot does not suffice."""
    sight = Sight({"east": 4, "west": 4}, gang="SameCluster")
    sight.members["west"].spec = sight.members["west"].spec.model_copy(update={"draining": True})
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(4, used=2))
    moves, young = elastic("moves", 4, created=HOURS_AGO), gang("young", 1, created=STARVED + 1)
    placement = placed(moves, STARVED, west=4)
    fill(sight.manager.workloads, moves, young)
    with_elastic_job(sight, moves, placement, created=HOURS_AGO)
    note_no_capacity(sight, placement)
    assert workers(plan(sight, young)) == {}
