"""What a gang is planned on: the snapshot of the clusters, less what the gangs before it take or hold."""

import asyncio
import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from adapter import names
from adapter.actions import Deactivate, Plan
from adapter.gang import messages as explain
from adapter.objects.placement import MAX_CONSIDERED_CLUSTERS, parse_placement
from adapter.objects.unstructured import MAX_TEXT_LENGTH
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.planning import ordering
from adapter.planning.capacity import STATUS_LAG
from adapter.planning.rounds import PlanResult
from adapter.shell.kube.client import Client
from adapter.shell.observe.transient_state import REACTIVATED_WITHIN, TransientState
from tests.unit import builders
from tests.unit.builders import make_check, make_placement, make_policy, make_reservation, make_workload
from tests.unit.stores import Sight, fill, make_ray_job, make_template

LONG_AGO = -ordering.STARVED_AFTER.total_seconds() - 60


def gang(name: str, *groups: int, created: float = 0, cores: str = "1", **more: Any) -> Raw:
    """A Workload with one worker group for each count."""
    raw = make_workload(name=name, groups={f"workers{n}": count for n, count in enumerate(groups)}, **more)
    raw["metadata"]["creationTimestamp"] = builders.stamp(created)
    for podset in raw["spec"]["podSets"]:
        podset["template"] = make_template(cores)
    return raw


def without_room(sight: Sight, work: Raw, *, is_plan_current: bool, **more: Any) -> None:
    """Let a gang have a Placement without shares, planned since room changed last or not."""
    place = make_placement(work, shares={}, **more)
    place["metadata"] |= {"uid": f"of-{work['metadata']['name']}", "name": f"place-{work['metadata']['name']}"}
    sight.manager.placements.replace([*sight.manager.placements, place])
    if is_plan_current:
        sight.memory.planned_versions[place["metadata"]["uid"]] = sight.fleet.capacity_versions.version


def test_the_worker_groups_of_a_gang_come_from_its_job() -> None:
    """A group named submitter counts if the job has no submitter. A group without workers is gated but not placed."""
    sight, raw = Sight({"east": 9}), make_workload(groups={"workers": 2, "spare": 0, "submitter": 1})
    job = {**make_ray_job(), "metadata": {"name": builders.JOB, "namespace": builders.NAMESPACE, "uid": "uid-of-job"}}
    fill(sight.manager.workloads, raw)

    def groups(mode: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        fill(sight.manager.ray_jobs, {**job, "spec": {**job["spec"], "submissionMode": mode}})
        facts = sight.facts.gang_observer.facts((builders.NAMESPACE, raw["metadata"]["name"]), builders.START)
        return facts.job.remote_podsets, facts.job.idle_podsets

    assert groups("K8sJobMode") == (("workers",), ("spare",))
    assert groups("HTTPMode") == (("workers", "submitter"), ("spare",))


def planned(sight: Sight, me: Raw, check: str = builders.CHECK) -> PlanResult:
    planning = sight.planning
    return asyncio.run(
        planning.plan_gang(parse_workload(me), check, sight.facts.policies.policy_of(check)[0], (), builders.START)
    )


def again(sight: Sight, me: Raw, now: datetime = builders.START) -> tuple[Mapping[str, int], datetime | None]:
    """What a gang is promised, and when to plan it again unasked."""
    planning = sight.planning
    _, made, settles, _ = asyncio.run(planning.plan_round(Plan(parse_workload(me), None, ()), now))
    return {share.cluster: share.workers for share in made.shares}, settles


def test_slots_of_workers_that_do_not_start_are_replanned() -> None:
    """Both have a slot in east; when one of these is no place, one more is sought."""
    sight = Sight({"east": 8, "west": 8})
    work = gang("train", 2)
    fill(sight.manager.workloads, work)
    place = parse_placement(make_placement(work, shares={"east": {"workers0": 2}}))
    for without, want in ({}, 0), ({"workers0": 1}, 1):
        action = Plan(parse_workload(work), place, (), place.shares, unusable_slots=without)
        _, made, _, _ = asyncio.run(sight.planning.plan_round(action, builders.START))
        assert sum(share.workers for share in made.shares) == want


def taken(made: PlanResult) -> Mapping[str, int]:
    return {share.cluster: share.workers for share in made.plan.shares}


@pytest.mark.parametrize("is_plan_current", [True, False])
def test_the_capacity_hold_of_a_starved_gang_lasts_until_its_next_plan(is_plan_current: bool) -> None:
    """Room came: a small gang that is planned before the starved one had its look must not take it."""
    sight = Sight({"east": 4})
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(4, used=2))
    old, me = gang("old", 4, created=LONG_AGO), gang("me", 2)
    fill(sight.manager.workloads, old, me)
    without_room(sight, old, is_plan_current=is_plan_current)
    made = planned(sight, me)
    assert taken(made) == {} and "Capacity is held for RayJob train" in made.hold_note


