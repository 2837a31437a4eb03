"""Decisions for elastic jobs: for each workload slice, for scale-up, and for shares that are not needed any more."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.actions import (
    Action,
    Deactivate,
    DeletePlacement,
    DeleteShare,
    EmitEvent,
    Plan,
    RequeueAfter,
    Reserve,
    RetargetPlacement,
    SetCheck,
    UpdatePlacementStatus,
)
from adapter.gang import elastic, group_slots
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.placement import GroupShare, PlacementState, Share, placement_name
from adapter.objects.placement import parse_placement as read_placement
from adapter.objects.rayjob import read_ray_cluster
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from tests.unit.builders import CHECK, at, make_placement, make_reservation, make_target, make_workload
from tests.unit.fact_builders import make_gang, with_facts

NOW = at(5)


def slice_of(number: int, *, workers: int = 2, groups: Mapping[str, int] | None = None, **more: Any) -> Raw:
    """A Workload of an elastic RayCluster; `reason` says why it is finished, `marked` is the label of its templates."""
    reason, marked = more.pop("reason", ""), more.pop("marked", "")
    raw = make_workload(
        name=f"train-{number}",
        owner="RayCluster",
        groups=groups or {"workers": workers},
        conditions=[*more.pop("conditions", ()), *([names.FINISHED] if reason else [])],
        **more,
    )
    raw["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    raw["metadata"]["creationTimestamp"] = at(number).strftime("%Y-%m-%dT%H:%M:%SZ")
    for condition in raw["status"]["conditions"]:
        if condition["type"] == names.FINISHED:
            condition["reason"] = reason
    if marked:
        for podset in raw["spec"]["podSets"]:
            podset["template"] = {"metadata": {"labels": {names.PLACEMENT_LABEL: marked}}, "spec": {"containers": []}}
    return raw


def chain_of(work: Raw, **more: Any) -> Raw:
    """The Placement of the job, as a plan for that slice left it."""
    raw = make_placement(work, **{"shares": {"east": {"workers": 2}}, **more})
    job = parse_workload(work).job
    assert job
    raw["metadata"]["name"] = placement_name(parse_workload(work))
    raw["metadata"]["resourceVersion"] = "7"
    raw["spec"]["job"] = {"kind": job.kind, "name": job.name, "uid": job.uid, "apiVersion": job.api_version}
    return raw


FIRST = slice_of(1, check=names.CHECK_READY)
NEXT = slice_of(2, workers=4)
NEXT_READY = slice_of(2, workers=4, check=names.CHECK_READY)
PLACED: Raw = {"placedRound": 1, "state": PlacementState.PLACED}
RUNNING = chain_of(FIRST, **PLACED)
FOLLOWED = chain_of(NEXT_READY, **PLACED)
NAME = RUNNING["metadata"]["name"]


def gang(work: Raw | None, place: Raw | None = RUNNING, *, stands: bool = True, **more: Any) -> Gang:
    found = (read_placement(place),) if place else ()
    held = {"east": make_reservation(place)} if place and stands and place["spec"]["shares"] else {}
    plain: Raw = {
        "check": CHECK if work else "",
        "reservation_timeout": timedelta(seconds=30),
        "unsuspended": True,
        "shares_with_pods": frozenset({("east", 1)}),
    }
    return make_gang(
        workload=parse_workload(work) if work else None,
        placements=found,
        targets={c: make_target(c) for c in ("east", "west")},
        reservations=tuple(parse_reservation(cluster, raw) for cluster, raw in held.items()),
        **plain | more,
    )


def kinds(actions: list[Action]) -> list[str]:
    return [type(action).__name__ for action in actions if not isinstance(action, EmitEvent | RequeueAfter)]


def only(actions: list[Action], kind: type) -> Any:
    found = [action for action in actions if isinstance(action, kind)]
    assert len(found) == 1, actions
    return found[0]


def test_a_running_job_goes_on_with_its_next_slice_at_once() -> None:
    actions = decide(gang(NEXT, idle_podsets=("spare",)), NOW)
    assert kinds(actions) == ["RetargetPlacement", "SetCheck"]
    pointed, said = only(actions, RetargetPlacement), only(actions, SetCheck)
    assert (pointed.placement.resource_version, pointed.workload.name, pointed.wanted_workers) == ("7", "train-2", 4)
    assert said.state == names.CHECK_READY
    assert [(u["name"], u["labels"]) for u in said.podset_updates] == [
        ("workers", {names.PLACEMENT_LABEL: NAME}),
        ("spare", {names.PLACEMENT_LABEL: NAME}),
    ]


@pytest.mark.parametrize("trouble", ["rejection", "planning_problem", "missing_object"])
def test_nothing_stops_a_running_job(trouble: str) -> None:
    more: Raw = {trouble: "It cannot."}
    actions = decide(gang(NEXT, quota_contended_from=at(0), **more), at(10_000))
    assert only(actions, SetCheck).state == names.CHECK_READY
    assert not any(isinstance(action, Deactivate | DeleteShare | DeletePlacement) for action in actions)
    assert "It cannot." in only(actions, EmitEvent).message


def test_a_share_that_is_being_deleted_does_not_delay_a_slice() -> None:
    """A share of a withdrawn round may take its time."""
    facts = gang(NEXT)
    left = parse_reservation("west", make_reservation(RUNNING, round=9, deleting=True))
    actions = decide(with_facts(facts, reservations=(*facts.shares.reservations, left)), NOW)
    assert only(actions, SetCheck).state == names.CHECK_READY


def test_after_a_crash_between_two_writes_the_second_is_made() -> None:
    pointed = chain_of(NEXT, **PLACED)
    assert kinds(decide(gang(NEXT, pointed), NOW)) == ["SetCheck"]


def test_a_slice_of_a_job_that_does_not_run_is_planned_as_a_whole() -> None:
    """It was edited in the queue, or stopped while the controller was down: its shares are deleted first."""
    first = decide(gang(NEXT, unsuspended=False), NOW)
    assert kinds(first) == ["DeleteShare"]
    plan = only(decide(gang(NEXT, stands=False, unsuspended=False), NOW), Plan)
    assert (plan.placement.name, plan.kept_shares) == (NAME, None)


def test_the_first_slice_is_planned_as_a_whole() -> None:
    plan = only(decide(gang(slice_of(1), None, unsuspended=False), NOW), Plan)
    assert (plan.placement, plan.kept_shares) == (None, None)


@pytest.mark.parametrize(
    "work",
    [slice_of(1, reserved=None), slice_of(1, conditions=[names.EVICTED]), slice_of(1, active=False)],
    ids=["not reserved", "evicted", "deactivated"],
)
def test_a_job_that_loses_the_managers_quota_keeps_its_placement_without_shares(work: Raw) -> None:
    actions = decide(gang(work), NOW)
    assert kinds(actions) == ["DeleteShare", "RetargetPlacement"]
    assert only(actions, RetargetPlacement).drops_shares
    empty = chain_of(FIRST, shares={}, **PLACED)
    told = decide(gang(work, empty), NOW)
    assert (
        kinds(told) == ["UpdatePlacementStatus"]
        and only(told, UpdatePlacementStatus).status["state"] == PlacementState.WAITING
    )


def test_a_replaced_slice_without_a_successor_deletes_nothing() -> None:
    replaced = slice_of(1, check=names.CHECK_READY, reason=names.SLICE_REPLACED)
    assert kinds(decide(gang(replaced), NOW)) == []


def test_a_finished_job_gives_its_shares_back() -> None:
    actions = decide(gang(slice_of(1, check=names.CHECK_READY, reason="Succeeded")), NOW)
    assert kinds(actions) == ["DeleteShare", "UpdatePlacementStatus"]
    assert only(actions, UpdatePlacementStatus).status["state"] == PlacementState.ENDED


@pytest.mark.parametrize("facts", [gang(None), gang(FIRST, deleted=True)], ids=["no Workload", "no job"])
def test_a_deleted_job_leaves_no_shares(facts: Gang) -> None:
    assert "DeleteShare" in kinds(decide(facts, NOW))


@pytest.mark.parametrize("shares", [{}, {"east": {"workers": 2}}], ids=["no share stands", "a share is reserved"])
def test_a_queued_job_that_is_scaled_down_is_planned_for_its_new_size(shares: Raw) -> None:
    work = slice_of(1, workers=2)
    place = chain_of(work, shares=shares)
    assert "Plan" not in kinds(decide(gang(work, place, unsuspended=False), NOW))
    work["spec"]["podSets"][1]["count"] = 1
    actions = decide(gang(work, place, unsuspended=False), NOW)
    if not shares:
        assert only(actions, Plan).kept_shares is None
        return
    body = only(actions, UpdatePlacementStatus).status
    assert body["withdrawnRound"] == 1 and body["reason"].startswith("The job now wants 1 workers instead of 2, so")


def test_an_unchanged_job_needs_nothing() -> None:
    assert not set(kinds(decide(gang(FIRST), NOW))) - {"UpdatePlacementStatus"}


def test_a_scale_up_is_planned_beside_the_standing_shares() -> None:
    plan = only(decide(gang(NEXT_READY, FOLLOWED, changed_since_plan=True), NOW), Plan)
    assert [(share.cluster, share.workers) for share in plan.kept_shares] == [("east", 2)]


def test_a_scale_up_without_capacity_waits_with_a_message() -> None:
    actions = decide(gang(NEXT_READY, FOLLOWED), NOW)
    said = only(actions, EmitEvent)
    assert said.reason == "Waiting" and said.message.startswith(
        "2 of 4 workers are placed: 2 east; the others start as soon as there is capacity"
    )
    assert only(actions, UpdatePlacementStatus).status["workers"] == "2 of 4"
    assert not any(isinstance(action, Plan | SetCheck) for action in actions)


@pytest.mark.parametrize("impatience", ["", "Ray's autoscaler keeps it for an hour."])
def test_a_waiting_job_is_warned_of_the_autoscalers_timeout(impatience: str) -> None:
    """A job that does not wait gets no warning."""
    waits = decide(gang(NEXT_READY, FOLLOWED, waiting_warning=impatience), at(1))
    assert ("AutoscalerTimeout" in {one.reason for one in waits if isinstance(one, EmitEvent)}) is bool(impatience)
    assert not any(isinstance(action, EmitEvent) for action in decide(gang(FIRST, waiting_warning=impatience), at(1)))


def test_the_message_names_the_groups_that_wait() -> None:
    work = slice_of(2, groups={"gpu": 3, "cpu": 2}, check=names.CHECK_READY)
    place = chain_of(work, shares={"east": {"gpu": 1, "cpu": 2}}, **PLACED)
    said = only(decide(gang(work, place, remote_podsets=("gpu", "cpu")), NOW), EmitEvent)
    assert said.message.startswith(
        "3 of 5 workers are placed: 3 east; the others (2 gpu) start as soon as there is capacity"
    )


def test_a_round_of_a_scale_up_is_asked_for_while_the_rest_stands() -> None:
    grown = chain_of(NEXT_READY, round=2, **PLACED)
    grown["spec"]["shares"][0]["round"] = 1
    grown["spec"]["shares"].append({"cluster": "west", "groups": [{"name": "workers", "role": "r", "count": 2}]})
    facts = gang(NEXT_READY, grown)
    held = parse_reservation("east", make_reservation(grown, round=1))
    asked = only(decide(with_facts(facts, reservations=(held,)), NOW), Reserve)
    assert (asked.share.cluster, asked.starts_gang) == ("west", False)


@pytest.mark.parametrize(("wanted", "needed"), [(3, True), (2, False)])
def test_a_round_that_is_not_needed_any_more_is_withdrawn(wanted: int, needed: bool) -> None:
    work = slice_of(2, workers=wanted, check=names.CHECK_READY)
    grown = chain_of(work, round=2, **PLACED)
    grown["spec"]["shares"][0]["round"] = 1
    grown["spec"]["shares"].append({"cluster": "west", "groups": [{"name": "workers", "role": "r", "count": 2}]})
    held = parse_reservation("east", make_reservation(grown, round=1))
    actions = decide(with_facts(gang(work, grown), reservations=(held,)), NOW)
    assert ("Reserve" in kinds(actions)) is needed
    withdrawn = [action.status.get("withdrawnRound") for action in actions if isinstance(action, UpdatePlacementStatus)]
    assert (2 in withdrawn) is not needed


def shrunk(wanted: int) -> tuple[Raw, Raw]:
    """A job with a share of two workers in each of two clusters, which wants `wanted` workers now."""
    work = slice_of(2, workers=wanted, check=names.CHECK_READY)
    place = chain_of(work, shares={"east": {"workers": 2}, "west": {"workers": 2}}, **PLACED)
    return work, place


@pytest.mark.parametrize(
    ("wanted", "on", "kept"),
    [
        (2, {"east"}, ["east"]),  # the empty share goes
        (3, {"east"}, ["east", "west"]),  # a third worker has its slot there
        (2, {"east", "west"}, ["east", "west"]),  # one worker on each: no share is empty
        (0, set(), []),
    ],
)
def test_an_empty_share_that_is_not_needed_is_deleted(wanted: int, on: set[str], kept: list[str]) -> None:
    work, place = shrunk(wanted)
    both = tuple(parse_reservation(cluster, make_reservation(place)) for cluster in ("east", "west"))
    occupied = frozenset((cluster, 1) for cluster in on)
    remote = ("workers",) if wanted else ()
    facts = with_facts(gang(work, place, shares_with_pods=occupied, remote_podsets=remote), reservations=both)
    plans = [action for action in decide(facts, NOW) if isinstance(action, Plan)]
    assert ([share.cluster for share in plans[0].kept_shares or ()] if plans else ["east", "west"]) == kept


def test_a_placement_follows_a_slice_that_shrinks_in_place() -> None:
    work, place = shrunk(4)
    work["spec"]["podSets"][1]["count"] = 3
    pointed = only(decide(gang(work, place), NOW), RetargetPlacement)
    assert (pointed.wanted_workers, pointed.drops_shares) == (3, False)


def test_slots_of_one_group_do_not_serve_another() -> None:
    work = slice_of(2, groups={"a": 1, "b": 3}, check=names.CHECK_READY)
    place = chain_of(work, shares={"east": {"a": 3, "b": 1}}, **PLACED)
    facts = gang(work, place, remote_podsets=("a", "b"), changed_since_plan=True)
    assert kinds(decide(facts, NOW))[-1] == "Plan"


def test_a_job_that_started_without_remote_workers_scales_up() -> None:
    work = slice_of(2, workers=2, marked=placement_name(parse_workload(FIRST)))
    said = only(decide(gang(work, None), NOW), SetCheck)
    assert said.state == names.CHECK_READY and said.podset_updates
    ready = slice_of(2, workers=2, check=names.CHECK_READY, marked=NAME)
    ready["status"]["admissionChecks"][0]["podSetUpdates"] = list(said.podset_updates)
    plan = only(decide(gang(ready, None), NOW), Plan)
    assert (plan.placement, plan.kept_shares) == (None, ())


def test_a_job_that_ran_in_the_manager_before_its_queue_was_ours_stays_there() -> None:
    said = only(decide(gang(NEXT, None), NOW), SetCheck)
    assert (said.state, said.podset_updates, said.message) == (names.CHECK_READY, (), elastic.NOT_DISPATCHED_MESSAGE)
    assert decide(gang(NEXT_READY, None), NOW) == []


@pytest.mark.parametrize("policy", ["Replace", "Restart"])
def test_an_empty_share_is_lost_without_an_event(policy: str) -> None:
    lost = decide(gang(FIRST, stands=False, on_share_lost=policy), NOW)
    assert (
        kinds(lost) == ["Plan"]
        and only(lost, Plan).lost_reason == ""
        and not any(isinstance(one, EmitEvent) for one in lost)
    )
    missed = decide(
        gang(FIRST, stands=False, on_share_lost=policy, shares_with_manager_pods=frozenset({("east", 1)})), NOW
    )
    assert kinds(missed) == (["SetCheck"] if policy == "Restart" else ["Plan"])
    assert only(missed, EmitEvent).reason == "ShareLost"


MARKED: Raw = {"metadata": {"labels": {names.PLACEMENT_LABEL: NAME}}}


@pytest.mark.parametrize(
    ("work", "job", "slices", "want"),
    [
        pytest.param(slice_of(1), {}, [], False, id="no mark and no slice says so"),
        pytest.param(slice_of(2, marked=NAME), {}, [], True, id="the next slice has marked templates"),
        pytest.param(slice_of(2, marked="other"), {}, [], False, id="the next slice has another mark"),
        pytest.param(
            slice_of(1),
            {"spec": {"workerGroupSpecs": [{}, {"template": MARKED}]}},
            [],
            True,
            id="the job's templates are marked",
        ),
        pytest.param(
            slice_of(1), {}, [slice_of(1), slice_of(1, conditions=[names.ADMITTED])], True, id="an admitted slice"
        ),
    ],
)
def test_a_job_that_kueue_started_is_recognised(work: Raw, job: Raw, slices: list[Raw], want: bool) -> None:
    assert elastic.was_started_by_kueue(parse_workload(work), ["workers"], read_ray_cluster(job), slices) is want


def _share(number: int, counts: Mapping[str, int]) -> Share:
    return Share("east", tuple(GroupShare(name, name, count) for name, count in counts.items() if count), round=number)


GROUPS = st.fixed_dictionaries({"a": st.integers(0, 3), "b": st.integers(0, 3)})


@given(wanted=GROUPS, counts=st.lists(GROUPS, max_size=6), busy=st.sets(st.integers(0, 5)))
def test_spare_shares_are_not_needed_and_all_others_are(
    wanted: dict[str, int], counts: list[dict[str, int]], busy: set[int]
) -> None:
    shares = [_share(number, one) for number, one in enumerate(counts, 1)]
    empty = [share for number, share in enumerate(shares) if number not in busy]
    groups = tuple(name for name, count in wanted.items() if count)
    facts = gang(slice_of(1, groups=wanted), remote_podsets=groups)
    gone = group_slots.surplus_shares(facts, empty, places(shares))
    left = [share for share in shares if share not in gone]
    assert group_slots.unplaced_by_group(facts, places(left)) == group_slots.unplaced_by_group(facts, places(shares))
    assert not group_slots.surplus_shares(facts, [share for share in empty if share in left], places(left))


def places(shares: list[Share]) -> Counter[str]:
    return sum((Counter({g.name: g.count for g in share.groups}) for share in shares), Counter[str]())
