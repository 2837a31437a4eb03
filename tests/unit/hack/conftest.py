"""What proves the lab and the tests' own equipment is long: `make demo` and each test use it, and whoever changes it runs its file."""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before what is long is left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("long")
