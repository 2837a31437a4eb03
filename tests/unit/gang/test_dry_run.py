"""Which dry runs a plan or a share waits for, and that it waits for nothing else."""

from datetime import timedelta
from typing import Any

import pytest

from adapter.actions import Action, DryRunPod, EmitEvent, Plan, RequeueAfter, Reserve, UpdatePlacementStatus
from adapter.gang import dry_run, lifecycle
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import parse_placement
from adapter.objects.reservation import parse_reservation
from adapter.objects.workload import parse_workload
from adapter.rewrite import dry_run_pod
from adapter.rewrite.dry_run_pod import DryRunResult
from tests.unit.builders import CHECK, at, make_placement, make_reservation, make_target, make_workload
from tests.unit.fact_builders import make_gang, with_facts

WORK = make_workload()
W = parse_workload(WORK)
ROUND1 = make_placement(WORK)
PLACE = parse_placement(ROUND1)
POD_SET = next(podset for podset in W.podsets if podset.name == "workers")
HELD = DryRunResult(reserved_template={"spec": {"containers": [{"name": "mesh"}]}}, request={"cpu": 1})
REFUSED = DryRunResult(denied_reason="violates PodSecurity")
MUTE = DryRunResult(unknown_reason='admission webhook "old" does not support dry run')


def gang(**more: Any) -> Gang:
    plain: dict[str, Any] = {
        "workload": W, "check": CHECK, "placements": (PLACE,),
        "targets": {cluster: make_target(cluster) for cluster in ("east", "west")},
    }  # fmt: skip
    return make_gang(**plain | more)


def asks(cluster: str) -> DryRunPod:
    target = make_target(cluster)
    return DryRunPod(W, POD_SET, target, dry_run_pod.build_pod(POD_SET.template, "workers", target, W.namespace))


def tries(actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, DryRunPod)]


def reserves(actions: list[Action]) -> dict[str, Reserve]:
    return {action.share.cluster: action for action in actions if isinstance(action, Reserve)}


def decide(found: Gang) -> list[Action]:
    return lifecycle.decide(found, at(5))


EAST, WEST = ("east", "workers"), ("west", "workers")


def test_a_plan_waits_until_the_clusters_that_it_takes_have_answered() -> None:
    fresh = gang(placements=())
    assert decide(fresh) == decide(with_facts(fresh, missing_for_shares=(EAST,))) == [Plan(W, None, ())], (
        "as the last plan said"
    )
    assert decide(with_facts(fresh, missing_for_plan=(EAST, WEST))) == [
        asks("east"),
        asks("west"),
        RequeueAfter(timedelta(0)),
    ]


def test_a_share_waits_for_the_dry_run_of_its_own_cluster_only() -> None:
    """After a restart no results are remembered, while the round stands."""
    assert list(reserves(decide(gang()))) == ["east", "west"]
    found = decide(gang(missing_for_shares=(EAST,)))
    assert list(reserves(found)) == ["west"] and tries(found) == [asks("east")]
    assert RequeueAfter(timedelta(0)) in found, "the answer wakes nobody"


def test_no_dry_run_where_no_decision_depends_on_it() -> None:
    """For a gang that lost its quota, and for a placed one."""
    assert tries(decide(gang(workload=parse_workload(make_workload(reserved=None)), missing_for_shares=(EAST,)))) == []
    both = tuple(parse_reservation(cluster, make_reservation(ROUND1)) for cluster in ("east", "west"))
    assert tries(decide(gang(reservations=both, missing_for_shares=(EAST,)))) == []


def test_a_share_is_reserved_with_the_pod_that_its_cluster_returned() -> None:
    found = reserves(decide(gang(results={EAST: HELD})))
    assert found["east"].dry_run_templates == {"workers": HELD.reserved_template}
    assert found["west"].dry_run_templates == {}, "as the template says"


def test_a_cluster_that_denies_the_pods_is_not_asked_for_quota() -> None:
    """The plan chose it before its dry run: the round is withdrawn in time, with this reason."""
    found = lifecycle.decide(gang(results={EAST: REFUSED}), at(3))
    assert list(reserves(found)) == ["west"]
    (text,) = [one.status["reason"] for one in found if hasattr(one, "status")]
    assert "east: it denies its pods: violates PodSecurity" in text


@pytest.mark.parametrize(
    ("seconds", "given_up", "more"),
    [
        pytest.param(3, False, {}, id="the other cluster is asked for quota first"),
        pytest.param(5, True, {}, id="the round is withdrawn, as one share will never be asked for"),
        pytest.param(
            5, False, {"reservations": ("east", "west")}, id="the round stands, as all its quota was asked for before"
        ),
    ],
)
def test_a_round_with_a_denied_share_is_withdrawn_early(seconds: float, given_up: bool, more: dict[str, Any]) -> None:
    asked = make_reservation(ROUND1, admitted=False, message="pending the preemption of 1 workload")
    standing = tuple(parse_reservation(cluster, asked) for cluster in more.get("reservations", ()))
    found = lifecycle.decide(gang(results={EAST: REFUSED}, reservations=standing), at(seconds))
    assert [one.status.get("withdrawnRound") for one in found if isinstance(one, UpdatePlacementStatus)] == [
        1 if given_up else None
    ]


@pytest.mark.parametrize(
    ("tried", "clusters"),
    [
        pytest.param({EAST: MUTE}, ["east"], id="one"),
        pytest.param({EAST: MUTE, WEST: MUTE}, ["east", "west"], id="two clusters in one sentence"),
        pytest.param({EAST: HELD}, [], id="none"),
    ],
)
def test_without_a_dry_run_the_share_is_asked_for_with_an_event(tried: Any, clusters: list[str]) -> None:
    found = decide(gang(results=tried))
    assert sorted(reserves(found)) == ["east", "west"]
    said = [one.message for one in found if isinstance(one, EmitEvent) and one.reason == "DryRunFailed"]
    assert bool(said) == bool(clusters)
    assert all(f'{cluster}: admission webhook "old" does not support dry run' in said[0] for cluster in clusters)


def test_an_unreachable_cluster_delays_nothing() -> None:
    """No dry run is made there, and the next plan leaves the cluster out."""
    found = dry_run.defer_until_answered(
        gang(targets={"west": make_target("west")}, missing_for_plan=(EAST, WEST)), [Plan(W, None, ())]
    )
    assert tries(found) == [asks("west")]
    assert dry_run.defer_until_answered(gang(targets={}, missing_for_plan=(EAST,)), [Plan(W, None, ())]) == [
        Plan(W, None, ())
    ]
