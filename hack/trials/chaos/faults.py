"""The deeds and outages that are faults. A deed happens at once; an outage is a context: entering breaks, leaving
mends.

A deed is an action of people and programs on objects at any time. It hits one of the present ones (picking.py), or does
nothing where there is none, and says what it hit. Mending starts and connects, and does not wait: the campaign judges
when all is well again. Each outage mends only what it broke, so that two may overlap; `mend` is for what an interrupted
run left.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import yaml

from adapter import names
from adapter.objects.unstructured import meta
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.lab.cluster import kwok, processes
from hack.testbed.reader import Raw
from hack.testbed.stage import QUEUE
from hack.trials.chaos import borrowing, clockjumps, mistakes, rejections, restarts, sizes
from hack.trials.chaos.draw import READINESS_CLOCK, Fault
from hack.trials.chaos.ground import CPU, Ground, taken
from hack.trials.chaos.picking import NOBODY, one, picked

_GRACE = {"graceful": (), "forced": ("--grace-period=0", "--force")}
FOREIGNER = "foreigner"  # the Workload that preempts
_PRIORITY = 1_000_000  # above every gang's
_CUTS = {  # way -> the lab's scope and way
    "silent": ("api", "drop"),
    "refusing": ("api", "reject"),
    "unplugged": ("all", "link"),
    "data": ("data", "drop"),
}


def _kill_controller(ground: Ground, fault: Fault) -> str:
    ground.controller.kill()
    return ground.controller.called


def _kill_kueue(ground: Ground, fault: Fault) -> str:
    ground.kueues[fault.where].kill()
    return "Kueue"


def _delete_copy(ground: Ground, fault: Fault) -> str:
    cluster, namespace = ground.cluster(fault.where), ground.stage.name
    copies = cluster.items("pods", namespace, names.MANAGER_LABEL)
    return _delete(ground, fault, fault.where, "pod", picked(copies, fault))


def _delete_share(ground: Ground, fault: Fault) -> str:
    cluster, namespace = ground.cluster(fault.where), ground.stage.name
    shares = cluster.items("workloads", namespace, names.MANAGER_LABEL)
    return _delete(ground, fault, fault.where, f"workloads.{names.KUEUE_DOMAIN}", picked(shares, fault))


def _delete_placement(ground: Ground, fault: Fault) -> str:
    manager = ground.stage.manager
    placements = manager.items("placements", ground.stage.name)
    return _delete(ground, fault, manager.name, f"placements.{names.DOMAIN}", picked(placements, fault))


def _delete_worker(ground: Ground, fault: Fault) -> str:
    return _delete(ground, fault, ground.stage.manager.name, "pod", picked(ground.stage.workers(), fault))


def _delete_job(ground: Ground, fault: Fault) -> str:
    """Another one is submitted at once."""
    name = one(ground.load, fault)
    ground.load.remove(name, fault.way)
    ground.load.fill()
    return name


DEEDS: Mapping[str, Callable[[Ground, Fault], str]] = {
    "controller-killed": _kill_controller,
    "kueue-killed": _kill_kueue,
    "copy-deleted": _delete_copy,
    "share-deleted": _delete_share,
    "worker-deleted": _delete_worker,
    "job-deleted": _delete_job,
    "placement-deleted": _delete_placement,
    # A minute is longer than any outage. So all faults strike under the short clock until the next deed of this kind.
    READINESS_CLOCK: lambda ground, fault: ground.readiness_clock.turn(ground.stage),
    **rejections.DEEDS,
    **sizes.DEEDS,
}


def _delete(ground: Ground, fault: Fault, where: str, kind: str, found: Raw) -> str:
    if not found:
        return NOBODY
    cluster, name = ground.cluster(where), str(meta(found)["name"])
    words = ("-n", ground.stage.name, "delete", kind, name, "--ignore-not-found", "--wait=false")
    taken(lambda: cluster.kubectl(*words, *_GRACE.get(fault.way, ())))
    return name


@contextmanager
def _killed(ground: Ground, fault: Fault, name: str) -> Iterator[None]:
    cluster = ground.lab.cluster(fault.where)
    with restarts.alone():
        processes.end(cluster, name)
    try:
        yield
    finally:
        restarts.start(ground.lab, cluster, name)


@contextmanager
def _stopped(ground: Ground, fault: Fault) -> Iterator[None]:
    container = ground.controller.stop()
    try:
        yield
    finally:
        ground.controller.go_on(container)


@contextmanager
def _cut(ground: Ground, fault: Fault) -> Iterator[None]:
    cluster, (scope, way) = ground.lab.cluster(fault.where), _CUTS[fault.way]
    with restarts.alone():
        faults.cut(ground.lab, cluster, scope=scope, way=way)
    try:
        yield
    finally:
        with restarts.alone():
            faults.heal(ground.lab, cluster)


@contextmanager
def _cordoned(ground: Ground, fault: Fault) -> Iterator[None]:
    try:
        _cordon(ground, fault.where, True)
        yield
    finally:
        _cordon(ground, fault.where, False)


def _cordon(ground: Ground, name: str, value: bool) -> None:
    patch = json.dumps({"spec": {"cordoned": value}})
    words = ("patch", "workercluster", name, "--type=merge", "-p", patch)
    taken(lambda: ground.stage.manager.kubectl(*words))


@contextmanager
def _preempted(ground: Ground, fault: Fault) -> Iterator[None]:
    """Somebody of that cluster's own users takes the whole queue for a while, or what its owner lends."""
    cluster, namespace = ground.cluster(fault.where), ground.stage.name
    try:
        taken(lambda: cluster.apply(yaml.safe_dump(_foreigner(namespace, borrow=ground.borrow))))
        yield
    finally:
        taken(lambda: cluster.delete(f"workloads.{names.KUEUE_DOMAIN}", FOREIGNER, namespace, wait=False))


