"""The quota of a share whose workers were preempted becomes free even if Kueue did not see its last pod end."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter import names
from adapter.actions import DeleteShare, DeleteSharePods, Plan, RequeueAfter, UpdatePlacementStatus
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.gang.timeouts import RESYNC
from adapter.objects.placement import parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from tests.unit.builders import JOB, NAMESPACE, at, make_copy, make_placement, make_pod, make_reservation, make_workload
from tests.unit.stores import Sight, fill

WORK = make_workload(check=names.CHECK_READY)
PLACE = make_placement(WORK, shares={"east": {"workers": 4}}, placedRound=1)
EVICTED, HELD = make_reservation(PLACE, conditions=[names.EVICTED]), make_reservation(PLACE)
RAY_JOB: Raw = {"metadata": {"name": JOB, "namespace": NAMESPACE, "uid": "uid-of-job"}}
GONE = make_reservation(PLACE, admitted=False, message="Preempted", conditions=[names.EVICTED])


def copy() -> Raw:
    return make_copy(make_pod(placement=PLACE["metadata"]["name"], slot="east/1/role-workers/0"))


def seen(share: Raw, *pods: Raw, jobs: Sequence[Raw] = (RAY_JOB,)) -> Gang:
    """The gang with its share in east, these pods on it, and these RayJobs in the manager."""
    sight = Sight({"east": 8})
    fill(sight.manager.workloads, WORK)
    fill(sight.manager.ray_jobs, *jobs)
    fill(sight.manager.placements, PLACE)
    fill(sight.members["east"].workloads, share)
    fill(sight.members["east"].pods, *pods)
    return sight.facts.gang_observer.facts((NAMESPACE, WORK["metadata"]["name"]), at(5))


@pytest.mark.parametrize(
    ("share", "pods", "stranded", "lost"),
    [
        pytest.param(EVICTED, [], True, True, id="an evicted share without pods is deleted"),
        pytest.param(EVICTED, [copy()], False, False, id="an evicted share with a pod is left to Kueue"),
        pytest.param(HELD, [], False, False, id="a share that is not evicted waits for its pods"),
        pytest.param(GONE, [], False, True, id="an evicted share whose quota is free queues again"),
    ],
)
def test_an_evicted_share_without_pods_is_deleted(share: Raw, pods: list[Raw], stranded: bool, lost: bool) -> None:
    """The workers of a running job are planned again; then the share stands in nobody's way and is deleted."""
    gang = seen(share, *pods)
    assert [found.stranded for found in gang.shares.reservations] == [stranded]
    assert any(isinstance(action, Plan) and action.kept_shares == () for action in decide(gang, at(5))) is lost


@pytest.mark.parametrize("placed", [0, 1])
def test_an_evicted_share_of_a_job_that_does_not_run_is_deleted_at_once(placed: int) -> None:
    """Also when its Placement says that it was placed, and Kueue has not been notified yet."""
    place = parse_placement(make_placement(WORK, shares={"east": {"workers": 4}}, placedRound=placed))
    gang = replace(seen(EVICTED), workload=parse_workload(make_workload()), placements=(place,))
    assert decide(gang, at(5)) == [DeleteShare(gang.shares.reservations[0]), RequeueAfter(RESYNC)]


def test_the_message_of_a_preempted_share_says_that_its_workers_were_stopped() -> None:
    """Not that a check is pending, as for a share that has quota and waits."""
    gang = seen(EVICTED, copy())
    said = [str(action.status["reason"]) for action in decide(gang, at(5)) if isinstance(action, UpdatePlacementStatus)]
    assert len(said) == 1 and "its workers were stopped there" in said[0]


LEAVING: Raw = {"metadata": {**RAY_JOB["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
ANOTHER: Raw = {"metadata": {**RAY_JOB["metadata"], "uid": "uid-of-a-later-one"}}


@pytest.mark.parametrize(
    ("jobs", "gone"),
    [
        pytest.param([RAY_JOB], False, id="the job exists"),
        pytest.param([], True, id="the job is deleted, and its Workload is not garbage-collected yet"),
        pytest.param([LEAVING], True, id="the job is being deleted, and waits for the objects that it owns"),
        pytest.param([ANOTHER], True, id="another job has the name now"),
    ],
)
def test_the_shares_of_a_deleted_job_are_deleted(jobs: list[Raw], gone: bool) -> None:
    gang = seen(HELD, copy(), jobs=jobs)
    assert (decide(gang, at(5)) == [DeleteSharePods(gang.shares.reservations[0], (copy(),))]) is gone
