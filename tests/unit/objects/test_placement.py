"""A Placement is read whole, and says which of its rounds are wanted."""

from typing import Any

import pytest

from adapter import names
from adapter.objects.placement import Exclusion, GroupShare, placement
from adapter.objects.workload import workload
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
    place = placement(raw)
    assert (place.workload, place.workload_uid) == ("rayjob-train", "uid-of-rayjob-train")
    assert (place.attempt, place.round, place.wanted, place.planned_at) == (workload(work).attempt, 2, 4, make.at(5))
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


@pytest.mark.parametrize(
    ("work", "want"),
    [
        pytest.param(make.make_workload(), True, id="its own attempt"),
        pytest.param(make.make_workload(reserved=9), False, id="a later one"),
        pytest.param(make.make_workload(reserved=None), False, id="it lost the manager's quota"),
        pytest.param(make.make_workload(conditions=[names.EVICTED]), False, id="it is evicted"),
        pytest.param(make.make_workload(conditions=[names.FINISHED]), False, id="it is over"),
        pytest.param(make.make_workload(name="other"), False, id="another Workload"),
    ],
)
def test_which_workload_it_stands_for(work: dict[str, Any], want: bool) -> None:
    assert placement(make.make_placement(make.make_workload())).stands_for(workload(work)) is want
