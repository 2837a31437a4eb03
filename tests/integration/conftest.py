"""One controller at a time, the deployed one or a process of the module under test, and a stage for each test."""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.testbed.clusters import Clusters
from hack.testbed.controller import Controller
from hack.testbed.deployment import Deployment
from hack.testbed.stage import Stage


@pytest.fixture(scope="session")
def deployment(fleet: Clusters) -> Iterator[Deployment]:
    """The deployed controller, which runs again when all is done."""
    made = Deployment(fleet.manager)
    yield made
    made.unpark()


@pytest.fixture(scope="module")
def deployed(deployment: Deployment) -> None:
    """The deployed controller runs, and no other."""
    deployment.unpark()


@pytest.fixture(scope="module")
def parked(fleet: Clusters, deployment: Deployment) -> Clusters:
    """The clusters without the deployed controller: the tests start their own."""
    deployment.park()
    return fleet


@pytest.fixture(scope="module")
def standing(parked: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    """The module's own controller. Its tests share no queue, so it need not start anew for each."""
    made = Controller(parked.manager, tmp_path_factory.mktemp("controller"))
    yield made
    made.stop()


@pytest.fixture
def running(standing: Controller) -> Controller:
    """A controller that runs."""
    standing.go_on()
    return standing


@pytest.fixture
def process(standing: Controller, tmp_path: Path) -> Iterator[Controller]:
    """A controller of the test's own that is not started yet; no other runs."""
    standing.stop()
    made = Controller(standing.manager, tmp_path)
    yield made
    made.stop()


@pytest.fixture
def stage(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A namespace over all clusters, named after the test; what is in it goes while the next test runs."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    number = (
        zlib.crc32(request.node.name.encode()) % 10_000
    )  # tests of one name begin alike, and are not to meet on one stage
    made = Stage(fleet, f"it-{words}"[:45].rstrip("-") + f"-{number}")
    with made:
        yield made
