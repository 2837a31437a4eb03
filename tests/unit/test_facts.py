"""Facts are read from whatever an API server gives: what is missing is empty, what is there is not lost."""

import ast
import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import facts, names
from adapter.groupworkload import Reservation, reservation
from adapter.placement import Exclusion, GroupShare, Placement, placement
from adapter.workload import Check, Job, Workload, workload
from tests.unit import builders as make

Raw = dict[str, Any]


# --- small readers ---------------------------------------------------------------------------------------------------


def test_an_object_without_anything_reads_as_nothing() -> None:
    for raw in ({}, {"metadata": None, "status": None}, {"metadata": {}, "status": {"conditions": None}}):
        assert facts.meta(raw) == {}
        assert facts.key_of(raw) == ("", "")
        assert facts.uid_of(raw) == facts.controller_uid(raw) == ""
        assert facts.label(raw, "a") == facts.annotation(raw, "a") == ""
        assert facts.condition(raw, "Ready") == {}
        assert not facts.is_true(raw, "Ready")


def test_a_cluster_scoped_object_has_no_namespace() -> None:
    assert facts.key_of({"metadata": {"name": "east"}}) == ("", "east")


def test_labels_and_annotations_are_read_by_their_name() -> None:
    raw = {"metadata": {"labels": {"a": "1"}, "annotations": {"a": "2", "b": None}}}
    assert (facts.label(raw, "a"), facts.annotation(raw, "a"), facts.annotation(raw, "b")) == ("1", "2", "")


@pytest.mark.parametrize("status", ["False", "Unknown", True, None, "true"])
def test_only_the_word_true_is_true(status: object) -> None:
    """An API server writes the string; everything else is somebody's mistake and must not admit a gang."""
    assert not facts.is_true({"status": {"conditions": [{"type": "Ready", "status": status}]}}, "Ready")


def test_a_controller_is_found_among_the_owners() -> None:
    owners = [{"uid": "a"}, {"uid": "b", "controller": True}, {"uid": "c", "controller": False}]
    assert facts.controller_uid({"metadata": {"ownerReferences": owners}}) == "b"
    assert facts.controller_uid({"metadata": {"ownerReferences": owners[:1]}}) == ""


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("2026-01-02T03:04:05Z", make.START, id="as metav1.Time"),
        pytest.param("2026-01-02T03:04:05.250000Z", make.at(0.25), id="as metav1.MicroTime"),
        pytest.param("2026-01-02T05:04:05+02:00", make.START, id="with an offset"),
        pytest.param(None, None, id="absent"),
        pytest.param("", None, id="empty"),
        pytest.param("soon", None, id="a word"),
        pytest.param(17, None, id="a number"),
        pytest.param({"at": 1}, None, id="an object"),
    ],
)
def test_moment(text: object, want: datetime | None) -> None:
    assert facts.moment(text) == want


@given(st.datetimes(datetime(1971, 1, 1), datetime(2999, 1, 1)), st.integers(-14, 14))
def test_a_timestamp_reads_back_to_the_second(when: datetime, hours: int) -> None:
    aware = when.replace(microsecond=0, tzinfo=timezone(timedelta(hours=hours)))
    assert facts.moment(facts.timestamp(aware)) == aware
    assert facts.timestamp(aware + timedelta(microseconds=999_999)) == facts.timestamp(aware)


# --- Workload --------------------------------------------------------------------------------------------------------


