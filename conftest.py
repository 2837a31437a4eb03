"""Which clusters do the tests run on: the lab of this machine, or any that are named by their kubeconfigs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from hack.lab import faults
from hack.lab.base import lab as definition
from hack.lab.base import sidebyside
from hack.lab.base.lab import Lab
from hack.testbed import drawnshare, install, red, seed
from hack.testbed.clusters import Clusters

# How long an example takes, and how long it is drawn, is for benches: the machine may be busy. In `short` the examples are the same ones
# each time, so that a red test is one of the change under test; `--hypothesis-profile=drawn` draws others, and prints how to draw the one
# that failed again. Fewer of those that are always the same: more of them find no more tomorrow than they found today.
_TIMELESS: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("short", max_examples=25, derandomize=True, **_TIMELESS)
settings.register_profile("drawn", max_examples=100, derandomize=False, print_blob=True, **_TIMELESS)
settings.load_profile("short")


def pytest_configure(config: pytest.Config) -> None:
    """What is ended from outside tidies up as after Ctrl-C; those that run beside each other are ended by the one that started them."""
    red.register(config)
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is None:
        sidebyside.interruptible()
    config.option.long_seed = given["long_seed"] if given else seed.drawn(config.option.long_seed)


@pytest.hookimpl(optionalhook=True)  # of xdist, which may be left out
def pytest_configure_node(node: Any) -> None:
    """Of several processes that run beside each other each draws what the one that starts them has drawn: they must run the same tests."""
    node.workerinput["long_seed"] = node.config.option.long_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    share, drawn = config.option.long_share, config.option.long_seed
    again = f"again, with the same paths: --long-share {share} --long-seed {drawn}"
    return f"long tests: of one file in {share}; {again}" if share > 1 else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of this share of the long tests, and what is brief where long ones ask for more."""
    asked = config.option
    if asked.long_share == 1:
        return
    files = {item: item.nodeid.partition("::")[0] for item in items}
    long, brief = ({item for item in items if item.get_closest_marker(mark)} for mark in ("long", "brief"))
    without = drawnshare.left_out(map(files.__getitem__, long), asked.long_share, asked.long_seed)
    gone = {item for item in items if item in (long if files[item] in without else brief)}
    config.hook.pytest_deselected(items=list(gone))
    items[:] = [item for item in items if item not in gone]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rayspan", "clusters to test on; the lab when none is named")
    group.addoption("--manager", type=Path, metavar="KUBECONFIG", help="the manager cluster, with Kueue and KubeRay")
    group.addoption(
        "--worker", action="append", default=[], metavar="NAME=KUBECONFIG", help="a worker cluster, with Kueue; repeat"
    )
    group.addoption(
        "--installed", action="store_true", help="Rayspan is installed there already, as it shall be tested"
    )
    group.addoption(
        "--long-share",
        type=int,
        choices=range(1, 10),
        default=1,
        metavar="N",
        help="run the long tests of one file in N",
    )
    group.addoption("--long-seed", type=int, metavar="SEED", help=seed.HELP)


@pytest.fixture(scope="session")
def fleet(request: pytest.FixtureRequest) -> Clusters:
    """The clusters, with Rayspan installed by its overlays: by this process, or before it by the one that started it."""
    manager, workers = request.config.getoption("--manager"), request.config.getoption("--worker")
    given = getattr(request.config, "workerinput", None)
    if given is not None and "controller" not in given:  # nobody has installed, or keeps the deployed controller away
        pytest.fail("with -n pytest runs tests/integration alone: name that folder, or leave out -n")
    there = given is not None or request.config.getoption("--installed")
    return install.on(manager, workers, there=there)


@pytest.fixture
def audited(request: pytest.FixtureRequest) -> None:
    """The test reads audit logs: the lab has them, or it fails there; other clusters keep theirs where we cannot look."""
    if request.config.getoption("--manager"):
        pytest.skip("it reads audit logs, and only the lab keeps them beside the kubeconfigs: leave out --manager")


@pytest.fixture
def lab(request: pytest.FixtureRequest, fleet: Clusters) -> Iterator[Lab]:
    """The lab, whole again afterwards. Faults need its network; other clusters have none that we may cut."""
    if request.config.getoption("--manager"):
        pytest.fail("this test cuts networks, so it runs on the lab only: leave out --manager, or deselect it")
    found = definition.load()
    yield found
    faults.heal(found)
