"""Do the pinned modules and the lock file say the same versions as `versions.py`?"""

import pytest

from hack.lab.base import versions
from hack.lab.base.paths import REPO
from hack.lab.build import catalog
from hack.lab.build.catalog import Tool
from hack.lab.images import rayimage


@pytest.mark.parametrize("tool", (*catalog.ALL, catalog.VOLCANO), ids=lambda tool: tool.name)
def test_the_module_is_pinned_at_the_version_that_we_name(tool: Tool) -> None:
    pins = (REPO / "hack" / "lab" / "modules" / tool.source / "go.mod").read_text().splitlines()
    assert any(f"{tool.module} {tool.version}" in line for line in pins)


def test_the_lock_file_holds_the_ray_that_we_name() -> None:
    assert f"\nray=={versions.RAY} " in rayimage.LOCK.read_text()
