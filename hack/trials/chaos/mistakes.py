"""Admins' mistakes with a worker cluster: a wrong kubeconfig in its Secret, a typo, a restored etcd, no nodes.

They are outages, as in faults.py. For a restored etcd the time is that from the backup to its return: what is done in
between is undone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from hack.testbed import install
from hack.testbed.stage import FAKE_NODE
from hack.trials import restore
from hack.trials.chaos import restarts
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground, taken

_FAKE_NODES = ",".join(f"{key}={value}" for key, value in FAKE_NODE.items())


@contextmanager
def _swapped(ground: Ground, fault: Fault) -> Iterator[None]:
    """Its Secret leads to another of the worker clusters."""
    other = next(name for name in ground.stage.clusters if name != fault.where)
    with _reached_by(ground, fault.where, install.worker_kubeconfig(ground.stage.manager, other)):
        yield


@contextmanager
def _mistyped(ground: Ground, fault: Fault) -> Iterator[None]:
    """A colon is lost from its kubeconfig, which is no YAML any more."""
    before = install.worker_kubeconfig(ground.stage.manager, fault.where)
    with _reached_by(ground, fault.where, before.replace(":", "", 1)):
        yield


@contextmanager
def _reached_by(ground: Ground, name: str, kubeconfig: str) -> Iterator[None]:
    manager = ground.stage.manager
    before = install.worker_kubeconfig(manager, name)
    try:
        taken(lambda: install.hand_over(manager, name, kubeconfig))
        yield
    finally:
        taken(lambda: install.hand_over(manager, name, before))


@contextmanager
def _restored(ground: Ground, fault: Fault) -> Iterator[None]:
    home, cluster = ground.lab.cluster(fault.where), ground.cluster(fault.where)
    copy = restore.backup(home)
    try:
        yield
    finally:
        ground.outages.begin(fault.where)  # from now on, and not since the backup
        restore.put_back(ground.lab, home, copy, [ground.kueues[fault.where], restarts.coredns(cluster, home)])


@contextmanager
def _without_room(ground: Ground, fault: Fault) -> Iterator[None]:
    """New pods find no node there."""
    cluster = ground.cluster(fault.where)
    try:
        taken(lambda: cluster.kubectl("cordon", f"--selector={_FAKE_NODES}"))
        yield
    finally:
        taken(lambda: cluster.kubectl("uncordon", f"--selector={_FAKE_NODES}"))


OUTAGES: Mapping[str, Callable[[Ground, Fault], AbstractContextManager[None]]] = {
    "kubeconfig-swapped": _swapped,
    "kubeconfig-mistyped": _mistyped,
    "etcd-restored": _restored,
    "no-room": _without_room,
}
