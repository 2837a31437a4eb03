"""Tests that processes in the lab's images load Debian's bytecode, as they do in published images."""

import pytest

from adapter import names
from hack.testbed import install
from hack.testbed.clusters import Clusters


@pytest.mark.long
def test_no_process_recompiles_debians_python_modules(fleet: Clusters) -> None:
    """Bytecode checked by source mtime is stale in a layer; Ray's and the controller's image share the lowest."""
    pod = fleet.manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS)[0]["metadata"]["name"]
    importing = "python3 -v -c 'import asyncio, ssl, unittest.mock' 2>&1"
    output = fleet.manager.kubectl("exec", "-n", names.SYSTEM_NAMESPACE, pod, "--", "sh", "-c", importing)
    assert "code object from '/usr/lib/python3" in output, "Python quotes the path of loaded bytecode"
    assert [line for line in output.splitlines() if "code object from /usr/lib/python3" in line] == []
