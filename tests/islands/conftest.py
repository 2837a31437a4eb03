"""The lab as islands: clusters with the same pod CIDR behind NAT. `make test-islands` brings it up."""

import pytest

from hack.lab.base import lab as definition
from hack.lab.base.lab import ISLANDS, Lab


@pytest.fixture(scope="session")
def islands() -> Lab:
    loaded_lab = definition.load()
    if loaded_lab.network != ISLANDS:
        pytest.fail(f"the lab's network is {loaded_lab.network}: run `make test-islands`")
    return loaded_lab
