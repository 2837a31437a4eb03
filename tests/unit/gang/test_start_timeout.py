"""Which workers did not start in time, and what becomes of them: who is late, who leaves, what is planned meanwhile."""

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
WHY = "no node took it, 0/3 nodes are available."


def placed(**more: Any) -> Raw:
    """Two workers in east and two in west, all of which were admitted."""
    return make_placement(WORK, **{"placedRound": more.get("round", 1), "state": PlacementState.PLACED, **more})


def pod(name: str, slot: str, *, ready: bool = False, group: str = "workers", **more: Any) -> Raw:
    place = parse_placement(placed())
    made = make_pod(name, placement=place.name, slot=slot, dispatched=bool(slot), group=group, **more)
    made["status"]["conditions"].append(make_condition("Ready", ready))
    return made


def copy_of(one: Raw, *conditions: Raw, made: float = 0, node: str = "", started: float | None = None) -> Raw:
    """A pod's copy; `started` is when a kubelet took it."""
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
    """These workers, each with a copy that no node took unless `remote_pods` has another one, or None."""
    found = {one["metadata"]["name"]: copy_of(one, NO_NODE) for one in pods if slot_of(one)} | dict(remote_pods or {})
    known = {facts.key_of(one): found[one["metadata"]["name"]] for one in pods if slot_of(one)}
    plain: Raw = {
        "placement": parse_placement(placed()),
        "pods": pods,
        "remote_pods": {key: copy for key, copy in known.items() if copy},
        "taken_slots": {slot for one in pods if (slot := slot_of(one))},
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
        one["metadata"]["name"]
        for one in start_timeout.find_late_workers(found, found.placements[0], at(seconds)).late_pods
    ]


KUBELET: Raw = {"started": 5, "node": "n"}
NEVER, UNREADY = make_condition("Ready", False, since=6), make_condition("Ready", False, since=40)


@pytest.mark.parametrize(
    ("workers", "seconds", "who", "due"),
    [
        pytest.param(gathered([E0, W0]), 99, [], 1, id="it still has time"),
        pytest.param(gathered([E0, W0]), 100, ["a"], None, id="its time is over"),
        pytest.param(gathered([E0, W0], head_ready_since=at(30)), 100, [], 30, id="it begins when the head is ready"),
        pytest.param(gathered([E0, W0], head_ready_since=None), 500, [], 100, id="while the head is not, it does not begin"),
        pytest.param(gathered([E0], {"a": copy_of(E0, NEVER, **KUBELET)}), 100, ["a"], None, id="it has a node, and never was ready"),
        pytest.param(gathered([E0], {"a": copy_of(E0, UNREADY, **KUBELET)}), 900, [], None, id="it was ready once"),
        pytest.param(gathered([E0], {"a": copy_of(E0, make_condition("Ready"))}), 900, [], None, id="it just came, and its pod does not say so yet"),
        pytest.param(gathered([RUNS], {"b": copy_of(RUNS)}), 900, [], None, id="its pod says that it is ready"),
        pytest.param(gathered([of_service(E0)], {"a": copy_of(E0, NEVER, **KUBELET)}), 900, [], None, id="it serves, and has no replica"),
        pytest.param(gathered([E0], {"a": make_copy(E0, deleting=True)}), 900, [], None, id="it is going"),
        pytest.param(gathered([E0], {"a": make_copy(E0, phase="Failed")}), 900, [], None, id="it failed"),
        pytest.param(gathered([E0], {"a": None}), 900, [], None, id="its copy is gone"),
        pytest.param(gathered([pod("a", "east/1/role-workers/0", deleting=True)]), 900, [], None, id="it is scaled away"),
        pytest.param(gathered([E0, E1], {"b": copy_of(E1, made=50)}), 100, ["a", "b"], None, id="who was made a little later goes with it"),
        pytest.param(gathered([E0, E1], {"b": copy_of(E1, made=51)}), 100, ["a"], 51, id="not who was made much later"),
        pytest.param(gathered([E0, E1], {"b": copy_of(E1, made=50)}), 99, [], 1, id="nobody before the first"),
        pytest.param(
            gathered([E0, pod("b", "east/1/role-other/0", group="other")], {"b": copy_of(E1, made=50)}), 100, ["a"], 50,
            id="nor one of another group",
        ),
        pytest.param(gathered([]), 900, [], None, id="there is nobody"),
        pytest.param(None, 900, [], None, id="all are ready"),
    ],
)  # fmt: skip
def test_who_is_late(workers: GangWorkers | None, seconds: float, who: list[str], due: float | None) -> None:
    found = gang(workers)
    assert late(found, seconds) == who
    again = start_timeout.find_late_workers(found, found.placements[0], at(seconds)).recheck_at
    assert (again and (again - at(seconds)).total_seconds()) == due


