"""Tests each strategy and gang of a DispatchPolicy once with real Ray: a small RayCluster for each.

In each case the policy of the demo, FillInOrder and AllOrNothing, would place the workers elsewhere. On fake nodes:
tests/integration/test_gang.py, test_gangs.py and test_cheapest.py.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from hack.testbed import policies, quotas, workerclusters
from hack.testbed.clusters import Clusters, wait
from hack.testbed.raycluster import RayCluster
from hack.testbed.rayjob import JOB_SECONDS
from hack.testbed.stage import pods_by_cluster

pytestmark = pytest.mark.long

_ONE, _TWO = {"cpu": "200m"}, {"cpu": "400m"}  # quota for workers of the sample


class Case(NamedTuple):
    policy: Mapping[str, Any]
    east: Mapping[str, str]
    workers: int
    placed: Mapping[str, int]
    prices: Mapping[str, str] = {}  # of a core, by cluster


CASES = {
    "spread": Case({"strategy": "Spread"}, _TWO, 2, {"east": 1, "west": 1}),
    "available-capacity": Case({"strategy": "AvailableCapacity"}, _ONE, 1, {"west": 1}),
    "same-cluster": Case({"gang": "SameCluster"}, _ONE, 2, {"west": 2}),
    "cheapest": Case({"strategy": "Cheapest"}, _TWO, 2, {"west": 2}, {"east": "0.05", "west": "0.04"}),
}


@pytest.mark.parametrize("name", CASES)
def test_workers_join_from_where_the_policy_places_them(fleet: Clusters, name: str) -> None:
    case = CASES[name]
    with ExitStack() as stack:
        stack.enter_context(quotas.given(fleet.workers["east"], case.east))
        prices = {cluster: {"cpu": price} for cluster, price in case.prices.items()}
        stack.enter_context(workerclusters.priced(fleet, prices))
        stack.enter_context(policies.changed(fleet.manager, case.policy))
        cluster = stack.enter_context(_created(fleet, name, case.workers))
        cluster.wait_until_joined()
        assert pods_by_cluster(cluster.pods("worker")) == case.placed


def test_a_best_effort_gang_starts_with_what_fits_and_the_rest_joins_later(fleet: Clusters) -> None:
    west = fleet.workers["west"]
    with ExitStack() as stack:
        stack.enter_context(policies.changed(fleet.manager, {"gang": "BestEffort", "minWorkers": 2}))
        stack.enter_context(quotas.given(fleet.workers["east"], _ONE))
        with quotas.given(west, _ONE):
            cluster = stack.enter_context(_created(fleet, "best-effort", 3))
            wait(lambda: len(cluster.ready("worker")) == 2, JOB_SECONDS, "two workers run", cluster.dump)
            first = cluster.ready("worker")
            assert pods_by_cluster(first) == {"east": 1, "west": 1}
            assert len(cluster.pods("worker")) == 3, "the third waits"
        cluster.wait_until_joined()
        assert pods_by_cluster(cluster.pods("worker")) == {"east": 1, "west": 2}
        assert {pod["metadata"]["uid"] for pod in first} < {pod["metadata"]["uid"] for pod in cluster.pods("worker")}


@contextmanager
def _created(fleet: Clusters, name: str, workers: int) -> Iterator[RayCluster]:
    cluster = RayCluster(fleet, name, workers=workers)
    try:
        cluster.create()
        yield cluster
    finally:
        cluster.delete()
