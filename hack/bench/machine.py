"""The machine that a bench ran on, without its name, and the versions of what ran: for comparison by a reader."""

import os
import platform
from pathlib import Path

from hack.lab.base.versions import KUBERAY, KUBERNETES, KUEUE, RAY

_LAB = (("Kubernetes", KUBERNETES), ("Kueue", KUEUE), ("KubeRay", KUBERAY), ("Ray", RAY))


def described() -> str:
    """In one sentence."""
    cores, model = len(os.sched_getaffinity(0)), cpu_model(_read("/proc/cpuinfo"))
    versions = ", ".join(f"{name} {version.removeprefix('v')}" for name, version in _LAB)
    memory = gigabytes(_read("/proc/meminfo"))
    return f"{cores} cores ({model}), {memory} GB of memory; {versions}, Python {platform.python_version()}"


def cpu_model(cpuinfo: str) -> str:
    """The kernel's name of the processor."""
    said = (line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("model name"))
    return " ".join(next(said, "").split()) or platform.machine()


def gigabytes(meminfo: str) -> int:
    """How much memory there is, to the next whole number."""
    said = next((line for line in meminfo.splitlines() if line.startswith("MemTotal:")), "MemTotal: 0 kB")
    return round(int(said.split()[1]) / 1024**2)


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8", errors="replace")
