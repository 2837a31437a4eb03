"""A controller under test ends with the process that started it, however that ends."""

import os
import signal
import subprocess
import sys

import pytest

from hack.lab.base.paths import REPO
from hack.lab.cluster import processes
from hack.testbed import controller
from hack.testbed.clusters import wait

STARTER = """
import signal, sys
from hack.testbed import controller
from tests.unit.hack.test_testbed_controller import lasts
process = controller._forks.Process(target=lasts, args=(sys.argv[1],), daemon=True)
process.start()
print(process.pid, flush=True)
signal.pause()
"""


def lasts(stopped: str) -> None:
    """The first steps of a controller, and then an endless wait."""
    controller.die_with_starter()
    if stopped:
        os.kill(os.getpid(), signal.SIGSTOP)
    signal.pause()


@pytest.mark.parametrize("stopped", ["", "stopped"], ids=["running", "stopped"])
def test_a_process_ends_when_its_starter_is_killed(stopped: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, stopped], stdout=subprocess.PIPE, text=True, cwd=REPO
    ) as starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        wait(lambda: _state(pid) == ("T" if stopped else "S"), 20, "it has begun to wait")
        assert not processes.gone(pid)
        starter.kill()
    wait(lambda: processes.gone(pid), 20, "it is gone")


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as told:
        return told.read().rpartition(")")[2].split()[0]
