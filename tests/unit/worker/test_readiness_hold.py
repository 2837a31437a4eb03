"""No remote pod is created on a share while Kueue is about to evict it for pods that are not ready."""

from dataclasses import replace
from datetime import timedelta

import pytest

from adapter.actions import CreatePod
from adapter.objects.cluster_clock import ClockOffsets
from adapter.objects.placement import parse_placement
from adapter.objects.reservation import Reservation
from adapter.worker.dispatch import decide
from tests.unit.builders import at, make_placement, make_workload
from tests.unit.worker.test_dispatch import ADMITTED, EAST, SLOTTED, worker

TIMEOUT = timedelta(seconds=90)


@pytest.mark.parametrize(
    ("seconds", "created"),
    [
        pytest.param(44, True, id="before the share is due the worker joins its siblings"),
        pytest.param(45, False, id="once the share is due Kueue must first see only ready pods"),
        pytest.param(90, True, id="a Kueue that has not evicted in time has another timeout"),
    ],
)
def test_creation(seconds: float, created: bool) -> None:
    reservations = {**ADMITTED, EAST: _counting(ADMITTED[EAST])}
    actions = decide(worker(SLOTTED, reservations=reservations), at(seconds))
    assert any(isinstance(action, CreatePod) for action in actions) is created


def test_a_share_of_one_worker_has_no_others_to_protect() -> None:
    placement = make_placement(make_workload(groups={"workers": 1}), shares={"east": {"workers": 1}})
    reservations = {**ADMITTED, EAST: _counting(ADMITTED[EAST])}
    facts = worker(SLOTTED, placement=parse_placement(placement), reservations=reservations)
    assert any(isinstance(action, CreatePod) for action in decide(facts, at(60)))


@pytest.mark.parametrize(("seconds", "created"), [(644, True), (645, False)])
def test_creation_in_a_cluster_whose_clock_is_behind(seconds: float, created: bool) -> None:
    """Its Kueue counts by its own clock."""
    reservations, clocks = {**ADMITTED, EAST: _counting(ADMITTED[EAST])}, ClockOffsets({"east": timedelta(minutes=-10)})
    actions = decide(worker(SLOTTED, reservations=reservations, clocks=clocks), at(seconds))
    assert any(isinstance(action, CreatePod) for action in actions) is created


def _counting(reservation: Reservation) -> Reservation:
    return replace(reservation, pods_unready_since=at(0), pods_ready_timeout=TIMEOUT)
