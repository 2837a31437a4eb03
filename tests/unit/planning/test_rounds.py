"""A gang is planned on the capacity that earlier gangs leave. Its plan becomes the next round of its Placement."""

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
from adapter.planning import ordering, planner, rounds
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
        pytest.param([], asking(4), [cluster("east", 2), cluster("west", 4)], {"east": 2, "west": 2}, False,
            id="no gang is before it"),
        pytest.param([(waiting(), asking(3))], asking(2), [cluster("east", 2), cluster("west", 4)], {"west": 2}, False,
            id="the earlier gang takes what it can"),
        pytest.param([(waiting(), asking(2, "west"))], asking(2), [cluster("east", 2), cluster("west", 2)], {"east": 2},
            False, id="the earlier gang goes where its own policy sends it"),
        pytest.param([(waiting(), asking(9))], asking(2), [cluster("east", 2)], {"east": 2}, False,
            id="an earlier gang that does not fit takes nothing"),
        pytest.param([(waiting(created=LONG_AGO), asking(4))], asking(2), [cluster("east", 4, used=2)], {}, True,
            id="an earlier gang that waited long holds what it could use"),
        pytest.param([(waiting(created=LONG_AGO, looked=True), asking(4))], asking(2), [cluster("east", 4, used=2)], {},
            True, id="an earlier gang that waited long and was planned holds what it could use"),
        pytest.param([(waiting(created=LONG_AGO, looked=True), asking(9))], asking(2), [cluster("east", 4, used=2)],
            {"east": 2}, False, id="an earlier gang that waited long does not hold what could never be enough"),
        pytest.param([(waiting(looked=True), asking(2))], asking(2), [cluster("east", 2)], {"east": 2}, False,
            id="an earlier gang that was planned and did not fit takes nothing"),
        pytest.param([(waiting(), asking(2, exclusions=[CORDONED]))], asking(2), [cluster("east", 2)], {"east": 2},
            False, id="an earlier gang takes nothing in a cluster that did not admit it"),
        pytest.param([(waiting(), asking(2, unproven_clusters={"east": "no preflight"}))], asking(2),
            [cluster("east", 2)], {"east": 2}, False,
            id="an earlier gang takes nothing in a cluster that its policy passes over"),
        pytest.param([(waiting("a"), asking(1)), (waiting("b"), asking(1))], asking(2),
            [cluster("east", 3), cluster("west", 1)], {"east": 1, "west": 1}, False,
            id="two earlier gangs take capacity in order"),
        pytest.param([], asking(2, exclusions=[CORDONED]), [cluster("east", 2), cluster("west", 2)], {"west": 2}, False,
            id="the gang itself takes nothing in a cluster that did not admit it"),
        pytest.param([], asking(2, "west", "east"), [cluster("east", 2), cluster("west", 2)], {"west": 2}, False,
            id="clusters are filled in the policy's order, not the fleet's"),
    ],
)  # fmt: skip
def test_a_gang_is_planned_on_what_earlier_gangs_leave(
    ahead: rounds.GangsAhead, me: PlanRequest, fleet: Sequence[Candidate], want: Mapping[str, int], kept: bool
) -> None:
    made = rounds.plan_gang(me, after(ahead, fleet))
    assert taken(made) == want
    assert made.hold_note == (" Capacity is held for RayJob train, which waited longer." if kept else "")
    assert made.replan_at(None) == (UNTIL if kept else None)


@pytest.mark.parametrize(
    ("whose", "said"),
    [
        ([NAMESPACE, "theirs"], "RayJob train, a job of another namespace"),
        (["theirs", "theirs"], "2 jobs of other namespaces"),
        (["theirs"], "a job of another namespace"),
    ],
)
def test_the_job_that_waited_longer_is_named_within_its_namespace_only(whose: list[str], said: str) -> None:
    job = waiting().workload.job
    assert job is not None
    holds = [CapacityHold(replace(job, namespace=namespace), UNTIL) for namespace in whose]
    made = PlanResult(asking(1).request, (), GangPlan((), (), "No room."), holds)
    assert made.hold_note == f" Capacity is held for {said}, which waited longer."


