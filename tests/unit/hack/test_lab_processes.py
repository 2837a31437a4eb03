"""The end of the lab's processes, and what they inherit. Ports are free once the last thread has ended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.lab.build import tools
from hack.lab.cluster import processes
from hack.testbed.clusters import wait

FIRST_THREAD_ENDS = (
    "import ctypes, threading; "
    "threading.Thread(target=threading.Event().wait).start(); "
    "ctypes.CDLL(None).pthread_exit(None)"
)
_ASK = "cat /proc/self/autogroup || :"
# Nine times the weight of others. The write needs a right, and fails where the kernel has no such file.
_WEIGH = "echo -10 > /proc/self/autogroup || :"


def test_a_process_runs_until_its_last_thread_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS]) as process:
        state = Path(f"/proc/{process.pid}/stat")
        wait(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z", 20, "its first thread has ended")
        assert not processes.gone(process.pid)
        process.kill()
        wait(lambda: processes.gone(process.pid), 20, "it is gone")


def test_a_daemon_weighs_more_than_other_processes(tmp_path: Path) -> None:
    """Only where the kernel weighs sessions and permits it; elsewhere the daemon starts without."""
    begin = ["/bin/sh", "-c", processes._BEGIN, "sh", str(tmp_path / "record"), str(tmp_path / "cgroup.procs")]
    assert _of_its_session([*begin, "sh", "-c", _ASK]) == _of_its_session(["sh", "-c", f"{_WEIGH}; {_ASK}"])
    assert (tmp_path / "record").exists() and (tmp_path / "cgroup.procs").read_text().strip().isdigit()


def test_a_daemon_inherits_no_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make does not end before every process has closed the pipe of its jobs."""
    monkeypatch.setattr(tools, "path", lambda name: tmp_path / name)  # so that nothing must be built
    held, told = os.open(os.devnull, os.O_RDONLY), tmp_path / "log"
    os.set_inheritable(held, True)
    try:
        processes._spawn(["/bin/sh", "-c", f"[ -e /proc/$$/fd/{held} ] && echo holds it || echo holds nothing"], told)
    finally:
        os.close(held)
    wait(
        lambda: told.exists() and told.read_text() == "holds nothing\n", 20, "the daemon holds nothing", told.read_text
    )


def _of_its_session(argv: list[str]) -> str:
    """The weight of a session, which is the last line that a command in a new session prints."""
    done = subprocess.run(argv, start_new_session=True, capture_output=True, text=True, check=True)
    return done.stdout.partition("nice ")[2]
