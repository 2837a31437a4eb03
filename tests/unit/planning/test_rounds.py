"""A gang is planned on what those before it leave, and its plan becomes the next round of its Placement."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest

from adapter import actions, names
from adapter.admission.policy import ResolvedPolicy
from adapter.objects.placement import Exclusion, GroupShare, Placement, Share, parse_placement, placement_name
from adapter.objects.specs import parse_dispatch_policy
from adapter.objects.workload import parse_workload
from adapter.planning import ordering, rounds
from adapter.planning.ordering import WaitingGang
from adapter.planning.plan_request import (
    Candidate,
    GangRequest,
    GroupRequest,
    kept_clusters,
    remaining_request,
    scale_up_request,
)
from adapter.planning.planner import GangPlan
from adapter.planning.rounds import CapacityHold, PlanRequest, PlanResult, RemainingCapacity
from adapter.quota import tree
from adapter.rewrite.dry_run_pod import DryRunResult
from tests.unit.builders import (
    NAMESPACE,
    QUEUE,
    START,
    at,
    make_cluster_queue,
    make_flavor,
    make_placement,
    make_policy,
    make_workload,
)

LONG_AGO = -ordering.STARVED_AFTER.total_seconds() - 60
UNTIL = datetime(2026, 1, 2, 3, 15, tzinfo=UTC)  # the next pause of a gang that waits since LONG_AGO


def cluster(name: str, cores: int, *, used: int = 0, problem: str = "") -> Candidate:
    found = tree.build([make_cluster_queue(cores, used=used)], [], [make_flavor()])
    return Candidate(name, problem, found, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}})


def asking(workers: int, *clusters: str, **more: Any) -> PlanRequest:
    group = GroupRequest("workers", "role-workers", workers, {}, {"cpu": 1000, "pods": 1})
    return PlanRequest(GangRequest(NAMESPACE, QUEUE, (group,)), clusters or ("east", "west"), **more)


def waiting(name: str = "first", *, looked: bool = False, created: float = -9) -> WaitingGang:
    return WaitingGang(replace(parse_workload(make_workload(name=name)), created_at=at(created)), looked)


def taken(made: PlanResult) -> Mapping[str, int]:
    return {share.cluster: share.workers for share in made.plan.shares}


def after(ahead: rounds.GangsAhead, fleet: Sequence[Candidate]) -> RemainingCapacity:
    return reduce(
        lambda left, pair: rounds.capacity_after(pair[0], pair[1], left, START), ahead, RemainingCapacity(fleet)
    )


CORDONED = Exclusion("east", at(60), "it did not admit in time")


@pytest.mark.parametrize(
    ("ahead", "me", "fleet", "want", "kept"),
    [
        pytest.param([], asking(4), [cluster("east", 2), cluster("west", 4)], {"east": 2, "west": 2}, False, id="nobody is before it"),
        pytest.param([(waiting(), asking(3))], asking(2), [cluster("east", 2), cluster("west", 4)], {"west": 2}, False, id="the first takes what it can"),
        pytest.param([(waiting(), asking(2, "west"))], asking(2), [cluster("east", 2), cluster("west", 2)], {"east": 2}, False, id="and goes where its own policy sends it"),
        pytest.param([(waiting(), asking(9))], asking(2), [cluster("east", 2)], {"east": 2}, False, id="one that does not fit takes nothing"),
        pytest.param([(waiting(created=LONG_AGO), asking(4))], asking(2), [cluster("east", 4, used=2)], {}, True, id="unless it waited long: it keeps what it could use"),
        pytest.param([(waiting(created=LONG_AGO, looked=True), asking(4))], asking(2), [cluster("east", 4, used=2)], {}, True, id="also once it was planned"),
        pytest.param([(waiting(created=LONG_AGO, looked=True), asking(9))], asking(2), [cluster("east", 4, used=2)], {"east": 2}, False, id="but not what could never be enough"),
        pytest.param([(waiting(looked=True), asking(2))], asking(2), [cluster("east", 2)], {"east": 2}, False, id="one that was planned, and found nothing, takes nothing"),
        pytest.param([(waiting(), asking(2, exclusions=[CORDONED]))], asking(2), [cluster("east", 2)], {"east": 2}, False, id="it does not ask a cluster that did not admit it"),
        pytest.param([(waiting(), asking(2, unproven_clusters={"east": "no preflight"}))], asking(2), [cluster("east", 2)], {"east": 2}, False, id="nor one that its policy passes over"),
        pytest.param([(waiting("a"), asking(1)), (waiting("b"), asking(1))], asking(2), [cluster("east", 3), cluster("west", 1)], {"east": 1, "west": 1}, False, id="one after the other"),
        pytest.param([], asking(2, exclusions=[CORDONED]), [cluster("east", 2), cluster("west", 2)], {"west": 2}, False, id="nor does it itself"),
        pytest.param([], asking(2, "west", "east"), [cluster("east", 2), cluster("west", 2)], {"west": 2}, False, id="its policy's order, not the fleet's"),
    ],
)  # fmt: skip
def test_what_those_before_it_leave(
    ahead: rounds.GangsAhead, me: PlanRequest, fleet: Sequence[Candidate], want: Mapping[str, int], kept: bool
) -> None:
    made = rounds.plan_gang(me, after(ahead, fleet))
    assert taken(made) == want
    assert made.hold_note == (" Room is kept for RayJob train, which waited longer." if kept else "")
    assert made.replan_at(None) == (UNTIL if kept else None)


@pytest.mark.parametrize(
    ("whose", "said"),
    [
        ([NAMESPACE, "theirs"], "RayJob train, a job of another namespace"),
        (["theirs", "theirs"], "2 jobs of other namespaces"),
        (["theirs"], "a job of another namespace"),
    ],
)
def test_who_waited_longer_is_named_to_those_of_the_same_namespace(whose: list[str], said: str) -> None:
    job = waiting().workload.job
    assert job is not None
    holds = [CapacityHold(replace(job, namespace=namespace), UNTIL) for namespace in whose]
    made = PlanResult(asking(1).request, (), GangPlan((), (), "No room."), holds)
    assert made.hold_note == f" Room is kept for {said}, which waited longer."


@pytest.mark.parametrize(
    ("me", "fleet", "why"),
    [
        pytest.param(asking(2, exclusions=[CORDONED]), cluster("east", 2, problem="it is cordoned"), CORDONED.reason, id="what it met itself"),
        pytest.param(asking(2, unproven_clusters={"east": "no preflight"}), cluster("east", 2, problem="it is cordoned"), "it is cordoned", id="what is wrong there"),
        pytest.param(asking(2, unproven_clusters={"east": "no preflight"}), cluster("east", 2), "no preflight", id="what its policy wants"),
    ],
)  # fmt: skip
def test_of_several_reasons_one_is_said(me: PlanRequest, fleet: Candidate, why: str) -> None:
    (verdict,) = rounds.plan_gang(me, RemainingCapacity([fleet])).plan.verdicts
    assert verdict.reason == why


def test_whom_a_plan_involves() -> None:
    ahead = [(waiting(), asking(1, "north", "west")), (waiting(), asking(1, "east"))]
    assert rounds.involved_clusters(asking(1, "west", "south"), ahead) == ["east", "north", "south", "west"]


@pytest.mark.parametrize(
    ("ahead", "freed", "want", "preempts"),
    [
        pytest.param([], 4, {"east": 2}, True, id="they leave enough"),
        pytest.param([], 3, {}, False, id="they do not"),
        pytest.param([(waiting(), asking(1))], 4, {}, False, id="not after those before it"),
    ],
)
def test_a_gang_without_room_takes_that_of_lower_priority(
    ahead: rounds.GangsAhead, freed: int, want: Mapping[str, int], preempts: bool
) -> None:
    me, fleet = asking(2, "east"), [cluster("east", 4, used=4)]
    made = rounds.plan_gang(me, after(ahead, fleet))
    assert taken(made) == {}
    over = rounds.plan_preempting(me, made, after(ahead, [cluster("east", 4, used=6 - freed)]))
    assert taken(over) == want and any(share.preempts for share in over.plan.shares) is preempts
    assert over.plan.sentence.endswith("by preempting gangs of lower priority.") is preempts
    assert over.candidates == made.candidates, "what is told of each cluster is what it has, not what it would have"


@pytest.mark.parametrize(
    ("holds", "shares", "settles", "want"),
    [
        pytest.param([], (), None, None, id="nothing that a clock could tell"),
        pytest.param(
            [CapacityHold(None, at(9)), CapacityHold(None, at(5))], (), None, at(5), id="the first that keeps none"
        ),
        pytest.param([CapacityHold(None, at(9))], (), at(3), at(3), id="what is deducted twice"),
        pytest.param([CapacityHold(None, at(9))], (Share("east", ()),), at(3), None, id="it has room"),
    ],
)
def test_when_it_is_planned_again(
    holds: Sequence[CapacityHold], shares: tuple[Share, ...], settles: Any, want: object
) -> None:
    assert PlanResult(asking(1).request, (), GangPlan(shares, (), ""), holds).replan_at(settles) == want


# --- who is planned at all -------------------------------------------------------------------------------------------

CHOSEN = ResolvedPolicy(parse_dispatch_policy(make_policy()), ("east",))


@pytest.mark.parametrize(
    ("chosen", "obstacles", "want"),
    [
        pytest.param(CHOSEN, ["", ""], CHOSEN, id="nothing is in the way"),
        pytest.param(None, [""], None, id="its policy cannot be read"),
        pytest.param(CHOSEN, ["", "a rival"], None, id="a reason"),
    ],
)
def test_usable(chosen: ResolvedPolicy | None, obstacles: Sequence[str], want: ResolvedPolicy | None) -> None:
    assert rounds.plannable_policy(chosen, obstacles) is want


def test_no_obstacle_is_looked_for_once_there_is_one() -> None:
    """Some cost a look at every pod template, and there may be a thousand gangs."""

    def reasons() -> Iterator[str]:
        yield "a rival"
        raise AssertionError("one is enough")

    assert rounds.plannable_policy(CHOSEN, reasons()) is None


# --- the next round --------------------------------------------------------------------------------------------------

RAW = make_workload(groups={"workers": 4})
WORK = parse_workload(RAW)
EAST = Share("east", (GroupShare("workers", "role-workers", 3),))
WEST = Share("west", (GroupShare("workers", "role-workers", 1),))
FULL = PlanResult(GangRequest(NAMESPACE, QUEUE, ()), (), GangPlan((EAST,), (), "3 of 3 to east."))
REST = replace(FULL, request=asking(1).request, plan=GangPlan((WEST,), (), "1 of 1 worker to west."))


def before(**changes: Any) -> Placement:
    return replace(parse_placement(make_placement(RAW, shares={"east": {"workers": 3}}, round=2)), **changes)


def test_the_first_round() -> None:
    action = actions.Plan(WORK, None, (CORDONED,))
    made = rounds.next_placement(action, REST, 4, at(7))
    assert (made.namespace, made.workload, made.workload_uid, made.attempt) == (
        WORK.namespace, WORK.name, WORK.uid, WORK.attempt,
    )  # fmt: skip
    assert (made.round, made.failed_rounds, made.planned_at, made.wanted_workers) == (1, 0, at(7), 4)
    assert (made.shares, made.exclusions, made.explanation) == ((WEST,), (CORDONED,), "1 of 1 worker to west.")
    assert not made.withdrawing


@pytest.mark.parametrize(
    ("last", "action", "failed_rounds", "lost_reason", "shares"),
    [
        pytest.param(before(), {}, 0, "", (WEST,), id="one after another"),
        pytest.param(before(withdrawn_round=2, failed_rounds=3), {}, 4, "", (WEST,), id="one that was withdrawn"),
        pytest.param(before(failed_rounds=3), {"failures": 2}, 5, "", (WEST,), id="shares whose clusters refuse pods"),
        pytest.param(before(), {"kept_shares": (EAST,)}, 0, "", (replace(EAST, round=2), WEST), id="what stays keeps its round"),
        pytest.param(before(), {"kept_shares": (replace(EAST, round=1),)}, 0, "", (replace(EAST, round=1), WEST), id="also an earlier one"),
        pytest.param(before(lost_reason="east was lost."), {}, 0, "east was lost.", (WEST,), id="why they have no place is said on"),
        pytest.param(before(lost_reason="old"), {"lost_reason": "new"}, 0, "new", (WEST,), id="or said anew"),
    ],
)  # fmt: skip
def test_a_later_round(
    last: Placement, action: Mapping[str, Any], failed_rounds: int, lost_reason: str, shares: tuple[Share, ...]
) -> None:
    made = rounds.next_placement(actions.Plan(WORK, last, (), **action), REST, 4, at(7))
    assert (made.round, made.failed_rounds, made.lost_reason, made.shares) == (3, failed_rounds, lost_reason, shares)
    assert made.explanation == f"{lost_reason} 1 of 1 worker to west.".lstrip()


def test_how_often_workers_did_not_start_is_counted() -> None:
    for closed in (False, True):
        action = actions.Plan(WORK, before(start_timeouts=2), (), start_timed_out=closed)
        assert rounds.next_placement(action, REST, 4, at(7)).start_timeouts == 2 + closed


def test_once_all_have_a_place_nothing_is_lost() -> None:
    made = rounds.complete_result(FULL.request, [EAST, WEST, EAST])
    assert made.plan.sentence == "All workers have a place: 6 east, 1 west."
    assert rounds.next_placement(actions.Plan(WORK, before(lost_reason="old"), ()), made, 4, at(7)).lost_reason == ""


def test_what_a_gang_asks_for_beside_what_it_keeps() -> None:
    groups = tuple(GroupRequest(name, f"role-{name}", count, {}, {}) for name, count in (("a", 6), ("b", 2)))
    kept = Share("east", (GroupShare("a", "role-a", 1), GroupShare("b", "role-b", 2)))
    left = remaining_request(GangRequest("demo", "ray", groups), [kept], ())
    assert [(group.name, group.count) for group in left.groups] == [("a", 5)]
    assert (left.mode, left.needed_workers) == ("BestEffort", 2), "a quarter at once, rounded up"
    assert remaining_request(GangRequest("demo", "ray", groups, mode="SameCluster"), [kept], ()).needed_workers == 5
    assert remaining_request(GangRequest("demo", "ray", groups), [kept, kept, kept, kept, kept, kept], ()).workers == 0
    assert remaining_request(GangRequest("demo", "ray", groups), [kept], {"east"}).workers == 8, (
        "what is drained must leave"
    )
    short = remaining_request(GangRequest("demo", "ray", groups), [kept], (), {"b": 1})
    assert {group.name: group.count for group in short.groups} == {"a": 5, "b": 1}, (
        "nor is a slot where nobody starts a place"
    )


def test_an_elastic_job_grows_by_whatever_fits() -> None:
    group = GroupRequest("workers", "role-workers", 60, {}, {})
    kept = Share("east", (GroupShare("workers", "role-workers", 10),))
    for gang in ("AllOrNothing", "SameCluster", "BestEffort"):
        asked = scale_up_request(GangRequest("demo", "ray", (group,), mode=gang, min_workers=9), [kept], ())
        assert (asked.workers, asked.mode, asked.needed_workers) == (50, "BestEffort", 1)
    drained = scale_up_request(GangRequest("demo", "ray", (group,)), [kept], {"east"})
    assert drained.workers == 60


def test_one_that_must_be_in_one_cluster_grows_there() -> None:
    kept = [Share("west", (GroupShare("workers", "role-workers", 1),))]
    assert kept_clusters(["east", "west"], kept, ()) == ["west"]
    me = replace(asking(3), request=replace(asking(3).request, mode="SameCluster"))
    assert rounds.request_beside_shares(me, kept, (), elastic=True).clusters == ["west"]
    assert rounds.request_beside_shares(me, kept, (), elastic=False).clusters == me.clusters
    assert rounds.request_beside_shares(asking(3), kept, (), elastic=True).clusters == asking(3).clusters


ALONE = Share("west", (GroupShare("workers", "role-workers", 1),), single_worker=True)


@pytest.mark.parametrize(
    ("kept", "gang", "least", "shares", "since"),
    [
        pytest.param(None, "AllOrNothing", {"workers": 1}, (replace(WEST, round=0), replace(ALONE, round=3), replace(ALONE, round=4)), 3, id="what it always has comes together"),
        pytest.param(None, "SameCluster", {}, tuple(replace(ALONE, round=number) for number in (3, 4, 5)), 3, id="it may have none at all"),
        pytest.param(None, "AllOrNothing", None, (Share("west", (GroupShare("workers", "role-workers", 3),)),), 0, id="its job is not known"),
        pytest.param((EAST,), "BestEffort", {"workers": 9}, (replace(EAST, round=2), *(replace(ALONE, round=number) for number in (3, 4, 5))), 3, id="it grows one by one"),
        pytest.param((EAST,), "SameCluster", {}, (replace(EAST, round=2), Share("west", (GroupShare("workers", "role-workers", 3),))), 0, id="it finds another cluster as a whole"),
    ],
)  # fmt: skip
def test_the_shares_of_an_elastic_job(
    kept: Any, gang: Any, least: Mapping[str, int] | None, shares: tuple[Share, ...], since: int
) -> None:
    work = chain(1)
    plan = GangPlan((Share("west", (GroupShare("workers", "role-workers", 3),)),), (), "3 of 3 workers to west.")
    made = replace(REST, request=replace(REST.request, mode=gang), plan=plan)
    action = actions.Plan(work, before(job=work.job, attempt=work.attempt), (), kept)
    place = rounds.next_placement(action, made, 6, at(7), least)
    assert (place.shares, place.first_round_of_plan) == (shares, since)
    assert place.round == max(share.round for share in (*place.shares, replace(EAST, round=3))) + bool(
        since and kept is None and least
    )
    assert [place.is_from_last_plan(share) for share in place.shares] == [share.round != 2 for share in place.shares]
    fixed = rounds.next_placement(replace(action, workload=WORK), made, 6, at(7), least)
    assert fixed.shares == (*([replace(EAST, round=2)] if kept else []), *plan.shares), "no other job is divided"


@pytest.mark.parametrize(
    ("count", "draining", "without"),
    [
        pytest.param(0, set(), {}, id="it has none"),
        pytest.param(1, {"west"}, {}, id="it must leave it"),
        pytest.param(1, set(), {"workers": 1}, id="nobody starts there"),
    ],
)
def test_one_that_must_be_in_one_cluster_and_has_none_finds_one_as_a_whole(
    count: int, draining: set[str], without: dict[str, int]
) -> None:
    kept = [Share("west", (GroupShare("workers", "role-workers", 1),))] * count
    me = replace(asking(3), request=replace(asking(3).request, mode="SameCluster"))
    found = rounds.request_beside_shares(me, kept, draining, without, elastic=True)
    assert (found.request.mode, found.request.needed_workers, found.clusters) == ("SameCluster", 3, me.clusters)


@pytest.mark.parametrize(
    ("tried", "want"),
    [
        pytest.param(DryRunResult(denied_reason="no", valid_until=at(7)), at(7), id="it refuses them"),
        pytest.param(
            DryRunResult(reserved_template={"spec": {}}, request={"cpu": 2000}, valid_until=at(7)),
            at(7),
            id="it adds to them",
        ),
        pytest.param(DryRunResult(unknown_reason="no answer", valid_until=at(7)), None, id="it said nothing"),
    ],
)
def test_who_waits_is_planned_again_when_what_a_cluster_said_counts_no_more(tried: DryRunResult, want: object) -> None:
    """It may say something else by then, and nobody is told of that."""
    (group,) = asking(2).request.groups
    request = replace(asking(2).request, groups=(replace(group, dry_run_results={"east": tried}),))
    made = PlanResult(request, [cluster("east", 1), cluster("west", 1)], GangPlan((), (), "No room."))
    assert made.replan_at(None) == want


def chain(number: int, **more: Any) -> Any:
    raw = make_workload(name=f"train-{number}", owner="RayCluster", **more)
    raw["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    return parse_workload(raw)


def test_the_rounds_of_an_elastic_job_go_on_when_it_starts_anew_and_nothing_else_does() -> None:
    work = chain(1)
    last = before(job=work.job, failed_rounds=3, start_timeouts=2, lost_reason="old", attempt="00000000")
    made = rounds.next_placement(actions.Plan(work, last, ()), REST, 4, at(7))
    assert (made.round, made.failed_rounds, made.start_timeouts, made.lost_reason) == (3, 0, 0, "")
    assert (made.job, made.attempt, made.name) == (work.job, work.attempt, placement_name(work))
    grown = rounds.next_placement(actions.Plan(work, replace(last, attempt=work.attempt), (), (EAST,)), REST, 4, at(7))
    assert (grown.failed_rounds, grown.start_timeouts, grown.lost_reason) == (3, 2, "old")
    placed = replace(last, attempt=work.attempt, placed_round=last.round)
    assert rounds.next_placement(actions.Plan(work, placed, (), (EAST,)), REST, 4, at(7)).failed_rounds == 0, (
        "it succeeded since"
    )


def test_a_plan_for_another_attempt_says_something_new() -> None:
    place = parse_placement(STANDS)
    action = actions.Plan(chain(1), place, (), BOTH)
    assert not rounds.is_unchanged(action, place, {"shares": [{}] * 2, "wanted": 4, "explanation": place.explanation})


def test_who_keeps_what_preemption_would_free_is_waited_for_and_not_named() -> None:
    hold = CapacityHold(waiting().workload.job, UNTIL)
    made = PlanResult(GangRequest(NAMESPACE, QUEUE, ()), (), GangPlan((), (), "No room."), (), (hold,))
    assert (made.hold_note, made.replan_at(None)) == ("", UNTIL)


STANDS = make_placement(make_workload(), explanation="2 in east, 2 in west.")
BOTH = parse_placement(STANDS).shares


@pytest.mark.parametrize(
    ("before", "excluded", "kept", "shares", "sentence", "want"),
    [
        pytest.param(STANDS, (), BOTH, 2, "2 in east, 2 in west.", True, id="all stay, and it reads the same"),
        pytest.param(STANDS, (), BOTH, 2, "2 in east, 2 in north.", False, id="it reads otherwise"),
        pytest.param(STANDS, (), BOTH, 3, "2 in east, 2 in west.", False, id="a share more"),
        pytest.param(STANDS, (), BOTH[:1], 2, "2 in east, 2 in west.", False, id="a share less is kept"),
        pytest.param(STANDS, (), None, 2, "2 in east, 2 in west.", False, id="a first round, which keeps nothing"),
        pytest.param(STANDS, (CORDONED,), BOTH, 2, "2 in east, 2 in west.", False, id="another cluster is not asked"),
        pytest.param(
            make_placement(make_workload(), explanation="2 in east, 2 in west.", excluded={CORDONED.cluster: 5}), (CORDONED,), BOTH, 2,
            "2 in east, 2 in west.", False, id="it is not asked for longer",
        ),
        pytest.param(
            make_placement(make_workload(), explanation="2 in east, 2 in west.", withdrawn=1), (), BOTH, 2,
            "2 in east, 2 in west.", False, id="the one that stands is given up",
        ),
    ],
)  # fmt: skip
def test_a_plan_that_says_nothing_new(
    before: Mapping[str, Any], excluded: tuple[Exclusion, ...], kept: Any, shares: int, sentence: str, want: bool
) -> None:
    place = parse_placement(before)
    action = actions.Plan(parse_workload(make_workload()), place, excluded, kept)
    spec = {"shares": [{}] * shares, "wanted": 4, "explanation": sentence}
    assert rounds.is_unchanged(action, place, spec) is want
    assert not rounds.is_unchanged(action, place, {**spec, "wanted": 3})