def test_a_worker_whose_copy_is_not_made_yet_is_looked_at_again() -> None:
    fresh = make_pod("a", slot="east/1/role-workers/0")
    found = gang(gathered([fresh], {"a": None}))
    assert start_timeout.find_late_workers(found, found.placements[0], at(7)).recheck_at == at(107)


@pytest.mark.parametrize(
    ("more", "who"),
    [
        pytest.param({}, ["a"], id="it is"),
        pytest.param({"unreachable": {"east": "cannot be seen"}}, [], id="not in a cluster that cannot be seen"),
        pytest.param({"draining": frozenset({"east"})}, [], id="not in one that is drained"),
        pytest.param({"same_cluster": True}, [], id="not where it may not leave those that run"),
    ],
)
def test_where_somebody_is_late(more: Raw, who: list[str]) -> None:
    assert late(gang(gathered([E0, RUNS]), **more), 100) == who


def test_a_gang_that_must_be_together_moves_as_long_as_nobody_started() -> None:
    assert late(gang(gathered([E0, E1]), same_cluster=True), 100) == ["a", "b"]


# --- what is planned -------------------------------------------------------------------------------------------------

SPOT = gathered([E0, RUNS, W0, W1], {"b": copy_of(RUNS)})
ONE_LATE = f"Workers did not start within 100s, 1 in east: {WHY}"
REASON = f"workers did not start there within 100s: {WHY}"


def plan(place: Placement, until: float | None, *excluded: Exclusion, without: int = 1, why: str = ONE_LATE) -> Plan:
    new = () if until is None else (Exclusion("east", at(until), REASON),)
    return Plan(parse_workload(WORK), place, (*excluded, *new), place.shares, why, 0, {"workers": without}, bool(new))


def decided(found: Gang, seconds: float) -> list[Action]:
    return [one for one in decide(found, at(seconds)) if not isinstance(one, UpdatePlacementStatus | RequeueAfter)]


def test_nothing_is_done_before_it_is_late_and_it_is_looked_at_then() -> None:
    assert [one for one in decide(gang(SPOT), at(60)) if not isinstance(one, UpdatePlacementStatus)] == [
        RequeueAfter(timedelta(seconds=40))
    ]


def test_the_first_of_a_cluster_closes_it_and_a_place_is_sought_elsewhere() -> None:
    found = gang(SPOT)
    job = parse_workload(WORK).job
    assert job
    assert decided(found, 100) == [
        EmitEvent(job, names.EventReason.START_TIMEOUT, ONE_LATE, True),
        plan(found.placements[0], 200),
    ]


@pytest.mark.parametrize(("times", "seconds"), [(0, 100), (1, 200), (2, 400), (3, 400), (9, 400)])
def test_a_cluster_is_closed_for_longer_each_time(times: int, seconds: float) -> None:
    raw = placed()
    raw["spec"]["unstarted"] = times
    assert plan(parse_placement(raw), 100 + seconds) in decided(gang(SPOT, raw), 100)


def excluding(raw: Raw, cluster: str = "east", until: float = 200) -> Raw:
    raw["spec"]["excluded"] = [{"cluster": cluster, "until": stamp(until), "reason": REASON}]
    return raw


def without_room(**spec: Any) -> Raw:
    """The last plan found no place: all shares are of an earlier round."""
    raw = excluding(placed(round=2))
    for share in raw["spec"]["shares"]:
        share["round"] = 1
    raw["spec"] |= spec
    return raw


def test_without_a_place_elsewhere_it_stays_and_the_placement_says_so() -> None:
    raw = without_room(explanation=f"{ONE_LATE} Does not fit.")
    (said,) = [one for one in decide(gang(SPOT, raw), at(101)) if isinstance(one, UpdatePlacementStatus)]
    assert said.status["reason"] == f"{ONE_LATE} Does not fit."
    assert decided(gang(SPOT, raw), 101) == []


