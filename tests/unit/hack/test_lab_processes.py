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


def test_a_daemon_weighs_more_than_what_runs_beside_it(tmp_path: Path) -> None:
    """Where the kernel weighs sessions; elsewhere there is no such file, and it starts all the same."""
    group = Path("/proc/self/autogroup")
    begin = ["/bin/sh", "-c", processes._BEGIN, "sh", str(tmp_path / "record"), str(tmp_path / "cgroup.procs")]
    done = subprocess.run(
        [*begin, "sh", "-c", f"cat {group} || :"], start_new_session=True, capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("nice -10\n" if group.exists() else "")
    assert (tmp_path / "record").exists() and (tmp_path / "cgroup.procs").read_text().strip().isdigit()
