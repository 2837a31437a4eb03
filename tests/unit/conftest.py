"""Options and fixtures that unit tests share."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import settings

from tests.unit import apiserver
from tests.unit.apiserver import Server, kubeconfig

settings.register_profile("untimed", deadline=None)  # how long an example takes is for benches: the machine may be busy
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture
def same_as_golden(request: pytest.FixtureRequest) -> Callable[[Any, Path], None]:
    """Compare a value with a YAML file, byte for byte; with --update-golden write the file."""

    def check(value: Any, path: Path) -> None:
        text = yaml.safe_dump(value, sort_keys=True, width=160)
        if request.config.getoption("--update-golden"):
            path.write_text(text)
        assert text == path.read_text(), f"{path.name} differs: look at it, then run pytest with --update-golden"

    return check


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """An API server that answers as it is told."""
    async with apiserver.serving() as found:
        yield found


@pytest.fixture
def config(server: Server, tmp_path: Path) -> Path:
    """A kubeconfig for it."""
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(kubeconfig(server.url)))
    return file