@pytest.mark.parametrize("age", [LONG_AGO, -60])
def test_a_gang_that_queued_again_is_planned_after_a_younger_one(age: float) -> None:
    """However long ago it was submitted, it neither takes nor holds the capacity that it gave back."""
    sight = Sight({"east": 4})
    back, young = gang("back", 4, created=age), gang("young", 4, created=-30)
    requeued = builders.make_condition(names.REQUEUED, since=-10, reason=names.BACKOFF_FINISHED)
    back["status"]["conditions"].append(requeued)
    fill(sight.manager.workloads, back, young)
    assert taken(planned(sight, young)) == {"east": 4}
    assert taken(planned(sight, back)) == {}


# --- pauses ----------------------------------------------------------------------------------------------------------

PAUSE = datetime(2026, 1, 2, 3, 15, tzinfo=UTC)  # the next one after START of a gang that waits since LONG_AGO


def held_back() -> tuple[Sight, Raw]:
    """A gang of two behind a starved gang of four that other load keeps from starting."""
    sight = Sight({"east": 4})
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(4, used=2))
    old, me = gang("old", 4, created=LONG_AGO), gang("me", 2)
    fill(sight.manager.workloads, old, me)
    without_room(sight, old, is_plan_current=True)
    return sight, me


def test_a_gang_held_back_is_replanned_when_the_pause_begins() -> None:
    sight, me = held_back()
    assert again(sight, me) == ({}, PAUSE)
    assert again(sight, me, PAUSE) == ({"east": 2}, None)


def test_a_gang_held_back_is_replanned_earlier_for_another_reason() -> None:
    """A share that its cluster may count already is deducted once more for a moment."""
    sight, me = held_back()
    first = gang("first", 1, created=-9)
    place = make_placement(first, shares={"east": {"workers0": 1}})
    fill(sight.manager.workloads, *sight.manager.workloads, first)
    fill(sight.manager.placements, *sight.manager.placements, place)
    fill(sight.members["east"].workloads, make_reservation(place))
    assert again(sight, me, builders.at(1)) == ({}, builders.START + STATUS_LAG)
    assert again(sight, me, builders.at(4)) == ({}, PAUSE)


