"""An API server on a socket of this machine, and a client of it."""

from collections.abc import AsyncIterator

import pytest

from adapter.shell.kube.client import Client
from tests.unit import apiserver
from tests.unit.apiserver import Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with apiserver.serving() as found:
        yield found


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with apiserver.connected(server.url) as found:
        yield found
