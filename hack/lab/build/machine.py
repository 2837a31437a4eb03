"""Reads facts about this machine for prerequisites.py, in about a second, with what any Debian has, root or not.

It judges nothing and installs nothing. What it creates as a trial lies in namespaces that end with it.
"""

import os
import platform
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hack.lab.base.paths import NAME

_LOOKING = 2.0  # seconds for measuring what a place holds already; done only where space is short
_PROBING = 4.0  # seconds for the kernel; it answers in a tenth of one
_LINK = NAME  # the machine's end of a running lab, see cluster/network.py
_PROBES = """
probe() { name=$1; shift; command -v "$1" >/dev/null || return 0; \
"$@" >/dev/null 2>&1 && echo "$name yes" || echo "$name no"; }
echo "namespaces yes"
probe bridge ip link add probe0 type bridge
probe veth ip link add probe1 type veth peer name probe2
probe nftables nft add table ip probe
probe iptables iptables -t nat -n -L
probe overlayfs mount -t overlay probe -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/merged"
"""


@dataclass(frozen=True)
class Place:
    """A directory that the lab fills, there or not."""

    path: Path
    device: int
    free: int
    """Bytes."""
    held: int = 0
    """Bytes that are there already; counted only when asked for."""


@dataclass(frozen=True)
class Machine:
    """The facts. None, or a missing key, means unknown."""

    system: str = "Linux"
    architecture: str = "x86_64"
    root: bool = True
    missing: frozenset[str] = frozenset()
    """Programs that were looked for in vain."""
    memory: int | None = None
    """Bytes that can still be had."""
    lab: bool = False
    """A lab runs already, and has taken its memory."""
    processors: int = 1
    """Those that this process may use."""
    controllers: frozenset[str] | None = None
    kernel: Mapping[str, bool] = field(default_factory=dict)


def read(programs: Sequence[str], state: Path) -> Machine:
    """This machine, as far as it can be read: which of `programs` it lacks, and whether `state` can hold a lab's
    state."""
    root = os.geteuid() == 0
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        root=root,
        missing=frozenset(name for name in programs if shutil.which(name) is None),
        memory=_memory(),
        lab=any(name == _LINK for _, name in socket.if_nameindex()),
        controllers=_controllers(),
        processors=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,  # on Linux alone
        kernel=_kernel(state) if root else {},
    )


def place(path: Path) -> Place:
    """The directory, or the one above it that exists: what it will be made in."""
    there = _existing(path)
    usage = os.statvfs(there)
    return Place(path, there.stat().st_dev, usage.f_bavail * usage.f_frsize)


def held(path: Path) -> int:
    """About how many bytes the directory takes: as many as were counted when time was up."""
    deadline, total = time.monotonic() + _LOOKING, 0
    for directory, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:  # it vanished meanwhile
                continue
        if time.monotonic() > deadline:
            break
    return total


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.is_dir())


def _memory() -> int | None:
    """Memory that the kernel has available, or the rest of this container's limit where that is less."""
    found = [_available(), *(_left(*names) for names in _LIMITS)]
    return min((one for one in found if one is not None), default=None)


_LIMITS = (  # a container's own limit, its use, and the page cache in that, which the kernel can reclaim
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", ""),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
        "total_",
    ),
)


def _available() -> int | None:
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _left(limit: str, used: str, stat: str, prefix: str) -> int | None:
    said, taken = _lines(limit), _lines(used)
    if not (said and taken and said[0].isdigit()):
        return None
    counts = dict(line.split() for line in _lines(stat))
    files = sum(int(counts.get(f"{prefix}{which}_file", 0)) for which in ("active", "inactive"))
    return int(said[0]) - int(taken[0]) + files


def _controllers() -> frozenset[str] | None:
    """Those of all cgroup hierarchies that may be written to: one hierarchy with version 2, many with version 1."""
    lines = _lines("/proc/self/mounts")
    found: set[str] = set()
    for _, where, kind, options, *_ in map(str.split, lines):
        if kind == "cgroup" and "rw" in options.split(","):
            found.update(options.split(","))
        elif kind == "cgroup2" and "rw" in options.split(","):
            found.update(*(line.split() for line in _lines(f"{where}/cgroup.controllers")))
    return frozenset(found) if lines else None


def _kernel(state: Path) -> dict[str, bool]:
    """The kernel features that work. A missing test program leaves its feature out."""
    if shutil.which("unshare") is None:
        return {}
    with tempfile.TemporaryDirectory(dir=_existing(state), prefix=".rayspan-") as scratch:
        for name in ("lower", "upper", "work", "merged"):
            (Path(scratch) / name).mkdir()
        argv = ["unshare", "--net", "--mount", "sh", "-c", _PROBES, "sh", scratch]
        try:
            said = subprocess.run(argv, capture_output=True, text=True, timeout=_PROBING, check=False).stdout
        except subprocess.TimeoutExpired:
            return {}
    answers = dict(line.split() for line in said.splitlines())
    return {"namespaces": False} if not answers else {name: answer == "yes" for name, answer in answers.items()}


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