@pytest.mark.parametrize(
    ("me", "fleet", "why"),
    [
        pytest.param(asking(2, exclusions=[CORDONED]), cluster("east", 2, problem="it is cordoned"), CORDONED.reason,
            id="the gang's own exclusion comes first"),
        pytest.param(asking(2, unproven_clusters={"east": "no preflight"}),
            cluster("east", 2, problem="it is cordoned"), "it is cordoned",
            id="the cluster's problem comes before the policy's"),
        pytest.param(asking(2, unproven_clusters={"east": "no preflight"}), cluster("east", 2), "no preflight",
            id="the policy's requirement"),
    ],
)  # fmt: skip
def test_a_cluster_has_one_reason(me: PlanRequest, fleet: Candidate, why: str) -> None:
    (verdict,) = rounds.plan_gang(me, RemainingCapacity([fleet])).plan.verdicts
    assert verdict.reason == why


def test_which_gangs_a_plan_involves() -> None:
    ahead = [(waiting(), asking(1, "north", "west")), (waiting(), asking(1, "east"))]
    assert rounds.involved_clusters(asking(1, "west", "south"), ahead) == ["east", "north", "south", "west"]


@pytest.mark.parametrize(
    ("ahead", "freed", "want", "preempts"),
    [
        pytest.param([], 4, {"east": 2}, True, id="earlier gangs leave enough"),
        pytest.param([], 3, {}, False, id="earlier gangs do not leave enough"),
        pytest.param([(waiting(), asking(1))], 4, {}, False, id="its capacity is taken after that of earlier gangs"),
    ],
)
def test_a_gang_without_capacity_takes_that_of_lower_priority(
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
        pytest.param([], (), None, None, id="no known moment"),
        pytest.param(
            [CapacityHold(None, at(9)), CapacityHold(None, at(5))], (), None, at(5), id="the first hold that ends"
        ),
        pytest.param([CapacityHold(None, at(9))], (), at(3), at(3), id="the end of a double deduction"),
        pytest.param([CapacityHold(None, at(9))], (Share("east", ()),), at(3), None, id="the gang fits"),
    ],
)
def test_when_a_gang_is_planned_again(
    holds: Sequence[CapacityHold], shares: tuple[Share, ...], settles: Any, want: object
) -> None:
    assert PlanResult(asking(1).request, (), GangPlan(shares, (), ""), holds).replan_at(settles) == want


# --- which gangs can be planned --------------------------------------------------------------------------------------

CHOSEN = ResolvedPolicy(parse_dispatch_policy(make_policy()), ("east",))


@pytest.mark.parametrize(
    ("chosen", "obstacles", "want"),
    [
        pytest.param(CHOSEN, ["", ""], CHOSEN, id="no obstacle"),
        pytest.param(None, [""], None, id="the policy cannot be read"),
        pytest.param(CHOSEN, ["", "a rival"], None, id="an obstacle"),
    ],
)
def test_plannable_policy(chosen: ResolvedPolicy | None, obstacles: Sequence[str], want: ResolvedPolicy | None) -> None:
    assert rounds.plannable_policy(chosen, obstacles) is want


