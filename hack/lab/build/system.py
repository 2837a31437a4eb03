"""Installs the Debian packages that the lab needs and this machine lacks.

apt-get runs only when something is missing. It never upgrades or removes a package.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from hack.lab.base import versions
from hack.lab.base.commands import run
from hack.lab.base.paths import LOGS
from hack.lab.base.progress import LabError, step

_LOCK_SECONDS = 300  # a machine that has just booted may update itself for some minutes
_QUIET = {"DEBIAN_FRONTEND": "noninteractive"}


def prepare(packages: Sequence[str] = versions.MACHINE_PACKAGES) -> None:
    """Install those of the packages that are missing, and make sure that we may do what a lab does."""
    if os.geteuid() != 0:
        raise LabError("The lab makes network namespaces, mounts and cgroups: run it as root (for instance with sudo).")
    missing = [name for name in packages if not _installed(name)]
    if missing:
        with step(f"install Debian packages: {' '.join(missing)}"):
            _install(missing)


def _installed(package: str) -> bool:
    if not Path("/usr/bin/dpkg-query").exists():
        raise LabError("This machine has no dpkg: the lab runs on Debian and Ubuntu only.")
    said = run(["dpkg-query", "--show", "--showformat=${db:Status-Status}", package], check=False)
    return said.strip() == "installed"


def _install(packages: Sequence[str]) -> None:
    apt = ["apt-get", "--quiet", "--yes", "-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}"]
    log = LOGS / "apt.log"
    # Completes an interrupted installation; else it does nothing.
    run(["dpkg", "--configure", "-a"], env=_QUIET, log=log)
    run([*apt, "update"], env=_QUIET, log=log)
    run([*apt, "install", "--no-install-recommends", *packages], env=_QUIET, log=log)
