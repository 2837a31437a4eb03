"""What an attempt has learnt about clusters is known to the next attempt, whatever ended the first one."""

from dataclasses import replace

import pytest

from adapter import names
from adapter.actions import DeletePlacement, Plan, Reactivate, RecordExclusions, SetCheck
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang
from adapter.gang.lifecycle import decide
from adapter.objects.past_exclusions import PastExclusions
from adapter.objects.placement import Placement, ShareKey, parse_placement
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import Workload, parse_workload
from tests.unit.builders import CHECK, at, make_placement, make_workload
from tests.unit.fact_builders import make_gang
from tests.unit.gang.test_uncreated_workers import E0, E1, PLACED, W0, W1, WORK, gang, since, workers_with

EAST, WEST = ShareKey("east", 1), ShareKey("west", 1)


def next_attempt(past: PastExclusions) -> Workload:
    return replace(parse_workload(make_workload(reserved=1000)), past_exclusions=past)


def retry_of(found: Gang, seconds: float) -> SetCheck:
    (check,) = [action for action in decide(found, at(seconds)) if isinstance(action, SetCheck)]
    assert check.state == names.CHECK_RETRY
    return check


def plan_of(found: Gang, seconds: float) -> Plan:
    (plan,) = [action for action in decide(found, at(seconds)) if isinstance(action, Plan)]
    return plan


@pytest.mark.parametrize(
    ("workers", "more", "clusters"),
    [
        pytest.param(workers_with(E0, E1, W0, W1), {"uncreated_since": since(W0, W1)}, {"west"},
            id="some workers are never created"),
        pytest.param(workers_with(W0, W1), {"quota_unused_since": at(0), "shares_with_remote_pods": frozenset()},
            {"west"}, id="no worker is ever created"),
    ],
)  # fmt: skip
def test_a_gang_that_queues_again_leaves_out_the_clusters_that_created_no_workers(
    workers: GangWorkers, more: Raw, clusters: set[str]
) -> None:
    """Otherwise the next attempt takes the same cluster, and so on for ever."""
    past = retry_of(gang(workers, **more), 900).past_exclusions
    assert past == PastExclusions({cluster: at(1800) for cluster in clusters}, start_timeouts=1)
    plan = plan_of(make_gang(workload=next_attempt(past), check=CHECK), 1001)
    assert {(each.cluster, each.until) for each in plan.exclusions} == {("west", at(1800))}
    assert plan.start_timeouts_before == 1, "the next exclusion is twice as long"


@pytest.mark.parametrize(
    ("workers", "more"),
    [
        pytest.param(workers_with(E0, E1), {"uncreated_since": since("")}, id="the manager cluster denies its pods"),
        pytest.param(replace(workers_with(W0, W1), head_ready_since=None),
            {"quota_unused_since": at(0), "shares_with_remote_pods": frozenset()}, id="its head is not ready"),
    ],
)  # fmt: skip
def test_no_cluster_is_left_out_for_what_the_manager_cluster_lacks(workers: GangWorkers, more: Raw) -> None:
    assert retry_of(gang(workers, **more), 900).past_exclusions is None


def test_exclusions_of_the_attempt_are_recorded_with_those_it_adds() -> None:
    earlier = parse_placement({**PLACED, "spec": {**PLACED["spec"], "excluded": [excluded("north", 1500)]}})
    workload = replace(parse_workload(WORK), past_exclusions=PastExclusions({"south": at(1200), "old": at(1)}, 2))
    found = gang(
        workers_with(E0, E1, W0, W1),
        uncreated_since=since(W0),
        placements=(replace(earlier, start_timeouts=1),),
        workload=workload,
    )
    assert retry_of(found, 900).past_exclusions == PastExclusions(
        {"west": at(900 + 1800), "north": at(1500), "south": at(1200)}, 2
    )


def excluded(cluster: str, until: float) -> Raw:
    return {"cluster": cluster, "until": f"{at(until):%Y-%m-%dT%H:%M:%SZ}", "reason": "workers did not start there"}


def ended_placement() -> Placement:
    return replace(parse_placement(make_placement(WORK, excluded={"west": 1800})), start_timeouts=1)


@pytest.mark.parametrize("raw", [
    pytest.param(make_workload(reserved=None), id="Kueue took its quota away"),
    pytest.param(make_workload(reserved=None, active=False, yielded=0), id="it is deactivated"),
    pytest.param(make_workload(reserved=1000), id="it has its quota back before that was observed"),
])  # fmt: skip
def test_no_placement_is_deleted_before_its_exclusions_are_recorded(raw: Raw) -> None:
    found = make_gang(workload=parse_workload(raw), check=CHECK, placements=(ended_placement(),))
    actions = decide(found, at(1001))
    (record,) = [action for action in actions if isinstance(action, RecordExclusions)]
    assert record.past_exclusions == PastExclusions({"west": at(1800)}, 1)
    assert not any(isinstance(action, DeletePlacement | Reactivate) for action in actions)
    after = replace(parse_workload(raw), past_exclusions=record.past_exclusions)
    actions = decide(replace(found, workload=after), at(1002))
    assert any(isinstance(action, DeletePlacement) for action in actions)
    assert not any(isinstance(action, RecordExclusions) for action in actions)


def test_a_placement_is_deleted_although_the_record_of_its_exclusions_is_denied() -> None:
    workload = parse_workload(make_workload(reserved=None))
    found = make_gang(workload=workload, check=CHECK, placements=(ended_placement(),), record_denied=True)
    actions = decide(found, at(1001))
    assert any(isinstance(action, DeletePlacement) for action in actions)
    assert not any(isinstance(action, RecordExclusions) for action in actions)


def test_a_restart_after_a_lost_share_knows_which_cluster_denied_pods() -> None:
    found = gang(
        None,
        reservations=(),
        on_share_lost="Restart",
        pod_denials={WEST: "its policy denies the pods"},
        shares_with_remote_pods=frozenset({EAST}),
    )
    found = replace(found, shares=replace(found.shares, reservations=gang(None).shares.reservations[1:]))
    past = retry_of(found, 100).past_exclusions
    assert past and list(past.until) == ["west"]


@pytest.mark.parametrize(
    ("now", "clusters", "times"),
    [
        pytest.param(1799, {"west"}, 2, id="it lasts"),
        pytest.param(1800, set(), 2, id="it is over, and the next one is longer"),
        pytest.param(1800 + 3600, set(), 0, id="it is long over"),
        pytest.param(-9000, set(), 0, id="it was written by a clock that is ahead"),
    ],
)
def test_how_long_an_earlier_attempt_counts(now: float, clusters: set[str], times: int) -> None:
    workload = replace(next_attempt(PastExclusions({"west": at(1800)}, 2)), reserved_at=at(now))
    plan = plan_of(make_gang(workload=workload, check=CHECK), now)
    assert ({each.cluster for each in plan.exclusions}, plan.start_timeouts_before) == (clusters, times)
