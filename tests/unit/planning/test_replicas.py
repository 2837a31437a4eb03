"""No plan divides a replica of several hosts, whatever the strategy, the mode and what is free."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.placement import GroupShare, Share
from adapter.planning.plan_request import Candidate, GangMode, GangRequest, GroupRequest, Offer, Strategy
from adapter.planning.plan_request import remaining_request as remaining
from adapter.planning.planner import GangPlan, plan, shares_to_hold
from adapter.planning.split_shares import split_by_worker
from adapter.planning.strategy import allot_workers
from adapter.quota.node_capacity import Node, index_nodes
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor


def cluster(name: str, cores: int, *, lent: int = 0, nodes: int | None = None) -> Candidate:
    """`lent`: cores that another queue of the cohort has to spare; `nodes`: so many of three cores."""
    queues = [make_cluster_queue(cores, cohortName="all"), make_cluster_queue(lent, cohortName="all", name="lender")]
    tree = build(queues, [], [make_flavor()])
    found = None if nodes is None else index_nodes(Node({}, (), {"cpu": 3000, "pods": 110}) for _ in range(nodes))
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, nodes=found)


def group(replicas: int, hosts: int, *, cores: int = 1, name: str = "workers") -> GroupRequest:
    return GroupRequest(name, f"role-{name}", replicas * hosts, {}, {"cpu": cores * 1000, "pods": 1}, hosts=hosts)


def gang(*groups: GroupRequest, **policy: Any) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, groups, **policy)


def counts(made: GangPlan) -> dict[str, int]:
    return {share.cluster: share.workers for share in made.shares}


def whole(shares: Sequence[Share], hosts: int) -> bool:
    parts = [part for share in shares for part in share.groups]
    return all(part.hosts == hosts and part.count % hosts == 0 for part in parts)


EAST, WEST = cluster("east", 3), cluster("west", 5)


@pytest.mark.parametrize(
    ("request_", "fleet", "want"),
    [
        pytest.param(gang(group(3, 2)), [EAST, WEST], {"east": 2, "west": 4}, id="clusters are filled by replicas"),
        pytest.param(
            gang(group(3, 2), strategy="Spread"), [WEST, cluster("east", 9)], {"west": 4, "east": 2}, id="a spread"
        ),
        pytest.param(gang(group(4, 2)), [EAST, WEST], {}, id="eight hosts would fit, but not four replicas"),
        pytest.param(gang(group(1, 4)), [EAST, WEST], {"west": 4}, id="one replica goes where it fits"),
        pytest.param(gang(group(2, 4)), [EAST, WEST], {}, id="a cluster that is too small for a replica gets none"),
        pytest.param(gang(group(2, 2), mode="SameCluster"), [EAST, WEST], {"west": 4}, id="in one cluster"),
        pytest.param(gang(group(2, 3), mode="SameCluster"), [EAST, WEST], {}, id="not both in one cluster"),
        pytest.param(
            gang(group(4, 2), mode="BestEffort", min_workers=5),
            [EAST, WEST],
            {"east": 2, "west": 4},
            id="a minimum of five hosts takes three replicas",
        ),
        pytest.param(gang(group(4, 2), mode="BestEffort", min_workers=7), [EAST, WEST], {}, id="too few for a minimum"),
        pytest.param(
            gang(group(2, 2), strategy="AvailableCapacity"),
            [cluster("east", 3), cluster("west", 3)],
            {"east": 2, "west": 2},
            id="the most capacity is counted in replicas",
        ),
        pytest.param(
            gang(group(2, 2)),
            [cluster("east", 3, lent=9), cluster("west", 2)],
            {"east": 2, "west": 2},
            id="a replica borrows only where none fits the nominal quota",
        ),
        pytest.param(gang(group(1, 2)), [cluster("east", 1, lent=1)], {"east": 2}, id="a replica that borrows a host"),
        pytest.param(gang(group(2, 2)), [cluster("east", 9, nodes=1)], {}, id="today's nodes hold three hosts"),
    ],
)
def test_a_share_has_whole_replicas(request_: GangRequest, fleet: Sequence[Candidate], want: dict[str, int]) -> None:
    made = plan(request_, fleet)
    assert counts(made) == want, made.sentence
    assert whole(made.shares, request_.groups[0].hosts)


def test_what_a_cluster_offers_is_counted_in_whole_replicas() -> None:
    """Four workers would fit empty clusters of three and of one, and two replicas of two never do."""
    made = plan(gang(group(2, 2)), [EAST, cluster("west", 1)])
    assert (made.shares, made.never_fits) == ((), True), made.sentence
    assert [(one.nominal, one.potential) for one in made.verdicts] == [(2, 2), (0, 0)]


REPLICA = "Even when empty, no cluster holds a replica of worker group workers, whose {} hosts must be in one cluster: "


@pytest.mark.parametrize(
    ("request_", "hosts"),
    [
        pytest.param(gang(group(1, 4, cores=2)), 4, id="four times two cores in clusters of three and five"),
        pytest.param(gang(group(3, 8), mode="SameCluster"), 8, id="in one cluster"),
        pytest.param(gang(group(1, 1, name="small"), group(1, 6)), 6, id="beside a group of single hosts"),
        pytest.param(gang(group(4, 2)), None, id="one replica fits, and four do not"),
    ],
)
def test_a_replica_that_no_cluster_could_hold_is_told(request_: GangRequest, hosts: int | None) -> None:
    made = plan(request_, [EAST, WEST])
    assert made.never_fits and (REPLICA.format(hosts) in made.sentence) is (hosts is not None), made.sentence
    assert ("set a smaller numOfHosts" in made.sentence) is (hosts is not None)


STRATEGIES: st.SearchStrategy[Strategy] = st.sampled_from(["FillInOrder", "AvailableCapacity", "Spread", "Cheapest"])
MODES: st.SearchStrategy[GangMode] = st.sampled_from(["AllOrNothing", "SameCluster", "BestEffort"])
FLEETS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.none() | st.integers(0, 4)), max_size=4)
SHAPES = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 2)), min_size=1, max_size=3)


@given(FLEETS, SHAPES, STRATEGIES, MODES, st.integers(0, 9))
def test_no_share_divides_a_replica(
    rooms: list[tuple[int, int, int | None]],
    shapes: list[tuple[int, int, int]],
    strategy: Strategy,
    mode: GangMode,
    least: int,
) -> None:
    groups = [group(n, hosts, cores=cores, name=f"g{at}") for at, (n, hosts, cores) in enumerate(shapes)]
    asked = gang(*groups, strategy=strategy, mode=mode, min_workers=least)
    fleet = [cluster(f"c{at}", cores, lent=lent, nodes=nodes) for at, (cores, lent, nodes) in enumerate(rooms)]
    hosts = {one.name: one.hosts for one in groups}
    made = plan(asked, fleet)
    for share in (*made.shares, *shares_to_hold(asked, fleet)):
        assert all(part.count % hosts[part.name] == 0 and part.hosts == hosts[part.name] for part in share.groups)
    if made.shares:
        assert sum(share.workers for share in made.shares) >= asked.needed_workers


@given(STRATEGIES, st.integers(0, 9), st.integers(1, 4), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_all_replicas_that_fit_are_placed(
    strategy: Strategy, replicas: int, hosts: int, rooms: list[tuple[int, int]]
) -> None:
    offers = [Offer(nominal, nominal + borrow, 99, 99) for nominal, borrow in rooms]
    taken = allot_workers(strategy, replicas * hosts, offers, hosts)
    assert all(count % hosts == 0 and count <= offer.total for count, offer in zip(taken, offers, strict=True))
    assert sum(taken) == hosts * min(replicas, sum(offer.total // hosts for offer in offers))


SPLITS = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@given(SPLITS, st.integers(1, 4), st.integers(0, 20), st.booleans(), st.integers(0, 9))
def test_an_elastic_job_has_shares_of_one_replica(
    replicas: list[int], hosts: int, least: int, starting: bool, most: int
) -> None:
    shares = [Share(f"c{at}", (GroupShare("w", "r", n * hosts, hosts),)) for at, n in enumerate(replicas)]
    made = split_by_worker(shares, {"w": least}, max_shares=most, starting=starting)
    assert whole(made, hosts)
    assert all(share.workers == hosts for share in made if share.single_worker)
    assert sum(share.workers for share in made) == sum(replicas) * hosts


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 5), st.integers(0, 3))
def test_what_is_missing_is_whole_replicas(replicas: int, hosts: int, kept: int, unusable: int) -> None:
    """One slot that no worker can use makes a whole replica's slots useless."""
    share = Share("c", (GroupShare("workers", "role-workers", kept * hosts, hosts),))
    missing = remaining(gang(group(replicas, hosts)), [share] if kept else [], (), {"workers": unusable}).workers
    assert missing % hosts == 0 and missing <= replicas * hosts
    assert missing + kept * hosts - unusable >= replicas * hosts or missing == replicas * hosts
