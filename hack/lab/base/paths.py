"""Where do the lab's files live? It only names places; it creates, reads and deletes nothing."""

import os
from pathlib import Path


def _cache() -> Path:
    chosen = os.environ.get("RAYSPAN_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "rayspan"


REPO: Path = Path(__file__).resolve().parents[3]
"""The checkout."""

CACHE: Path = _cache()
"""What took minutes to make and may be kept for ever: tools, images. Safe to delete; it is made again."""

LOGS: Path = CACHE / "logs"
"""One log per build, so that a failure can name the file to read."""

STATE: Path = Path("/var/lib/rayspan-lab")
"""The running lab. Not under the user's home: network namespaces and cgroups are the machine's, so this is too."""
