"""All that is kept of one cluster has one bound, whatever its kinds."""

from typing import cast

import pytest

from adapter.shell.clusters.cluster_cache import ClusterCache
from adapter.shell.kube.client import Client, Unreachable
from adapter.shell.kube.memory_budget import MANAGER_BYTES, WORKER_CLUSTER_BYTES, BudgetExceeded, MemoryBudget

MIB = 2**20


def test_all_kinds_share_one_budget() -> None:
    budget = MemoryBudget(10 * MIB)
    pods, heads, nodes = budget.new_quota("pods"), budget.new_quota("pods"), budget.new_quota("nodes")
    pods.set_used(4 * MIB)
    heads.set_used(2 * MIB)
    nodes.set_used(4 * MIB)
    with pytest.raises(BudgetExceeded) as found:
        nodes.set_used(5 * MIB)
    assert isinstance(found.value, Unreachable)
    assert str(found.value) == (
        "it shows more objects than the 10 MiB of memory that are kept of one cluster (pods 6 MiB, nodes 5 MiB); delete there what "
        "nobody needs of these, or find out who makes them"
    )


def test_what_goes_makes_room_for_others() -> None:
    budget = MemoryBudget(10 * MIB)
    pods, nodes = budget.new_quota("pods"), budget.new_quota("nodes")
    pods.set_used(9 * MIB)
    pods.set_used(1 * MIB)
    nodes.set_used(9 * MIB)
    with pytest.raises(BudgetExceeded):
        pods.set_used(2 * MIB)
    pods.set_used(0)
    nodes.set_used(10 * MIB)


def test_who_is_over_it_and_shrinks_is_let_shrink() -> None:
    """What takes less is no news to complain of: a list that is read anew begins with nothing."""
    budget = MemoryBudget(10 * MIB)
    pods, nodes = budget.new_quota("pods"), budget.new_quota("nodes")
    nodes.set_used(9 * MIB)
    with pytest.raises(BudgetExceeded):
        pods.set_used(9 * MIB)
    pods.set_used(8 * MIB)


def test_what_is_read_beside_the_stores_has_its_own_budget_and_waits_for_the_same_turn() -> None:
    cluster = ClusterCache(cast(Client, None), 10 * MIB)
    aside = cluster.extra_budget(MIB)
    assert aside.page_lock is cluster._budget.page_lock
    with pytest.raises(BudgetExceeded):
        aside.new_quota("configmaps").set_used(2 * MIB)


def test_one_cluster_of_ten_does_not_fill_the_process() -> None:
    """The limit in manifests/controller.yaml is 512Mi; docs/failures.md says what is left for the others."""
    assert WORKER_CLUSTER_BYTES <= 512 * MIB / 4 and MANAGER_BYTES < 512 * MIB
