"""Tracks the processes of a cluster by its cgroups, whatever became of their parents.

It knows only cgroups below one of the lab's name, and never moves or ends a process outside of them.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from hack.lab.base.lab import Cluster
from hack.lab.base.paths import NAME as TOP
from hack.lab.base.progress import LabError

_PATIENCE = 20.0  # seconds: killed processes are gone in well under one, unless they wait for a disk
_PAUSE = 0.05
_COPIED = ("cpuset.cpus", "cpuset.mems")  # version 1 starts these empty, and then no process may enter
# With cgroup version 1 a lab's daemons are beside its pods and not in a cgroup with them (`_counting`). All pods
# together then weigh like one process, though they stand for machines of their own: beside busy tests Ray nodes did not
# start in Ray's minute. So the pods weigh like the demo's six Ray nodes. With version 2 the daemons are inside as well,
# and no weight is needed.
_SHARES, _WEIGHT = "cpu.shares", 6 * 1024


def path(cluster: Cluster) -> str:
    """The cluster's cgroup as kubelet wants to hear it."""
    return f"/{TOP}/{cluster.name}"


def daemons(cluster: Cluster) -> Path:
    """The cgroup.procs file that takes in the cluster's own processes; its pods live beside it, by kubelet's hand."""
    return _counting() / TOP / cluster.name / "daemons" / "cgroup.procs"


def create(cluster: Cluster) -> None:
    for hierarchy in hierarchies():
        _make(hierarchy, hierarchy / TOP)
        _weigh(hierarchy / TOP)
        _make(hierarchy / TOP, hierarchy / TOP / cluster.name)
    daemons(cluster).parent.mkdir(exist_ok=True)


def processes(cluster: Cluster) -> set[int]:
    """Every process of the cluster: its daemons, their children, and the processes of its pods."""
    return {pid for hierarchy in hierarchies() for pid in _processes(hierarchy / TOP / cluster.name)}


def end(cluster: Cluster) -> None:
    """End every process of the cluster, and remove its cgroups."""
    deadline = time.monotonic() + _PATIENCE
    while left := processes(cluster):
        if time.monotonic() > deadline:
            raise LabError(f"Processes {sorted(left)} of {cluster.name} do not end; see `ps` for what they wait for.")
        for pid in left:
            _kill(pid)
        time.sleep(_PAUSE)
    for hierarchy in hierarchies():
        _remove(hierarchy / TOP / cluster.name)


def remove_top() -> None:
    for hierarchy in hierarchies():
        _remove(hierarchy / TOP)


def remains() -> list[str]:
    return [str(hierarchy / TOP) for hierarchy in hierarchies() if (hierarchy / TOP).exists()]


def hierarchies() -> list[Path]:
    """Where cgroups are mounted: many places with version 1, one with version 2, and both on some machines."""
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return [Path(words[1]) for words in map(str.split, lines) if words[2] in ("cgroup", "cgroup2")]


def _counting() -> Path:
    """The hierarchy for daemons: `pids` limits nothing by itself, so a process that is moved into it behaves as
    before."""
    known = hierarchies()
    return next((one for one in known if one.name == "pids"), known[0])


def _make(parent: Path, child: Path) -> None:
    child.mkdir(exist_ok=True)
    for name in _COPIED:
        if (parent / name).exists() and not (child / name).read_text().strip():
            (child / name).write_text((parent / name).read_text())
    if (parent / "cgroup.subtree_control").exists():  # version 2 hands down only controllers that are asked for
        for controller in (parent / "cgroup.controllers").read_text().split():
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def _weigh(top: Path) -> None:
    if (top / _SHARES).exists():
        (top / _SHARES).write_text(str(_WEIGHT))


def _processes(top: Path) -> Iterator[int]:
    for place, _, files in os.walk(top):
        if "cgroup.procs" in files:
            try:
                yield from map(int, (Path(place) / "cgroup.procs").read_text().split())
            except OSError:  # the cgroup vanished while it was read
                continue


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, os.WNOHANG)
    except (ProcessLookupError, ChildProcessError):
        pass  # it ended by itself, or it is not our child and another process reaps it


def _remove(top: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    for place, _, _ in os.walk(top, topdown=False):
        while True:
            try:
                os.rmdir(place)
            except FileNotFoundError:
                pass
            except OSError as busy:  # the last process has been killed, but is still leaving
                if time.monotonic() > deadline:
                    raise LabError(
                        f"The cgroup {place} cannot be removed ({busy.strerror}): run `down` again."
                    ) from busy
                time.sleep(_PAUSE)
                continue
            break