def test_it_is_planned_again_when_room_changes_and_its_cluster_stays_closed_for_longer() -> None:
    raw = without_room(unstarted=1)
    (still,) = parse_placement(raw).exclusions
    assert decided(gang(SPOT, raw, changed_since_plan=True), 101) == [plan(parse_placement(raw), None, still)]
    assert plan(parse_placement(raw), 401) in decided(gang(SPOT, raw), 201)


def test_a_second_one_of_a_closed_cluster_is_planned_once_the_first_has_its_place() -> None:
    """What the first one left free in east is no place for the second."""
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
    (planned,) = [one for one in decided(found, 150) if isinstance(one, Plan)]
    assert (planned.unusable_slots, planned.start_timed_out) == ({"workers": 2}, False)


def test_what_was_said_is_taken_back_when_all_have_started() -> None:
    raw = without_room(lost=ONE_LATE)
    assert decided(gang(None, raw), 150) == []
    assert decided(gang(None, raw), 200) == [
        Plan(parse_workload(WORK), parse_placement(raw), (), parse_placement(raw).shares)
    ]


def test_a_share_that_is_lost_meanwhile_is_planned_with_it() -> None:
    found = gang(SPOT)
    east_only = with_facts(found, reservations=found.shares.reservations[:1])
    (planned,) = [one for one in decided(east_only, 100) if isinstance(one, Plan)]
    assert [share.cluster for share in planned.kept_shares or ()] == ["east"]
    assert planned.lost_reason == f"Workers were lost, 2 in west: its reservation is gone there. {ONE_LATE}"
    assert planned.unusable_slots == {"workers": 1}


# --- who leaves ------------------------------------------------------------------------------------------------------

ONE = {"name": "workers", "role": "role-workers", "count": 1}


def with_place(cluster: str = "west", count: int = 1) -> Raw:
    """A further round has found places in a cluster."""
    raw = excluding(placed(round=2))
    for share in raw["spec"]["shares"]:
        share["round"] = 1
    raw["spec"]["shares"].append({"cluster": cluster, "groups": [{**ONE, "count": count}]})
    return raw


def ends(found: Gang, seconds: float = 101) -> list[str]:
    named = (
        {facts.uid_of(one): one["metadata"]["name"] for one in found.pods.workers.pods} if found.pods.workers else {}
    )
    patches = [one for one in decide(found, at(seconds)) if isinstance(one, PatchPodStatus)]
    assert all(one.body["status"]["reason"] == "RemotePodNotStarted" for one in patches)
    return [named[one.body["metadata"]["uid"]] for one in patches]


TWO = gathered([E0, E1, W0, W1])


def test_it_is_ended_when_it_has_a_place() -> None:
    (told,) = [one for one in decide(gang(SPOT, with_place()), at(101)) if isinstance(one, PatchPodStatus)]
    assert told.pod == E0
    text = f"The pod in worker cluster east did not start within 100s: {WHY}"
    status = {"phase": "Failed", "reason": "RemotePodNotStarted", "message": text}
    assert told.body == {"metadata": {"uid": facts.uid_of(E0)}, "status": status}


@pytest.mark.parametrize(
    ("workers", "raw", "who"),
    [
        pytest.param(TWO, with_place(), ["a"], id="as many as there are places"),
        pytest.param(TWO, with_place(count=2), ["a", "b"], id="or all"),
        pytest.param(TWO, with_place("east"), [], id="not to a place in the same cluster"),
        pytest.param(TWO, excluding(with_place(), "west"), [], id="nor to one in a cluster that is closed"),
        pytest.param(replace(TWO, admitted_shares={ShareKey("east", 1), ShareKey("west", 1)}), with_place(), [], id="nor to one without quota"),
        pytest.param(replace(TWO, taken_slots={*TWO.taken_slots, Slot(ShareKey("west", 2), "role-workers", 0)}), with_place(), [], id="nor to one that is taken"),
        pytest.param(replace(TWO, desired_workers=5), with_place(), [], id="nor to one for a pod that KubeRay has yet to make"),
        pytest.param(gathered([E0, E1, W0, W1, pod("x", "")]), with_place(), [], id="nor to one for a pod that waits for a slot"),
        pytest.param(SPOT, with_place(count=2), ["a"], id="who runs stays"),
    ],
)  # fmt: skip
def test_who_leaves(workers: GangWorkers, raw: Raw, who: list[str]) -> None:
    found = gang(workers, raw)
    bad = start_timeout.find_late_workers(found, found.placements[0], at(101))
    assert [
        facts.uid_of(one.pod)
        for one in start_timeout.fail_late_pods(found, bad, at(101))
        if isinstance(one, PatchPodStatus)
    ] == [facts.uid_of(one) for one in workers.pods if one["metadata"]["name"] in who]


