"""A share whose workers were preempted: its quota comes free even where Kueue did not see the last pod end."""

from typing import Any

import pytest

from adapter import names
from adapter.actions import LookAgain, Record, Release
from adapter.gang import Gang
from adapter.lifecycle import RESYNC, decide
from tests.unit.builders import NAMESPACE, at, make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.sight import Sight, fill

Raw = dict[str, Any]
WORK = make_workload(check=names.CHECK_READY)
PLACE = make_placement(WORK, shares={"east": {"workers": 4}})
EVICTED, HELD = make_reservation(PLACE, conditions=[names.EVICTED]), make_reservation(PLACE)
GONE = make_reservation(PLACE, admitted=False, message="Preempted", conditions=[names.EVICTED])


def copy() -> Raw:
    found = make_copy(make_pod())
    found["metadata"]["labels"][names.PLACEMENT_LABEL] = PLACE["metadata"]["name"]
    return found


def seen(share: Raw, *pods: Raw) -> Gang:
    """The gang as it is observed with its share in east and these pods of it there."""
    sight = Sight({"east": 8})
    fill(sight.home.workloads, WORK)
    fill(sight.home.placements, PLACE)
    fill(sight.members["east"].workloads, share)
    fill(sight.members["east"].pods, *pods)
    return sight.observer.gang((NAMESPACE, WORK["metadata"]["name"]), sight.memory, at(5))


@pytest.mark.parametrize(
    ("share", "pods", "stranded"),
    [
        pytest.param(EVICTED, [], True, id="evicted, and no pod is left to tell Kueue"),
        pytest.param(EVICTED, [copy()], False, id="a pod is there: Kueue sees it end"),
        pytest.param(HELD, [], False, id="not evicted: its pods are still to come"),
        pytest.param(GONE, [], False, id="evicted, and its quota is free: it queues again"),
    ],
)
def test_stranded(share: Raw, pods: list[Raw], stranded: bool) -> None:
    gang = seen(share, *pods)
    assert [found.stranded for found in gang.reservations] == [stranded]
    assert (decide(gang, at(5)) == [Release(gang.reservations[0]), LookAgain(RESYNC)]) is stranded


def test_who_was_stopped_is_told_why() -> None:
    """And not that a check is pending, as for a share that has quota and waits."""
    gang = seen(EVICTED, copy())
    said = [str(action.status["reason"]) for action in decide(gang, at(5)) if isinstance(action, Record)]
    assert len(said) == 1 and "its workers were stopped there" in said[0]
