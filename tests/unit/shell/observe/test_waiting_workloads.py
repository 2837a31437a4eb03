"""The Workloads that queue behind a gang, read from its ClusterQueue at most once a second."""

from dataclasses import replace
from datetime import timedelta

import pytest

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.shell.observe.waiting_workloads import WaitingWorkloads
from tests.unit.builders import NAMESPACE, START, make_cluster_queue, make_condition, make_workload, stamp
from tests.unit.stores import Sight, make_local_queue

TAKEN = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed"
NEVER = "couldn't assign flavors to pod set main: resource tpu unavailable in ClusterQueue"


def waiting(message: str, queue: str, number: int = 1) -> Raw:
    said = {"type": names.QUOTA_RESERVED, "status": "False", "reason": "Pending", "message": message}
    metadata = {"name": f"w{number}", "namespace": NAMESPACE, "uid": f"w{number}", "creationTimestamp": stamp(number)}
    conditions = [{**said, "lastTransitionTime": stamp(number)}]
    return {"metadata": metadata, "spec": {"queueName": queue}, "status": {"conditions": conditions}}


def sight(*others: Raw, strategy: str = "BestEffortFIFO") -> tuple[Sight, WaitingWorkloads]:
    """Two ClusterQueues, each with Workloads that are pending; the gang is in `all`."""
    seen = Sight({"east": 4})
    queue = make_cluster_queue(99, name="all")
    queue["spec"]["queueingStrategy"], queue["status"]["pendingWorkloads"] = strategy, 1
    seen.manager.cluster_queues.replace([queue, make_cluster_queue(9, name="other")])
    elsewhere = {**make_local_queue("other"), "metadata": {"name": "team-b", "namespace": NAMESPACE}}
    seen.manager.local_queues.replace([make_local_queue("all"), elsewhere])
    seen.manager.workloads.replace([make_workload(), *others])
    return seen, WaitingWorkloads(seen.manager)


GANG = parse_workload(make_workload())
NOW = START + timedelta(seconds=60)


def test_the_first_that_waits_for_quota_counts() -> None:
    _, pending = sight(waiting(TAKEN, GANG.queue, 7), waiting(TAKEN, GANG.queue, 3))
    assert pending.others_wait_from(GANG, NOW) == START + timedelta(seconds=3)


def test_a_counted_but_unobserved_workload_is_looked_up_again() -> None:
    """Kueue's count may come before its Workload, or not change when one has gone and another one come."""
    seen, pending = sight()
    at = pending.others_wait_from(GANG, NOW)
    assert at is not None and NOW < at <= NOW + timedelta(seconds=5)
    seen.manager.workloads.replace([make_workload(), waiting(TAKEN, GANG.queue, 7)])
    assert pending.others_wait_from(GANG, at) == START + timedelta(seconds=7)


def test_workloads_without_hope_or_of_other_queues_do_not_count() -> None:
    _, pending = sight(waiting(NEVER, GANG.queue, 1), waiting(TAKEN, "team-b", 2))
    assert pending.others_wait_from(GANG, NOW) is None


def test_a_workload_behind_another_counts_in_a_strict_queue_only() -> None:
    _, pending = sight(waiting("", GANG.queue), strategy=names.STRICT_FIFO)
    at = pending.others_wait_from(GANG, NOW)
    assert at is not None and at < NOW
    _, pending = sight(waiting("", GANG.queue))
    for seconds in (0.0, 0.9, 30.0):
        now = NOW + timedelta(seconds=seconds)
        at = pending.others_wait_from(GANG, now)
        assert at is not None and at > now, "it may get an answer at any moment, and counts then"


@pytest.mark.parametrize(
    ("head", "behind", "strategy", "want"),
    [
        pytest.param(1, 2, names.STRICT_FIFO, False, id="the queue stops behind it"),
        pytest.param(2, 1, names.STRICT_FIFO, True, id="a Workload before it is tried"),
        pytest.param(1, 2, "BestEffortFIFO", True, id="it is passed over in a best-effort queue"),
    ],
)
@pytest.mark.parametrize("says", [TAKEN, ""])
def test_a_gang_is_not_deactivated_for_a_workload_behind_one_that_never_fits(
    head: int, behind: int, strategy: str, want: bool, says: str
) -> None:
    """In a strict queue that Workload stays first, so freed quota helps none, and the gang would queue behind it."""
    _, pending = sight(waiting(NEVER, GANG.queue, head), waiting(says, GANG.queue, behind), strategy=strategy)
    assert (pending.others_wait_from(GANG, NOW) is not None) is want


def test_in_a_strict_queue_priority_comes_before_age() -> None:
    first = waiting(TAKEN, GANG.queue, 9)
    first["spec"]["priority"] = 10
    _, pending = sight(waiting(NEVER, GANG.queue, 1), first, strategy=names.STRICT_FIFO)
    assert pending.others_wait_from(GANG, NOW) == START + timedelta(seconds=9)


@pytest.mark.parametrize(
    ("reason", "status", "want"),
    [
        pytest.param(
            "AdmissionCheck", "True", False, id="a Workload evicted by its admission check queues behind the other"
        ),
        pytest.param(
            "PodsReadyTimeout", "True", False, id="a Workload evicted by its start timeout queues behind the other"
        ),
        pytest.param("AdmissionCheck", "False", True, id="a Workload that has had quota since"),
        pytest.param("Deactivated", "True", True, id="a deactivated Workload keeps the place of its creation"),
    ],
)
def test_in_a_strict_queue_evicted_workloads_come_after_waiting_ones(reason: str, status: str, want: bool) -> None:
    """Otherwise quota would seem to help it, and a gang would be deactivated for nothing."""
    back = waiting("", GANG.queue, 1)
    evicted = {"type": names.EVICTED, "status": status, "reason": reason, "lastTransitionTime": stamp(30)}
    back["status"]["conditions"].append(evicted)
    _, pending = sight(waiting(NEVER, GANG.queue, 5), back, strategy=names.STRICT_FIFO)
    assert (pending.others_wait_from(GANG, NOW) is not None) is want


@pytest.mark.parametrize(
    ("message", "number", "priority", "want"),
    [
        pytest.param(TAKEN, 29, 0, True, id="it was queued before"),
        pytest.param(TAKEN, 31, 0, False, id="it was queued later"),
        pytest.param(TAKEN, 31, 1, True, id="it was queued later with a higher priority"),
        pytest.param(TAKEN, 29, -1, False, id="it was queued before with a lower priority"),
        pytest.param(NEVER, 29, 0, False, id="quota would not help it"),
        pytest.param("", 29, 0, False, id="Kueue has not tried it yet"),
    ],
)
def test_an_earlier_workload_waits_for_the_quota_of_a_gang_that_queued_again(
    message: str, number: int, priority: int, want: bool
) -> None:
    other = waiting(message, GANG.queue, number)
    other["spec"]["priority"] = priority
    _, pending = sight(other)
    back = replace(GANG, created_at=START, requeued_at=START + timedelta(seconds=30))
    assert pending.earlier_one_waits(back, NOW) is want


@pytest.mark.parametrize(
    ("reserved", "state", "want"),
    [
        pytest.param(30, names.CHECK_PENDING, True, id="Kueue gave the quota back at once"),
        pytest.param(34, names.CHECK_PENDING, False, id="Kueue tried the other first"),
        pytest.param(30, names.CHECK_READY, False, id="the job runs"),
    ],
)
def test_a_gang_that_queued_again_notices_an_earlier_workload(reserved: float, state: str, want: bool) -> None:
    seen, _ = sight(waiting(TAKEN, GANG.queue, 29))
    back = make_workload(reserved=reserved, check=state)
    back["metadata"]["creationTimestamp"] = stamp(0)
    requeued = make_condition(names.REQUEUED, since=30, reason=names.BACKOFF_FINISHED)
    back["status"]["conditions"].append(requeued)
    seen.manager.workloads.replace([back, waiting(TAKEN, GANG.queue, 29)])
    gang = seen.facts.gang_observer.facts(GANG.key, NOW)
    assert gang.capacity.earlier_jobs_wait is want


