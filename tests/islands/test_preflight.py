"""A preflight between islands says of each two clusters that they have the same pod CIDR, and nothing that follows from
it.

The lab's nodes have no `podCIDRs`, so it compares addresses of pods.
"""

from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest

from adapter import names
from adapter.preflight.preflight_facts import MANAGER
from hack.lab.base.lab import Lab
from hack.testbed.clusters import Clusters, condition
from hack.testbed.preflights import findings, preflight
from hack.testbed.stage import Stage


@pytest.fixture
def stage(islands: Lab, fleet: Clusters) -> Iterator[Stage]:
    with Stage(fleet, "it-islands-preflight") as made:
        made.build({"east": 1, "west": 1})
        yield made


def test_each_two_islands_have_one_failure(stage: Stage, islands: Lab) -> None:
    document = preflight(stage, want=3)
    failures = findings(document, "failure")
    pairs = ((MANAGER, "east"), (MANAGER, "west"), ("east", "west"))
    assert [(clusters, check) for clusters, check, _ in failures] == [
        (f"{first} {second}", "PodNetwork") for first, second in pairs
    ]
    for (first, second), (_, _, message) in zip(pairs, failures, strict=True):
        address, _, rest = message.removeprefix("Address ").partition(" ")
        assert ip_address(address) in ip_network(islands.manager.pods)
        assert rest == (
            f"is that of a pod in {first} and of one in {second}, so pods of the two clusters cannot be distinguished; "
            "give one of the clusters another pod network, as NAT between them does not help, "
            f"or join {second} by the relay (spec.network of its WorkerCluster)."
        )
    assert findings(document, "warning") == []
    assert {path["reached"] for path in document["paths"]} == {False}
    for name in ("east", "west"):
        reachable = condition(stage.manager.get("workerclusters", name), names.REACHABLE)
        assert (reachable["status"], reachable["reason"]) == ("False", "AddressesOverlap")
