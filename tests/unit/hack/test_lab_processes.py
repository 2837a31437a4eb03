"""When has one of the lab's processes ended? Its ports are free only when its last thread is gone."""

import subprocess
import sys
from pathlib import Path

from hack.lab.cluster import processes
from hack.testbed.clusters import wait

FIRST_THREAD_ENDS = "import ctypes, threading; threading.Thread(target=threading.Event().wait).start(); ctypes.CDLL(None).pthread_exit(None)"


def test_a_process_whose_first_thread_alone_has_ended_is_not_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS]) as process:
        state = Path(f"/proc/{process.pid}/stat")
        wait(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z", 20, "its first thread has ended")
        assert not processes.gone(process.pid)
        process.kill()
        wait(lambda: processes.gone(process.pid), 20, "it is gone")
