"""Findings A12 and A13: what one tenant writes in his namespace stops nobody else, in the manager and in a cluster."""

from typing import Any, cast

import pytest

from adapter import names
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube.client import Client
from adapter.shell.kube.memory_budget import MANAGER_BYTES, WORKER_CLUSTER_BYTES
from tests.unit import builders
from tests.unit.stores import Sight, make_member

VARIABLES = [{"name": f"E{number}", "value": str(number)} for number in range(22_000)]


def large_head(number: int) -> dict[str, Any]:
    """As `kubectl apply` takes it: 794 KiB of JSON."""
    return {
        "metadata": {
            "name": f"h{number}",
            "namespace": "mallory",
            "uid": f"u{number}",
            "resourceVersion": str(number + 1),
            "labels": {names.RAY_NODE_TYPE_LABEL: names.HEAD},
        },
        "spec": {"containers": [{"name": "c", "env": VARIABLES}], "nodeSelector": {"no": "such"}},
        "status": {"phase": "Pending"},
    }


def test_a_head_weighs_what_is_read_of_it() -> None:
    manager = ManagerCache(cast(Client, None))
    manager.heads.replace([large_head(0)])
    assert manager.heads.weight < 4_000


def large_workload(number: int) -> dict[str, Any]:
    raw = builders.make_workload(name=f"w{number}")
    raw["metadata"] |= {"namespace": "mallory", "uid": f"u{number}", "resourceVersion": str(number + 1)}
    raw["spec"]["podSets"][1]["template"] = {"spec": {"containers": [{"name": "w", "env": VARIABLES}]}}
    return raw


def test_workloads_of_one_namespace_do_not_fill_the_manager() -> None:
    manager = ManagerCache(cast(Client, None))
    for number in range(20):
        manager.workloads.put(large_workload(number))
        manager.namespace_shares.check("mallory")
    assert not manager.namespace_shares.is_complete("mallory") and manager.namespace_shares.is_complete("demo")
    assert manager.workloads.weight < MANAGER_BYTES / 2
    manager.workloads.put(builders.make_workload())
    assert [raw["metadata"]["namespace"] for raw in manager.workloads] == [builders.NAMESPACE]


def crafted_pod(number: int) -> dict[str, Any]:
    containers = [
        {"name": f"c{index}", "image": "a", "resources": {"limits": {f"e.io/{number}-{index}": "1"}}}
        for index in range(15_000)
    ]
    metadata = {
        "name": f"x{number}",
        "namespace": "mallory",
        "uid": f"u{number}",
        "resourceVersion": str(number + 1),
        "labels": {names.MANAGER_LABEL: "mgr", names.CLUSTER_LABEL: "east"},
    }
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Pending"}}


def test_pods_of_one_namespace_do_not_hide_a_worker_cluster() -> None:
    member = make_member("east", 8)
    for number in range(10):
        member.pods.put(crafted_pod(number))
        member.namespace_shares.check("mallory")
    assert not member.unreachable_reason and not member.namespace_shares.is_complete("mallory")
    assert member.pods.weight < WORKER_CLUSTER_BYTES / 2


@pytest.mark.parametrize("namespace", ["demo", "other"])
def test_a_cluster_is_left_out_for_an_incomplete_namespace_only(namespace: str) -> None:
    sight = Sight({"east": 4, "west": 4})
    sight.members["east"].namespace_shares.drop_unreadable("demo", "pods")
    expected = {"west"} if namespace == "demo" else {"east", "west"}
    assert set(sight.fleet.reachable(namespace)) == expected
    assert set(sight.fleet.unreachable(namespace)) == {"east", "west"} - expected
    assert sight.fleet.unreachable() == {} and set(sight.fleet.reachable()) == {"east", "west"}


def test_a_cluster_with_an_incomplete_namespace_is_not_taken_for_drained() -> None:
    sight = Sight({"east": 4})
    assert sight.facts.reservations.workers_in("east") == 0
    sight.members["east"].namespace_shares.drop_unreadable("demo", "pods")
    assert sight.facts.reservations.workers_in("east") == 1


def test_shares_of_an_incomplete_namespace_are_not_deducted_from_others_capacity() -> None:
    sight = Sight({"east": 4})
    work = builders.make_workload(name="w")
    sight.manager.workloads.replace([work])
    sight.manager.placements.replace([builders.make_placement(work, shares={"east": builders.WORKERS})])
    other = sight.manager.read_workload(builders.make_workload(name="other"))
    planning = sight.planning._snapshot
    assert list(planning.uncounted_shares(other, builders.at(1)))
    sight.members["east"].namespace_shares.drop_unreadable("demo", "pods")
    assert not [share for _, shares in planning.uncounted_shares(other, builders.at(1)) for share in shares]
