"""A lock for writing to the cache: one process at a time; the others wait and say so.

The kernel drops the lock when its holder ends, however it ends, so no stale lock can remain.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.lab.base.progress import step


@contextmanager
def held(path: Path, waiting: str) -> Iterator[None]:
    """Hold the lock file `path`; while another process has it, wait under the step title `waiting`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(waiting):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield
