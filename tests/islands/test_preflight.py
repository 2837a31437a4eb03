"""A preflight between islands says of each two clusters that they have the same pod CIDR, and nothing that follows from
it.
"""

from collections.abc import Iterator

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
    pods = islands.manager.pods
    assert findings(document, "failure") == [
        (
            f"{first} {second}",
            "PodNetwork",
            f"Nodes of {first} give their pods addresses of {pods}, and nodes of {second} of {pods}, so pods of the "
            "two clusters cannot be distinguished; give one of the clusters another pod network, as NAT between them "
            "does not help.",
        )
        for first, second in ((MANAGER, "east"), (MANAGER, "west"), ("east", "west"))
    ]
    assert findings(document, "warning") == []
    assert {path["reached"] for path in document["paths"]} == {False}
    for name in ("east", "west"):
        reachable = condition(stage.manager.get("workerclusters", name), names.REACHABLE)
        assert (reachable["status"], reachable["reason"]) == ("False", "AddressesOverlap")
