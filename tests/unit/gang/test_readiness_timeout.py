"""Which unready workers are created again before Kueue evicts their whole share."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from adapter import names
from adapter.actions import EmitEvent, PatchPodStatus, RequeueAfter
from adapter.gang import readiness_timeout
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import Placement, PlacementState, ShareKey, parse_placement
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.unstructured import key_of
from adapter.objects.worker_pod import slot_of
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
)
from tests.unit.fact_builders import make_gang

WORKLOAD = make_workload(check=names.CHECK_READY)
PLACED = make_placement(WORKLOAD, placedRound=1, state=PlacementState.PLACED)  # two workers in east and two in west
PLACEMENT = parse_placement(PLACED)
TIMEOUT = timedelta(seconds=90)  # so that unready workers are replaced after 45 s
EAST = ("a", "b")
WEST = ("c", "d")


def manager_pod(name: str, **fields: Any) -> Raw:
    cluster, index = ("east", EAST.index(name)) if name in EAST else ("west", WEST.index(name))
    slot = f"{cluster}/1/role-workers/{index}"
    return make_pod(name, placement=PLACEMENT.name, slot=slot, dispatched=True, group="workers", **fields)


def remote_pod(name: str, *, ready: bool, **fields: Any) -> Raw:
    pod = make_copy(manager_pod(name), **fields)
    pod["status"]["conditions"] = [make_condition("Ready", ready, since=10)]
    return pod


def gang(
    ready: Mapping[str, bool],
    *,
    unready_since: Mapping[str, float | None] | None = None,
    deleting: str = "",
    unreachable: Mapping[str, str] | None = None,
) -> Gang:
    """A running gang; `ready` says of each worker whether it is ready, `unready_since` since when Kueue counts."""
    since = {"east": 0.0, "west": None} if unready_since is None else unready_since
    pods = [manager_pod(name) for name in ready]
    workers = GangWorkers(
        placement=PLACEMENT,
        pods=pods,
        remote_pods={
            key_of(pod): remote_pod(name, ready=ready[name], deleting=name == deleting)
            for name, pod in zip(ready, pods, strict=True)
        },
        taken_slots={slot for pod in pods if (slot := slot_of(pod))},
        admitted_shares={ShareKey("east", 1), ShareKey("west", 1)},
        desired_workers=4,
        head_ready_since=at(-50),
    )
    return make_gang(
        workload=parse_workload(WORKLOAD),
        check=CHECK,
        placements=(PLACEMENT,),
        reservations=tuple(_reservation(share.cluster, since.get(share.cluster)) for share in PLACEMENT.shares),
        reservation_timeout=timedelta(seconds=30),
        start_timeout=timedelta(hours=1),
        targets={},
        unreachable=unreachable or {},
        workers=workers,
        shares_with_pods=frozenset({ShareKey("east", 1), ShareKey("west", 1)}),
    )


def _reservation(cluster: str, since: float | None) -> Reservation:
    read = parse_reservation(cluster, make_reservation(PLACED))
    started = None if since is None else at(since)
    return replace(read, pods_unready_since=started, pods_ready_timeout=TIMEOUT)


def failed(facts: Gang, seconds: float) -> list[str]:
    patches = [action for action in decide(facts, at(seconds)) if isinstance(action, PatchPodStatus)]
    assert all(patch.body["status"]["reason"] == names.REMOTE_POD_NOT_READY for patch in patches)
    return sorted(patch.pod["metadata"]["name"] for patch in patches)


ONE_UNREADY = {"a": False, "b": True, "c": True, "d": True}


@pytest.mark.parametrize(
    ("facts", "seconds", "expected"),
    [
        pytest.param(gang(ONE_UNREADY), 44, [], id="before a share is due nothing is replaced"),
        pytest.param(gang(ONE_UNREADY), 45, ["a"], id="once the share is due its unready worker is replaced"),
        pytest.param(gang(ONE_UNREADY), 91, [], id="a Kueue that has not evicted in time has another timeout"),
        pytest.param(
            gang({**ONE_UNREADY, "c": False}),
            60,
            ["a"],
            id="an unready worker of a share that Kueue does not count stays",
        ),
        pytest.param(
            gang({**ONE_UNREADY, "c": False}, unready_since={"east": 0, "west": 20}),
            65,
            ["a", "c"],
            id="each share is judged by its own time",
        ),
        pytest.param(
            gang({"a": False, "b": False, "c": True, "d": True}),
            60,
            [],
            id="a share without a ready worker is left to Kueue",
        ),
        pytest.param(gang(ONE_UNREADY, deleting="a"), 60, [], id="a remote pod that is being deleted is not failed"),
        pytest.param(
            gang(ONE_UNREADY, unreachable={"east": "connection refused"}),
            60,
            [],
            id="nothing is done in an unreachable cluster",
        ),
    ],
)
def test_replaced_workers(facts: Gang, seconds: float, expected: list[str]) -> None:
    assert failed(facts, seconds) == expected


def test_all_unready_workers_of_a_share_are_replaced_at_once() -> None:
    """Else those that remain unready would keep Kueue counting."""
    facts = gang(ONE_UNREADY)
    workers = facts.pods.workers
    assert workers
    third = make_pod("e", placement=PLACEMENT.name, slot="east/1/role-workers/2", dispatched=True, group="workers")
    unready = make_copy(third)
    unready["status"]["conditions"] = [make_condition("Ready", False, since=40)]
    extended = replace(
        workers, pods=[*workers.pods, third], remote_pods={**workers.remote_pods, key_of(third): unready}
    )
    assert failed(replace(facts, pods=replace(facts.pods, workers=extended)), 60) == ["a", "e"]


@pytest.mark.parametrize("ahead", [-600, 600])
@pytest.mark.parametrize(("seconds", "expected"), [(44, []), (45, ["a"]), (89, ["a"]), (90, [])])
def test_a_share_is_due_by_its_clusters_clock(ahead: float, seconds: float, expected: list[str]) -> None:
    facts = gang(ONE_UNREADY, unready_since={"east": ahead})
    workers = facts.pods.workers
    assert workers
    clocks = ClockOffsets({"east": timedelta(seconds=ahead)})
    unready = remote_pod("a", ready=False)
    unready["status"]["conditions"] = [make_condition("Ready", False, since=ahead)]
    remotes = {**workers.remote_pods, key_of(manager_pod("a")): unready}
    pods = replace(facts.pods, workers=replace(workers, remote_pods=remotes))
    facts = replace(facts, pods=pods, clusters=replace(facts.clusters, clocks=clocks))
    assert failed(facts, seconds) == expected
    requeues = [action.delay for action in decide(facts, at(20)) if isinstance(action, RequeueAfter)]
    assert min(requeues) == timedelta(seconds=25)


def test_gang_is_requeued_when_the_next_share_is_due() -> None:
    delays = [action.delay for action in decide(gang(ONE_UNREADY), at(20)) if isinstance(action, RequeueAfter)]
    assert min(delays) == timedelta(seconds=25)


def test_event_and_status_name_cluster_and_timeout() -> None:
    actions = decide(gang(ONE_UNREADY), at(60))
    (patch,) = [action for action in actions if isinstance(action, PatchPodStatus)]
    (event,) = [action for action in actions if isinstance(action, EmitEvent)]
    text = (
        "1 worker was not ready in worker cluster east, whose Kueue stops all workers of a share when one of them is "
        "not ready for 1.5 min, so those that are not ready are created again."
    )
    assert patch.body["status"]["message"] == text
    assert (event.reason, event.message) == (names.EventReason.READINESS_TIMEOUT, text)


def test_a_worker_that_fails_a_probe_for_a_moment_stays() -> None:
    """Its sibling has been unready for long, and is replaced; this one was ready when the share became due."""
    facts = gang({"a": False, "b": True, "c": True, "d": True})
    flapping = remote_pod("b", ready=False)
    flapping["status"]["conditions"] = [make_condition("Ready", False, since=50)]
    third = {**remote_pod("b", ready=True), "metadata": {**remote_pod("b", ready=True)["metadata"], "name": "f"}}
    workers = facts.pods.workers
    assert workers
    extra = make_pod("f", placement=PLACEMENT.name, slot="east/1/role-workers/2", dispatched=True, group="workers")
    remotes = {**workers.remote_pods, key_of(manager_pod("b")): flapping, key_of(extra): third}
    changed = replace(workers, pods=[*workers.pods, extra], remote_pods=remotes)
    assert failed(replace(facts, pods=replace(facts.pods, workers=changed)), 60) == ["a"]


def test_workers_are_replaced_while_a_further_round_is_reserved() -> None:
    """A share that is lost in one cluster must not cost the ready workers of another one."""
    raw = make_placement(WORKLOAD, placedRound=1, round=2, state=PlacementState.RESERVING)
    for share in raw["spec"]["shares"]:
        share["round"] = 1
    raw["spec"]["shares"].append({"cluster": "north", "groups": [{"name": "workers", "role": "r", "count": 1}]})
    facts = gang(ONE_UNREADY)
    assert failed(replace(facts, placements=(parse_placement(raw),)), 60) == ["a"]


@pytest.mark.parametrize(
    ("spec", "due"),
    [
        pytest.param({}, 1650, id="with the default grace period, two and a half minutes before 30 min"),
        pytest.param({"terminationGracePeriodSeconds": 660}, 1020, id="a longer grace period comes earlier"),
        pytest.param({"terminationGracePeriodSeconds": 7200}, 900, id="at the earliest after half of the timeout"),
        pytest.param({"terminationGracePeriodSeconds": 2**63 - 1}, 900, id="more seconds than a time can have"),
    ],
)
def test_due_leaves_the_grace_period(spec: Raw, due: float) -> None:
    """Kueue counts a pod until it has ended."""
    reservation = replace(
        _reservation("east", 0), pods_ready_timeout=timedelta(minutes=30), templates={"r": {"spec": spec}}
    )
    assert reservation.pods_ready_due == at(due)


@pytest.mark.parametrize(
    ("missing", "seconds", "text"),
    [
        pytest.param(2, 0, "2 workers wait for capacity.", id="workers without a slot are reported at once"),
        pytest.param(0, 599, "", id="a job may take ten minutes to start"),
        pytest.param(0, 600, "Not all pods of the job are ready.", id="after ten minutes its user is warned"),
    ],
)
def test_warning_of_the_managers_clock(missing: int, seconds: float, text: str) -> None:
    workload = replace(parse_workload(WORKLOAD), pods_unready_since=at(0))
    actions = readiness_timeout.warn_of_eviction(gang(ONE_UNREADY), workload, missing, at(seconds))
    assert [action.message.startswith(text) for action in actions if isinstance(action, EmitEvent)] == [True] * bool(
        text
    )


def test_no_warning_without_the_clock() -> None:
    workload = parse_workload(WORKLOAD)
    assert readiness_timeout.warn_of_eviction(gang(ONE_UNREADY), workload, 2, at(900)) == []


def conditions(ready: Raw | None) -> Raw:
    raw = make_reservation(PLACED)
    raw["status"]["conditions"] = [
        make_condition(names.QUOTA_RESERVED, since=1),
        make_condition(names.ADMITTED, since=2),
        *([ready] if ready else []),
    ]
    return raw


@pytest.mark.parametrize(
    ("ready", "since"),
    [
        pytest.param(None, None, id="a Kueue without waitForPodsReady counts nothing"),
        pytest.param(make_condition("PodsReady", True, since=5), None, id="all pods are ready"),
        pytest.param(
            make_condition("PodsReady", False, reason="WaitForStart", since=5),
            at(2),
            id="until all pods were ready once it counts from the admission",
        ),
        pytest.param(
            make_condition("PodsReady", False, reason="WaitForRecovery", since=5),
            at(5),
            id="after that it counts from the first unready pod",
        ),
    ],
)
def test_since_when_kueue_counts(ready: Raw | None, since: datetime | None) -> None:
    assert parse_reservation("east", conditions(ready)).pods_unready_since == since


def test_placement_is_as_assumed() -> None:
    assert [(share.cluster, share.workers) for share in _shares(PLACEMENT)] == [("east", 2), ("west", 2)]


def _shares(placement: Placement) -> Any:
    return placement.shares
