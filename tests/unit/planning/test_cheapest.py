"""The strategy Cheapest: the clusters by price in each class of quota, for new gangs and for missing workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.objects.location import Location
from adapter.objects.placement import GroupShare, Share
from adapter.objects.specs import PodMapping
from adapter.planning import planner, strategy
from adapter.planning.plan_document import planned_document
from adapter.planning.plan_request import Candidate, GangRequest, GroupRequest, remaining_request, scale_up_request
from adapter.planning.planner import GangPlan, plan
from adapter.quota.node_capacity import Node, index_nodes
from adapter.quota.tree import build
from tests.unit.builders import NAMESPACE, QUEUE, make_cluster_queue, make_flavor

GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"


def cluster(
    name: str,
    cores: int,
    *,
    cpu: str = "",
    lent: int = 0,
    reclaimed: int = 0,
    nodes: int | None = None,
    prices: Mapping[str, str] | None = None,
) -> Candidate:
    """`reclaimed`: cores of its nominal quota that another queue has borrowed; `nodes`: so many of four cores."""
    queues = [
        make_cluster_queue(cores, cohortName="all", preemption={"reclaimWithinCohort": "Any"}),
        make_cluster_queue(lent, used=reclaimed, cohortName="all", name="lender"),
    ]
    tree = build(queues, [], [make_flavor()])
    there = None if nodes is None else index_nodes(Node({}, (), {"cpu": 4000, "pods": 110}) for _ in range(nodes))
    priced = prices or ({"cpu": cpu} if cpu else {})
    return Candidate(
        name,
        "",
        tree,
        {(NAMESPACE, QUEUE): ("team-a", "")},
        {NAMESPACE: {}},
        Location(name),
        there,
        prices={resource: Decimal(price) for resource, price in priced.items()},
    )


def group(count: int, *, cores: int = 1, name: str = "workers", zone: str = "", hosts: int = 1) -> GroupRequest:
    request = {"cpu": cores * 1000, "pods": 1}
    return GroupRequest(name, f"role-{name}", count, {}, request, Location(zone), hosts=hosts)


def gang(*groups: GroupRequest, **policy: Any) -> GangRequest:
    return GangRequest(NAMESPACE, QUEUE, groups, **{"strategy": "Cheapest", **policy})


def counts(made: GangPlan) -> dict[str, int]:
    return {share.cluster: share.workers for share in made.shares}


@dataclass(frozen=True)
class Case:
    id: str
    clusters: Sequence[Candidate]
    want: Mapping[str, int]
    groups: Sequence[GroupRequest] = field(default_factory=lambda: [group(4)])
    policy: Mapping[str, Any] = field(default_factory=dict)


CASES = [
    Case("the cheapest first, the rest in the next one",
         [cluster("a", 9, cpu="3"), cluster("b", 2, cpu="1"), cluster("c", 1, cpu="2")], {"b": 2, "c": 1, "a": 1}),
    Case("the policy's order of equal prices",
         [cluster("b", 3, cpu="1"), cluster("a", 3, cpu="1.00")], {"b": 3, "a": 1}),
    Case("clusters without a price last, in the policy's order",
         [cluster("b", 2), cluster("a", 2), cluster("c", 1, cpu="9")], {"c": 1, "b": 2, "a": 1}),
    Case("a price of zero is a price", [cluster("a", 9), cluster("b", 9, cpu="0")], {"b": 4}),
    Case("no price at all is the policy's order", [cluster("b", 3), cluster("a", 9)], {"b": 3, "a": 1}),
    Case("a resource without a price is free",
         [cluster("a", 9, cpu="1"), cluster("b", 9, prices={GPU: "9"})], {"b": 4}),
    Case("nominal quota of a dear cluster before a cheap one borrows",
         [cluster("dear", 3, cpu="9"), cluster("cheap", 1, lent=9, cpu="1")], {"cheap": 1, "dear": 3}),
    Case("the cheapest borrows first",
         [cluster("dear", 1, lent=9, cpu="9"), cluster("cheap", 1, lent=9, cpu="1")], {"cheap": 3, "dear": 1}),
    Case("a cluster without a price before a cheap one borrows",
         [cluster("cheap", 1, lent=9, cpu="1"), cluster("a", 3)], {"cheap": 1, "a": 3}),
    Case("quota is reclaimed last, whatever it costs",
         [cluster("cheap", 4, reclaimed=4, cpu="1"), cluster("dear", 4, cpu="9")], {"dear": 4}),
    Case("the cheapest reclaims",
         [cluster("dear", 4, reclaimed=4, cpu="9"), cluster("cheap", 4, reclaimed=4, cpu="1")], {"cheap": 4}),
    Case("in one cluster, the cheapest that can take all",
         [cluster("a", 9, cpu="3"), cluster("b", 9, cpu="2"), cluster("c", 3, cpu="1")], {"b": 4},
         policy={"mode": "SameCluster"}),
    Case("in one cluster, without borrowing first",
         [cluster("a", 1, lent=9, cpu="1"), cluster("b", 9, cpu="2")], {"b": 4}, policy={"mode": "SameCluster"}),
    Case("in one cluster, the cheapest although its nodes are not enough today",
         [cluster("a", 9, nodes=1, cpu="2"), replace(cluster("b", 9, nodes=0, cpu="1"), can_grow=True)], {"b": 4},
         policy={"mode": "SameCluster"}),
    Case("a part of a gang",
         [cluster("a", 2, cpu="3"), cluster("b", 1, cpu="1")], {"b": 1, "a": 2},
         policy={"mode": "BestEffort", "min_workers": 3}),
    Case("whole replicas",
         [cluster("a", 9, cpu="3"), cluster("b", 3, cpu="1")], {"b": 2, "a": 2}, groups=[group(4, hosts=2)]),
    Case("the whole gang's price counts",
         [cluster("cores", 9, prices={"cpu": "1", "memory": "9"}),
          cluster("memory", 9, prices={"cpu": "3", "memory": "1"})], {"memory": 4},
         groups=[group(2, name="cpu"),
                 replace(group(2, name="memory"), request={"cpu": 1000, "memory": 2**30, "pods": 1})]),
    Case("a zone is above the price",
         [cluster("a", 9, cpu="1"), cluster("b", 9, cpu="9")], {"a": 2, "b": 2},
         groups=[group(2, name="any"), group(2, name="near", zone="b")]),
    Case("the other strategies do not read prices",
         [cluster("a", 9, cpu="9"), cluster("b", 9, cpu="1")], {"a": 4}, policy={"strategy": "FillInOrder"}),
    Case("nor does AvailableCapacity",
         [cluster("a", 9, cpu="1"), cluster("b", 99, cpu="9")], {"b": 4}, policy={"strategy": "AvailableCapacity"}),
]  # fmt: skip


def _covers_memory(candidate: Candidate) -> Candidate:
    quotas = [{"name": name, "nominalQuota": amount} for name, amount in (("cpu", "9"), ("memory", "99Gi"))]
    queue = make_cluster_queue(9)
    queue["spec"]["resourceGroups"] = [
        {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": quotas}]}
    ]
    return replace(candidate, quota_tree=build([queue], [], [make_flavor()]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_workers_go_where_they_cost_least(case: Case) -> None:
    needs_memory = any("memory" in group.request for group in case.groups)
    clusters = [_covers_memory(candidate) if needs_memory else candidate for candidate in case.clusters]
    made = plan(gang(*case.groups, **case.policy), clusters)
    assert counts(made) == case.want, made.sentence
    assert [*counts(made)] == [*case.want], "the shares are in the order of the prices"


SHARE = Share("dear", (GroupShare("workers", "role-workers", 2),))
FLEET = [cluster("dear", 9, cpu="9"), cluster("cheap", 9, cpu="1")]


@pytest.mark.parametrize("request_beside", [remaining_request, scale_up_request], ids=["a replacement", "a scale-up"])
def test_a_running_gang_gets_its_missing_workers_where_they_are_cheapest(request_beside: Any) -> None:
    missing = request_beside(gang(group(3)), [SHARE], ())
    assert counts(plan(missing, FLEET)) == {"cheap": 1}


def test_the_clusters_that_are_asked_first_are_named_first() -> None:
    """A cheap cluster without capacity is passed over, and a dear one that is not needed is not."""
    fleet = [
        cluster("dear", 2, reclaimed=2, cpu="9"),
        cluster("last", 2, cpu="3"),
        cluster("full", 0, cpu="1"),
        cluster("b", 2, cpu="2"),
    ]
    made = plan(gang(group(3)), fleet)
    assert made.sentence == (
        "2 of 3 workers to b, 1 to last; full passed over: cpu in flavor any: 0 at most, one worker needs 1."
    )
    entries = planned_document({}, gang(group(3)), fleet, made)["clusters"]
    assert [(entry["cluster"], entry["asked"], entry["pricePerHourOfAll"]) for entry in entries] == [
        ("full", 1, "3.00"), ("b", 2, "6.00"), ("last", 3, "9.00"), ("dear", 4, "27.00"),
    ]  # fmt: skip


def test_the_prices_have_the_names_of_the_cluster() -> None:
    group_ = replace(group(1), request={GPU: 1, "pods": 1}, pod_spec={
        "containers": [{"name": "ray", "resources": {"requests": {GPU: "1"}}}]})  # fmt: skip
    renamed = replace(
        cluster("a", 1, prices={GPU: "1", AMD: "5"}), pod_mapping=PodMapping(extended_resources={GPU: AMD})
    )
    assert strategy.gang_cost_in(gang(group_), renamed) == 5
    assert strategy.gang_cost_in(gang(group_), cluster("b", 1, prices={GPU: "2"})) == 2


def test_preempted_quota_is_cheapest_first_too() -> None:
    full = [replace(candidate, quota_tree=cluster("full", 0).quota_tree) for candidate in FLEET]
    assert counts(planner.plan_with_preemption(gang(group(4)), full, FLEET)) == {"cheap": 4}


ROOMS = st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 4))  # nominal, lent, price


@given(st.lists(ROOMS, min_size=1, max_size=5), st.integers(1, 12), st.integers(1, 2))
def test_one_group_never_costs_more_than_in_the_policys_order(
    rooms: list[tuple[int, int, int]], workers: int, hosts: int
) -> None:
    fleet = [cluster(f"c{n}", cores, lent=lent, cpu=str(price)) for n, (cores, lent, price) in enumerate(rooms)]
    cheapest = gang(group(workers * hosts, hosts=hosts))
    made, filled = (plan(request, fleet) for request in (cheapest, replace(cheapest, strategy="FillInOrder")))
    assert sum(counts(made).values()) == sum(counts(filled).values())
    price = {candidate.name: candidate.prices["cpu"] for candidate in fleet}
    assert _bill(counts(made), price) <= _bill(counts(filled), price)
    assert _borrowed(made, fleet) == _borrowed(filled, fleet), "no price makes a gang borrow"


def _bill(workers: Mapping[str, int], price: Mapping[str, Decimal]) -> Decimal:
    return sum((count * price[name] for name, count in workers.items()), Decimal(0))


def _borrowed(made: GangPlan, fleet: Sequence[Candidate]) -> int:
    nominal = {verdict.cluster: verdict.nominal for verdict in made.verdicts}
    return sum(max(0, count - nominal[name]) for name, count in counts(made).items())
