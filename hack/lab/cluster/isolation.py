"""The mount namespace of a cluster's node: the machine's files, but a /run and a /var of its own.

Programs of a node insist on fixed paths (/run/containerd, /var/lib/cni, /var/lib/kubelet, /var/log/containers) and
mount hundreds of things. In its own mount namespace a cluster cannot collide with another one, the machine sees none of
it, and the kernel unmounts all when the last process has ended. One sleeping process, the anchor, keeps it open.
"""

import time
from pathlib import Path

from hack.lab.base.lab import Cluster
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError
from hack.lab.cluster import processes

ANCHOR = "anchor"
_FURNISH = """
set -e
mount -t tmpfs -o mode=755 rayspan /mnt
mkdir /mnt/state /mnt/upper /mnt/work
mount --bind "$1" /mnt/state
mount -t overlay -o lowerdir=/var,upperdir=/mnt/upper,workdir=/mnt/work rayspan /var
mount --bind /mnt/state "$1"
rm -rf /var/lib/cni /var/lib/kubelet
mount -t tmpfs -o mode=755 rayspan /run
mkdir -p /run/netns /run/lock /var/lib/cni /var/lib/kubelet
exec sleep infinity
"""
_PATIENCE = 10.0  # seconds; it takes some ten milliseconds
_PAUSE = 0.02


def open_for(cluster: Cluster) -> bool:
    """Start the anchor if there is none, and wait until its mounts are set up. True: it is new, so nothing runs in it
    yet.
    """
    new = not processes.alive(cluster, ANCHOR)
    furnish = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _FURNISH, "sh", str(STATE)]
    processes.ensure(cluster, ANCHOR, furnish, inside=network(cluster))
    deadline = time.monotonic() + _PATIENCE
    while not _furnished(cluster):
        processes.check(cluster, ANCHOR)
        if time.monotonic() > deadline:
            raise LabError(f"The mounts of {cluster.name} take too long: see {processes.log(cluster, ANCHOR)}.")
        time.sleep(_PAUSE)
    return new


def network(cluster: Cluster) -> list[str]:
    """Enter the cluster's network only. Not `ip netns exec`: that mounts another /sys, without the cgroups."""
    return ["nsenter", f"--net=/run/netns/{cluster.namespace}", "--"]


def node(cluster: Cluster) -> list[str]:
    """Enter the cluster's network and its mounts."""
    anchor = processes.pid(cluster, ANCHOR)
    if anchor is None:
        raise LabError(f"The cluster {cluster.name} is not running: run `python -m hack.lab up`.")
    return ["nsenter", f"--net=/run/netns/{cluster.namespace}", f"--mount=/proc/{anchor}/ns/mnt", "--"]


def _furnished(cluster: Cluster) -> bool:
    anchor = processes.pid(cluster, ANCHOR)
    try:
        return anchor is not None and Path(f"/proc/{anchor}/comm").read_text(encoding="utf-8").strip() == "sleep"
    except OSError:
        return False
