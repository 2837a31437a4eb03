"""A Placement is parsed completely, and knows which of its rounds are wanted."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.placement import (
    MAX_CONSIDERED_CLUSTERS,
    MAX_SHARES,
    Exclusion,
    GroupShare,
    Placement,
    Share,
    Verdict,
    parse_placement,
    placement_manifest,
    placement_name,
)
from adapter.objects.unstructured import MAX_ITEM_LENGTH, MAX_TEXT_LENGTH
from adapter.objects.workload import Job, parse_workload
from tests.unit import builders as make


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
    place = parse_placement(raw)
    assert (place.workload, place.workload_uid) == ("rayjob-train", "uid-of-rayjob-train")
    assert (place.attempt, place.round, place.wanted_workers, place.planned_at) == (
        parse_workload(work).attempt,
        2,
        4,
        make.at(5),
    )
    assert [(s.cluster, s.workers) for s in place.shares] == [("east", 2), ("west", 2)]
    assert place.shares[0].groups[1] == GroupShare("gpu", "role-gpu", 1)
    assert place.exclusions == (Exclusion("north", make.at(60), "did not admit in time"),)
    assert place.blocked == (Exclusion("east", make.at(90), "did not admit in time"),)
    assert (place.withdrawing, place.status["state"]) == (False, "Waiting")


def test_an_empty_object_gives_an_empty_placement() -> None:
    for raw in ({}, {"spec": None, "status": None}, {"spec": {"shares": None, "excluded": None, "workload": None}}):
        place = parse_placement(raw)
        assert (place.attempt, place.round, place.shares, place.exclusions, place.blocked) == ("", 0, (), (), ())
        assert not place.withdrawing  # NB: round 0 is no round; a withdrawal of it would plan for ever
        assert place.status == {}


def test_an_exclusion_without_a_time_has_ended() -> None:
    raw = {"spec": {"excluded": [{"cluster": "east"}, {"cluster": "west", "until": "soon"}]}}
    assert parse_placement(raw).exclusions == ()


@pytest.mark.parametrize(
    ("round_", "withdrawn", "want"),
    [
        pytest.param(1, 0, False, id="no round was withdrawn"),
        pytest.param(2, 1, False, id="an earlier round was withdrawn"),
        pytest.param(2, 2, True, id="this round was withdrawn"),
        pytest.param(1, 2, True, id="a later round than this one was withdrawn"),
    ],
)
def test_withdrawing(round_: int, withdrawn: int, want: bool) -> None:
    raw = make.make_placement(make.make_workload(), round=round_, withdrawn=withdrawn)
    assert parse_placement(raw).withdrawing is want


@pytest.mark.parametrize(
    ("work", "want"),
    [
        pytest.param(make.make_workload(), True, id="the Placement's own attempt"),
        pytest.param(make.make_workload(reserved=9), False, id="a later attempt"),
        pytest.param(make.make_workload(reserved=None), False, id="the Workload lost the manager's quota"),
        pytest.param(make.make_workload(conditions=[names.EVICTED]), False, id="the Workload is evicted"),
        pytest.param(make.make_workload(conditions=[names.FINISHED]), False, id="the Workload is finished"),
        pytest.param(make.make_workload(name="other"), False, id="another Workload"),
    ],
)
def test_which_workload_a_placement_belongs_to(work: dict[str, Any], want: bool) -> None:
    assert parse_placement(make.make_placement(make.make_workload())).belongs_to(parse_workload(work)) is want


# --- written and read back -------------------------------------------------------------------------------------------

JOB = Job("ray.io/v1", "RayJob", "demo", "train", "uid-of-train")
TEXT = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"]), max_size=40
)  # as stored
COUNT = st.integers(0, 999)
MOMENT = st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC)).map(
    lambda when: when.replace(microsecond=0)
)
SHARES = st.builds(
    Share,
    cluster=TEXT,
    groups=st.lists(st.builds(GroupShare, TEXT, TEXT, COUNT), max_size=3).map(tuple),
    preempts=st.booleans(),
    round=COUNT,
    single_worker=st.booleans(),
    borrows=st.booleans(),
)
PLACEMENTS = st.builds(
    Placement,
    namespace=TEXT,
    name=TEXT,
    uid=st.just(""),  # set by the API server
    workload_uid=TEXT,
    workload=TEXT,
    attempt=TEXT,
    round=COUNT,
    failed_rounds=COUNT,
    planned_at=st.none() | MOMENT,
    shares=st.lists(SHARES, max_size=3).map(tuple),
    wanted_workers=COUNT,
    exclusions=st.lists(st.builds(Exclusion, TEXT, MOMENT, TEXT, st.none() | MOMENT), max_size=3).map(tuple),
    explanation=TEXT,
    lost_reason=TEXT,
    withdrawn_round=st.just(0),  # fields of the status, which is written separately
    placed_round=st.just(0),
    blocked=st.just(()),
    status=st.just({}),
    first_round_of_plan=COUNT,
)
VERDICTS = st.lists(st.builds(Verdict, TEXT, COUNT, COUNT, COUNT, COUNT, TEXT), max_size=3)


@given(PLACEMENTS, st.sampled_from([JOB, None]), VERDICTS)
def test_a_written_placement_is_read_back_unchanged(
    place: Placement, job: Job | None, considered: list[Verdict]
) -> None:
    assert parse_placement(placement_manifest(place, job, "check", considered)) == place


def test_fields_for_people_are_written() -> None:
    raw = make.make_workload(groups={"workers": 3})
    work = parse_workload(raw)
    place = parse_placement(make.make_placement(raw, shares={"east": {"workers": 3}}))
    found = placement_manifest(place, work.job, "check", [Verdict("east", 2, 1, 4, 3, "cpu is short")])
    assert found["spec"]["job"] == {"kind": "RayJob", "name": "train"} and found["spec"]["check"] == "check"
    assert found["spec"]["considered"] == [
        {"cluster": "east", "nominal": 2, "borrow": 1, "ever": 4, "chosen": 3, "reason": "cpu is short"}
    ]
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Workload", work.name, work.uid, False)
    assert found["metadata"]["name"] == place.name and placement_name(work).startswith("train-")


def test_no_more_is_written_than_the_schema_allows() -> None:
    long, many = "x" * (MAX_TEXT_LENGTH + 1), MAX_SHARES + 1
    place = parse_placement(make.make_placement(make.make_workload()))
    share, exclusion = Share("east", ()), Exclusion("east", make.START, long)
    place = replace(place, shares=(share,) * many, exclusions=(exclusion,), explanation=long, lost_reason=long)
    spec = placement_manifest(place, None, "check", [Verdict("east", 0, 0, 0, 0, long)] * many)["spec"]
    assert (len(spec["shares"]), len(spec["considered"])) == (MAX_SHARES, MAX_CONSIDERED_CLUSTERS)
    assert len(spec["explanation"]) == len(spec["lost"]) == MAX_TEXT_LENGTH
    assert len(spec["excluded"][0]["reason"]) == len(spec["considered"][0]["reason"]) == MAX_ITEM_LENGTH
