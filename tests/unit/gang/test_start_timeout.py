"""Which workers did not start in time, how they are planned again, and when their pods are failed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapter import actions, names
from adapter.actions import Action, EmitEvent, PatchPodStatus, Plan, RequeueAfter, UpdatePlacementStatus
from adapter.gang import start_timeout
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects import unstructured as facts
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import Exclusion, Placement, PlacementState, ShareKey, parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.worker_pod import Slot, slot_of
from adapter.objects.workload import parse_workload
from tests.unit.builders import (
    CHECK,
    at,
    make_condition,
    make_copy,
    make_placement,
    make_pod,
    make_reservation,
    make_workload,
    of_service,
    stamp,
)
from tests.unit.fact_builders import make_gang, with_facts

TIMEOUT = timedelta(seconds=100)
WORK = make_workload(check=names.CHECK_READY)
NO_NODE = make_condition("PodScheduled", False, reason="Unschedulable", message="0/3 nodes are available.")
WHY = "it was not scheduled, 0/3 nodes are available."


def placed(**more: Any) -> Raw:
    """Two workers in east and two in west, all admitted."""
    return make_placement(WORK, **{"placedRound": more.get("round", 1), "state": PlacementState.PLACED, **more})


def pod(name: str, slot: str, *, ready: bool = False, group: str = "workers", **more: Any) -> Raw:
    place = parse_placement(placed())
    made = make_pod(name, placement=place.name, slot=slot, dispatched=bool(slot), group=group, **more)
    made["status"]["conditions"].append(make_condition("Ready", ready))
    return made


def copy_of(one: Raw, *conditions: Raw, made: float = 0, node: str = "", started: float | None = None) -> Raw:
    """A remote pod; `started` is when a kubelet took it."""
    copy = make_copy(one, phase="Pending")
    copy["metadata"]["creationTimestamp"] = stamp(made)
    copy["spec"] = {"nodeName": node} if node else {}
    copy["status"]["conditions"] = list(conditions)
    copy["status"] |= {} if started is None else {"startTime": stamp(started)}
    return copy


E0, E1 = pod("a", "east/1/role-workers/0"), pod("b", "east/1/role-workers/1")
W0, W1 = (pod(name, f"west/1/role-workers/{index}", ready=True) for index, name in enumerate("cd"))
RUNS = pod("b", "east/1/role-workers/1", ready=True)
ADMITTED = frozenset({ShareKey("east", 1), ShareKey("west", 1), ShareKey("west", 2), ShareKey("north", 2)})


def gathered(pods: Sequence[Raw], remote_pods: Mapping[str, Raw | None] | None = None, **more: Any) -> GangWorkers:
    """These workers, each with an unscheduled remote pod unless `remote_pods` has another one, or None."""
    found = {pod["metadata"]["name"]: copy_of(pod, NO_NODE) for pod in pods if slot_of(pod)} | dict(remote_pods or {})
    known = {facts.key_of(pod): found[pod["metadata"]["name"]] for pod in pods if slot_of(pod)}
    plain: Raw = {
        "placement": parse_placement(placed()),
        "pods": pods,
        "remote_pods": {key: copy for key, copy in known.items() if copy},
        "taken_slots": {slot for pod in pods if (slot := slot_of(pod))},
        "admitted_shares": ADMITTED,
        "desired_workers": len(pods),
        "head_ready_since": at(-50),
    }
    return GangWorkers(**{**plain, **more})


def gang(workers: GangWorkers | None, place: Raw | None = None, **more: Any) -> Gang:
    """A gang that runs, and all of whose shares are admitted."""
    raw = place or placed()
    read = parse_placement(raw)
    plain: Raw = {
        "workload": parse_workload(WORK),
        "check": CHECK,
        "placements": (read,),
        "reservations": tuple(
            replace(parse_reservation(share.cluster, make_reservation(raw)), round=read.round_of(share))
            for share in read.shares
        ),
        "reservation_timeout": timedelta(seconds=30),
        "targets": {},
        "workers": workers and replace(workers, placement=read),
        "start_timeout": TIMEOUT,
        "shares_with_pods": frozenset({ShareKey("east", 1), ShareKey("west", 1)}),
    }
    return make_gang(**{**plain, **more})


def late(found: Gang, seconds: float) -> list[str]:
    return [
        placement["metadata"]["name"]
        for placement in start_timeout.find_late_workers(found, found.placements[0], at(seconds)).late_pods
    ]


KUBELET: Raw = {"started": 5, "node": "n"}
NEVER, UNREADY = make_condition("Ready", False, since=6), make_condition("Ready", False, since=40)


@pytest.mark.parametrize(
    ("workers", "seconds", "who", "due"),
    [
        pytest.param(gathered([E0, W0]), 99, [], 1, id="a worker has until its timeout"),
        pytest.param(gathered([E0, W0]), 100, ["a"], None, id="a worker without a node is late at its timeout"),
        pytest.param(gathered([E0, W0], head_ready_since=at(30)), 100, [], 30,
            id="the timeout counts from when the head is ready"),
        pytest.param(gathered([E0, W0], head_ready_since=None), 500, [], 100,
            id="the timeout does not count while the head is not ready"),
        pytest.param(gathered([E0], {"a": copy_of(E0, NEVER, **KUBELET)}), 100, ["a"], None,
            id="a worker with a node that never was ready is late"),
        pytest.param(gathered([E0], {"a": copy_of(E0, UNREADY, **KUBELET)}), 900, [], None,
            id="a worker that was ready once is not late"),
        pytest.param(gathered([E0], {"a": copy_of(E0, make_condition("Ready"))}), 900, [], None,
            id="a remote pod is ready, and its manager pod is not updated yet"),
        pytest.param(gathered([RUNS], {"b": copy_of(RUNS)}), 900, [], None, id="a manager pod is ready"),
        pytest.param(gathered([of_service(E0)], {"a": copy_of(E0, NEVER, **KUBELET)}), 900, [], None,
            id="a Serve worker without a replica is not late"),
        pytest.param(gathered([E0], {"a": make_copy(E0, deleting=True)}), 900, [], None,
            id="a remote pod that is being deleted is not late"),
        pytest.param(gathered([E0], {"a": make_copy(E0, phase="Failed")}), 900, [], None,
            id="a remote pod that failed is not late"),
        pytest.param(gathered([E0], {"a": None}), 900, [], None, id="a remote pod that is gone is not late"),
        pytest.param(gathered([pod("a", "east/1/role-workers/0", deleting=True)]), 900, [], None,
            id="a worker that is scaled down is not late"),
        pytest.param(gathered([E0, E1], {"b": copy_of(E1, made=50)}), 100, ["a", "b"], None,
            id="a worker created a little later is late with the first"),
        pytest.param(gathered([E0, E1], {"b": copy_of(E1, made=51)}), 100, ["a"], 51,
            id="a worker created much later is not late yet"),
        pytest.param(gathered([E0, E1], {"b": copy_of(E1, made=50)}), 99, [], 1,
            id="no worker is late before the first"),
        pytest.param(
            gathered([E0, pod("b", "east/1/role-other/0", group="other")], {"b": copy_of(E1, made=50)}), 100, ["a"], 50,
            id="a worker of another group is not late with the first",
        ),
        pytest.param(gathered([]), 900, [], None, id="no workers"),
        pytest.param(None, 900, [], None, id="all workers are ready"),
    ],
)  # fmt: skip
def test_which_workers_are_late(workers: GangWorkers | None, seconds: float, who: list[str], due: float | None) -> None:
    found = gang(workers)
    assert late(found, seconds) == who
    again = start_timeout.find_late_workers(found, found.placements[0], at(seconds)).recheck_at
    assert (again and (again - at(seconds)).total_seconds()) == due


def test_a_worker_without_a_remote_pod_is_checked_again() -> None:
    fresh = make_pod("a", slot="east/1/role-workers/0")
    found = gang(gathered([fresh], {"a": None}))
    assert start_timeout.find_late_workers(found, found.placements[0], at(7)).recheck_at == at(107)


@pytest.mark.parametrize(
    ("more", "who"),
    [
        pytest.param({}, ["a"], id="a worker in a reachable cluster is late"),
        pytest.param(
            {"unreachable": {"east": "is unreachable"}}, [], id="a worker in an unreachable cluster is not late"
        ),
        pytest.param({"draining": frozenset({"east"})}, [], id="a worker in a drained cluster is not late"),
        pytest.param({"same_cluster": True}, [], id="a worker is not late where a SameCluster gang partly runs"),
    ],
)
def test_where_a_worker_can_be_late(more: Raw, who: list[str]) -> None:
    assert late(gang(gathered([E0, RUNS]), **more), 100) == who


def test_a_same_cluster_gang_moves_while_no_worker_has_started() -> None:
    assert late(gang(gathered([E0, E1]), same_cluster=True), 100) == ["a", "b"]


def unstartable(*names_: str, since: float = 0) -> Raw:
    return {f"uid-of-{name}": at(since) for name in names_}


SLOW = timedelta(seconds=900)


@pytest.mark.parametrize(
    ("workers", "since", "seconds", "who", "due"),
    [
        pytest.param(gathered([E0, W0]), {}, 899, [], 1, id="a worker that may still start has the policy's time"),
        pytest.param(gathered([E0, W0]), unstartable("a"), 59, [], 1, id="an unstartable worker has a minute"),
        pytest.param(gathered([E0, W0]), unstartable("a"), 60, ["a"], None,
            id="an unstartable worker is late after a minute"),
        pytest.param(gathered([E0, W0]), unstartable("a", since=500), 560, ["a"], None,
            id="the minute counts from when the worker was first observed as unstartable"),
        pytest.param(gathered([E0, W0]), unstartable("a", since=890), 900, ["a"], None,
            id="an unstartable worker has no more time than another one"),
        pytest.param(gathered([E0, W0], head_ready_since=None), unstartable("a"), 60, ["a"], None,
            id="a head that is not ready gives an unstartable worker no time"),
        pytest.param(gathered([E0, E1]), unstartable("a", "b", since=20) | unstartable("a"), 60, ["a", "b"], None,
            id="an unstartable worker is late with the first one of its group"),
        pytest.param(gathered([E0, E1]), unstartable("a"), 500, ["a"], 400,
            id="a worker that may still start is not late with an unstartable one"),
        pytest.param(gathered([RUNS], {"b": copy_of(RUNS)}), unstartable("b"), 900, [], None,
            id="a worker whose Ray node works is never late"),
    ],
)  # fmt: skip
def test_an_unstartable_worker_is_late_after_a_minute(
    workers: GangWorkers, since: Raw, seconds: float, who: list[str], due: float | None
) -> None:
    found = gang(workers, start_timeout=SLOW, unstartable_since=since)
    assert late(found, seconds) == who
    again = start_timeout.find_late_workers(found, found.placements[0], at(seconds)).recheck_at
    assert (again and (again - at(seconds)).total_seconds()) == due


def test_a_start_timeout_below_a_minute_is_not_exceeded() -> None:
    found = gang(gathered([E0]), start_timeout=timedelta(seconds=10), unstartable_since=unstartable("a", since=5))
    assert (late(found, 9), late(found, 10)) == ([], ["a"])


def test_an_unstartable_worker_excludes_its_cluster_for_the_policys_time() -> None:
    """The exclusion is as long as for any late worker, so no worker alternates between two clusters each minute."""
    found = gang(SPOT, start_timeout=SLOW, unstartable_since=unstartable("a"))
    (planned,) = [action for action in decided(found, 60) if isinstance(action, Plan)]
    assert planned.exclusions == (Exclusion("east", at(960), f"workers did not start there within 60s: {WHY}", at(60)),)
    assert (planned.start_timed_out, planned.unusable_slots) == (True, {"workers": 1})
    assert planned.lost_reason == f"Workers did not start in time, 1 in east within 60s: {WHY}"


def test_a_gang_that_may_not_be_divided_is_not_requeued_for_a_time_that_is_over() -> None:
    found = gang(gathered([E0, RUNS]), same_cluster=True)
    assert start_timeout.find_late_workers(found, found.placements[0], at(101)).recheck_at is None


# --- the plan for late workers -------------------------------------------------------------------------------------

SPOT = gathered([E0, RUNS, W0, W1], {"b": copy_of(RUNS)})
ONE_LATE = f"Workers did not start in time, 1 in east within 100s: {WHY}"
REASON = f"workers did not start there within 100s: {WHY}"


def plan(
    place: Placement,
    until: float | None,
    *excluded: Exclusion,
    late_at: float = 100,
    without: int = 1,
    why: str = ONE_LATE,
) -> Plan:
    new = () if until is None else (Exclusion("east", at(until), REASON, at(late_at)),)
    return Plan(parse_workload(WORK), place, (*excluded, *new), place.shares, why, 0, {"workers": without}, bool(new))


def decided(found: Gang, seconds: float) -> list[Action]:
    return [
        action for action in decide(found, at(seconds)) if not isinstance(action, UpdatePlacementStatus | RequeueAfter)
    ]


def test_before_the_timeout_nothing_is_done_but_a_requeue() -> None:
    assert [action for action in decide(gang(SPOT), at(60)) if not isinstance(action, UpdatePlacementStatus)] == [
        RequeueAfter(timedelta(seconds=40))
    ]


def test_the_first_late_worker_excludes_its_cluster_and_is_planned_elsewhere() -> None:
    found = gang(SPOT)
    job = parse_workload(WORK).job
    assert job
    assert decided(found, 100) == [
        EmitEvent(job, names.EventReason.START_TIMEOUT, ONE_LATE, True),
        plan(found.placements[0], 200),
    ]


@pytest.mark.parametrize(("times", "seconds"), [(0, 100), (1, 200), (2, 400), (3, 400), (9, 400)])
def test_a_cluster_is_excluded_for_longer_each_time(times: int, seconds: float) -> None:
    raw = placed()
    raw["spec"]["unstarted"] = times
    assert plan(parse_placement(raw), 100 + seconds) in decided(gang(SPOT, raw), 100)


@pytest.mark.parametrize(
    ("planned", "since", "seconds"),
    [
        pytest.param(0, None, 100, id="the gang ran well for as long as the longest exclusion"),
        pytest.param(101, None, 400, id="it was planned since"),
        pytest.param(0, stamp(0), 400, id="its workers wait since then"),
    ],
)
def test_old_start_timeouts_do_not_count(planned: float, since: str | None, seconds: float) -> None:
    raw = placed(planned=planned)
    raw["spec"] |= {"unstarted": 2, "waitingSince": since}
    plans = [action for action in decided(gang(SPOT, raw), 500) if isinstance(action, Plan)]
    assert [exclusion.until for action in plans for exclusion in action.exclusions] == [at(500 + seconds)]
    assert [action.placement.start_timeouts for action in plans if action.placement] == [0 if seconds == 100 else 2]


def excluding(raw: Raw, cluster: str = "east", until: float = 200) -> Raw:
    raw["spec"]["excluded"] = [{"cluster": cluster, "until": stamp(until), "reason": REASON}]
    return raw


def without_room(**spec: Any) -> Raw:
    """The last plan found no slot: all shares are of an earlier round."""
    raw = excluding(placed(round=2))
    for share in raw["spec"]["shares"]:
        share["round"] = 1
    raw["spec"] |= spec
    return raw


STARTED_LATER = make_condition("Ready", since=150)


@pytest.mark.parametrize(
    ("workers", "skew", "ends"),
    [
        pytest.param(gathered([E0, W0], {"a": copy_of(E0, STARTED_LATER)}), 0, True, id="a worker started there since"),
        pytest.param(gathered([E0, W0], {"a": copy_of(E0, STARTED_LATER)}), 60, False,
            id="it started before, by a clock that is ahead"),
        pytest.param(gathered([E0, W0], {"a": copy_of(E0, make_condition("Ready", since=90))}), 0, False,
            id="it started before"),
        pytest.param(gathered([E0, W0], {"a": copy_of(E0, make_condition("Ready", False, since=150))}), 0, False,
            id="it is not ready"),
        pytest.param(gathered([E0, E1], {"a": copy_of(E0, STARTED_LATER)}), 0, False, id="another one is late there"),
        pytest.param(gathered([E0, W0], {"a": None, "c": copy_of(W0, STARTED_LATER)}), 0, False,
            id="a worker started in another cluster"),
        pytest.param(None, 0, False, id="the workers are not known"),
    ],
)  # fmt: skip
def test_an_exclusion_ends_once_a_worker_starts_there(workers: GangWorkers | None, skew: float, ends: bool) -> None:
    raw = without_room(unstarted=1)
    (exclusion,) = raw["spec"]["excluded"]
    exclusion |= {"until": stamp(300), "notStartedAt": stamp(100)}
    found = gang(workers, raw, clocks=ClockOffsets({"east": timedelta(seconds=skew)}))
    late_pods = start_timeout.find_late_workers(found, found.placements[0], at(200)).late_pods
    lasting = start_timeout.lasting_exclusions(found, found.placements[0], late_pods, at(200))
    assert [entry.cluster for entry in lasting] == ([] if ends else ["east"])


def test_an_exclusion_for_another_reason_lasts_whatever_starts() -> None:
    raw = without_room(unstarted=1)
    found = gang(gathered([E0, W0], {"a": copy_of(E0, STARTED_LATER)}), raw)
    assert start_timeout.lasting_exclusions(found, found.placements[0], (), at(199)) == found.placements[0].exclusions


def test_a_gang_without_a_slot_is_planned_once_an_exclusion_ends() -> None:
    raw = without_room(unstarted=1)
    (exclusion,) = raw["spec"]["excluded"]
    exclusion |= {"until": stamp(300), "notStartedAt": stamp(100)}
    raw["spec"]["shares"][1]["groups"][0]["count"] = 1
    workers = gathered([E0, RUNS, W0, pod("x", "")], {"a": copy_of(E0, STARTED_LATER), "b": copy_of(RUNS)})
    plans = [action for action in decided(gang(workers, raw), 160) if isinstance(action, Plan)]
    assert [action.exclusions for action in plans] == [()]


def test_without_a_slot_elsewhere_a_late_worker_stays_and_the_placement_says_so() -> None:
    raw = without_room(explanation=f"{ONE_LATE} Does not fit.")
    (said,) = [action for action in decide(gang(SPOT, raw), at(101)) if isinstance(action, UpdatePlacementStatus)]
    assert said.status["reason"] == f"{ONE_LATE} Does not fit."
    assert decided(gang(SPOT, raw), 101) == []


def test_a_late_worker_is_planned_again_when_capacity_changes_or_its_exclusion_ends() -> None:
    raw = without_room(unstarted=1)
    (still,) = parse_placement(raw).exclusions
    assert decided(gang(SPOT, raw, changed_since_plan=True), 101) == [plan(parse_placement(raw), None, still)]
    assert plan(parse_placement(raw), 401, late_at=201) in decided(gang(SPOT, raw), 201)


def test_a_second_late_worker_is_planned_once_the_first_has_a_slot() -> None:
    """The slot that the first one left in east does not serve the second."""
    raw = excluding(placed(round=2))
    raw["spec"]["wanted"] = 3
    one, two = ({"name": "workers", "role": "role-workers", "count": count} for count in (1, 2))
    raw["spec"]["shares"] = [{"cluster": "east", "groups": [two], "round": 1}, {"cluster": "west", "groups": [one]}]
    moved = pod("c", "west/2/role-workers/0", ready=True)
    stays = replace(
        SPOT,
        pods=(RUNS, moved),
        remote_pods={},
        taken_slots={*filter(None, map(slot_of, (RUNS, moved)))},
        desired_workers=3,
    )
    assert decided(gang(stays, raw, shares_with_pods=frozenset({ShareKey("east", 1), ShareKey("west", 2)})), 150) == []
    second = gathered([E1, moved], {"c": copy_of(moved)}, desired_workers=2)
    found = gang(second, raw, shares_with_pods=frozenset({ShareKey("east", 1), ShareKey("west", 2)}))
    (planned,) = [action for action in decided(found, 150) if isinstance(action, Plan)]
    assert (planned.unusable_slots, planned.start_timed_out) == ({"workers": 2}, False)


def test_the_message_is_removed_when_all_workers_have_started() -> None:
    raw = without_room(lost=ONE_LATE)
    assert decided(gang(None, raw), 150) == []
    assert decided(gang(None, raw), 200) == [
        Plan(parse_workload(WORK), parse_placement(raw), (), parse_placement(raw).shares)
    ]


@pytest.mark.parametrize(
    ("workers", "since", "want"),
    [
        pytest.param(None, stamp(90), True, id="all workers have started"),
        pytest.param(SPOT, stamp(90), False, id="a worker is still late"),
        pytest.param(None, None, False, id="no worker waits"),
    ],
)
def test_a_wait_that_is_over_is_recorded_at_once(workers: GangWorkers | None, since: str | None, want: bool) -> None:
    """Otherwise the gang would hold capacity until the capacity of its clusters changes."""
    raw = without_room(lost=ONE_LATE, waitingSince=since)
    plans = [action for action in decide(gang(workers, raw), at(101)) if isinstance(action, Plan)]
    assert [(made.kept_shares, made.unusable_slots) for made in plans] == (
        [(parse_placement(raw).shares, {})] if want else []
    )


def test_a_share_lost_meanwhile_is_planned_together_with_late_workers() -> None:
    found = gang(SPOT)
    east_only = with_facts(found, reservations=found.shares.reservations[:1])
    (planned,) = [action for action in decided(east_only, 100) if isinstance(action, Plan)]
    assert [share.cluster for share in planned.kept_shares or ()] == ["east"]
    assert planned.lost_reason == f"Workers were lost, 2 in west: its reservation is gone there. {ONE_LATE}"
    assert planned.unusable_slots == {"workers": 1}


# --- which pods are failed -----------------------------------------------------------------------------------------

ONE = {"name": "workers", "role": "role-workers", "count": 1}


def with_place(cluster: str = "west", count: int = 1) -> Raw:
    """A further round has found slots in a cluster."""
    raw = excluding(placed(round=2))
    for share in raw["spec"]["shares"]:
        share["round"] = 1
    raw["spec"]["shares"].append({"cluster": cluster, "groups": [{**ONE, "count": count}]})
    return raw


def ends(found: Gang, seconds: float = 101) -> list[str]:
    named = (
        {facts.uid_of(pod): pod["metadata"]["name"] for pod in found.pods.workers.pods} if found.pods.workers else {}
    )
    patches = [action for action in decide(found, at(seconds)) if isinstance(action, PatchPodStatus)]
    assert all(patch.body["status"]["reason"] == "RemotePodNotStarted" for patch in patches)
    return [named[patch.body["metadata"]["uid"]] for patch in patches]


TWO = gathered([E0, E1, W0, W1])
# KubeRay's replacement of a late pod, with the late pod's template slot.
AGAIN = make_pod("x", placement=parse_placement(placed()).name, index="1", listed="east/1/role-workers/2")


def test_a_late_pod_is_failed_when_another_slot_is_admitted() -> None:
    (told,) = [action for action in decide(gang(SPOT, with_place()), at(101)) if isinstance(action, PatchPodStatus)]
    assert told.pod == E0
    text = f"The pod in worker cluster east did not start within 100s: {WHY}"
    status = {"phase": "Failed", "reason": "RemotePodNotStarted", "message": text}
    assert told.body == {"metadata": {"uid": facts.uid_of(E0)}, "status": status}


@pytest.mark.parametrize(
    ("workers", "raw", "who"),
    [
        pytest.param(TWO, with_place(), ["a"], id="as many late workers leave as there are free slots"),
        pytest.param(TWO, with_place(count=2), ["a", "b"], id="all late workers leave if there are slots for all"),
        pytest.param(TWO, with_place("east"), [], id="a slot in the same cluster does not count"),
        pytest.param(TWO, excluding(with_place(), "west"), [], id="a slot in an excluded cluster does not count"),
        pytest.param(replace(TWO, admitted_shares={ShareKey("east", 1), ShareKey("west", 1)}), with_place(), [],
            id="a slot without quota does not count"),
        pytest.param(TWO, {**with_place(), "status": {"placedRound": 1}}, [],
            id="a slot of a round that may be withdrawn does not count"),
        pytest.param(replace(TWO, taken_slots={*TWO.taken_slots, Slot(ShareKey("west", 2), "role-workers", 0)}),
            with_place(), [], id="a taken slot does not count"),
        pytest.param(replace(TWO, desired_workers=5), with_place(), [],
            id="a slot for a pod that KubeRay has still to make does not count"),
        pytest.param(gathered([E0, E1, W0, W1, pod("x", "")]), with_place(), [],
            id="a slot for an unplaced pod does not count"),
        pytest.param(gathered([E0, W0, W1, AGAIN], {"x": None}), with_place(), [],
            id="a slot for a pod that leaves its template slot does not count"),
        pytest.param(SPOT, with_place(count=2), ["a"], id="a worker that runs stays"),
    ],
)  # fmt: skip
def test_which_late_workers_leave(workers: GangWorkers, raw: Raw, who: list[str]) -> None:
    found = gang(workers, raw)
    bad = start_timeout.find_late_workers(found, found.placements[0], at(101))
    assert [
        facts.uid_of(action.pod)
        for action in start_timeout.fail_late_pods(found, bad, at(101))
        if isinstance(action, PatchPodStatus)
    ] == [facts.uid_of(pod) for pod in workers.pods if pod["metadata"]["name"] in who]


def test_a_share_is_kept_until_the_moved_worker_has_started() -> None:
    """The pod has ended, and KubeRay has still to make the next one."""
    over = pod("a", "east/1/role-workers/0", phase="Failed")
    moving = replace(SPOT, pods=(over, RUNS, W0, W1))
    on = frozenset({ShareKey("east", 1), ShareKey("west", 1)})
    assert decided(gang(moving, with_place(), shares_with_pods=on), 102) == []
    arrived = gathered([RUNS, W0, W1, pod("e", "east/1/role-workers/0", ready=True)])
    (spared,) = decided(gang(arrived, with_place(), shares_with_pods=on), 102)
    assert isinstance(spared, Plan)
    assert [share.cluster for share in spared.kept_shares or ()] == ["east", "west"], "what nobody is on goes"


@pytest.mark.parametrize(
    ("node", "seconds", "who"),
    [
        pytest.param("n", 199, [], id="a late worker with a node stays, because the node may be slow"),
        pytest.param(
            "n",
            200,
            ["a"],
            id="a late worker with a node is restarted after twice the timeout, perhaps on another node",
        ),
        pytest.param(
            "", 900, [], id="a late worker without a node is not restarted: it would only queue for a node again"
        ),
    ],
)
def test_a_late_worker_without_another_slot_is_tried_on_another_node(node: str, seconds: float, who: list[str]) -> None:
    workers = gathered([E0, RUNS, W0, W1], {"a": copy_of(E0, NEVER, node=node, started=5)})
    assert ends(gang(workers, excluding(without_room(), until=seconds + 200)), seconds) == who


@pytest.mark.parametrize(
    ("init", "who"),
    [
        pytest.param({"state": {"running": {}}}, [], id="a running init container may load data for hours"),
        pytest.param({"state": {"running": {}}, "started": True}, ["a"], id="a running sidecar shows no progress"),
        pytest.param(
            {"state": {"waiting": {"reason": "ImagePullBackOff"}}},
            ["a"],
            id="a waiting init container shows no progress",
        ),
    ],
)
def test_a_worker_that_makes_progress_stays_on_its_node(init: Raw, who: list[str]) -> None:
    copy = copy_of(E0, NEVER, node="n", started=5)
    copy["status"]["initContainerStatuses"] = [{"name": "load", **init}]
    workers = gathered([E0, RUNS, W0, W1], {"a": copy})
    assert ends(gang(workers, excluding(without_room(), until=400)), 200) == who


def statuses(**kinds: Raw) -> list[Raw]:
    return [{"name": name, "state": state} for name, state in kinds.items()]


SCHEDULED = make_condition("PodScheduled")


@pytest.mark.parametrize(
    ("conditions", "containers", "why"),
    [
        pytest.param([], [], "it was not scheduled, and the scheduler gave no reason", id="nothing is known"),
        pytest.param([NO_NODE], [], WHY, id="the scheduler says why"),
        pytest.param([SCHEDULED], statuses(ray={"waiting": {"reason": "ImagePullBackOff"}}),
            "its container ray waits, ImagePullBackOff", id="its image is missing"),
        pytest.param(
            [SCHEDULED], statuses(ray={"waiting": {"reason": "ErrImagePull", "message": "no such host."}}),
            "its container ray waits, ErrImagePull: no such host", id="the registry's words"),
        pytest.param(
            [SCHEDULED], statuses(ray={"waiting": {"reason": "CrashLoopBackOff", "message": "pod w-1 of 9s"}}),
            "its container ray waits, CrashLoopBackOff", id="words that differ among siblings"),
        pytest.param([SCHEDULED], statuses(gcs={"running": {}}, ray={"waiting": {"reason": "PodInitializing"}}),
            "it has a node, but did not join the head", id="the worker looks for the head"),
        pytest.param([SCHEDULED], statuses(ray={"running": {}}), "it has a node, but did not join the head",
            id="the container runs"),
    ],
)  # fmt: skip
def test_the_reason_of_a_start_timeout(conditions: list[Raw], containers: list[Raw], why: str) -> None:
    copy = copy_of(E0, *conditions)
    copy["status"]["containerStatuses"] = containers
    found = gang(gathered([E0, RUNS, W0, W1], {"a": copy}))
    (planned,) = [action for action in decided(found, 100) if isinstance(action, actions.Plan)]
    assert planned.exclusions[0].reason == f"workers did not start there within 100s: {why}"


def elastic_place() -> Raw:
    """The Placement of an elastic job with a further round."""
    raw = with_place()
    raw["spec"]["job"] = {"kind": "RayCluster", "name": "train", "uid": "uid-of-train", "apiVersion": "ray.io/v1"}
    return raw


def gated(name: str) -> Raw:
    """A pod of an elastic job for which the manager has no quota yet."""
    made = pod(name, "")
    made["spec"] = {**made.get("spec", {}), "schedulingGates": [{"name": names.ELASTIC_GATE}]}
    return made


OVER = pod("a", "east/1/role-workers/0", phase="Failed")
ARRIVED = gathered([RUNS, W0, W1, pod("e", "east/1/role-workers/0", ready=True)])


@pytest.mark.parametrize(
    ("workers", "spared"),
    [
        pytest.param(replace(SPOT, pods=(OVER, RUNS, W0, W1)), False, id="KubeRay has still to make the pod"),
        pytest.param(replace(SPOT, pods=(OVER, RUNS, W0, W1, pod("x", ""))), False, id="the pod is unplaced"),
        pytest.param(ARRIVED, True, id="the pod has started elsewhere"),
        pytest.param(replace(ARRIVED, pods=(*ARRIVED.pods, gated("x")), desired_workers=5), True,
            id="a gated pod waits for the manager's quota"),
        pytest.param(replace(ARRIVED, pods=(*ARRIVED.pods, pod("x", "", group="other"))), True,
            id="a pod of another group is unplaced"),
    ],
)  # fmt: skip
def test_an_elastic_job_keeps_a_share_until_the_moved_worker_has_started(workers: GangWorkers, spared: bool) -> None:
    found = gang(workers, elastic_place(), shares_with_pods=frozenset({ShareKey("east", 1), ShareKey("west", 1)}))
    plans = [action for action in decided(found, 102) if isinstance(action, Plan)]
    assert [[share.cluster for share in one.kept_shares or ()] for one in plans] == (
        [["east", "west"]] if spared else []
    )


def test_a_pod_that_waits_for_the_managers_quota_takes_no_slot_of_a_late_worker() -> None:
    assert ends(gang(gathered([E0, RUNS, W0, W1, gated("x")], {"b": copy_of(RUNS)}), elastic_place())) == ["a"]


@pytest.mark.parametrize("ahead", [-900, 900])
def test_a_worker_has_its_timeout_whatever_its_clusters_clock(ahead: float) -> None:
    """Its cluster writes when the remote pod was created; the manager writes since when the head is ready."""
    clocks = ClockOffsets({"east": timedelta(seconds=ahead)})
    found = gang(gathered([E0], {"a": copy_of(E0, NO_NODE, made=ahead)}), clocks=clocks)
    assert (late(found, 99), late(found, 100)) == ([], ["a"])
