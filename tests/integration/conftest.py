"""One controller process for the module under test, and a stage for each test."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.clusters import Clusters
from tests.integration import controller
from tests.integration.controller import Controller
from tests.integration.stage import Stage


@pytest.fixture(scope="module")
def parked(fleet: Clusters) -> Iterator[Clusters]:
    """The clusters without the deployed controller: the tests start their own."""
    controller.park(fleet.manager)
    yield fleet
    controller.unpark(fleet.manager)


@pytest.fixture
def process(parked: Clusters, tmp_path: Path) -> Iterator[Controller]:
    """A controller that is not started yet."""
    made = Controller(parked.manager, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def running(process: Controller) -> Controller:
    """A controller that runs."""
    process.start()
    return process


@pytest.fixture
def stage(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A namespace over all clusters, named after the test; what is in it goes while the next test runs."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    made = Stage(fleet, f"it-{words}"[:50].rstrip("-"))
    yield made
    made.clear()