def test_obstacles_are_checked_only_until_the_first() -> None:
    """Some checks read every pod template, and there may be a thousand gangs."""

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
        pytest.param(before(), {}, 0, "", (WEST,), id="a round after another"),
        pytest.param(before(withdrawn_round=2, failed_rounds=3), {}, 4, "", (WEST,),
            id="a round after a withdrawn one"),
        pytest.param(before(failed_rounds=3), {"failures": 2}, 5, "", (WEST,),
            id="a round after clusters denied its pods"),
        pytest.param(before(), {"kept_shares": (EAST,)}, 0, "", (replace(EAST, round=2), WEST),
            id="a kept share keeps its round"),
        pytest.param(before(), {"kept_shares": (replace(EAST, round=1),)}, 0, "", (replace(EAST, round=1), WEST),
            id="a kept share of an earlier round keeps its round"),
        pytest.param(before(lost_reason="east was lost."), {}, 0, "east was lost.", (WEST,),
            id="the earlier reason of a loss is kept"),
        pytest.param(before(lost_reason="old"), {"lost_reason": "new"}, 0, "new", (WEST,),
            id="a new reason of a loss replaces the earlier one"),
    ],
)  # fmt: skip
def test_a_later_round(
    last: Placement, action: Mapping[str, Any], failed_rounds: int, lost_reason: str, shares: tuple[Share, ...]
) -> None:
    made = rounds.next_placement(actions.Plan(WORK, last, (), **action), REST, 4, at(7))
    assert (made.round, made.failed_rounds, made.lost_reason, made.shares) == (3, failed_rounds, lost_reason, shares)
    assert made.explanation == f"{lost_reason} 1 of 1 worker to west.".lstrip()


NONE = replace(REST, plan=GangPlan((), (), "No capacity."))


@pytest.mark.parametrize(
    ("since", "result", "attempt", "want"),
    [
        pytest.param(None, NONE, WORK.attempt, at(7), id="the wait begins"),
        pytest.param(at(3), NONE, WORK.attempt, at(3), id="the wait goes on"),
        pytest.param(at(9), NONE, WORK.attempt, at(7), id="the clock was put back, and the wait begins again"),
        pytest.param(at(3), NONE, "00000000", at(7), id="the wait was that of an earlier attempt"),
        pytest.param(at(3), replace(REST, request=asking(5).request), WORK.attempt, at(7),
            id="some workers gain a slot, and the wait of the others begins again"),
        pytest.param(at(3), REST, WORK.attempt, None, id="all workers gain a slot"),
        pytest.param(at(3), FULL, WORK.attempt, None, id="no worker lacks a slot"),
    ],
)  # fmt: skip
def test_the_wait_of_workers_without_a_slot(since: Any, result: PlanResult, attempt: str, want: Any) -> None:
    action = actions.Plan(WORK, before(waiting_since=since, attempt=attempt), (), (EAST,))
    assert rounds.next_placement(action, result, 4, at(7)).waiting_since == want


def test_start_timeouts_are_counted() -> None:
    for closed in (False, True):
        action = actions.Plan(WORK, before(start_timeouts=2), (), start_timed_out=closed)
        assert rounds.next_placement(action, REST, 4, at(7)).start_timeouts == 2 + closed


def test_a_complete_gang_has_no_lost_workers() -> None:
    made = rounds.complete_result(FULL.request, [EAST, WEST, EAST])
    assert made.plan.sentence == "All workers are placed: 6 east, 1 west."
    assert rounds.next_placement(actions.Plan(WORK, before(lost_reason="old"), ()), made, 4, at(7)).lost_reason == ""


def test_what_a_gang_requests_beside_its_kept_shares() -> None:
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


def test_an_elastic_job_scales_up_by_as_much_as_fits() -> None:
    group = GroupRequest("workers", "role-workers", 60, {}, {})
    kept = Share("east", (GroupShare("workers", "role-workers", 10),))
    for gang in ("AllOrNothing", "SameCluster", "BestEffort"):
        asked = scale_up_request(GangRequest("demo", "ray", (group,), mode=gang, min_workers=9), [kept], ())
        assert (asked.workers, asked.mode, asked.needed_workers) == (50, "BestEffort", 1)
    drained = scale_up_request(GangRequest("demo", "ray", (group,)), [kept], {"east"})
    assert drained.workers == 60


