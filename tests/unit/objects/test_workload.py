"""A Workload is parsed completely, counts as ours only while it holds quota, and each reservation of it is another
attempt."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.objects.rayjob import job_presence, read_job
from adapter.objects.unstructured import Raw
from adapter.objects.workload import AdmissionCheckState, Job, active_slice, parse_workload
from tests.unit import builders as make


def test_a_workload_is_read_whole() -> None:
    raw = make.make_workload(groups={"workers": 4, "gpu": 1}, check="Pending", message="m", version=7)
    raw["spec"] |= {"priority": 0}
    raw["status"]["admissionChecks"][0]["podSetUpdates"] = [{"name": "workers"}]
    work = parse_workload(raw)
    assert work.key == ("demo", "rayjob-train")
    assert (work.uid, work.resource_version, work.queue) == ("uid-of-rayjob-train", "7", "team-a")
    assert work.priority == 0, "zero is a priority, absent is none"
    assert (work.deleting, work.finished, work.holds_quota) == (False, False, True)
    assert work.reserved_at == make.START
    assert [(p.name, p.count, sorted(p.flavors)) for p in work.podsets] == [
        ("head", 1, []),
        ("workers", 4, ["remote"]),
        ("gpu", 1, ["remote"]),
    ]
    assert work.job == Job("ray.io/v1", "RayJob", "demo", "train", "uid-of-job")
    assert work.checks == {make.CHECK: AdmissionCheckState("Pending", "m", ({"name": "workers"},))}


def requeued(reason: str, *, status: bool = True, since: float = 60, noted: float | None = None) -> Raw:
    raw = make.make_workload()
    raw["metadata"]["creationTimestamp"] = make.stamp(0)
    raw["metadata"]["annotations"] = {} if noted is None else {names.REQUEUED_AT_ANNOTATION: make.stamp(noted)}
    raw["status"]["conditions"].append(make.make_condition(names.REQUEUED, status, since=since, reason=reason))
    return raw


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        pytest.param(requeued("BackoffFinished"), 60, id="a check said Retry, or Kueue's clock for ready pods ran out"),
        pytest.param(requeued("BackoffFinished", since=-60), 0, id="Kueue's clock is behind"),
        pytest.param(requeued("AdmissionCheck", status=False), 0, id="it is not back in its queue yet"),
        pytest.param(requeued("Preempted"), 0, id="it was preempted, which keeps its age"),
        pytest.param(requeued("Reactivated"), 0, id="it was deactivated, which keeps its age"),
        pytest.param(requeued("Reactivated", noted=30), 30, id="it was deactivated after it had queued again"),
        pytest.param(requeued("BackoffFinished", noted=30), 60, id="it queued again once more"),
        pytest.param(make.make_workload(), None, id="it has no times"),
    ],
)
def test_a_workload_that_kueue_queued_again_counts_from_then(raw: Raw, want: float | None) -> None:
    assert parse_workload(raw).queued_at == (None if want is None else make.at(want))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({}, id="no fields"),
        pytest.param({"metadata": None, "spec": None, "status": None}, id="null fields"),
        pytest.param(
            {"spec": {"podSets": None}, "status": {"admission": None, "admissionChecks": None}}, id="no lists"
        ),
        pytest.param({"metadata": {"ownerReferences": [{"uid": "a"}]}}, id="an owner that is no controller"),
    ],
)
def test_an_empty_workload_holds_no_quota(raw: Raw) -> None:
    work = parse_workload(raw)
    assert (work.holds_quota, work.attempt, work.podsets, work.job, work.checks) == (False, "", (), None, {})
    assert work.reserved_at is None


def test_malformed_podsets_and_flavors_are_ignored() -> None:
    raw = make.make_workload()
    raw["spec"]["podSets"] = [{}, {"name": "workers", "count": None, "template": None}]
    raw["status"]["admission"]["podSetAssignments"] = [{"name": "workers", "flavors": None}]
    assert [(p.name, p.count, p.template, p.flavors) for p in parse_workload(raw).podsets] == [
        ("main", 0, {}, frozenset()),
        ("workers", 0, {}, frozenset()),
    ]


HOLDS = [
    pytest.param({}, True, id="reserved and active"),
    pytest.param({"conditions": [names.ADMITTED]}, True, id="admitted too"),
    pytest.param({"reserved": None}, False, id="not reserved"),
    pytest.param({"conditions": [names.EVICTED]}, False, id="reserved still, but evicted"),
    pytest.param({"active": False}, False, id="reserved still, but deactivated"),
]


@pytest.mark.parametrize(("given", "want"), HOLDS)
def test_quota_is_held_only_while_we_may_act(given: Raw, want: bool) -> None:
    assert parse_workload(make.make_workload(**given)).holds_quota is want


def test_a_workload_is_active_by_default() -> None:
    raw = make.make_workload()
    del raw["spec"]["active"]
    assert parse_workload(raw).holds_quota


# --- attempts --------------------------------------------------------------------------------------------------------


def attempt(raw: Raw) -> str:
    return parse_workload(raw).attempt


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"version": 99}, id="a newer version"),
        pytest.param({"check": names.CHECK_READY, "message": "placed"}, id="our check turned Ready"),
        pytest.param({"conditions": [names.ADMITTED]}, id="admitted"),
        pytest.param({"conditions": [names.FINISHED]}, id="finished"),
    ],
)
def test_an_attempt_keeps_its_name_while_its_reservation_stands(later: Raw) -> None:
    assert attempt(make.make_workload(**later)) == attempt(make.make_workload()) != ""


def test_key_order_does_not_change_the_attempt() -> None:
    """Another API server or a proxy may write the same object in another order."""
    one, two = make.make_workload(), make.make_workload()
    two["status"]["admission"] = dict(reversed(two["status"]["admission"].items()))
    assert attempt(one) == attempt(two)


def assigned(**more: Any) -> Raw:
    """A Workload whose one podset has another assignment."""
    raw = make.make_workload()
    raw["status"]["admission"]["podSetAssignments"][0] |= more
    return raw


def test_a_topology_assignment_does_not_change_the_attempt() -> None:
    """Kueue may change it within a reservation: a node is replaced, and the quota stays."""
    first, second = ({"levels": ["zone"], "slices": [{"domainCount": n}]} for n in (1, 2))
    found = {
        attempt(assigned()),
        attempt(assigned(topologyAssignment=first)),
        attempt(assigned(topologyAssignment=second)),
    }
    assert len(found) == 1


def test_a_new_reservation_is_another_attempt() -> None:
    other, elsewhere, second = make.make_workload(), make.make_workload(), make.make_workload()
    other["metadata"]["uid"] = "another"
    elsewhere["status"]["admission"]["clusterQueue"] = "team-b"
    second["status"]["admission"]["podSetAssignments"].append({"name": "gpu"})
    changed = {
        "as it was": make.make_workload(),
        "reserved later": make.make_workload(reserved=1),
        "another object": other,
        "another queue": elsewhere,
        "another podset": second,
        "another name of the podset": assigned(name="gpu"),
        "another flavor": assigned(flavors={"cpu": "local"}),
        "another resource": assigned(flavors={"cpu": "remote", "memory": "remote"}),
        "another count": assigned(count=3),
    }
    found = {what: attempt(raw) for what, raw in changed.items()}
    assert len(set(found.values())) == len(changed), found


def test_without_a_reservation_there_is_no_attempt() -> None:
    assert attempt(make.make_workload(reserved=None)) == ""
    assert parse_workload(make.make_workload(reserved=None)).reserved_at is None


def test_an_attempt_can_stand_in_a_label() -> None:
    name = attempt(make.make_workload())
    assert len(name) == 8
    assert set(name) <= set("0123456789abcdef")


JOB = Job("ray.io/v1", "RayJob", "demo", "train", "uid-of-job")


@pytest.mark.parametrize(
    ("kind", "raw", "want"),
    [
        pytest.param("RayJob", {"metadata": {"uid": "uid-of-job"}}, "There", id="the job exists"),
        pytest.param(
            "RayCluster",
            {"metadata": {"uid": "uid-of-job", "deletionTimestamp": make.stamp()}},
            "Leaving",
            id="the job is being deleted, which a finalizer may delay",
        ),
        pytest.param("RayJob", {}, "Gone", id="the job is deleted, or not observed yet"),
        pytest.param("RayJob", {"metadata": {"uid": "another"}}, "Gone", id="another job of that name"),
        pytest.param(
            "RayJob",
            {"metadata": {"uid": "another", "deletionTimestamp": make.stamp()}},
            "Gone",
            id="another job of that name is being deleted",
        ),
        pytest.param("Job", {}, "There", id="a job of an unknown kind"),
    ],
)
def test_whether_a_job_exists(kind: str, raw: Raw, want: str) -> None:
    assert job_presence(replace(JOB, kind=kind), read_job(kind, raw)) == want


def test_a_replaced_slice_stands_for_its_job_last() -> None:
    """Of two finished slices made in one second, even if its uid is the greater one."""
    for replaced, ended in (("a", "b"), ("b", "a")):
        slices = [make.make_workload(name=name, conditions=[names.FINISHED]) for name in (replaced, ended)]
        for raw, reason in zip(slices, (names.SLICE_REPLACED, "Succeeded"), strict=True):
            (one,) = [condition for condition in raw["status"]["conditions"] if condition["type"] == names.FINISHED]
            one["reason"] = reason
        assert active_slice(slices) == slices[1]
