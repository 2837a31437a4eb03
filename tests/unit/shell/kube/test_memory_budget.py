"""One memory budget bounds all kinds of one cluster."""

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
        "it shows more objects than the 10 MiB of memory that are kept of one cluster (pods 6 MiB, nodes 5 MiB); "
        "delete the ones that are not needed, or find out which client creates them"
    )


def test_removed_objects_free_the_budget() -> None:
    budget = MemoryBudget(10 * MIB)
    pods, nodes = budget.new_quota("pods"), budget.new_quota("nodes")
    pods.set_used(9 * MIB)
    pods.set_used(1 * MIB)
    nodes.set_used(9 * MIB)
    with pytest.raises(BudgetExceeded):
        pods.set_used(2 * MIB)
    pods.set_used(0)
    nodes.set_used(10 * MIB)


def test_a_kind_over_the_budget_may_shrink() -> None:
    """A smaller size raises no error: a new list starts at zero."""
    budget = MemoryBudget(10 * MIB)
    pods, nodes = budget.new_quota("pods"), budget.new_quota("nodes")
    nodes.set_used(9 * MIB)
    with pytest.raises(BudgetExceeded):
        pods.set_used(9 * MIB)
    pods.set_used(8 * MIB)


def test_responses_have_their_own_budget_and_share_the_queue() -> None:
    cluster = ClusterCache(cast(Client, None), 10 * MIB)
    aside = cluster.extra_budget(MIB)
    assert aside.page_lock is cluster.budget.page_lock
    with pytest.raises(BudgetExceeded):
        aside.new_quota("configmaps").set_used(2 * MIB)


def test_one_cluster_of_ten_does_not_fill_the_process() -> None:
    """The limit in manifests/controller.yaml is 512Mi; docs/failures.md names the rest for other clusters."""
    assert WORKER_CLUSTER_BYTES <= 512 * MIB / 4 and MANAGER_BYTES < 512 * MIB
