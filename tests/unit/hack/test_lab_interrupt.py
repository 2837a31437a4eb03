"""An interrupt quickly ends everything that was started and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hack.lab.base import commands, sidebyside
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError

PROGRAM = """
import sys, tempfile
from hack.lab.base import commands, sidebyside

def build():
    with tempfile.TemporaryDirectory(dir=sys.argv[1], prefix="."):
        commands.run(["sh", "-c", SCRIPT])

SCRIPT = 'sleep 300 & echo $! > ' + sys.argv[1] + '/sleeper; ' + sys.argv[2] + ' wait'
commands._PATIENCE = 0.5
sidebyside.interruptible()
try:
    sidebyside.run([build, lambda: commands.run(["sleep", "300"])])
except KeyboardInterrupt:
    sidebyside.leave("Interrupted.")
"""


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Tests may run in the background, where Ctrl-C and hang-up are ignored, and child processes inherit that."""
    usual: dict[signal.Signals, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize(
    "manners",
    [
        pytest.param("", id="a program that obeys signals"),
        pytest.param("trap '' INT;", id="a program that ignores signals"),
    ],
)
def test_each_signal_ends_the_started_programs_too(tmp_path: Path, number: signal.Signals, manners: str) -> None:
    sleeper = tmp_path / "sleeper"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), manners], cwd=REPO, stderr=subprocess.PIPE, text=True
    ) as program:
        try:
            until(lambda: sleeper.is_file() and sleeper.read_text().strip() != "")
            os.kill(program.pid, number)  # to this process alone: Ctrl-C reaches all processes, a supervisor one
            _, said = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == 130
    assert said.endswith("Interrupted.\n")
    until(lambda: not alive(int(sleeper.read_text())))
    assert [place.name for place in tmp_path.iterdir()] == ["sleeper"]


def test_nothing_is_started_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    commands.check()
    monkeypatch.setattr(commands, "_stopped", threading.Event())
    commands.stop()
    with pytest.raises(LabError, match="interrupted"):
        commands.run(["true"])


def test_a_process_whose_start_was_interrupted_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_stopped", threading.Event())
    begun, tidied = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        until(commands._stopped.is_set)
        tidied.set()

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *called: Any, **named: Any) -> Any:
            super().submit(*called, **named)
            assert begun.wait(60)
            raise KeyboardInterrupt

    monkeypatch.setattr(sidebyside, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        sidebyside.run([work])
    assert tidied.is_set()


def test_a_timeout_ends_a_program_and_its_children(tmp_path: Path) -> None:
    note = tmp_path / "sleeper"
    with pytest.raises(LabError, match="did not finish within"):
        commands.run(["sh", "-c", f"sleep 300 & echo $! > {note}; wait"], timeout=0.5)
    until(lambda: not alive(int(note.read_text())))


def test_a_failure_is_raised_after_all_have_ended() -> None:
    ended: list[str] = []

    def slow() -> None:
        time.sleep(0.2)
        ended.append("slow")

    def broken() -> None:
        raise LabError("It broke.")

    with pytest.raises(LabError, match="It broke"):
        sidebyside.run([broken, slow])
    assert ended == ["slow"]
