"""How does something go away for a while, and come back? One context for each kind: entering breaks it, leaving mends it.

Mending starts and connects, and waits for nobody: when all is well again is for the campaign to see. Each mends what it broke
and nothing else, so that two of them may overlap; `mend` is for what an interrupted run left.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import yaml

from adapter import names
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.lab.cluster import kwok, processes
from hack.testbed.reader import Raw
from hack.testbed.stage import QUEUE
from hack.trials.chaos import starts
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground
from hack.trials.chaos.load import CPU, taken

FOREIGNER = "foreigner"  # the Workload that preempts
_PRIORITY = 1_000_000  # above every gang's
_CUTS = {  # way -> the lab's scope and way
    "silent": ("api", "drop"),
    "refusing": ("api", "reject"),
    "unplugged": ("all", "link"),
    "data": ("data", "drop"),
}


@contextmanager
def _killed(ground: Ground, fault: Fault, name: str) -> Iterator[None]:
    cluster = ground.lab.cluster(fault.where)
    with starts.alone():
        processes.end(cluster, name)
    try:
        yield
    finally:
        starts.one(ground.lab, cluster, name)


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
    with starts.alone():
        faults.cut(ground.lab, cluster, scope=scope, way=way)
    try:
        yield
    finally:
        with starts.alone():
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
    """Somebody of that cluster's own users takes the whole queue for a while."""
    cluster, namespace = ground.cluster(fault.where), ground.stage.name
    try:
        taken(lambda: cluster.apply(yaml.safe_dump(_foreigner(namespace))))
        yield
    finally:
        taken(lambda: cluster.delete(f"workloads.{names.KUEUE_DOMAIN}", FOREIGNER, namespace, wait=False))


def _foreigner(namespace: str) -> Raw:
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    podset = {"name": "main", "count": CPU, "template": template}
    return {
        "apiVersion": names.KUEUE_API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": FOREIGNER,
            "namespace": namespace,
            "annotations": {names.GROUP_WORKLOAD_ANNOTATION: "true"},  # one without pods is left standing
        },
        "spec": {"active": True, "queueName": QUEUE, "priority": _PRIORITY, "podSets": [podset]},
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
}


def mend(lab: Lab) -> None:
    """Bring back all processes and links, whoever took them away."""
    with starts.alone():
        faults.heal(lab)
    for cluster in lab.clusters:
        starts.all_of(lab, cluster)