def _foreigner(namespace: str, *, borrow: bool) -> Raw:
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    podset = {"name": "main", "count": CPU - borrowing.NOMINAL if borrow else CPU, "template": template}
    queue = borrowing.OWNER_QUEUE if borrow else QUEUE
    return {
        "apiVersion": names.KUEUE_API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": FOREIGNER,
            "namespace": namespace,
            "annotations": {names.GROUP_WORKLOAD_ANNOTATION: "true"},  # a Workload without pods is left standing
        },
        "spec": {"active": True, "queueName": queue, "priority": _PRIORITY, "podSets": [podset]},
    }


OUTAGES: Mapping[str, Callable[[Ground, Fault], AbstractContextManager[None]]] = {
    "controller-stopped": _stopped,
    "apiserver-killed": lambda ground, fault: _killed(ground, fault, "kube-apiserver"),
    "etcd-killed": lambda ground, fault: _killed(ground, fault, "etcd"),
    "kubelet-killed": lambda ground, fault: _killed(ground, fault, "kubelet"),
    "kwok-killed": lambda ground, fault: _killed(ground, fault, kwok.NAME),
    "cut": _cut,
    "cordoned": _cordoned,
    "preempted": _preempted,
    **clockjumps.OUTAGES,
    **mistakes.OUTAGES,
}


def silences(outage: Fault) -> bool:
    """Whether the API server of its cluster is unreachable for this machine: a cut lets us in, except a pulled cable.

    While etcd is restored the server answers until that is done, and the restorer notes the outage.
    """
    return outage.kind in ("apiserver-killed", "etcd-killed") or (outage.kind == "cut" and outage.way == "unplugged")


def mend(lab: Lab) -> None:
    """Restore all processes, links and clocks."""
    with restarts.alone():
        faults.heal(lab)
    for cluster in lab.clusters:
        restarts.start_all(lab, cluster)
        clockjumps.set_right(cluster)
