"""Fixtures and options of all tests: the clusters are the local lab, or any that kubeconfigs name."""

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

# Benches measure time; the machine of a test may be busy. `short` uses the same examples in each run, so that a failure
# comes from the change under test. `--hypothesis-profile=drawn` draws others and prints how to repeat a failure.
# `short` has fewer examples, because repeating more of the same examples finds nothing new.
_TIMELESS: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("short", max_examples=25, derandomize=True, **_TIMELESS)
settings.register_profile("drawn", max_examples=100, derandomize=False, print_blob=True, **_TIMELESS)
settings.load_profile("short")


def pytest_configure(config: pytest.Config) -> None:
    """Make a signal clean up as Ctrl-C does, except in xdist workers, which their controller ends."""
    red.register(config)
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is None:
        sidebyside.interruptible()
    config.option.long_seed = worker_input["long_seed"] if worker_input else seed.drawn(config.option.long_seed)


@pytest.hookimpl(optionalhook=True)  # a hook of xdist, which may be absent
def pytest_configure_node(node: Any) -> None:
    """Give each xdist worker the seed of its controller: all must select the same tests."""
    node.workerinput["long_seed"] = node.config.option.long_seed


def pytest_report_header(config: pytest.Config) -> str | None:
    share, drawn = config.option.long_share, config.option.long_seed
    again = f"again, with the same paths: --long-share {share} --long-seed {drawn}"
    return f"long tests: of one file in {share}; {again}" if share > 1 else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the long tests outside the drawn share, and the brief tests of files whose long tests run."""
    options = config.option
    if options.long_share == 1:
        return
    files = {item: item.nodeid.partition("::")[0] for item in items}
    long, brief = ({item for item in items if item.get_closest_marker(mark)} for mark in ("long", "brief"))
    skipped_files = drawnshare.left_out(map(files.__getitem__, long), options.long_share, options.long_seed)
    deselected = {item for item in items if item in (long if files[item] in skipped_files else brief)}
    config.hook.pytest_deselected(items=list(deselected))
    items[:] = [item for item in items if item not in deselected]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rayspan", "clusters to test on; the lab when none is named")
    group.addoption("--manager", type=Path, metavar="KUBECONFIG", help="the manager cluster, with Kueue and KubeRay")
    group.addoption(
        "--worker", action="append", default=[], metavar="NAME=KUBECONFIG", help="a worker cluster, with Kueue; repeat"
    )
    group.addoption("--installed", action="store_true", help="test the Rayspan that is installed there already")
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
    """The clusters with Rayspan installed by its overlays: by this process, or by the xdist controller before it."""
    manager, workers = request.config.getoption("--manager"), request.config.getoption("--worker")
    worker_input = getattr(request.config, "workerinput", None)
    if worker_input is not None and "controller" not in worker_input:  # the xdist controller did not install
        pytest.fail("with -n pytest runs tests/integration alone: name that folder, or leave out -n")
    installed = worker_input is not None or request.config.getoption("--installed")
    return install.on(manager, workers, there=installed)


@pytest.fixture
def audited(request: pytest.FixtureRequest) -> None:
    """Skip a test that reads audit logs, unless it runs on the lab: other clusters keep theirs out of reach."""
    if request.config.getoption("--manager"):
        pytest.skip("this test reads audit logs, which only the lab keeps beside the kubeconfigs: leave out --manager")


@pytest.fixture
def lab(request: pytest.FixtureRequest, fleet: Clusters) -> Iterator[Lab]:
    """The lab, healed after the test. Only the networks of the lab may be cut."""
    if request.config.getoption("--manager"):
        pytest.fail("this test cuts networks, so it runs on the lab only: leave out --manager, or deselect it")
    loaded_lab = definition.load()
    yield loaded_lab
    faults.heal(loaded_lab)
