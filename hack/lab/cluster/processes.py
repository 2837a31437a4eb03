"""Starts and ends the lab's processes, and knows which ones run.

A process writes its own record (boot, process id, start time) before it executes the program, so every one has a
record, and a record never points at a stranger that got a reused id. It ends only recorded processes.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hack.lab.base.lab import Cluster
from hack.lab.base.progress import LabError
from hack.lab.build import tools
from hack.lab.cluster import cgroups

# Daemons stand for machines of their own. Where the kernel weighs sessions, and all pods of a lab weigh like six of
# them (`cgroups`), an API server did not answer for ten seconds, in which a leader loses its Lease. So each daemon
# weighs like nine.
_WEIGHT = -10  # by the table of `nice`
_BEGIN = f"""
[ ! -w /proc/self/autogroup ] || echo {_WEIGHT} > /proc/self/autogroup
cat /proc/sys/kernel/random/boot_id /proc/$$/stat > "$1.new" && mv "$1.new" "$1" \
&& echo $$ > "$2" && shift 2 && exec "$@"
"""
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PATIENCE = 10.0  # seconds for a process to write its record, or to vanish when killed: both take milliseconds
_PAUSE = 0.02
_TAIL = 3  # lines of a log that make an error message without filling the screen


def ensure(cluster: Cluster, name: str, argv: Sequence[str | Path], *, inside: Sequence[str] = ()) -> None:
    """Start the process `name` of the cluster if it does not run.

    `inside` is the command that enters its namespaces.
    """
    if alive(cluster, name):
        return
    record = _record(cluster, name)
    record.parent.mkdir(parents=True, exist_ok=True)
    cluster.logs.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    begin = ["/bin/sh", "-c", _BEGIN, "sh", str(record), str(cgroups.daemons(cluster))]
    _spawn([*begin, *inside, *map(str, argv)], log(cluster, name))
    _await(record.exists, f"{name} of {cluster.name} could not be started{_see(cluster, name)}")


def alive(cluster: Cluster, name: str) -> bool:
    return pid(cluster, name) is not None


def pid(cluster: Cluster, name: str) -> int | None:
    """The process id, or None if the process that was recorded is gone."""
    try:
        boot, stat = _record(cluster, name).read_text(encoding="utf-8").splitlines()
        number, recorded = _identity(stat)
        current, started = _identity(Path(f"/proc/{number}/stat").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    here = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return number if (boot, number, recorded) == (here, current, started) and not gone(number) else None


def known(cluster: Cluster) -> list[str]:
    """The names of all processes that were ever started for the cluster, since it was last wiped."""
    return sorted(file.name for file in (cluster.directory / "processes").glob("*") if file.suffix != ".new")


def end(cluster: Cluster, name: str) -> None:
    """End the process at once and wait until it is gone."""
    number = pid(cluster, name)
    if number is not None:
        os.kill(number, signal.SIGKILL)
        _await(
            lambda: not alive(cluster, name),
            f"{name} of {cluster.name} (process {number}) does not end; see `ps` for what it waits for.",
        )


def check(cluster: Cluster, name: str) -> None:
    """Refuse to wait any longer for a process that has ended."""
    if not alive(cluster, name):
        raise LabError(f"{name} of {cluster.name} has ended{_see(cluster, name)}")


def log(cluster: Cluster, name: str) -> Path:
    return cluster.logs / f"{name}.log"


def _record(cluster: Cluster, name: str) -> Path:
    return cluster.directory / "processes" / name


def _spawn(argv: list[str], output: Path) -> None:
    """Not subprocess: these outlive us, and a Popen object would complain about that."""
    opened = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions: list[tuple[object, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), opened, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    actions += [(os.POSIX_SPAWN_CLOSE, file) for file in _inherited()]
    path = f"{tools.path('containerd').parent}:{_SYSTEM_PATH}"  # containerd looks for its shim on the PATH
    os.posix_spawn(argv[0], argv, {"PATH": path, "HOME": "/root"}, file_actions=actions, setsid=True)


def _inherited() -> list[int]:
    """Files that our starter left open, such as make's pipe for its jobs: make waits at its end until all holders close
    it.
    """
    found = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return [file for file in found if file > 2 and _inheritable(file)]


def _inheritable(file: int) -> bool:
    try:
        return os.get_inheritable(file)
    except OSError:  # closed since
        return False


def _identity(stat: str) -> tuple[int, str]:
    """Process id and start time of a /proc/PID/stat line (the name in between may hold spaces and parentheses)."""
    number, _, rest = stat.partition(" ")
    return int(number), rest.rpartition(")")[2].split()[19]


def gone(number: int) -> bool:
    """Whether it has ended, with all of its threads: the first one may be gone while another still holds the ports."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(number, os.WNOHANG)
    return all(_ended(thread) for thread in Path(f"/proc/{number}/task").glob("*/stat"))


def _ended(thread: Path) -> bool:
    try:
        stat = thread.read_text(encoding="utf-8")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def _await(condition: Callable[[], bool], failure: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(failure)
        time.sleep(_PAUSE)


def _see(cluster: Cluster, name: str) -> str:
    try:
        tail = log(cluster, name).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_TAIL:]
    except OSError:
        tail = []
    said = "; it said: " + " / ".join(line[-300:] for line in tail) if tail else ""
    return f": see {log(cluster, name)}{said}."
