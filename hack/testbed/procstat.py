"""CPU seconds and memory of the lab's processes, as the kernel counts them. It calls no program and disturbs none.

A process that ends between two reads is not counted: in the lab those are kubelet's probes and little else.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from hack.lab.base import lab as definition
from hack.lab.base.lab import Cluster
from hack.lab.cluster import cgroups

_CONTROLLER = b"\0-m\0adapter\0controller\0"  # how our image starts it, see hack/lab/images/adapterimage.py
_KUEUE = b"\0--config=/controller_manager_config.yaml\0"  # as its own manifest starts it
_TICKS = os.sysconf("SC_CLK_TCK")


def lab() -> set[int]:
    """The processes of all clusters: control planes, kubelets, fake nodes, Kueue, KubeRay, and pods that run."""
    return {pid for cluster in definition.load().clusters for pid in cgroups.processes(cluster)}


def controllers() -> set[int]:
    """Our deployed controller, and its stand-ins if there are any."""
    return {int(found.parent.name) for found in Path("/proc").glob("[0-9]*/cmdline") if _CONTROLLER in _read(found)}


def kueue(cluster: Cluster) -> set[int]:
    """Kueue of one cluster of the lab."""
    return {pid for pid in cgroups.processes(cluster) if _KUEUE in _read(Path(f"/proc/{pid}/cmdline"))}


def cpu(pids: Iterable[int]) -> float:
    """Seconds of CPU that these have used since they began; those that are gone count for nothing."""
    return sum(_cpu(_read(Path(f"/proc/{pid}/stat")).decode(errors="replace")) for pid in pids)


def memory(pids: Iterable[int]) -> float:
    """Megabytes that these hold, as process_resident_memory_bytes has it."""
    return sum(_memory(_read(Path(f"/proc/{pid}/status")).decode(errors="replace")) for pid in pids)


def peak(pid: int) -> float:
    """The most megabytes that a process has held since it began; 0 if it is gone."""
    return _memory(_read(Path(f"/proc/{pid}/status")).decode(errors="replace"), "VmHWM:")


def _cpu(stat: str) -> float:
    fields = stat.rpartition(")")[2].split()  # the name may hold anything
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _memory(status: str, which: str = "VmRSS:") -> float:
    found = next((line for line in status.splitlines() if line.startswith(which)), f"{which} 0 kB")
    return int(found.split()[1]) / 1024


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended
        return b""
