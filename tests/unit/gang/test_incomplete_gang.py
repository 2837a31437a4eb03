"""A gang that needs all of its workers, and never had them, keeps no quota for workers that cannot start."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import EmitEvent, SetCheck
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.unstructured import RawDict as Raw
from tests.unit.builders import at, stamp
from tests.unit.gang.test_start_timeout import (
    E0,
    RUNS,
    W0,
    W1,
    WHY,
    copy_of,
    gang,
    gathered,
    placed,
    pod,
)
from tests.unit.gang.test_uncreated_workers import of_a_service

ONE_WAITS = gathered([E0, RUNS, W0, W1], {"b": copy_of(RUNS)})


def excluding(**waiting: Any) -> Raw:
    """A plan that excluded east, and found no slot elsewhere."""
    return placed(excluded={"east": 300}, **waiting)


def without_room(place: Raw | None = None, **more: Any) -> Gang:
    raw = place or excluding()
    raw["spec"]["waitingSince"] = stamp(0)
    workers = more.pop("workers", ONE_WAITS)
    return gang(workers, raw, **more)


def checks_of(found: Gang, seconds: float) -> list[SetCheck]:
    return [action for action in decide(found, at(seconds)) if isinstance(action, SetCheck)]


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(without_room(), id="no other cluster has capacity"),
        pytest.param(gang(ONE_WAITS, same_cluster=True), id="it may not be divided"),
    ],
)
def test_it_queues_again_when_a_created_worker_does_not_start(found: Gang) -> None:
    assert not checks_of(found, 99)
    (check,) = checks_of(found, 100)
    (event,) = [action for action in decide(found, at(100)) if isinstance(action, EmitEvent)]
    text = (
        f"1 worker of the job did not start within 100s (2 east, 2 west): {WHY[:-1]}. The job needs all of its "
        "workers, and no other cluster has capacity, so it gives its capacity back and queues again."
    )
    assert (check.state, check.message) == (names.CHECK_RETRY, text)
    assert (event.reason, event.message) == (names.EventReason.START_TIMEOUT, text)
    assert check.past_exclusions and check.past_exclusions.until.keys() == {"east"}
    assert check.past_exclusions.start_timeouts == 1


@pytest.mark.parametrize(("container", "waits"), [("fetch-model", True), (names.GCS_WAITER, False)])
@pytest.mark.parametrize("divided", [True, False])
def test_a_worker_that_loads_its_data_is_waited_for(container: str, waits: bool, divided: bool) -> None:
    loads = copy_of(E0)
    loads["status"]["initContainerStatuses"] = [{"name": container, "state": {"running": {"startedAt": stamp(0)}}}]
    workers = gathered([E0, RUNS, W0, W1], {"a": loads, "b": copy_of(RUNS)})
    found = without_room(workers=workers) if divided else gang(workers, same_cluster=True)
    assert bool(checks_of(found, 250)) is not waits


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(without_room(all_or_nothing=False), id="it may run with a part of its workers"),
        pytest.param(without_room(workers=replace(ONE_WAITS, was_complete=True)), id="all of its workers ran once"),
        pytest.param(without_room(workload=of_a_service()), id="it serves a RayService"),
        pytest.param(without_room(unreachable={"west": "is unreachable"}), id="workers in a cluster are not observed"),
        pytest.param(gang(ONE_WAITS, placed(excluded={"east": 300})), id="the last plan found slots"),
        pytest.param(without_room(placed()), id="other clusters were not tried yet"),
        pytest.param(without_room(workers=replace(ONE_WAITS, head_ready_since=None)), id="its head is not ready"),
        pytest.param(without_room(workers=replace(ONE_WAITS, admitted_shares=frozenset())), id="a share is awaited"),
    ],
)
def test_a_gang_that_may_compute_or_move_is_not_stopped(found: Gang) -> None:
    assert not checks_of(found, 250)


def test_it_queues_again_when_a_worker_has_had_no_slot_for_as_long() -> None:
    """Its share was lost before the gang was ever complete, and no plan has found another one."""
    workers = gathered([pod("a", ""), RUNS, W0, W1], {"b": copy_of(RUNS)})
    found = without_room(workers=workers)
    assert not checks_of(found, 99)
    (check,) = checks_of(found, 100)
    assert check.state == names.CHECK_RETRY and check.past_exclusions is None
    assert "1 worker of the job did not start within 100s (2 east, 2 west): their quota was lost" in check.message
    assert not checks_of(without_room(workers=replace(workers, admitted_shares=frozenset())), 250), (
        "it is planned again"
    )


def test_an_unstartable_worker_has_the_whole_time_before_that() -> None:
    """It moves after a minute if another cluster has capacity; its cluster may yet mend what it waits for."""
    found = without_room(start_timeout=at(900) - at(0), unstartable_since={"uid-of-a": at(0)})
    assert not checks_of(found, 299)
