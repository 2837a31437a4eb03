"""One controller at a time, the deployed one or a process of the module under test, and a stage for each test.

Most tests share one process under test and no queue, so several pytest processes may run them side by side (`-n 4 -m
"not alone"`): the one that starts those starts the process under test for all. The other tests are `alone`.
"""

import re
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hack.lab.base.progress import LabError
from hack.testbed import install
from hack.testbed.clusters import Clusters
from hack.testbed.controller import Controller
from hack.testbed.deployment import Deployment
from hack.testbed.pace import PACES, QUICK
from hack.testbed.stage import Stage

# Whoever kills the controller, runs another one, cuts a link, or changes what all stages share: a WorkerCluster, a
# role.
ALONE = {"process", "deployed", "lab", "no_services", "unbound", "open_again"}
_SHARED = pytest.StashKey[Controller]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rayspan")
    group.addoption(
        "--pace", choices=PACES, default=QUICK, help="how long the controllers under test wait (hack/testbed/pace.py)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ALONE & set(getattr(item, "fixturenames", ())):
            item.add_marker("alone")


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Several processes of pytest are about to be started: install, and start the controller that they share."""
    manager, workers = config.getoption("--manager"), config.getoption("--worker")
    fleet = install.on(manager, workers, there=config.getoption("--installed"))
    cleanup = ExitStack()  # the last comes first, whatever becomes of this session
    config.add_cleanup(cleanup.close)
    deployment = Deployment(fleet.manager)
    cleanup.callback(deployment.unpark)
    deployment.park()
    folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="rayspan-controller-")))
    shared = config.stash[_SHARED] = Controller(fleet.manager, folder, pace=config.getoption("--pace"))
    cleanup.callback(_sound, shared)
    cleanup.callback(shared.stop)
    shared.start()


def _sound(controller: Controller) -> None:
    """Fail if it met what nobody expected: it goes on after that, so no test need have seen it."""
    if faults := controller.faults():
        raise LabError("\n".join(["The controller of these tests went on after faults of its own:", *faults[:20]]))


def pytest_configure_node(node: Any) -> None:
    """Tell one of them where the controller is."""
    shared = node.config.stash[_SHARED]
    node.workerinput["controller"] = (str(shared.log.parent), shared.port)


@pytest.fixture(scope="session")
def shared(fleet: Clusters, request: pytest.FixtureRequest) -> Controller | None:
    """The controller of several processes of pytest; None if there is only this one."""
    given: dict[str, Any] = getattr(request.config, "workerinput", {})
    if "controller" not in given:
        return None
    folder, port = given["controller"]
    return Controller.seen(fleet.manager, Path(folder), port)


@pytest.fixture(autouse=True)
def _alone(request: pytest.FixtureRequest) -> None:
    """Who must be alone does not run beside others."""
    if hasattr(request.config, "workerinput") and request.node.get_closest_marker("alone"):
        pytest.fail('this test must be alone: run it without -n, or leave it out with -m "not alone"')


@pytest.fixture(scope="session")
def deployment(fleet: Clusters) -> Iterator[Deployment]:
    """The deployed controller, which runs again when all is done."""
    made = Deployment(fleet.manager)
    yield made
    made.unpark()


@pytest.fixture(scope="module")
def deployed(deployment: Deployment, standing: Controller) -> None:
    """The deployed controller runs, and no other."""
    standing.stop()
    deployment.unpark()


@pytest.fixture(scope="module")
def parked(fleet: Clusters, shared: Controller | None, request: pytest.FixtureRequest) -> Clusters:
    """The clusters without the deployed controller: the tests start their own."""
    if shared is None:
        request.getfixturevalue("deployment").park()
    return fleet


@pytest.fixture(scope="session")
def standing(
    fleet: Clusters, shared: Controller | None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    """The controller of all tests that run side by side or in sequence. They share no queue, so it is not restarted."""
    if shared is not None:
        yield shared
        return
    made = Controller(fleet.manager, tmp_path_factory.mktemp("controller"), pace=request.config.getoption("--pace"))
    yield made
    made.stop()


@pytest.fixture
def running(standing: Controller, shared: Controller | None, parked: Clusters) -> Controller:
    """A controller that runs."""
    if shared is None:
        standing.go_on()
    else:
        shared.check()
    return standing


@pytest.fixture
def process(
    standing: Controller, parked: Clusters, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Controller]:
    """A controller of the test's own that is not started yet; no other runs."""
    standing.stop()
    made = Controller(standing.manager, tmp_path, pace=request.config.getoption("--pace"))
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
