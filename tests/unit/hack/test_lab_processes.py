"""When has one of the lab's processes ended, and what does one keep of whoever started it? Its ports are free when its last thread is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hack.lab.build import tools
from hack.lab.cluster import processes
from hack.testbed.clusters import wait

FIRST_THREAD_ENDS = "import ctypes, threading; threading.Thread(target=threading.Event().wait).start(); ctypes.CDLL(None).pthread_exit(None)"
_ASK = "cat /proc/self/autogroup || :"
_WEIGH = "echo -10 > /proc/self/autogroup || :"  # nine times as much as others; it takes a right, and is an error where there is no such file


def test_a_process_whose_first_thread_alone_has_ended_is_not_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS]) as process:
        state = Path(f"/proc/{process.pid}/stat")
        wait(lambda: state.read_text().rpartition(")")[2].split()[0] == "Z", 20, "its first thread has ended")
        assert not processes.gone(process.pid)
        process.kill()
        wait(lambda: processes.gone(process.pid), 20, "it is gone")


def test_a_daemon_weighs_more_than_what_runs_beside_it(tmp_path: Path) -> None:
    """Where the kernel weighs sessions and lets us; elsewhere it starts all the same."""
    begin = ["/bin/sh", "-c", processes._BEGIN, "sh", str(tmp_path / "record"), str(tmp_path / "cgroup.procs")]
    assert _of_its_session([*begin, "sh", "-c", _ASK]) == _of_its_session(["sh", "-c", f"{_WEIGH}; {_ASK}"])
    assert (tmp_path / "record").exists() and (tmp_path / "cgroup.procs").read_text().strip().isdigit()


def test_a_daemon_holds_no_file_of_who_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make waits at its end until nobody holds the pipe of its jobs any more."""
    monkeypatch.setattr(tools, "path", lambda name: tmp_path / name)  # nothing need be built
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
    """What a command that begins a session prints last: what the session weighs."""
    done = subprocess.run(argv, start_new_session=True, capture_output=True, text=True, check=True)
    return done.stdout.partition("nice ")[2]