def test_a_gang_held_back_from_preemption_is_replanned() -> None:
    """Nothing is free that could be kept; what gangs of lower priority would leave is."""
    sight, me = held_back()
    preempts: Raw = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(4, used=4, **preempts))
    usage = [{"name": "r", "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "2"}}]
    theirs: Raw = {"conditions": [builders.make_condition(names.QUOTA_RESERVED)]}
    theirs["admission"] = {"clusterQueue": "team-a", "podSetAssignments": usage}
    fill(sight.members["east"].workloads, {"metadata": builders.make_meta("theirs"), "spec": {}, "status": theirs})
    for raw in sight.manager.workloads:
        raw["spec"]["priority"] = 5
    me["spec"]["priority"] = 5
    assert again(sight, me) == ({}, PAUSE)
    assert again(sight, me, PAUSE) == ({"east": 2}, None)


def test_preemption_depends_on_the_priority_limit_of_a_cluster() -> None:
    """Also where nothing else has changed there since the last plan."""
    sight, me = Sight({"east": 4}), gang("me", 2)
    me["spec"]["priority"] = 5
    member = sight.members["east"]
    preempts: Raw = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    fill(member.cluster_queues, builders.make_cluster_queue(4, used=4, **preempts))
    usage = [{"name": "r", "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "2"}}]
    theirs: Raw = {"conditions": [builders.make_condition(names.QUOTA_RESERVED)]}
    theirs["admission"] = {"clusterQueue": "team-a", "podSetAssignments": usage}
    fill(member.workloads, {"metadata": builders.make_meta("theirs"), "spec": {"priority": 3}, "status": theirs})
    fill(sight.manager.workloads, me)
    for most, want in ((None, {"east": 2}), (3, {}), (4, {"east": 2})):
        member.spec = member.spec.model_copy(update={"max_priority": most})
        assert again(sight, me) == (want, None), most


def test_in_a_pause_the_older_gang_is_first() -> None:
    """All that are held back plan again in the same moment."""
    sight, me = held_back()
    young = gang("young", 2, created=1)
    fill(sight.manager.workloads, *sight.manager.workloads, young)
    without_room(sight, me, is_plan_current=True)
    sight.memory.replan_at["of-me"] = PAUSE
    assert again(sight, young, PAUSE) == ({}, None)


# --- out of the manager's queue for a moment -------------------------------------------------------------------------


def left(work: Raw, **changes: Any) -> Raw:
    """Its Workload once Kueue has taken the quota back, in a layout in which the check is limited to flavors."""
    found: Raw = copy.deepcopy(work)
    found["spec"]["active"] = False
    found["status"] = {"conditions": [builders.make_condition(names.QUOTA_RESERVED, status=False)]}
    found["metadata"] |= changes
    return found


def back(work: Raw) -> Raw:
    return {**left(work), "spec": work["spec"]}


def no_check_yet(work: Raw) -> Raw:
    return {**work, "status": {**work["status"], "admissionChecks": []}}


@pytest.mark.parametrize(
    ("now", "shown", "since", "want"),
    [
        pytest.param(
            1,
            lambda old: {**old, "spec": left(old)["spec"]},
            LONG_AGO,
            {},
            id="deactivated, Kueue has not evicted it yet",
        ),
        pytest.param(1, left, LONG_AGO, {}, id="deactivated and evicted"),
        pytest.param(7, back, LONG_AGO, {}, id="reactivated and queued"),
        pytest.param(7, no_check_yet, LONG_AGO, {}, id="quota reserved, admission check not listed yet"),
        pytest.param(10, back, LONG_AGO, {"east": 2}, id="another gang has the quota"),
        pytest.param(1, left, -60, {"east": 2}, id="not starved"),
        pytest.param(
            1, lambda old: left(old, uid="another"), LONG_AGO, {"east": 2}, id="the name belongs to another job"
        ),
        pytest.param(
            1, lambda old: left(old, deletionTimestamp="x"), LONG_AGO, {"east": 2}, id="the Workload is deleted"
        ),
    ],
)
def test_a_deactivated_gang_keeps_its_capacity_hold(
    now: float, shown: Callable[[Raw], Raw], since: float, want: Mapping[str, int]
) -> None:
    sight, me = held_back()
    old = gang("old", 4, created=since)
    sight.memory.note_deactivated(parse_workload(old), builders.START)
    fill(sight.manager.workloads, shown(old), me)
    fill(sight.manager.placements)
    until = None if want else builders.START + REACTIVATED_WITHIN
    assert again(sight, me, builders.at(now)) == (want, until)


def test_a_reactivated_gang_counts_once() -> None:
    """It counts once, as a gang to plan, and may use its capacity hold."""
    sight, me = held_back()
    old = gang("old", 2, created=LONG_AGO)
    sight.memory.note_deactivated(parse_workload(old), builders.START)
    fill(sight.manager.workloads, old, me)
    fill(sight.manager.placements)
    assert again(sight, me, builders.at(7)) == ({}, None)
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(4))
    assert again(sight, me, builders.at(7)) == ({"east": 2}, None)


def test_a_gang_without_a_capacity_hold_keeps_none() -> None:
    """A deactivated gang is not planned; the capacity that it would take is free for gangs after it."""
    sight, me = held_back()
    old = gang("old", 2, created=-60)
    sight.memory.note_deactivated(parse_workload(old), builders.START)
    fill(sight.manager.workloads, left(old), me)
    assert again(sight, me, builders.at(1)) == ({"east": 2}, None)


def test_an_old_record_of_a_deactivated_gang_is_dropped() -> None:
    memory = TransientState()
    memory.note_deactivated(parse_workload(gang("a", 1)), builders.START)
    memory.note_deactivated(parse_workload(gang("b", 1)), builders.START + REACTIVATED_WITHIN)
    assert list(memory.deactivated) == ["uid-of-b"]


async def test_a_deactivation_is_recorded_before_it_is_observed() -> None:
    """The watch may precede the answer, and a gang planned then must not take the capacity."""
    sight, _ = held_back()
    old = gang("old", 4, created=LONG_AGO)

    noted: list[bool] = []

    class Manager:
        async def merge_patch(self, *_: object) -> Raw:
            noted.append("uid-of-old" in sight.memory.deactivated)
            return left(old)

    sight.manager.client = cast(Client, Manager())
    executor = sight.executor(sight.manager.client)
    await executor.execute(Deactivate(parse_workload(old)))
    assert noted == [True]


# --- what could never be used ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        pytest.param((9,), "it is cordoned", id="a cluster that it needs is cordoned"),
        pytest.param((4, 4), "", id="each worker group fits an empty fleet, but not both"),
    ],
)
def test_a_gang_that_fits_no_empty_fleet_holds_no_capacity(groups: tuple[int, ...], problem: str) -> None:
    sight = Sight({"east": 4, "west": 2, "north": 9} if problem else {"east": 4, "west": 2})
    if problem:
        sight.members["north"].spec = sight.members["north"].spec.model_copy(update={"cordoned": True})
    old, me = gang("old", *groups, created=LONG_AGO), gang("me", 2)
    fill(sight.manager.workloads, old, me)
    without_room(sight, old, is_plan_current=True)
    assert taken(planned(sight, me)) == {"east": 2}


def test_groups_that_together_exceed_every_quota_are_reported() -> None:
    sight = Sight({"east": 4, "west": 2})
    made = planned(sight, gang("me", 4, 4)).plan
    assert made.never_fits and "Even empty clusters hold only 6: raise a quota" in made.sentence


def test_an_earlier_gang_is_planned_by_its_own_policy() -> None:
    """Its policy names a cluster that this gang's does not: it needs both, and loses neither to this gang."""
    sight = Sight({"east": 2, "west": 2})
    other = make_check(policy="other") | {"metadata": {"name": "other"}}
    sight.manager.checks.replace([make_check(), other])
    sight.manager.policies.replace([make_policy(clusters=["east", "west"]), make_policy("other", clusters=["west"])])
    first, me = gang("first", 4, created=-9), gang("me", 2, checks=["other"])
    fill(sight.manager.workloads, first, me)
    assert taken(planned(sight, me, "other")) == {}
    fill(sight.manager.workloads, me)
    assert taken(planned(sight, me, "other")) == {"west": 2}


def test_an_earlier_gang_is_not_planned_on_a_cluster_that_did_not_admit_it() -> None:
    sight = Sight({"east": 2})
    first, me = gang("first", 2, created=-9), gang("me", 2)
    fill(sight.manager.workloads, first, me)
    without_room(sight, first, is_plan_current=False, excluded={"east": 60})
    assert taken(planned(sight, me)) == {"east": 2}


def test_a_gang_that_withdraws_a_round_keeps_its_order() -> None:
    """None of its shares counts, and it is replanned once they are deleted."""
    sight = Sight({"east": 2})
    first, me = gang("first", 2, created=-9), gang("me", 2)
    fill(sight.manager.workloads, first, me)
    sight.manager.placements.replace([make_placement(first, shares={"east": {"workers0": 2}}, withdrawn=1)])
    assert taken(planned(sight, me)) == {}


def elastic(raw: Raw) -> Raw:
    raw["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    raw["metadata"]["ownerReferences"][0] |= {"kind": "RayCluster"}
    return raw


@pytest.mark.parametrize(
    ("priority", "gang_policy", "want"),
    [
        pytest.param(1, "AllOrNothing", {"west": 1}, id="an elastic job of higher priority"),
        pytest.param(-1, "AllOrNothing", {"east": 1}, id="an elastic job of lower priority"),
        pytest.param(1, "SameCluster", {"east": 1}, id="an elastic job that must stay in one cluster"),
    ],
)
def test_an_elastic_job_that_waits_to_scale_up_has_its_order(
    priority: int, gang_policy: str, want: Mapping[str, int]
) -> None:
    """It wants two more and has the one place in each cluster: the other gang is planned on what that leaves."""
    sight = Sight({"east": 2, "west": 2}, gang=gang_policy)
    grows, me = elastic(gang("grows", 3, check=names.CHECK_READY)), gang("me", 1)
    grows["spec"]["priority"] = priority
    fill(sight.manager.workloads, grows, me)
    place = make_placement(grows, shares={"west": {"workers0": 1}})
    sight.manager.placements.replace([place])
    assert taken(planned(sight, me)) == want


@pytest.mark.parametrize(("submitted", "want"), [(-900, {}), (-60, {"east": 1})])
def test_an_elastic_job_is_ordered_by_its_age_and_not_by_its_last_scale_up(
    submitted: float, want: Mapping[str, int]
) -> None:
    """There is capacity for its two missing workers, and for no other gang."""
    sight = Sight({"east": 2})
    grows, me = elastic(gang("grows", 3, check=names.CHECK_READY, created=-5)), gang("me", 1, created=-300)
    fill(sight.manager.workloads, grows, me)
    sight.manager.placements.replace([make_placement(grows, shares={"east": {"workers0": 1}})])
    made = builders.make_meta(builders.JOB, uid="uid-of-job", creationTimestamp=builders.stamp(submitted))
    fill(sight.manager.ray_clusters, {"metadata": made, "spec": {"suspend": False}})
    assert taken(planned(sight, me)) == want


@pytest.mark.parametrize("suspended", [True, False])
def test_a_running_elastic_job_is_not_planned_as_a_whole(suspended: bool) -> None:
    """Its next Workload is not admitted yet, and its current shares are counted already."""
    sight = Sight({"east": 2})
    grows, me = elastic(gang("grows", 2, created=-9)), gang("me", 2)
    fill(sight.manager.workloads, grows, me)
    job = {"metadata": builders.make_meta(builders.JOB, uid="uid-of-job"), "spec": {"suspend": suspended}}
    fill(sight.manager.ray_clusters, job)
    assert taken(planned(sight, me)) == ({} if suspended else {"east": 2})


def test_a_gang_that_cannot_be_planned_takes_no_capacity() -> None:
    """A rival check stops it for as long as an admin leaves it there."""
    sight = Sight({"east": 2})
    rival = {"metadata": {"name": "mk"}, "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}
    sight.manager.checks.replace([make_check(), rival])
    first, me = gang("first", 2, created=-9, checks=[builders.CHECK, "mk"]), gang("me", 2)
    fill(sight.manager.workloads, first, me)
    assert sight.facts.policies.rival_checks_problem(parse_workload(first))
    assert taken(planned(sight, me)) == {"east": 2}


def test_an_earlier_gang_without_a_placement_counts() -> None:
    """Kueue puts it on the Workload a moment later; no share is asked for before."""
    sight, work = Sight({"east": 2}), parse_workload(gang("me", 2))
    rival = {"metadata": {"name": "mk"}, "spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}
    sight.manager.checks.replace([make_check(), rival])
    entries = [{"name": builders.CHECK}, {"name": "mk", "onFlavors": ["default"]}]
    listing: Raw = {"admissionChecksStrategy": {"admissionChecks": entries}}
    fill(sight.manager.cluster_queues, builders.make_cluster_queue(2, name="all", **listing))
    assert not sight.facts.policies.rival_checks_problem(work)
    podset = replace(work.podsets[-1], flavors=frozenset({"default"}))
    assert sight.facts.policies.rival_checks_problem(replace(work, podsets=(podset,)))


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(-4, {"east": 2}, id="old enough to be counted"),
        pytest.param(-1, {}, id="too young to be counted"),
        pytest.param(1, {}, id="the cluster's clock is slightly ahead"),
        pytest.param(600, {"east": 2}, id="the cluster's clock is far ahead"),
    ],
)
def test_a_share_is_deducted_until_its_cluster_counts_it(seconds: float, want: Mapping[str, int]) -> None:
    sight = Sight({"east": 4})
    east = sight.members["east"]
    fill(east.cluster_queues, builders.make_cluster_queue(4, used=2))
    first, me = gang("first", 2, created=-9), gang("me", 2)
    fill(sight.manager.workloads, first, me)
    place = make_placement(first, shares={"east": {"workers0": 2}})
    sight.manager.placements.replace([place])
    share = make_reservation(place)
    share["status"]["conditions"] = [builders.make_condition(names.QUOTA_RESERVED, since=seconds)]
    east.workloads.replace([share])
    assert taken(planned(sight, me)) == want


@pytest.mark.parametrize("last", ["now", "before"])
def test_of_two_placements_of_a_gang_the_one_of_this_attempt_counts(last: str) -> None:
    """A Placement of an earlier attempt does not hide the current shares, in any order of the list."""
    sight = Sight({"east": 4})
    first, me = gang("first", 2, created=-9), gang("me", 2)
    fill(sight.manager.workloads, first, me)
    now = make_placement(first, shares={"east": {"workers0": 2}})
    before = make_placement(first, shares={}, attempt="before")
    sight.manager.placements.replace([now, before] if last == "before" else [before, now])
    assert parse_placement(now).attempt != "before"
    assert taken(planned(sight, me)) == {"east": 2}


def test_an_earlier_gang_takes_nothing_where_its_policy_requires_a_preflight() -> None:
    sight = Sight({"east": 2, "west": 2})
    other = make_check(policy="other") | {"metadata": {"name": "other"}}
    sight.manager.checks.replace([make_check(), other])
    strict = make_policy(clusters=["east", "west"], requireReachable=True)
    fill(sight.manager.policies, strict, make_policy("other", clusters=["west"]))
    sight.manager.worker_clusters.replace([builders.make_worker_cluster("east"), builders.make_worker_cluster("west")])
    first, me = gang("first", 4, created=-9), gang("me", 2, checks=["other"])
    fill(sight.manager.workloads, first, me)
    assert taken(planned(sight, me, "other")) == {"west": 2}


# --- what users and fleets may hold ----------------------------------------------------------------------------------

BEYOND: Raw = {"requests": {"cpu": "1"}, "limits": {"memory": "1e402"}}


@pytest.mark.parametrize("podset", [0, 1], ids=["head", "workers"])
def test_an_extreme_limit_delays_no_other_gang(podset: int) -> None:
    """API servers take it, and Kueue counts the request: the gang that has it is planned, and so are all others."""
    sight = Sight({"east": 4})
    odd, me = gang("odd", 4, created=-60), gang("me", 2)
    head = {"name": names.HEAD, "count": 1, "template": make_template("1")}
    odd["spec"]["podSets"] = copy.deepcopy([head, odd["spec"]["podSets"][-1]])
    odd["spec"]["podSets"][podset]["template"]["spec"]["containers"][0]["resources"] = BEYOND
    fill(sight.manager.workloads, odd, me)
    assert planned(sight, me).plan.sentence
    assert planned(sight, odd).plan.sentence


def test_an_unreadable_head_delays_no_other_gang() -> None:
    """No API server takes it today."""
    sight = Sight({"east": 4})
    odd, me = gang("odd", 1, created=-60), gang("me", 2)
    template = copy.deepcopy(make_template("1"))
    template["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1e1.5"}}
    head = {"name": names.HEAD, "count": 1, "template": template}
    odd["spec"]["podSets"] = [head, *odd["spec"]["podSets"]]
    fill(sight.manager.workloads, odd, me)
    assert taken(planned(sight, me)) == {"east": 2}


def leaving(raw: Raw) -> Raw:
    raw["metadata"]["deletionTimestamp"] = builders.stamp(0)
    return raw


def job_of(work: Raw) -> Raw:
    owner = work["metadata"]["ownerReferences"][0]
    return {"kind": "RayJob", "metadata": builders.make_meta(owner["name"], uid=owner["uid"])}


@pytest.mark.parametrize("placed", [False, True], ids=["waits", "runs"])
@pytest.mark.parametrize(("what", "want"), [("", {}), ("workload", {"east": 2}), ("job", {"east": 2})])
def test_a_gang_that_is_being_deleted_takes_no_capacity(placed: bool, what: str, want: Mapping[str, int]) -> None:
    """A finalizer of other software may keep it for hours."""
    sight = Sight({"east": 4})
    first, me = gang("first", 4, created=-300), gang("me", 2)
    job = job_of(first)
    fill(sight.manager.workloads, leaving(first) if what == "workload" else first, me)
    fill(sight.manager.ray_jobs, leaving(job) if what == "job" else job)
    if placed:
        fill(sight.manager.placements, make_placement(first, shares={"east": {"workers0": 4}}))
    assert taken(planned(sight, me)) == want


def test_a_pending_share_that_preempts_is_deducted() -> None:
    """Until its victims are gone there is no room for it, and none for those of lower priority."""
    sight = Sight({"east": 4})
    preempts: Raw = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    fill(sight.members["east"].cluster_queues, builders.make_cluster_queue(4, used=1, **preempts))
    high, me = gang("high", 4, created=-60), gang("me", 3)
    high["spec"]["priority"] = 10
    place = make_placement(high, shares={"east": {"workers0": 4}})
    fill(sight.manager.workloads, high, me)
    fill(sight.manager.placements, place)
    assert taken(planned(sight, me)) == {"east": 3}
    (share,) = place["spec"]["shares"]
    fill(sight.manager.placements, {**place, "spec": {**place["spec"], "shares": [{**share, "preempts": True}]}})
    assert taken(planned(sight, me)) == {}


def test_the_status_for_a_large_fleet_can_be_written() -> None:
    sight = Sight({f"{number:03}-{'x' * 59}": 0 for number in range(150)})
    me = gang("me", 2)
    fill(sight.manager.workloads, me)
    planning = sight.planning
    body, _, _, _ = asyncio.run(planning.plan_round(Plan(parse_workload(me), None, ()), builders.START))
    said = body["spec"]["explanation"]
    assert len(said) == MAX_TEXT_LENGTH and said.endswith("…")
    assert len(body["spec"]["considered"]) == MAX_CONSIDERED_CLUSTERS


def test_the_status_of_a_wide_gang_can_be_written() -> None:
    place = parse_placement(
        make_placement(gang("me", 100), shares={f"{n:03}-{'x' * 59}": {"workers0": 1} for n in range(100)})
    )
    status = explain.placed_status(replace(place, explanation="y" * 99_999), builders.START)
    assert (len(str(status["where"])), len(str(status["reason"]))) == (2048, MAX_TEXT_LENGTH)


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ({}, [4]),
        ({"borrowingShares": 8}, [2, 1, 1]),
        ({"borrowingShares": 1}, [2, 2]),
        ({"borrowingShares": 8, "onShareLost": "Restart"}, [4]),
        ({"borrowingShares": 8, "gang": "SameCluster"}, [4]),
        ({"borrowingShares": 8, "gang": "SameCluster", "onShareLost": "Replace"}, [2, 1, 1]),
    ],
)
def test_a_policy_divides_what_borrows_where_a_lost_share_costs_only_its_own_workers(
    policy: Raw, want: list[int]
) -> None:
    sight = Sight({"east": 9}, **policy)
    queues = (builders.make_cluster_queue(2, name=name, cohortName="all") for name in ("team-a", "lender"))
    fill(sight.members["east"].cluster_queues, *queues)
    work = gang("train", 4)
    fill(sight.manager.workloads, work)
    body, *_ = asyncio.run(sight.planning.plan_round(Plan(parse_workload(work), None, ()), builders.START))
    assert [share["groups"][0]["count"] for share in body["spec"]["shares"]] == want
