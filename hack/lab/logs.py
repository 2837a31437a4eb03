"""Finds the logs of the lab's processes and shows their ends. It follows nothing; `tail -f` on these files does."""

from collections import deque
from pathlib import Path

from hack.lab.base.lab import Cluster, Lab
from hack.lab.base.progress import LabError

_LINES = 200  # a few screens: enough to find the error, and the path tells where the rest is


def text(lab: Lab, name: str | None, component: str | None) -> str:
    """The logs of all clusters or of one, by path; with a component, the end of its log."""
    clusters = lab.clusters if name is None else (lab.cluster(name),)
    if component is None:
        return "\n".join(str(file) for cluster in clusters for file in files(cluster))
    return _end(clusters[0], component)


def files(cluster: Cluster) -> list[Path]:
    return sorted(cluster.logs.glob("*.log"))


def _end(cluster: Cluster, component: str) -> str:
    path = cluster.logs / f"{component}.log"
    if not path.exists():
        known = ", ".join(file.stem for file in files(cluster))
        raise LabError(f"{cluster.name} has no log of {component}; it has {known}.")
    with path.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, _LINES)).rstrip() + f"\n({path})"
