"""Shows what the lab is doing and for how long: one line per step; quick steps are shown only when done.

It writes to standard error only, so that a command's answer on standard output stays clean. It keeps no history.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_QUIET_SECONDS = 2.0  # a step shorter than this needs no announcement
_TICK_SECONDS = 0.5  # smooth enough for a counter of whole seconds
_CLEAR = "\r\033[K"

_lock = threading.Lock()
_running: list["_Step"] = []  # steps may nest, and clusters start side by side; the newest one owns the live line


class LabError(Exception):
    """The lab cannot go on. The message is one sentence: what failed, which log tells more, what to do."""


def told(command: Callable[[], int]) -> int:
    """Run a command; returns its exit code: 1 after a LabError, printed on standard error, 130 after an interrupt."""
    try:
        return command()
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130


class _Step:
    def __init__(self, title: str) -> None:
        self.title = title
        self.begun = time.monotonic()
        self.over = threading.Event()

    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    def watch(self) -> None:
        """Announce a step that takes long: as a counter on a terminal, as one line elsewhere."""
        if self.over.wait(_QUIET_SECONDS if not sys.stderr.isatty() else _TICK_SECONDS):
            return
        if not sys.stderr.isatty():
            _say(f"…      {self.title}")
            return
        while True:
            self._count()
            if self.over.wait(_TICK_SECONDS):
                return

    def _count(self) -> None:
        with _lock:
            if _running and _running[-1] is self and not self.over.is_set():
                sys.stderr.write(f"{_CLEAR}{self.elapsed():4.0f} s {self.title} …")
                sys.stderr.flush()


@contextmanager
def step(title: str) -> Iterator[None]:
    """Tell the reader that `title` is going on, and afterwards how long it took and whether it worked."""
    this = _Step(title)
    with _lock:
        _running.append(this)
    threading.Thread(target=this.watch, daemon=True).start()
    try:
        yield
    except BaseException:
        _end(this, "FAILED")
        raise
    _end(this, "done")


def _end(this: _Step, outcome: str) -> None:
    this.over.set()
    with _lock:
        _running.remove(this)
    _say(f"{outcome:6} {this.title}  {this.elapsed():.1f} s")


def _say(line: str) -> None:
    with _lock:
        sys.stderr.write((_CLEAR if sys.stderr.isatty() else "") + line + "\n")
        sys.stderr.flush()
