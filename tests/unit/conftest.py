"""Options and fixtures that unit tests share."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import yaml

from adapter.shell import supervise
from adapter.shell.http import connections, listener
from adapter.shell.kube import client
from tests.unit import apiserver, stalls
from tests.unit.apiserver import Server, kubeconfig


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")
    parser.addoption("--stall", type=float, default=0.0, metavar="SECONDS", help="pause event loops at random")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError(
            "--update-golden takes whatever comes for right: not where nobody reads the difference (CI)"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--update-golden"):
        terminalreporter.write_line(
            "Golden files are written anew: read `git diff` before you commit them.", yellow=True
        )


@pytest.fixture
def same_as_golden(request: pytest.FixtureRequest) -> Callable[[str, Path], None]:
    """Compare a text with a file, byte for byte; with --update-golden write the file."""

    def check(text: str, path: Path) -> None:
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert text == path.read_text(), f"{path.name} differs: look at it, then run pytest with --update-golden"

    return check


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    """Forget which faults were logged: a fault is logged once a minute, and each test must see its own."""
    supervise._logged_faults.clear()


@pytest.fixture(autouse=True)
def _patient_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a handshake or an answer takes longer than is allowed; tests of a limit set their own."""
    for module, limit in (
        (connections, "HEAD_SECONDS"),
        (listener, "HANDSHAKE_SECONDS"),
        (listener, "WAIT_SECONDS"),
    ):
        monkeypatch.setattr(module, limit, apiserver.PATIENCE)
    # Some tests wait until a request is given up, and have the patience for three of these.
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", apiserver.PATIENCE / 4)


@pytest.fixture(autouse=True)
def _stalls(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pause the event loops of each test, if --stall asks for it."""
    if not (seconds := request.config.getoption("--stall")):
        yield
        return
    with stalls.stalled(seconds, request.node.nodeid):
        yield


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """An API server with the answers of the test."""
    async with apiserver.serving() as found:
        yield found


@pytest.fixture
def config(server: Server, tmp_path: Path) -> Path:
    """A kubeconfig for it."""
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig(server.url)))
    return file
