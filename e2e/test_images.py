"""Do processes in the lab's images start as they do in published ones?"""

import pytest

from adapter import names
from hack.testbed import install
from hack.testbed.clusters import Clusters


@pytest.mark.long
def test_no_process_compiles_what_debian_brings(fleet: Clusters) -> None:
    """Bytecode that goes by its source's time is stale in a layer; Ray's image and the controller's have the same lowest one."""
    pod = fleet.manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS)[0]["metadata"]["name"]
    importing = "python3 -v -c 'import asyncio, ssl, unittest.mock' 2>&1"
    said = fleet.manager.kubectl("exec", "-n", names.SYSTEM_NAMESPACE, pod, "--", "sh", "-c", importing)
    assert "code object from '/usr/lib/python3" in said, "bytecode is told in quotes"
    assert [line for line in said.splitlines() if "code object from /usr/lib/python3" in line] == []
