"""How does the lab run another program? It waits for the end, returns the output, and turns any failure into one sentence.

It starts nothing in the background: long-running processes belong to whoever can also end them.
"""

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.lab.base.progress import LabError

_TAIL_LINES = 6  # enough for an error and its context, short enough to stay one message
_TAIL_CHARS = 900
_NAME_CHARS = 160  # a command longer than this is known by its beginning


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


def _call(
    words: list[str],
    log: Path | None,
    env: Mapping[str, str] | None,
    cwd: Path | None,
    text: str | None,
    timeout: float | None,
) -> subprocess.CompletedProcess[str]:
    def call(errors: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, stdout=subprocess.PIPE, stderr=errors, env=env, cwd=cwd, timeout=timeout, text=True,
            errors="replace", check=False, input=text, stdin=None if text is not None else subprocess.DEVNULL,
        )  # fmt: skip

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
    said = _logged(words, log) if log else (done.stderr or "") + done.stdout
    tail = "\n".join(said.strip().splitlines()[-_TAIL_LINES:])[-_TAIL_CHARS:]
    end = f":\n{tail}" if tail else "."
    return f"`{_name(words)}` failed with status {done.returncode}{_see(log)}{end}"


def _logged(words: list[str], log: Path) -> str:
    """What the log says after the last time it names this command."""
    return log.read_text(encoding="utf-8", errors="replace").rpartition(f"$ {shlex.join(words)}\n")[2]


def _see(log: Path | None) -> str:
    return f" (log: {log})" if log else ""


def _name(words: list[str]) -> str:
    name = shlex.join(words)
    return name if len(name) <= _NAME_CHARS else name[:_NAME_CHARS] + "…"
