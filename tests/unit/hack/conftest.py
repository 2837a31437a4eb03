"""Marks tests of the lab and of test tools as `long`: `make demo` and each test use these tools.

Run a tool's file after a change to the tool.
"""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before long tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("long")
