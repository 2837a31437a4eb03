"""Takes the lab down completely, whatever state it is in.

It ends what lives in the lab's cgroups and nothing else, and then asserts that nothing is left. On disk remain the
clusters' certificates and unpacked images, which make the next `up` fast; `rm -rf` of the state directory is then safe.
"""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hack.lab.base import lab as definition
from hack.lab.base.lab import MOST_WORKERS, Cluster, Lab
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError, step
from hack.lab.cluster import cgroups, kernel, network, processes

_KEPT = ("pki", "containerd")


def down() -> None:
    """Remove the lab of this machine; it is fine if there is none, or only half of one."""
    with ThreadPoolExecutor() as pool:
        list(pool.map(wipe, _everything()))
    network.remove_switch()
    cgroups.remove_top()
    kernel.restore()
    left = remains()
    if left:
        raise LabError(
            f"The lab is down, but these remain: {', '.join(left)}; run `down` again, then look who uses them."
        )
    definition.forget()


def take_over(old: Lab) -> None:
    with step(f"taking down the other lab ({describe(old)}, made by {definition.owner()})"):
        down()


def describe(lab: Lab) -> str:
    said = f"{1 + lab.workers} clusters, {lab.fake_nodes} fake nodes each, {lab.network} network"
    each = (f"{name} with {what} {version}" for name, found in lab.versions.items() for what, version in found.items())
    return ", ".join((said, *each))


def wipe(cluster: Cluster) -> None:
    """Make one cluster as if it had never run, except for what may be kept."""
    for name in processes.known(cluster):
        processes.end(cluster, name)
    cgroups.end(cluster)
    network.remove_cluster(cluster)
    for place in cluster.directory.glob("*"):
        if place.name not in _KEPT:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    shutil.rmtree(cluster.directory / "containerd" / "io.containerd.runtime.v2.task", ignore_errors=True)


def remains() -> list[str]:
    """What the machine still has of the lab, other than files."""
    running = [f"process {pid} ({cluster.name})" for cluster in _everything() for pid in cgroups.processes(cluster)]
    return running + network.remains() + _mounts() + [f"cgroup {place}" for place in cgroups.remains()]


def _mounts() -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    places = [line.split()[1] for line in lines]
    return [f"mount {place}" for place in places if place.startswith(f"{STATE}/")]


def _everything() -> tuple[Cluster, ...]:
    """Every cluster that any lab could have made: what is written down need not be all there is."""
    return Lab(workers=MOST_WORKERS).clusters