def test_a_running_same_cluster_job_stays_in_its_cluster() -> None:
    kept = [Share("west", (GroupShare("workers", "role-workers", 1),))]
    assert kept_clusters(["east", "west"], kept, ()) == ["west"]
    me = replace(asking(3), request=replace(asking(3).request, mode="SameCluster"))
    assert rounds.request_beside_shares(me, kept, (), elastic=True).clusters == ["west"]
    lost = rounds.request_beside_shares(me, kept, (), elastic=False)
    assert (lost.clusters, lost.request.mode, lost.request.workers) == (["west"], "BestEffort", 2)
    drained = rounds.request_beside_shares(me, kept, {"west"}, elastic=False)
    assert (drained.clusters, drained.request.mode) == (me.clusters, "SameCluster"), "it leaves as a whole"
    assert rounds.request_beside_shares(asking(3), kept, (), elastic=True).clusters == asking(3).clusters


ALONE = Share("west", (GroupShare("workers", "role-workers", 1),), single_worker=True)


@pytest.mark.parametrize(
    ("kept", "gang", "least", "shares", "since"),
    [
        pytest.param(None, "AllOrNothing", {"workers": 1},
            (replace(WEST, round=0), replace(ALONE, round=3), replace(ALONE, round=4)), 3,
            id="the minimum of a job is placed together"),
        pytest.param(None, "SameCluster", {}, tuple(replace(ALONE, round=number) for number in (3, 4, 5)), 3,
            id="a job without a minimum has single-worker shares only"),
        pytest.param(None, "AllOrNothing", None, (Share("west", (GroupShare("workers", "role-workers", 3),)),), 0,
            id="an unknown job is placed as a whole"),
        pytest.param((EAST,), "BestEffort", {"workers": 9},
            (replace(EAST, round=2), *(replace(ALONE, round=number) for number in (3, 4, 5))), 3,
            id="a scale-up has single-worker shares"),
        pytest.param((EAST,), "SameCluster", {}, (replace(EAST, round=2),
            Share("west", (GroupShare("workers", "role-workers", 3),))), 3,
            id="a SameCluster job moves to another cluster as a whole"),
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
        pytest.param(0, set(), {}, id="the gang has no share"),
        pytest.param(1, {"west"}, {}, id="the gang's cluster is drained"),
        pytest.param(1, set(), {"workers": 1}, id="no worker starts in the gang's cluster"),
    ],
)
def test_a_same_cluster_gang_without_a_usable_share_is_planned_as_a_whole(
    count: int, draining: set[str], without: dict[str, int]
) -> None:
    kept = [Share("west", (GroupShare("workers", "role-workers", 1),))] * count
    me = replace(asking(3), request=replace(asking(3).request, mode="SameCluster"))
    found = rounds.request_beside_shares(me, kept, draining, without, elastic=True)
    assert (found.request.mode, found.request.needed_workers, found.clusters) == ("SameCluster", 3, me.clusters)


@pytest.mark.parametrize(
    ("tried", "want"),
    [
        pytest.param(DryRunResult(denied_reason="no", valid_until=at(7)), at(7), id="the cluster denied the pods"),
        pytest.param(
            DryRunResult(reserved_template={"spec": {}}, request={"cpu": 2000}, valid_until=at(7)),
            at(7),
            id="the cluster changed the pods",
        ),
        pytest.param(
            DryRunResult(unknown_reason="no answer", valid_until=at(7)), None, id="the cluster gave no answer"
        ),
    ],
)
def test_a_waiting_gang_is_planned_again_when_a_dry_run_expires(tried: DryRunResult, want: object) -> None:
    """The cluster may answer otherwise by then, and no event reports that."""
    (group,) = asking(2).request.groups
    request = replace(asking(2).request, groups=(replace(group, dry_run_results={"east": tried}),))
    made = PlanResult(request, [cluster("east", 1), cluster("west", 1)], GangPlan((), (), "No room."))
    assert made.replan_at(None) == want


def chain(number: int, **more: Any) -> Any:
    raw = make_workload(name=f"train-{number}", owner="RayCluster", **more)
    raw["metadata"]["annotations"][names.ELASTIC_ANNOTATION] = "true"
    return parse_workload(raw)


def test_only_the_rounds_of_an_elastic_job_continue_in_a_new_attempt() -> None:
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


