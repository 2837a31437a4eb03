"""Prices reach the plans of gangs and of `kubectl rayspan plan` from the WorkerClusters, as they are now."""

import asyncio
from collections.abc import Mapping

import pytest

from adapter.cli import plan_table
from adapter.objects.unstructured import RawDict as Raw
from adapter.objects.workload import parse_workload
from adapter.planning.plan_document import PlanJson
from tests.unit.builders import CHECK, NAMESPACE, START, make_check, make_policy, make_workload, stamp
from tests.unit.stores import Sight, fill, make_group, make_member, make_ray_job, make_template

CHEAPEST = "Cheapest"
DEAR_FIRST = {"east": "9", "west": "1"}


def priced(cores: Mapping[str, int], prices: Mapping[str, str]) -> Sight:
    sight = Sight(cores, strategy=CHEAPEST)
    set_prices(sight, prices)
    return sight


def set_prices(sight: Sight, prices: Mapping[str, str]) -> None:
    for name, price in prices.items():
        sight.members[name].spec = make_member(name, 0, pricePerHour={"cpu": price} if price else {}).spec


def gang(name: str, workers: int, *, age: float = 0, check: str = CHECK) -> Raw:
    raw = make_workload(name=name, groups={"workers": workers}, checks=[check])
    raw["metadata"]["creationTimestamp"] = stamp(-age)
    for podset in raw["spec"]["podSets"]:
        podset["template"] = make_template("1")
    return raw


def placed(sight: Sight, workload: Raw, check: str = CHECK) -> Mapping[str, int]:
    policy, _ = sight.facts.policies.policy_of(check)
    result = asyncio.run(sight.planning.plan_gang(parse_workload(workload), check, policy, (), START))
    return {share.cluster: share.workers for share in result.plan.shares}


def preview(sight: Sight, workers: int = 4) -> PlanJson:
    return asyncio.run(sight.preview.preview_plan(make_ray_job(make_group(workers)), NAMESPACE, START))


def test_a_gang_fills_the_cheapest_cluster_and_spills() -> None:
    sight, work = priced({"east": 9, "west": 3}, DEAR_FIRST), gang("me", 4)
    fill(sight.manager.workloads, work)
    assert placed(sight, work) == {"west": 3, "east": 1}
    assert preview(sight)["sentence"] == "3 of 4 workers to west, 1 to east."


def test_an_edited_price_counts_for_the_next_plan_and_for_those_before_it() -> None:
    """The deduction of an earlier gang is cached, and that gang goes elsewhere now."""
    sight = priced({"east": 4, "west": 4}, DEAR_FIRST)
    other = make_check(policy="other") | {"metadata": {"name": "other"}}
    sight.manager.checks.replace([make_check(), other])
    policies = [make_policy(clusters=["east", "west"], strategy=CHEAPEST), make_policy("other", clusters=["west"])]
    sight.manager.policies.replace(policies)
    first, me = gang("first", 4, age=99), gang("me", 4, check="other")
    fill(sight.manager.workloads, first, me)
    assert placed(sight, first) == {"west": 4} and placed(sight, me, "other") == {}
    set_prices(sight, {"east": "1", "west": "9"})
    assert placed(sight, first) == {"east": 4} and placed(sight, me, "other") == {"west": 4}


def test_the_table_shows_what_the_order_follows() -> None:
    assert (
        plan_table.render(preview(priced({"east": 9, "north": 9, "west": 3}, DEAR_FIRST)))
        == """\
RayJob demo/train: 4 workers of group workers, each cpu 1
LocalQueue team-a, DispatchPolicy default: Cheapest, AllOrNothing

ASKED   CLUSTER   CHOSEN   NOMINAL   BORROWED   EVER   USED    FREE    PER HOUR   IF ALL   WHY
1       west      3        3         0          3      cpu 0   cpu 3   3.00       4.00     \
no more fit: cpu in flavor any: 3 free of 3, one worker needs 1
2       east      1        4         0          4      cpu 0   cpu 9   9.00       36.00    -
3       north     0        4         0          4      cpu 0   cpu 9   -          -        not needed

Fits: 3 of 4 workers to west, 1 to east.
Price per hour: 12.00.
Asked last, without spec.pricePerHour in the WorkerCluster: north.
"""
    )


NO_PRICE = "No cluster has spec.pricePerHour in its WorkerCluster, so the policy's order decides."


@pytest.mark.parametrize(
    ("prices", "strategy", "notes"),
    [
        pytest.param(DEAR_FIRST, CHEAPEST, [], id="all have a price"),
        pytest.param({"west": "1"}, CHEAPEST,
            ["Asked last, without spec.pricePerHour in the WorkerCluster: east."], id="one has none"),
        pytest.param({}, CHEAPEST, [NO_PRICE], id="none has one"),
        pytest.param({"west": "1"}, "FillInOrder", [], id="the order follows no price"),
    ],
)  # fmt: skip
def test_the_plan_names_the_clusters_without_a_price(
    prices: Mapping[str, str], strategy: str, notes: list[str]
) -> None:
    sight = Sight({"east": 9, "west": 9}, strategy=strategy)
    set_prices(sight, prices)
    assert preview(sight)["notes"] == notes


def test_a_cluster_that_is_not_asked_needs_no_price() -> None:
    sight = priced({"east": 9, "west": 9}, DEAR_FIRST)
    sight.members["east"].spec = make_member("east", 9, cordoned=True).spec
    assert preview(sight)["notes"] == []