def test_a_workload_is_read_whole() -> None:
    raw = make.make_workload(groups={"workers": 4, "gpu": 1}, check="Pending", message="m", version=7)
    raw["spec"] |= {"priority": 0}
    raw["status"]["admissionChecks"][0]["podSetUpdates"] = [{"name": "workers"}]
    work = workload(raw)
    assert work.key == ("demo", "rayjob-train")
    assert (work.uid, work.resource_version, work.queue) == ("uid-of-rayjob-train", "7", "team-a")
    assert work.priority == 0, "zero is a priority, absent is none"
    assert (work.deleted, work.finished, work.holds_quota) == (False, False, True)
    assert work.reserved_at == make.START
    assert [(p.name, p.count, sorted(p.flavors)) for p in work.podsets] == [
        ("head", 1, []),
        ("workers", 4, ["remote"]),
        ("gpu", 1, ["remote"]),
    ]
    assert work.job == Job("ray.io/v1", "RayJob", "demo", "train", "uid-of-job")
    assert work.checks == {make.CHECK: Check("Pending", "m", ({"name": "workers"},))}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"metadata": None, "spec": None, "status": None}, id="nulls"),
        pytest.param(
            {"spec": {"podSets": None}, "status": {"admission": None, "admissionChecks": None}}, id="no lists"
        ),
        pytest.param({"metadata": {"ownerReferences": [{"uid": "a"}]}}, id="an owner that controls nothing"),
    ],
)
def test_a_workload_of_which_nothing_is_known_holds_nothing(raw: Raw) -> None:
    work = workload(raw)
    assert (work.holds_quota, work.attempt, work.podsets, work.job, work.checks) == (False, "", (), None, {})
    assert work.reserved_at is None


