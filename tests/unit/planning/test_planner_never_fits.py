"""Whether a gang can ever fit. Groups that fit alone may not fit together, and a gang that never fits must hold no
capacity."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter.objects.location import Location
from adapter.planning.plan_request import Candidate, GangMode, GangRequest, GroupRequest
from adapter.planning.planner import plan
from adapter.quota.node_capacity import Node, index_nodes
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor


def cluster(name: str, cores: int, *, used: int = 0, zone: str = "") -> Candidate:
    tree = build([make_cluster_queue(cores, used=used)], [], [make_flavor()])
    return Candidate(name, "", tree, {(NAMESPACE, QUEUE): ("team-a", "")}, {NAMESPACE: {}}, Location(zone or name))


def group(name: str, count: int, cores: int, zone: str = "") -> GroupRequest:
    return GroupRequest(name, f"role-{name}", count, {}, {"cpu": cores * 1000, "pods": 1}, Location(zone))


SMALL, BIG = group("small", 3, 1), group("big", 1, 2)


@pytest.mark.parametrize(
    ("groups", "fleet", "gang", "most"),
    [
        pytest.param([SMALL], [cluster("a", 2, used=2)], "AllOrNothing", 2, id="one group is too large"),
        pytest.param([SMALL], [cluster("a", 3, used=2)], "AllOrNothing", None, id="one group does not fit now"),
        pytest.param([SMALL, BIG], [cluster("a", 4, used=1)], "AllOrNothing", 3,
            id="each group fits alone, both together never"),
        pytest.param([SMALL, BIG], [cluster("a", 5, used=1)], "AllOrNothing", None, id="both groups fit, but not now"),
        pytest.param(
            [SMALL, BIG], [cluster("a", 1), cluster("b", 1), cluster("c", 1)], "AllOrNothing", 3,
            id="one group fits nowhere"
        ),
        pytest.param([SMALL, BIG], [cluster("a", 3), cluster("b", 1, used=1)], "AllOrNothing", 3,
            id="the groups cannot be divided"),
        pytest.param([SMALL, BIG], [cluster("a", 3, used=1), cluster("b", 2)], "AllOrNothing", None,
            id="the groups can be divided, but not now"),
        pytest.param([SMALL, BIG], [cluster("a", 4), cluster("b", 4)], "SameCluster", 3,
            id="the gang fits in no single cluster"),
        pytest.param([SMALL, BIG], [cluster("a", 5, used=1), cluster("b", 4)], "SameCluster", None,
            id="the gang fits in a single cluster, but not now"),
        pytest.param(
            [group("small", 3, 1, "z1"), group("near", 2, 1, "z1")],
            [cluster("a", 4, zone="z1"), cluster("b", 9, zone="z2")],
            "AllOrNothing",
            4,
            id="the gang does not fit in its zone",
        ),
    ],
)  # fmt: skip
def test_how_many_workers_empty_clusters_hold(
    groups: Sequence[GroupRequest], fleet: Sequence[Candidate], gang: GangMode, most: int | None
) -> None:
    made = plan(GangRequest(NAMESPACE, QUEUE, tuple(groups), mode=gang), fleet)
    assert not made.shares
    assert made.never_fits is (most is not None), made.sentence
    if most is not None:
        assert f", holds only {most}: " in made.sentence or f" clusters hold only {most}: " in made.sentence


@pytest.mark.parametrize(
    ("free", "cordoned", "cores", "never"),
    [
        pytest.param(0, 2, 9, False, id="all nodes are cordoned"),
        pytest.param(1, 1, 9, False, id="a cordoned node is missing"),
        pytest.param(1, 0, 9, True, id="the nodes are too few"),
        pytest.param(1, 1, 2, True, id="quota lacks, too"),
        pytest.param(3, 1, 2, True, id="the quota is too small, and no node lacks"),
    ],
)
def test_a_gang_waits_for_cordoned_nodes(free: int, cordoned: int, cores: int, never: bool) -> None:
    """No quota helps, and an uncordon does."""
    nodes = index_nodes(Node({}, (), {"cpu": 1000, "pods": 110}) for _ in range(free))
    nodes.cordoned = cordoned
    made = plan(GangRequest(NAMESPACE, QUEUE, (SMALL,)), [replace(cluster("a", cores), nodes=nodes)])
    assert not made.shares and made.never_fits is never, made.sentence
    assert ("raise a quota" in made.sentence) is never
    assert ("cordoned" in made.sentence) is (not never)
