"""The paths of the lab's files. It only names places; it creates, reads and deletes nothing."""

import os
import sys
from pathlib import Path

_NUMBERS = "01234567"  # a lab takes two of the sixteen blocks from 10.240.0.0/16 on


def _cache() -> Path:
    chosen = os.environ.get("RAYSPAN_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rayspan"


def _number() -> int:
    said = os.environ.get("RAYSPAN_LAB") or "0"
    if said not in tuple(_NUMBERS):
        sys.exit(
            f"RAYSPAN_LAB is {said}: a lab is one of {_NUMBERS[0]} to {_NUMBERS[-1]}, "
            "as many as there are blocks of addresses."
        )
    return int(said)


REPO: Path = Path(__file__).resolve().parents[3]
"""The checkout."""

CACHE: Path = _cache()
"""Tools and images, which take minutes to make and may be kept for ever. Safe to delete; it is made again."""

LOGS: Path = CACHE / "logs"
"""One log per build, so that a failure can name the file to read."""

NUMBER: int = _number()
"""The lab that is used: RAYSPAN_LAB, from 0 (the default) to 7.

Each has its own names and addresses, so that one with other versions can run beside the one that people work on.
"""

NAME: str = f"rayspan-lab{NUMBER or ''}"
"""The name of everything of the lab that belongs to the machine."""

STATE: Path = Path("/var/lib") / NAME
"""The running lab. Not under the user's home: network namespaces and cgroups are the machine's, so this is too."""

SHARED: Path = Path("/var/lib/rayspan-labs")
"""Shared by all labs of this machine."""