def test_no_workload_is_pending_before_a_gang_that_queued_again() -> None:
    seen, pending = sight()
    seen.manager.cluster_queues.replace([make_cluster_queue(99, name="all")])
    assert not pending.earlier_one_waits(replace(GANG, requeued_at=START), NOW)


@pytest.mark.parametrize(("uid", "want"), [("a", True), ("z", False)])
def test_workloads_of_the_same_second_are_ordered_by_uid(uid: str, want: bool) -> None:
    other = waiting(TAKEN, GANG.queue, 1)
    other["metadata"] |= {"name": uid, "uid": uid}
    _, pending = sight(waiting(NEVER, GANG.queue, 1), other, strategy=names.STRICT_FIFO)
    assert (pending.others_wait_from(GANG, NOW) is not None) is want


def test_a_workload_without_a_queue_does_not_count() -> None:
    held = waiting("LocalQueue q doesn't exist", GANG.queue, 1)
    held["status"]["conditions"][0]["reason"] = "Inadmissible"
    _, pending = sight(held, waiting(TAKEN, GANG.queue, 2), strategy=names.STRICT_FIFO)
    assert pending.others_wait_from(GANG, NOW) is not None


def test_a_change_is_observed_within_a_second() -> None:
    seen, pending = sight(waiting(NEVER, GANG.queue))
    assert pending.others_wait_from(GANG, NOW) is None
    seen.manager.workloads.replace([make_workload(), waiting(TAKEN, GANG.queue)])
    assert pending.others_wait_from(GANG, NOW + timedelta(seconds=1)) is not None
    seen.manager.workloads.replace([make_workload(), waiting(NEVER, GANG.queue)])
    assert pending.others_wait_from(GANG, NOW) is None, "nor does a clock that was put back keep it from being seen"


def test_a_new_workload_is_observed_at_once_when_none_waited() -> None:
    """He was woken for that, and does not look again for half a minute."""
    in_vain = waiting(NEVER, GANG.queue)
    seen, pending = sight(in_vain)
    assert pending.others_wait_from(GANG, NOW) is None
    soon = NOW + timedelta(seconds=0.5)
    seen.manager.workloads.replace([make_workload(), in_vain, waiting(TAKEN, GANG.queue, 3)])
    assert pending.others_wait_from(GANG, soon) is None, "nothing says that anybody came"
    queue = make_cluster_queue(99, name="all")
    queue["metadata"]["resourceVersion"], queue["status"]["pendingWorkloads"] = "2", 2
    seen.manager.cluster_queues.put(queue)
    assert pending.others_wait_from(GANG, soon) == START + timedelta(seconds=3)


def test_a_borrowing_gang_delays_its_cohort() -> None:
    seen, pending = sight(waiting(TAKEN, "team-b", 2))

    def queues(borrowed: str, cohort: str) -> None:
        mine, other = (
            make_cluster_queue(9, name=name, cohortName=one) for name, one in (("all", "c"), ("other", cohort))
        )
        mine["status"]["flavorsReservation"] = [{"name": "any", "resources": [{"name": "cpu", "borrowed": borrowed}]}]
        other["status"]["pendingWorkloads"] = 1
        seen.manager.cluster_queues.replace([mine, other])

    queues("0", "c")
    assert pending.others_wait_from(GANG, NOW) is None, "it takes nobody's"
    queues("2", "d")
    assert pending.others_wait_from(GANG, NOW) is None, "the other one is of another cohort"
    queues("2", "c")
    assert pending.others_wait_from(GANG, NOW) == START + timedelta(seconds=2)