def test_a_plan_for_another_attempt_counts_as_changed() -> None:
    place = parse_placement(STANDS)
    action = actions.Plan(chain(1), place, (), BOTH)
    assert not rounds.is_unchanged(action, place, {"shares": [{}] * 2, "wanted": 4, "explanation": place.explanation})


def test_a_hold_on_preemptible_capacity_is_waited_for_and_not_named() -> None:
    hold = CapacityHold(waiting().workload.job, UNTIL)
    made = PlanResult(GangRequest(NAMESPACE, QUEUE, ()), (), GangPlan((), (), "No room."), (), (hold,))
    assert (made.hold_note, made.replan_at(None)) == ("", UNTIL)


STANDS = make_placement(make_workload(), explanation="2 in east, 2 in west.")
BOTH = parse_placement(STANDS).shares


@pytest.mark.parametrize(
    ("before", "excluded", "kept", "shares", "sentence", "want"),
    [
        pytest.param(STANDS, (), BOTH, 2, "2 in east, 2 in west.", True, id="all shares stay, with the same text"),
        pytest.param(STANDS, (), BOTH, 2, "2 in east, 2 in north.", False, id="all shares stay, with another text"),
        pytest.param(STANDS, (), BOTH, 3, "2 in east, 2 in west.", False, id="one share more is wanted"),
        pytest.param(STANDS, (), BOTH[:1], 2, "2 in east, 2 in west.", False, id="one share less is kept"),
        pytest.param(STANDS, (), None, 2, "2 in east, 2 in west.", False, id="a first round keeps nothing"),
        pytest.param(STANDS, (CORDONED,), BOTH, 2, "2 in east, 2 in west.", False, id="another cluster is excluded"),
        pytest.param(
            make_placement(make_workload(), explanation="2 in east, 2 in west.", excluded={CORDONED.cluster: 5}),
            (CORDONED,), BOTH, 2,
            "2 in east, 2 in west.", False, id="the exclusion lasts longer",
        ),
        pytest.param(
            make_placement(make_workload(), explanation="2 in east, 2 in west.", withdrawn=1), (), BOTH, 2,
            "2 in east, 2 in west.", False, id="the standing round was withdrawn",
        ),
    ],
)  # fmt: skip
def test_an_unchanged_plan(
    before: Mapping[str, Any], excluded: tuple[Exclusion, ...], kept: Any, shares: int, sentence: str, want: bool
) -> None:
    place = parse_placement(before)
    action = actions.Plan(parse_workload(make_workload()), place, excluded, kept)
    spec = {"shares": [{}] * shares, "wanted": 4, "explanation": sentence}
    assert rounds.is_unchanged(action, place, spec) is want
    assert not rounds.is_unchanged(action, place, {**spec, "wanted": 3})
    assert not rounds.is_unchanged(action, replace(place, waiting_since=at(3)), spec), "its workers wait no more"


def test_a_start_that_borrows_is_one_plan_of_several_rounds() -> None:
    """So a running job whose status is lost counts as placed, and no share of it is requested again."""
    queues = [make_cluster_queue(2, cohortName="all"), make_cluster_queue(2, cohortName="all", name="lender")]
    lends = replace(cluster("east", 2), quota_tree=tree.build(queues, [], [make_flavor()]))
    request = replace(asking(4).request, borrowing_shares=8)
    made = PlanResult(request, [lends], planner.plan(request, [lends]))
    place = rounds.next_placement(actions.Plan(WORK, None, ()), made, 4, at(7))
    assert [(s.workers, place.round_of(s), s.borrows) for s in place.shares] == [
        (2, 3, False),
        (1, 1, True),
        (1, 2, True),
    ]
    assert (place.first_round_of_plan, place.implied_placed_round) == (0, 3)
    assert all(map(place.is_from_last_plan, place.shares))
    runs = rounds.next_placement(actions.Plan(WORK, place, (), place.shares[:1]), made, 4, at(9))
    assert [runs.is_from_last_plan(share) for share in runs.shares] == [False, True, True, True]
    assert runs.first_round_of_plan == 4
