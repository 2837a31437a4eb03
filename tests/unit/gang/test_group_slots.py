"""Slots of one worker group do not stand for those of another."""

from dataclasses import replace
from typing import Any

import pytest

from adapter import names
from adapter.actions import Action, Plan, UpdatePlacementStatus
from adapter.gang.drain_order import GangWorkers
from adapter.gang.lifecycle import decide
from adapter.objects.placement import Exclusion, ShareKey, parse_placement
from tests.unit.builders import at, make_placement, make_pod, make_reservation, make_workload
from tests.unit.fact_builders import with_facts
from tests.unit.gang.test_lifecycle import gang

WORK = make_workload(groups={"a": 2, "b": 2}, check=names.CHECK_READY)
EAST, NORTH, WEST = ShareKey("east", 1), ShareKey("north", 2), ShareKey("west", 3)
# A drain of east was taken back, and group a lost its share: one of its two workers got a slot in west.
HALFWAY = make_placement(WORK, round=3, shares={}, placedRound=3, state="Placed", explanation="1 of 2 workers to west.")
HALFWAY["spec"]["shares"] = [
    {"cluster": cluster, "round": number, "groups": [{"name": group, "role": f"role-{group}", "count": count}]}
    for (cluster, number), group, count in ((EAST, "b", 2), (NORTH, "b", 2), (WEST, "a", 1))
]
SHARES = {key.cluster: make_reservation(HALFWAY, round=key.round) for key in (EAST, NORTH, WEST)}


def decided(*occupied: ShareKey, **facts: Any) -> list[Action]:
    running = gang(
        WORK, [HALFWAY], SHARES, remote_podsets=("a", "b"), has_unplaced_workers=True,
        shares_with_pods=frozenset(occupied), shares_with_remote_pods=frozenset(occupied),
    )  # fmt: skip
    return decide(with_facts(running, **facts), at(10_000))


def test_a_spare_share_is_deleted_though_another_group_lacks_a_slot() -> None:
    (plan,) = [action for action in decided(EAST, WEST) if isinstance(action, Plan)]
    assert [share.cluster for share in plan.kept_shares or ()] == ["east", "west"]


def test_a_group_that_lacks_a_slot_is_planned_though_another_group_has_too_many() -> None:
    (plan,) = [action for action in decided(EAST, NORTH, WEST, changed_since_plan=True) if isinstance(action, Plan)]
    assert [share.cluster for share in plan.kept_shares or ()] == ["east", "north", "west"]


def test_the_slots_of_one_group_do_not_count_for_another_in_the_status() -> None:
    (update,) = [action for action in decided(EAST, NORTH, WEST) if isinstance(action, UpdatePlacementStatus)]
    assert update.status["workers"] == "3 of 4"


@pytest.mark.parametrize(
    ("group", "kept"),
    [
        pytest.param("a", ["east", "west"], id="a share of another group than the worker's is deleted"),
        pytest.param("b", None, id="a share of the worker's group stays"),
    ],
)
def test_a_worker_between_two_slots_may_need_any_share_of_its_group(group: str, kept: list[str] | None) -> None:
    pod = make_pod(placement=HALFWAY["metadata"]["name"], group=group)
    waiting = GangWorkers(parse_placement(HALFWAY), [pod], {}, set(), set(), desired_workers=1)
    plans = [action for action in decided(EAST, WEST, workers=waiting) if isinstance(action, Plan)]
    assert [[share.cluster for share in plan.kept_shares or ()] for plan in plans] == ([kept] if kept else [])


@pytest.mark.parametrize(
    ("excluded_until", "dispatched", "kept"),
    [
        pytest.param(10_060, False, None, id="the pod leaves its template slot for a free one"),
        pytest.param(9_990, False, ["east", "west"], id="the exclusion is over"),
        pytest.param(10_060, True, ["east", "west"], id="its remote pod was created there"),
    ],
)
def test_a_worker_with_a_template_slot_in_an_excluded_cluster_may_need_another_share(
    excluded_until: float, dispatched: bool, kept: list[str] | None
) -> None:
    """KubeRay's replacement of a late pod has the late pod's template slot again."""
    pod = make_pod(
        placement=HALFWAY["metadata"]["name"], group="b", index="0", listed="east/1/role-b/2", dispatched=dispatched
    )
    placement = replace(parse_placement(HALFWAY), exclusions=(Exclusion("east", at(excluded_until), "x"),))
    waiting = GangWorkers(placement, [pod], {}, set(), set(), desired_workers=1)
    plans = [action for action in decided(EAST, WEST, workers=waiting) if isinstance(action, Plan)]
    assert [[share.cluster for share in plan.kept_shares or ()] for plan in plans] == ([kept] if kept else [])
