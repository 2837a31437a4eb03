"""Which clusters take part in a plan, and what is deducted from their capacity."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from adapter.objects.placement import GroupShare, Share, parse_placement
from adapter.objects.specs import parse_worker_cluster
from adapter.planning import capacity
from adapter.planning.capacity import STATUS_LAG, HeldShare
from adapter.planning.offers import Offers
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.quota import tree
from tests.unit.builders import (
    NAMESPACE,
    QUEUE,
    START,
    at,
    make_cluster_queue,
    make_flavor,
    make_placement,
    make_worker_cluster,
    make_workload,
)

SILENT = "it is unreachable"
DEAF = "heads cannot be mirrored there"


@pytest.mark.parametrize(
    ("silent", "spec", "unmirrored", "want"),
    [
        pytest.param("", {}, "", "", id="a connected cluster takes part"),
        pytest.param("", None, "", "there is no WorkerCluster east; create it", id="no WorkerCluster"),
        pytest.param(SILENT, None, "", SILENT, id="the cluster is not connected"),
        pytest.param(SILENT, {}, DEAF, SILENT, id="the cluster is unreachable"),
        pytest.param(SILENT, {"cordoned": True}, "", "it is cordoned", id="a cordon is named before unreachability"),
        pytest.param(
            "", {"cordoned": True, "draining": True}, "", "it is draining", id="a drain is named before a cordon"
        ),
        pytest.param("", {}, DEAF, DEAF, id="heads cannot be mirrored there"),
    ],
)
def test_cluster_problem(silent: str, spec: Mapping[str, Any] | None, unmirrored: str, want: str) -> None:
    found = None if spec is None else parse_worker_cluster(make_worker_cluster(**spec))
    assert capacity.cluster_problem("east", silent, found, unmirrored) == want


@pytest.mark.parametrize(
    ("held", "now", "want"),
    [
        pytest.param(None, at(9), False, id="no reservation"),
        pytest.param(HeldShare(None, 1, 9), at(9), False, id="the reservation holds no quota"),
        pytest.param(HeldShare(START, 7, 6), at(1), False, id="the queue was written before the reservation"),
        pytest.param(HeldShare(START, 7, 7), at(1), False, id="the queue was written with the reservation"),
        pytest.param(HeldShare(START, 7, 8), at(1), True, id="the queue was written after the reservation"),
        pytest.param(HeldShare(START, 7, 6), START + STATUS_LAG, True, id="the queue had time to be written"),
        pytest.param(HeldShare(at(2), 7, 6), START, False, id="the reservation's clock is a little ahead"),
        pytest.param(HeldShare(at(600), 7, 6), START, True, id="the reservation's clock is wrong"),
    ],
)
def test_when_a_reservation_is_counted(held: HeldShare | None, now: datetime, want: bool) -> None:
    assert capacity.is_counted(held, now) is want
    share = Share("east", ())
    assert capacity.uncounted_shares([(share, held)], now) == ([] if want else [share])


@pytest.mark.parametrize(
    ("shares", "want"),
    [
        pytest.param([], None, id="nothing is deducted"),
        pytest.param([None, HeldShare(None, 1, 1)], None, id="the time of reservation is unknown"),
        pytest.param([HeldShare(START, 7, 8), HeldShare(at(-9), 7, 6)], None, id="all reservations are counted"),
        pytest.param(
            [HeldShare(START, 7, 6), HeldShare(at(-1), 7, 6)], START + STATUS_LAG, id="the newest reservation decides"
        ),
    ],
)
def test_when_all_reservations_are_counted(shares: Sequence[HeldShare | None], want: datetime | None) -> None:
    assert capacity.all_counted_at(shares, at(1)) == want


PLACE = parse_placement(make_placement(make_workload(), shares={"east": {"workers": 2}}, round=2))


def test_a_withdrawn_round_promises_nothing() -> None:
    assert capacity.promised_shares(PLACE) == PLACE.shares
    assert capacity.promised_shares(replace(PLACE, withdrawn_round=2)) == ()


def test_shares_of_earlier_rounds_stay_promised_while_a_round_is_withdrawn() -> None:
    """A single-worker share of an earlier plan may be pending. Its capacity must not be promised to others."""
    coming = replace(PLACE.shares[0], round=1, single_worker=True)
    place = replace(PLACE, shares=(coming, *PLACE.shares), withdrawn_round=2)
    assert capacity.promised_shares(place) == (coming,)


GROUP = GroupRequest("workers", "role-workers", 9, {}, {"cpu": 1000, "pods": 1})
REQUEST = GangRequest(NAMESPACE, QUEUE, (GROUP,))


def cluster(name: str, cores: int) -> Candidate:
    found = tree.build([make_cluster_queue(cores)], [], [make_flavor()])
    return Candidate(name, "", found, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}})


def room(one: Candidate) -> int:
    offers = Offers(REQUEST)
    return offers.offer_for(one, offers.quota_path(one), GROUP).total


def test_capacity_after_deductions() -> None:
    two = Share("east", (GroupShare("workers", "role-workers", 2),))
    owed = [(REQUEST, [two]), (REQUEST, [two, replace(two, cluster="west")]), (REQUEST, [])]
    fleet = [cluster("east", 9), cluster("west", 9), cluster("north", 9)]
    assert [room(candidate) for candidate in capacity.remaining_capacity(fleet, {}, owed)] == [5, 7, 9]
    other = {"west": cluster("west", 4).quota_tree}
    assert [room(candidate) for candidate in capacity.remaining_capacity(fleet, other, owed)] == [5, 2, 9]
    assert [room(candidate) for candidate in fleet] == [9, 9, 9], "the stores' own figures stand"


def test_the_caches_of_an_absent_cluster_are_not_read() -> None:
    absent = capacity.absent_candidate("east", "it is cordoned")
    assert (absent.problem, dict(absent.queues), dict(absent.namespaces)) == ("it is cordoned", {}, {})
