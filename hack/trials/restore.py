"""Restores a cluster's etcd from a backup, as an admin does, and starts a clone of a cluster from a backup.

A backup is a copy of etcd's files while etcd stands still: what a power cut would leave, at one instant. To restore it,
all clients with caches end first, then both servers; the servers start on the copy, and all others after them.
Kubernetes requires that: a client that went on would act on objects of a time that never was. The kubelet is among the
first to end, so that it does not restart the operators before they can read; containers run on without it. Versions are
not raised, so the cluster counts on from the backup's. Our own controller is not restarted: it must notice by itself.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hack.lab.base import commands
from hack.lab.base.lab import Cluster, Lab
from hack.lab.base.progress import LabError
from hack.lab.cluster import control_plane, kwok, node, processes
from hack.testbed import clusters
from hack.trials.chaos import restarts
from hack.trials.chaos.restarts import Container

_FED = (kwok.NAME, *node.NAMES, *control_plane.CLIENTS)  # a cluster's own processes that hold caches
_PATIENCE = 10.0  # seconds for a process to stand still, which takes milliseconds
_PAUSE = 0.005


def backup(cluster: Cluster) -> Path:
    """Copy etcd's files as they are now, over the cluster's earlier backup. It takes part of a second and cuts no
    client off.
    """
    copy = cluster.directory / "etcd-backup"
    with restarts.alone():
        number = processes.pid(cluster, "etcd")
        if number is None:
            raise LabError(f"etcd of {cluster.name} does not run, so there is nothing to back up.")
        with frozen(number):
            _copy(control_plane.FIRST.data(cluster), copy)
    return copy


def put_back(lab: Lab, cluster: Cluster, copy: Path, operators: Sequence[Container]) -> None:
    """Let the cluster be as in its backup; returns when its API server serves, and `operators` are starting."""
    with restarts.alone():
        for name in _FED:
            processes.end(cluster, name)
        for one in operators:
            one.end()
        for name in reversed(control_plane.SERVERS):
            processes.end(cluster, name)
        _copy(copy, control_plane.FIRST.data(cluster))
    restarts.start_all(lab, cluster)


def operators(cluster: clusters.Cluster, home: Cluster) -> list[Container]:
    """The pods of a cluster that hold caches, without our own controller."""
    found = [restarts.kueue(cluster, home), restarts.coredns(cluster, home)]
    return [*found, restarts.kuberay(cluster, home)] if home.is_manager else found


@contextmanager
def clone(cluster: Cluster, copy: Path) -> Iterator[clusters.Cluster]:
    """A second cluster with the identity of the first: an API server on the data of a backup, for its admin.

    Nothing else runs in it, so no pods are made or deleted there.
    """
    seat = control_plane.CLONE
    kubeconfig = cluster.directory / f"{seat.prefix}kubeconfig"
    first, second = (f":{one.serves}" for one in (control_plane.FIRST, seat))
    try:
        with restarts.alone():
            _end(cluster, seat)  # of an interrupted run
            _copy(copy, seat.data(cluster))
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_text(
                cluster.kubeconfig.read_text(encoding="utf-8").replace(first, second), encoding="utf-8"
            )
            control_plane.ensure_servers(cluster, seat)
        yield clusters.Cluster(f"clone of {cluster.name}", kubeconfig)
    finally:
        with restarts.alone():
            _end(cluster, seat)
        shutil.rmtree(seat.data(cluster), ignore_errors=True)


def _end(cluster: Cluster, seat: control_plane.Seat) -> None:
    for name in reversed(seat.processes):
        processes.end(cluster, name)


@contextmanager
def frozen(number: int) -> Iterator[None]:
    """A process that stands still meanwhile, with each of its threads."""
    os.kill(number, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + _PATIENCE
        while not _stands_still(number):
            if time.monotonic() > deadline:
                raise LabError(f"Process {number} does not stand still; see `ps` for what it waits for.")
            time.sleep(_PAUSE)
        yield
    finally:
        os.kill(number, signal.SIGCONT)


def _stands_still(number: int) -> bool:
    try:
        stats = [stat.read_text(encoding="utf-8") for stat in Path(f"/proc/{number}/task").glob("*/stat")]
    except OSError:  # a thread has just ended
        return False
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def _copy(source: Path, goal: Path) -> None:
    """An existing copy is replaced; etcd preallocates its log, so most of its files are holes."""
    shutil.rmtree(goal, ignore_errors=True)
    commands.run(["cp", "--archive", "--sparse=always", source, goal])
