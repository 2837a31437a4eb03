"""Who queues behind a gang is read from the Workloads of its ClusterQueue, at most once a second."""

from datetime import timedelta

import pytest

from adapter import names
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.shell.observe.waiting_workloads import WaitingWorkloads
from tests.unit.builders import NAMESPACE, START, make_cluster_queue, make_workload, stamp
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


def test_who_is_counted_and_not_seen_yet_is_looked_for_again() -> None:
    """Kueue's count may come before its Workload, or not change when one has gone and another one come."""
    seen, pending = sight()
    at = pending.others_wait_from(GANG, NOW)
    assert at is not None and NOW < at <= NOW + timedelta(seconds=5)
    seen.manager.workloads.replace([make_workload(), waiting(TAKEN, GANG.queue, 7)])
    assert pending.others_wait_from(GANG, at) == START + timedelta(seconds=7)


def test_whom_no_quota_helps_and_who_waits_elsewhere_does_not() -> None:
    _, pending = sight(waiting(NEVER, GANG.queue, 1), waiting(TAKEN, "team-b", 2))
    assert pending.others_wait_from(GANG, NOW) is None


def test_who_is_behind_another_counts_in_a_queue_of_strict_order_only() -> None:
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
        pytest.param(1, 2, names.STRICT_FIFO, False, id="nobody is tried behind it"),
        pytest.param(2, 1, names.STRICT_FIFO, True, id="who is before it is tried"),
        pytest.param(1, 2, "BestEffortFIFO", True, id="it is passed over"),
    ],
)
@pytest.mark.parametrize("says", [TAKEN, ""])
def test_nobody_gives_way_to_who_is_behind_one_that_never_fits(
    head: int, behind: int, strategy: str, want: bool, says: str
) -> None:
    """In a strict queue that one stays the first, so the quota would help nobody; and who gave it away queued behind that one."""
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
        pytest.param("AdmissionCheck", "True", False, id="it gave way, and queues behind the one that never fits"),
        pytest.param("PodsReadyTimeout", "True", False, id="so does one that did not start"),
        pytest.param("AdmissionCheck", "False", True, id="it has had quota since"),
        pytest.param("Deactivated", "True", True, id="it keeps the place of its creation"),
    ],
)
def test_in_a_strict_queue_who_gave_way_comes_after_who_waited(reason: str, status: str, want: bool) -> None:
    """Else it would count as one whom quota helps, and a gang would give way to it for nothing."""
    back = waiting("", GANG.queue, 1)
    evicted = {"type": names.EVICTED, "status": status, "reason": reason, "lastTransitionTime": stamp(30)}
    back["status"]["conditions"].append(evicted)
    _, pending = sight(waiting(NEVER, GANG.queue, 5), back, strategy=names.STRICT_FIFO)
    assert (pending.others_wait_from(GANG, NOW) is not None) is want


@pytest.mark.parametrize(("uid", "want"), [("a", True), ("z", False)])
def test_of_two_that_came_in_the_same_second_the_uid_tells(uid: str, want: bool) -> None:
    other = waiting(TAKEN, GANG.queue, 1)
    other["metadata"] |= {"name": uid, "uid": uid}
    _, pending = sight(waiting(NEVER, GANG.queue, 1), other, strategy=names.STRICT_FIFO)
    assert (pending.others_wait_from(GANG, NOW) is not None) is want


def test_one_that_is_in_no_queue_is_in_nobodys_way() -> None:
    held = waiting("LocalQueue q doesn't exist", GANG.queue, 1)
    held["status"]["conditions"][0]["reason"] = "Inadmissible"
    _, pending = sight(held, waiting(TAKEN, GANG.queue, 2), strategy=names.STRICT_FIFO)
    assert pending.others_wait_from(GANG, NOW) is not None


def test_what_changed_is_seen_within_a_second() -> None:
    seen, pending = sight(waiting(NEVER, GANG.queue))
    assert pending.others_wait_from(GANG, NOW) is None
    seen.manager.workloads.replace([make_workload(), waiting(TAKEN, GANG.queue)])
    assert pending.others_wait_from(GANG, NOW + timedelta(seconds=1)) is not None
    seen.manager.workloads.replace([make_workload(), waiting(NEVER, GANG.queue)])
    assert pending.others_wait_from(GANG, NOW) is None, "nor does a clock that was put back keep it from being seen"


def test_who_comes_is_seen_at_once_by_who_finds_nobody() -> None:
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


def test_who_borrows_is_in_the_way_of_its_cohort() -> None:
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