def test_a_place_is_kept_while_somebody_is_on_the_way_to_it() -> None:
    """The pod has ended, and KubeRay has yet to make the next one."""
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
        pytest.param("n", 199, [], id="it has a node, which may be slow"),
        pytest.param("n", 200, ["a"], id="for twice the time: it may start on another node"),
        pytest.param("", 900, [], id="it has none: made anew, it would only queue for one again"),
    ],
)
def test_who_has_no_other_place_is_tried_on_another_node(node: str, seconds: float, who: list[str]) -> None:
    workers = gathered([E0, RUNS, W0, W1], {"a": copy_of(E0, NEVER, node=node, started=5)})
    assert ends(gang(workers, excluding(without_room(), until=seconds + 200)), seconds) == who


@pytest.mark.parametrize(
    ("init", "who"),
    [
        pytest.param({"state": {"running": {}}}, [], id="it loads what it works on: that may take hours"),
        pytest.param({"state": {"running": {}}, "started": True}, ["a"], id="a sidecar beside it says nothing of it"),
        pytest.param({"state": {"waiting": {"reason": "ImagePullBackOff"}}}, ["a"], id="it comes no further"),
    ],
)
def test_who_comes_on_is_left_alone_on_its_node(init: Raw, who: list[str]) -> None:
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
        pytest.param([], [], "no node took it, and nobody there says why", id="nothing is said"),
        pytest.param([NO_NODE], [], WHY, id="the scheduler says why"),
        pytest.param([SCHEDULED], statuses(ray={"waiting": {"reason": "ImagePullBackOff"}}), "its container ray waits, ImagePullBackOff", id="its image"),
        pytest.param([SCHEDULED], statuses(gcs={"running": {}}, ray={"waiting": {"reason": "PodInitializing"}}), "it has a node, and did not join the head", id="it looks for the head"),
        pytest.param([SCHEDULED], statuses(ray={"running": {}}), "it has a node, and did not join the head", id="it runs"),
    ],
)  # fmt: skip
def test_what_it_is_stuck_at(conditions: list[Raw], containers: list[Raw], why: str) -> None:
    copy = copy_of(E0, *conditions)
    copy["status"]["containerStatuses"] = containers
    found = gang(gathered([E0, RUNS, W0, W1], {"a": copy}))
    (planned,) = [one for one in decided(found, 100) if isinstance(one, actions.Plan)]
    assert planned.exclusions[0].reason == f"workers did not start there within 100s: {why}"


def elastic_place() -> Raw:
    """The same of an elastic job."""
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
        pytest.param(replace(SPOT, pods=(OVER, RUNS, W0, W1)), False, id="KubeRay has yet to make it"),
        pytest.param(replace(SPOT, pods=(OVER, RUNS, W0, W1, pod("x", ""))), False, id="it looks for its place"),
        pytest.param(ARRIVED, True, id="it has started elsewhere"),
        pytest.param(replace(ARRIVED, pods=(*ARRIVED.pods, gated("x")), desired_workers=5), True, id="who waits for the manager's quota"),
        pytest.param(replace(ARRIVED, pods=(*ARRIVED.pods, pod("x", "", group="other"))), True, id="another group"),
    ],
)  # fmt: skip
def test_an_elastic_job_keeps_a_place_while_somebody_is_on_the_way_to_it(workers: GangWorkers, spared: bool) -> None:
    found = gang(workers, elastic_place(), shares_with_pods=frozenset({ShareKey("east", 1), ShareKey("west", 1)}))
    plans = [one for one in decided(found, 102) if isinstance(one, Plan)]
    assert [[share.cluster for share in one.kept_shares or ()] for one in plans] == (
        [["east", "west"]] if spared else []
    )


def test_who_waits_for_the_managers_quota_takes_no_place_from_who_leaves() -> None:
    assert ends(gang(gathered([E0, RUNS, W0, W1, gated("x")], {"b": copy_of(RUNS)}), elastic_place())) == ["a"]
