"""The lab as islands: clusters with the same pod CIDR behind NAT. `make test-islands` brings it up."""

from collections.abc import Iterator

import pytest

from hack.lab.base import lab as definition
from hack.lab.base.lab import ISLANDS, Lab
from hack.testbed import relay
from hack.testbed.clusters import Clusters


@pytest.fixture(scope="session")
def islands() -> Lab:
    loaded_lab = definition.load()
    if loaded_lab.network != ISLANDS:
        pytest.fail(f"the lab's network is {loaded_lab.network}: run `make test-islands`")
    return loaded_lab


@pytest.fixture(scope="module")
def relayed(islands: Lab, fleet: Clusters) -> Iterator[Clusters]:
    """The clusters with the component, whose WorkerClusters are reached through the relay."""
    try:
        relay.connect(islands, fleet)
        yield fleet
    finally:
        relay.disconnect(fleet)
