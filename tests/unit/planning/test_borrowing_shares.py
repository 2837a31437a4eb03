"""What a plan borrows is in shares of its own: small ones, and each admitted after those before it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import names
from adapter.objects.placement import GroupShare, Share
from adapter.objects.specs import PodMapping
from adapter.objects.topology_request import TopologyRequest
from adapter.planning.borrowing_shares import divide_borrowing
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest
from adapter.planning.planner import charge_shares, plan
from adapter.planning.split_shares import number_rounds, split_by_worker
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor

OTHER = "other"


def cluster(name: str, cores: int, *, lent: int = 0, used: int = 0, **more: Any) -> Candidate:
    """`lent`: cores that another queue of the cohort has to spare."""
    queues = [
        make_cluster_queue(cores, used=used, cohortName="all"),
        make_cluster_queue(lent, cohortName="all", name="lender"),
    ]
    tree = build(queues, [], [make_flavor()])
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, **more)


def group(count: int, name: str = "workers", cores: int = 1) -> GroupRequest:
    return GroupRequest(name, f"role-{name}", count, {}, {"cpu": cores * 1000, "pods": 1})


def request(*groups: GroupRequest, most: int = 8) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, groups, borrowing_shares=most)


def share(name: str, *, borrows: bool = False, **counts: int) -> Share:
    groups = (GroupShare(group, f"role-{group}", count) for group, count in counts.items())
    return Share(name, tuple(groups), borrows=borrows)


def lent(name: str, **counts: int) -> Share:
    return share(name, borrows=True, **counts)


def divided(
    gang: GangRequest, clusters: Sequence[Candidate], *, max_shares: int = 500, starting: bool = True
) -> list[Share]:
    shares = plan(gang, clusters).shares
    assert shares, "the plan must fit"
    return list(divide_borrowing(gang, clusters, shares, max_shares=max_shares, starting=starting))


@pytest.mark.parametrize(
    ("gang", "clusters", "want"),
    [
        pytest.param(
            request(group(2)), [cluster("east", 2, lent=9)], [share("east", workers=2)], id="nothing borrowed"
        ),
        pytest.param(
            request(group(4)),
            [cluster("east", 2, lent=2)],
            [share("east", workers=2), *[lent("east", workers=1)] * 2],
            id="half is borrowed",
        ),
        pytest.param(
            request(group(2)), [cluster("east", 0, lent=2)], [lent("east", workers=1)] * 2, id="all is borrowed"
        ),
        pytest.param(
            request(group(8)),
            [cluster("east", 2, lent=2), cluster("west", 2, lent=2)],
            [
                share("east", workers=2),
                share("west", workers=2),
                *[lent("east", workers=1), lent("west", workers=1)] * 2,
            ],
            id="two clusters lend, and take turns",
        ),
        pytest.param(
            request(group(12), most=4),
            [cluster("east", 2, lent=10)],
            [share("east", workers=2), *[lent("east", workers=3)] * 3, lent("east", workers=1)],
            id="the policy bounds the number of shares",
        ),
        pytest.param(
            request(group(4), most=1),
            [cluster("east", 2, lent=2)],
            [share("east", workers=2), lent("east", workers=2)],
            id="one share for all that is borrowed",
        ),
        pytest.param(
            request(group(4), most=0), [cluster("east", 2, lent=2)], [share("east", workers=4)], id="switched off"
        ),
        pytest.param(
            request(group(2, "a"), group(2, "b"), most=1),
            [cluster("east", 3, lent=1)],
            [share("east", a=2, b=1), lent("east", b=1)],
            id="the last groups in Kueue's order borrow",
        ),
        pytest.param(
            request(group(1, "b"), group(3, "a", cores=2), most=2),
            [cluster("east", 2, lent=5)],
            [share("east", a=1), lent("east", a=2), lent("east", b=1)],
            id="a share of several groups",
        ),
        pytest.param(
            request(group(4)),
            [cluster("east", 2, lent=2, pod_mapping=PodMapping(scheduler=names.VOLCANO_SCHEDULER))],
            [share("east", workers=4)],
            id="Volcano starts the pods of a share together",
        ),
    ],
)
def test_what_borrows_has_shares_of_its_own(gang: GangRequest, clusters: list[Candidate], want: list[Share]) -> None:
    assert divided(gang, clusters) == want


def test_a_share_that_preempts_stays_whole() -> None:
    gang, clusters = request(group(4)), [cluster("east", 2, lent=2)]
    whole = replace(share("east", workers=4), preempts=True)
    assert divide_borrowing(gang, clusters, [whole], max_shares=9, starting=True) == (whole,)


@pytest.mark.parametrize(
    "bound",
    [
        pytest.param({"hosts": 2}, id="the hosts of a replica start together"),
        pytest.param({"topology": TopologyRequest("required", "rack")}, id="a topology request holds for a share"),
    ],
)
def test_a_share_whose_workers_belong_together_stays_whole(bound: dict[str, Any]) -> None:
    gang, clusters = request(replace(group(4), **bound)), [cluster("east", 2, lent=2)]
    planned = share("east", workers=4)
    assert divide_borrowing(gang, clusters, [planned], max_shares=9, starting=True) == (planned,)


@pytest.mark.parametrize(
    ("planned", "candidates"),
    [
        pytest.param(share("gone", workers=4), ["east"], id="its cluster is not a candidate"),
        pytest.param(share("east", workers=6), ["east"], id="Kueue would not admit all parts"),
        pytest.param(share("east", renamed=4), ["east"], id="its group is not requested"),
    ],
)
def test_what_cannot_be_foreseen_stays_whole(planned: Share, candidates: list[str]) -> None:
    clusters = [cluster(name, 2, lent=3) for name in candidates]
    assert divide_borrowing(request(group(9)), clusters, [planned], max_shares=9, starting=True) == (planned,)


@pytest.mark.parametrize(("most", "want"), [(9, [2, 1, 1, 1, 1]), (4, [2, 2, 2]), (2, [2, 4]), (1, [6]), (0, [6])])
def test_there_are_never_more_shares_than_a_placement_has(most: int, want: list[int]) -> None:
    shares = divided(request(group(6)), [cluster("east", 2, lent=4)], max_shares=most)
    assert [share.workers for share in shares] == want


def test_the_single_workers_of_a_start_that_borrow_are_marked() -> None:
    gang, clusters = request(group(6)), [cluster("east", 3, lent=3)]
    shares = split_by_worker(plan(gang, clusters).shares, {"workers": 2}, max_shares=9, starting=True)
    alone = replace(share("east", workers=1), single_worker=True)
    want = [share("east", workers=2), alone, *[replace(alone, borrows=True)] * 3]
    assert list(divide_borrowing(gang, clusters, shares, max_shares=9, starting=True)) == want
    assert divide_borrowing(gang, clusters, shares, max_shares=9, starting=False) == shares


def test_each_borrowing_share_has_a_round_of_its_own() -> None:
    shares = divided(request(group(8)), [cluster("east", 2, lent=2), cluster("west", 2, lent=2)])
    numbered, last = number_rounds(shares, 3)
    assert [share.round for share in numbered] == [0, 0, 4, 5, 6, 7] and last == 8
    numbered, last = number_rounds([lent("east", workers=1)] * 2, 3)
    assert [share.round for share in numbered] == [4, 5] and last == 5, "the current round is that of the last share"


SIZES = st.integers(0, 6)
CLUSTERS = st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=3).map(
    lambda sizes: [cluster(f"c{i}", nominal, lent=more, used=used) for i, (nominal, more, used) in enumerate(sizes)]
)
GROUPS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 2)), min_size=1, max_size=3).map(
    lambda rows: [group(count, f"g{i}", cores) for i, (count, cores) in enumerate(rows)]
)


def workers(shares: Iterable[Share]) -> Counter[tuple[str, str]]:
    counts = Counter[tuple[str, str]]()
    for one in shares:
        counts.update({(one.cluster, part.name): part.count for part in one.groups})
    return counts


@given(CLUSTERS, GROUPS, st.integers(0, 9), st.integers(0, 12))
def test_a_division_moves_no_worker_and_bounds_what_a_reclaim_stops(
    clusters: list[Candidate], groups: list[GroupRequest], most: int, max_shares: int
) -> None:
    gang = request(*groups, most=most)
    shares = plan(gang, clusters).shares
    parts = divide_borrowing(gang, clusters, shares, max_shares=max(max_shares, len(shares)), starting=True)
    assert workers(parts) == workers(shares)
    assert all(part.workers for part in parts) and len(parts) <= max(max_shares, len(shares))
    for name in {share.cluster for share in shares}:
        own = [part for part in parts if part.cluster == name]
        assert sum(not part.borrows for part in own) <= 1
        sizes = [part.workers for part in own if part.borrows]
        assert len(sizes) <= most
        assert all(size == max(sizes) for size in sizes[:-1]), "equal sizes, but for the last"


@given(CLUSTERS, GROUPS)
def test_what_does_not_borrow_fits_nominal_quota(clusters: list[Candidate], groups: list[GroupRequest]) -> None:
    """Once the nominal shares are charged, the rest has no nominal worker that would have fitted beside them."""
    gang = request(*groups)
    parts = divide_borrowing(gang, clusters, plan(gang, clusters).shares, max_shares=99, starting=True)
    divided_clusters = {part.cluster for part in parts if part.borrows}
    nominal = [part for part in parts if not part.borrows and part.cluster in divided_clusters]
    for part in nominal:
        candidate = next(one for one in clusters if one.name == part.cluster)
        alone = GangRequest(NAMESPACE, QUEUE, tuple(replace(g, count=n) for g, n in _counts(gang, part)))
        (verdict,) = plan(alone, [candidate]).verdicts
        assert verdict.nominal == part.workers
    assert len(charge_shares(gang, clusters, parts)) == len(clusters)


def _counts(gang: GangRequest, part: Share) -> list[tuple[GroupRequest, int]]:
    counts = {row.name: row.count for row in part.groups}
    return [(one, counts[one.name]) for one in gang.groups if one.name in counts]


def reclaim(parts: Sequence[Share], asked: int) -> list[Share]:
    """The shares that Kueue stops for a queue that asks for its own (kueue:pkg/scheduler/preemption/preemption.go).

    It goes from the last reserved to the first until it has enough, and then leaves each that it can spare.
    """
    stopped = list[Share]()
    for part in sorted(reversed(parts), key=lambda part: not part.borrows):
        if sum(share.workers for share in stopped) >= asked:
            break
        stopped.append(part)
    for part in stopped[-2::-1]:
        if sum(share.workers for share in stopped) - part.workers >= asked:
            stopped.remove(part)
    return stopped


@given(st.integers(0, 40), st.integers(1, 40), st.integers(1, 12), st.data())
def test_a_reclaim_stops_less_than_one_share_too_much(
    nominal: int, borrowed: int, most: int, data: st.DataObject
) -> None:
    asked = data.draw(st.integers(1, borrowed))
    parts = divided(request(group(nominal + borrowed), most=most), [cluster("east", nominal, lent=borrowed)])
    stopped = reclaim([replace(part, round=number) for number, part in enumerate(parts)], asked)
    lost = sum(part.workers for part in stopped)
    assert all(part.borrows for part in stopped)
    assert asked <= lost < asked + -(-borrowed // most), "a share's workers are an equal part of what is borrowed"
