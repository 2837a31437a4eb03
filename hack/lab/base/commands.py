"""Runs another program to its end, returns its output, and turns any failure into one sentence.

It starts nothing in the background: a long-running process belongs to the module that can end it. A program that is
waited for ends with its waiter, and ends what it has started itself.
"""

import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hack.lab.base.progress import LabError

_TAIL_LINES = 6  # enough for an error and its context, short enough to stay one message
_TAIL_CHARS = 900
_NAME_CHARS = 160  # a command longer than this is shown by its beginning
_PATIENCE = 5.0  # seconds for a program to tidy up when it is interrupted: Go, pip and debootstrap take less than one

_waited_for: set["subprocess.Popen[str]"] = set()
_stopped = threading.Event()
_changing = threading.Lock()  # of the two above: a program that starts while others are ended is ended too


def run(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: str | None = None,
    timeout: float | None = None,
    check: bool = True,
) -> str:
    """Run argv and return its standard output. `env` is added to our own environment; `log` gets everything said."""
    words = [str(word) for word in argv]
    whole = {**os.environ, **env} if env else None
    try:
        done = _call(words, log, whole, cwd, input, timeout)
    except FileNotFoundError as missing:
        raise LabError(f"{words[0]} could not be started: {missing.filename} is missing.") from missing
    except subprocess.TimeoutExpired as late:
        raise LabError(f"`{_name(words)}` did not finish within {timeout:g} s{_see(log)}.") from late
    if check and done.returncode != 0:
        raise LabError(_failure(words, done, log))
    return done.stdout


def stop() -> None:
    """Start no further program, and end those that are waited for, as Ctrl-C would. Their results are not used any
    more.
    """
    with _changing:
        _stopped.set()
    _end(list(_waited_for))


def check() -> None:
    """Refuse to go on after stop()."""
    if _stopped.is_set():
        raise LabError("It was interrupted.")


def _started(
    words: list[str], errors: int, env: Mapping[str, str] | None, cwd: Path | None, fed: bool
) -> "subprocess.Popen[str]":
    """The program in its own process group: we end it, and never partly, whichever process gets the signal."""
    with _changing:
        check()
        program = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=cwd, text=True, errors="replace",
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL, process_group=0,
        )  # fmt: skip
        _waited_for.add(program)
    return program


def _end(programs: Sequence["subprocess.Popen[str]"]) -> None:
    """Interrupt the programs and what they started; kill those that take no notice."""
    for program in programs:
        _signal(program, signal.SIGINT)
    for program in programs:
        with suppress(subprocess.TimeoutExpired):
            program.wait(_PATIENCE)
        _signal(program, signal.SIGKILL)


def _signal(program: "subprocess.Popen[str]", number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(program.pid, number)


def _call(
    words: list[str],
    log: Path | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    text: str | None,
    timeout: float | None,
) -> subprocess.CompletedProcess[str]:
    def call(errors: int) -> subprocess.CompletedProcess[str]:
        with _started(words, errors, env, cwd, text is not None) as program:
            try:
                said, complaint = program.communicate(text, timeout)
            except BaseException:  # time is up, or Ctrl-C
                _end([program])
                raise
            finally:
                _waited_for.discard(program)
        return subprocess.CompletedProcess(words, program.returncode, said, complaint)

    if log is None:
        return call(subprocess.PIPE)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as out:
        print(f"$ {shlex.join(words)}", file=out, flush=True)
        done = call(out.fileno())
        out.seek(0, os.SEEK_END)
        out.write(done.stdout)
    return done


def _failure(words: list[str], done: subprocess.CompletedProcess[str], log: Path | None) -> str:
    said = _logged(words, log) if log else "\n".join((done.stdout.rstrip(), done.stderr or ""))  # the reason is last
    tail = "\n".join(said.strip().splitlines()[-_TAIL_LINES:])[-_TAIL_CHARS:]
    end = f":\n{tail}" if tail else "."
    return f"`{_name(words)}` failed with status {done.returncode}{_see(log)}{end}"


def _logged(words: list[str], log: Path) -> str:
    """The log after the last mention of this command."""
    return log.read_text(encoding="utf-8", errors="replace").rpartition(f"$ {shlex.join(words)}\n")[2]


def _see(log: Path | None) -> str:
    return f" (log: {log})" if log else ""


def _name(words: list[str]) -> str:
    name = shlex.join(words)
    return name if len(name) <= _NAME_CHARS else name[:_NAME_CHARS] + "…"