def test_odd_podsets_and_flavors_are_survived() -> None:
    raw = make.make_workload()
    raw["spec"]["podSets"] = [{}, {"name": "workers", "count": None, "template": None}]
    raw["status"]["admission"]["podSetAssignments"] = [{"name": "workers", "flavors": None}]
    assert [(p.name, p.count, p.template, p.flavors) for p in workload(raw).podsets] == [
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
    assert workload(make.make_workload(**given)).holds_quota is want


def test_active_is_the_default() -> None:
    raw = make.make_workload()
    del raw["spec"]["active"]
    assert workload(raw).holds_quota


# --- records ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [Workload, Placement, Reservation], ids=lambda kind: kind.__name__)
def test_a_record_holds_nothing_that_nobody_reads(record: Any) -> None:
    """What a decision depends on can be seen in the records; what is read by none misleads."""
    trees = [ast.parse(path.read_text()) for path in Path(facts.__file__).parent.rglob("*.py")]
    read = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {field.name for field in dataclasses.fields(record)} - read == set()


# --- attempts --------------------------------------------------------------------------------------------------------


def attempt(raw: Raw) -> str:
    return workload(raw).attempt


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


def test_key_order_does_not_name_another_attempt() -> None:
    """A second API server, or a proxy, may write the same object in another order."""
    one, two = make.make_workload(), make.make_workload()
    two["status"]["admission"] = dict(reversed(two["status"]["admission"].items()))
    assert attempt(one) == attempt(two)


def assigned(**more: Any) -> Raw:
    """A Workload whose one podset is assigned otherwise."""
    raw = make.make_workload()
    raw["status"]["admission"]["podSetAssignments"][0] |= more
    return raw


def test_a_topology_assignment_does_not_name_another_attempt() -> None:
    """Kueue may change it within a reservation: a node is replaced, the quota stands."""
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
    assert workload(make.make_workload(reserved=None)).reserved_at is None


def test_an_attempt_can_stand_in_a_label() -> None:
    name = attempt(make.make_workload())
    assert len(name) == 8
    assert set(name) <= set("0123456789abcdef")


# --- Placement and reservation ---------------------------------------------------------------------------------------


def test_a_placement_is_read_whole() -> None:
    work = make.make_workload(groups={"workers": 3, "gpu": 1})
    shares: dict[str, dict[str, int]] = {"east": {"workers": 1, "gpu": 1}, "west": {"workers": 2}}
    raw = make.make_placement(
        work,
        shares=shares,
        round=2,
        planned=5,
        excluded={"north": 60},
        blocked={"east": 90},
        withdrawn=1,
        state="Waiting",
    )
    place = placement(raw)
    assert (place.workload, place.workload_uid) == ("rayjob-train", "uid-of-rayjob-train")
    assert (place.attempt, place.round, place.wanted, place.planned_at) == (attempt(work), 2, 4, make.at(5))
    assert [(s.cluster, s.workers) for s in place.shares] == [("east", 2), ("west", 2)]
    assert place.shares[0].groups[1] == GroupShare("gpu", "role-gpu", 1)
    assert place.excluded == (Exclusion("north", make.at(60), "did not admit in time"),)
    assert place.blocked == (Exclusion("east", make.at(90), "did not admit in time"),)
    assert (place.withdrawing, place.status["state"]) == (False, "Waiting")


def test_a_placement_of_which_nothing_is_known_is_empty() -> None:
    for raw in ({}, {"spec": None, "status": None}, {"spec": {"shares": None, "excluded": None, "workload": None}}):
        place = placement(raw)
        assert (place.attempt, place.round, place.shares, place.excluded, place.blocked) == ("", 0, (), (), ())
        assert not place.withdrawing  # NB: round 0 is no round; a withdrawal of it would plan for ever
        assert place.status == {}


def test_an_exclusion_that_names_no_time_has_ended() -> None:
    raw = {"spec": {"excluded": [{"cluster": "east"}, {"cluster": "west", "until": "soon"}]}}
    assert placement(raw).excluded == ()


@pytest.mark.parametrize(
    ("round_", "withdrawn", "want"),
    [
        pytest.param(1, 0, False, id="nothing was withdrawn"),
        pytest.param(2, 1, False, id="an earlier round was"),
        pytest.param(2, 2, True, id="this round is"),
        pytest.param(1, 2, True, id="a later one than is known"),
    ],
)
def test_withdrawing(round_: int, withdrawn: int, want: bool) -> None:
    raw = make.make_placement(make.make_workload(), round=round_, withdrawn=withdrawn)
    assert placement(raw).withdrawing is want


def test_a_reservation_is_read_whole() -> None:
    raw = make.make_reservation(make.make_placement(make.make_workload(), round=3), message="Quota reserved")
    found = reservation("east", raw)
    place = f"train-{attempt(make.make_workload())}"
    assert (found.cluster, found.name, found.placement, found.round) == ("east", f"{place}-3", place, 3)
    assert (found.anchor_uid, found.uid) == (f"anchor-of-{place}-3", f"uid-of-{place}-3")
    assert (found.admitted, found.deleting, found.over, found.reserved_at) == (True, False, False, make.START)
    assert found.message == "Quota reserved"


def test_an_evicted_reservation_is_not_admitted() -> None:
    """Kueue takes Admitted back only in a second write."""
    raw = make.make_reservation(make.make_placement(make.make_workload()), conditions=[names.EVICTED])
    assert not reservation("east", raw).admitted


@pytest.mark.parametrize(
    ("given", "over"),
    [
        pytest.param({}, False, id="it stands"),
        pytest.param({"admitted": False}, False, id="it waits"),
        pytest.param({"conditions": [names.EVICTED]}, False, id="evicted: its Kueue queues it again"),
        pytest.param({"conditions": [names.FINISHED]}, True, id="finished: Kueue leaves Admitted as it was"),
        pytest.param({"admitted": False, "conditions": [names.FINISHED]}, True, id="finished while it waited"),
        pytest.param({"active": False}, True, id="deactivated"),
        pytest.param({"active": False, "admitted": False}, True, id="deactivated while it waited"),
    ],
)
def test_a_reservation_that_is_over_is_never_admitted(given: Raw, over: bool) -> None:
    found = reservation("east", make.make_reservation(make.make_placement(make.make_workload()), **given))
    assert found.over is over
    assert found.admitted is (
        given.get("admitted", True) and not over and names.EVICTED not in given.get("conditions", ())
    )


@pytest.mark.parametrize("spec", [None, {}, {"active": None}, {"active": True}])
def test_a_reservation_is_active_by_default(spec: Raw | None) -> None:
    raw = make.make_reservation(make.make_placement(make.make_workload())) | {"spec": spec}
    found = reservation("east", raw)
    assert (found.over, found.admitted) == (False, True)


@pytest.mark.parametrize("text", ["", "two", "-1", "1.5"])
def test_a_round_that_cannot_be_read_is_none_of_ours(text: str) -> None:
    raw = {"metadata": {"annotations": {names.ROUND_ANNOTATION: text}}}
    assert reservation("east", raw).round == 0


def test_a_reservation_of_which_nothing_is_known_is_empty() -> None:
    found = reservation("east", {})
    assert (found.admitted, found.deleting, found.over, found.round, found.anchor_uid) == (False, False, False, 0, "")


def test_times_are_told_in_utc() -> None:
    assert facts.timestamp(datetime(2026, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))) == make.stamp()
    assert make.START.tzinfo is UTC
