"""All that is kept of one cluster has one bound, whatever its kinds."""

from typing import cast

import pytest

from adapter.shell.clusters.cluster_cache import Cluster
from adapter.shell.kube.client import Client, Unreachable
from adapter.shell.kube.memory_budget import OF_MANAGER, OF_WORKER_CLUSTER, Budget, Overfull

MIB = 2**20


def test_all_kinds_share_one_budget() -> None:
    budget = Budget(10 * MIB)
    pods, heads, nodes = budget.room("pods"), budget.room("pods"), budget.room("nodes")
    pods.take(4 * MIB)
    heads.take(2 * MIB)
    nodes.take(4 * MIB)
    with pytest.raises(Overfull) as found:
        nodes.take(5 * MIB)
    assert isinstance(found.value, Unreachable)
    assert str(found.value) == (
        "it shows more objects than the 10 MiB of memory that are kept of one cluster (pods 6 MiB, nodes 5 MiB); delete there what "
        "nobody needs of these, or find out who makes them"
    )


def test_what_goes_makes_room_for_others() -> None:
    budget = Budget(10 * MIB)
    pods, nodes = budget.room("pods"), budget.room("nodes")
    pods.take(9 * MIB)
    pods.take(1 * MIB)
    nodes.take(9 * MIB)
    with pytest.raises(Overfull):
        pods.take(2 * MIB)
    pods.take(0)
    nodes.take(10 * MIB)


def test_who_is_over_it_and_shrinks_is_let_shrink() -> None:
    """What takes less is no news to complain of: a list that is read anew begins with nothing."""
    budget = Budget(10 * MIB)
    pods, nodes = budget.room("pods"), budget.room("nodes")
    nodes.take(9 * MIB)
    with pytest.raises(Overfull):
        pods.take(9 * MIB)
    pods.take(8 * MIB)


def test_what_is_read_beside_the_stores_has_its_own_budget_and_waits_for_the_same_turn() -> None:
    cluster = Cluster(cast(Client, None), 10 * MIB)
    aside = cluster.aside(MIB)
    assert aside.page is cluster._budget.page
    with pytest.raises(Overfull):
        aside.room("configmaps").take(2 * MIB)


def test_one_cluster_of_ten_does_not_fill_the_process() -> None:
    """The limit in manifests/controller.yaml is 512Mi; docs/failures.md says what is left for the others."""
    assert OF_WORKER_CLUSTER <= 512 * MIB / 4 and OF_MANAGER < 512 * MIB
