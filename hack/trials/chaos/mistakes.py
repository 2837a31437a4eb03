"""Admins' mistakes: a wrong kubeconfig in the Secret of a worker cluster, a typo, a restored etcd, no nodes, and a
LimitRange in a namespace with jobs.

They are outages, as in faults.py. For a restored etcd the time is that from the backup to its return: what is done in
between is undone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import yaml

from adapter.objects.unstructured import annotation, meta
from hack.lab.base.lab import MANAGER
from hack.testbed import install
from hack.testbed.clusters import Cluster, wait
from hack.testbed.reader import Raw
from hack.testbed.stage import FAKE_NODE, QUEUE, plain_pod
from hack.trials import restore
from hack.trials.chaos import restarts
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground, taken

_LIMITS_NAME = "limits"
_LIMITS: Mapping[str, Raw] = {  # a worker requests one CPU and no memory
    "larger": {"default": {"memory": "512Mi"}, "defaultRequest": {"memory": "512Mi"}},
    "refusing": {"max": {"cpu": "500m"}},
}
_ENLARGED = "kubernetes.io/limit-ranger"  # by this annotation the API server says what it has added to a pod
_PATIENCE = 30.0  # seconds until an API server has noticed that a LimitRange is gone: part of one is usual
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


@contextmanager
def _limited(ground: Ground, fault: Fault) -> Iterator[None]:
    """A LimitRange is in the namespace of the gangs: it adds memory to their pods, or forbids their workers."""
    cluster, namespace = ground.cluster(fault.where), ground.stage.name
    try:
        taken(lambda: cluster.apply(yaml.safe_dump(_limit_range(namespace, fault.way))))
        ground.load.renew()  # it counts for new pods alone
        yield
    finally:
        taken(lambda: cluster.delete("limitrange", _LIMITS_NAME, namespace))
        if fault.where == MANAGER and fault.way == "larger":
            wait(lambda: not _is_enlarging(cluster, namespace), _PATIENCE, "the LimitRange has no effect any more")
            _delete_enlarged(ground)


def _limit_range(namespace: str, way: str) -> Raw:
    metadata, limits = {"name": _LIMITS_NAME, "namespace": namespace}, [{"type": "Container", **_LIMITS[way]}]
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}}


def _is_enlarging(cluster: Cluster, namespace: str) -> bool:
    pod = yaml.safe_dump(plain_pod("probe", namespace, QUEUE))
    answer = taken(lambda: cluster.kubectl("create", "--dry-run=server", "-o", "yaml", "-f", "-", input=pod))
    return bool(annotation(yaml.safe_load(answer), _ENLARGED))


def _delete_enlarged(ground: Ground) -> None:
    """Delete the workers in the manager that request more than their job: they have no quota and get no remote pod.

    A pod keeps what was added to it, so the admin deletes them, as the job's event says.
    """
    enlarged = [str(meta(pod)["name"]) for pod in ground.stage.workers() if annotation(pod, _ENLARGED)]
    words = ("-n", ground.stage.name, "delete", "pod", *enlarged, "--ignore-not-found", "--wait=false")
    if enlarged:
        taken(lambda: ground.stage.manager.kubectl(*words))


OUTAGES: Mapping[str, Callable[[Ground, Fault], AbstractContextManager[None]]] = {
    "kubeconfig-swapped": _swapped,
    "kubeconfig-mistyped": _mistyped,
    "etcd-restored": _restored,
    "no-room": _without_room,
    "limit-range": _limited,
}
