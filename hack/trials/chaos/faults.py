"""What do people and programs do to objects, at any time and without asking? One function for each kind, done at once.

Each hits one of those that are there, in the order of their names' gangs and slots, which is the same in every run; where there is none
it does nothing. It says whom it hit.
"""

import json
from collections.abc import Callable, Mapping, Sequence

from adapter import names
from adapter.objects.raw import Raw, label, meta
from adapter.objects.workerpod import slot_of
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground
from hack.trials.chaos.load import LARGEST, taken

NOBODY = "nobody"  # was there to be hit
_GRACE = {"graceful": (), "forced": ("--grace-period=0", "--force")}


def _kill_controller(ground: Ground, fault: Fault) -> str:
    ground.controller.kill()
    return ground.controller.called


def _kill_kueue(ground: Ground, fault: Fault) -> str:
    ground.kueues[fault.where].kill()
    return "Kueue"


def _delete_copy(ground: Ground, fault: Fault) -> str:
    cluster, namespace = ground.cluster(fault.where), ground.stage.name
    copies = cluster.items("pods", namespace, names.MANAGER_LABEL)
    return _delete(ground, fault, fault.where, "pod", _picked(copies, fault))


def _delete_share(ground: Ground, fault: Fault) -> str:
    cluster, namespace = ground.cluster(fault.where), ground.stage.name
    shares = cluster.items("workloads", namespace, names.MANAGER_LABEL)
    return _delete(ground, fault, fault.where, f"workloads.{names.KUEUE_DOMAIN}", _picked(shares, fault))


def _delete_worker(ground: Ground, fault: Fault) -> str:
    return _delete(ground, fault, ground.stage.manager.name, "pod", _picked(ground.stage.workers(), fault))


def _delete_job(ground: Ground, fault: Fault) -> str:
    """Another one is submitted at once."""
    name = _gang(ground, fault)
    ground.load.remove(name, fault.way)
    ground.load.fill()
    return name


def _scale(ground: Ground, fault: Fault) -> str:
    """Another number of workers; or as many, without the one that is named, as Ray's autoscaler would have it go."""
    if fault.way == "named":
        return _name_worker(ground, fault)
    name = _gang(ground, fault)
    count = (ground.load.wanted[name] + fault.pick % (LARGEST - 1)) % LARGEST + 1  # never what it is now
    ground.load.wanted[name] = count
    _edit(ground, name, {"replicas": count, "minReplicas": count, "maxReplicas": count})
    return f"{name} to {count}"


def _name_worker(ground: Ground, fault: Fault) -> str:
    workers = [pod for pod in ground.stage.workers() if label(pod, names.RAY_GCS_CLUSTER_LABEL) in ground.load.wanted]
    worker = _picked(workers, fault)
    if not worker:
        return NOBODY
    name = str(meta(worker)["name"])
    _edit(ground, label(worker, names.RAY_GCS_CLUSTER_LABEL), {"scaleStrategy": {"workersToDelete": [name]}})
    return name


DEEDS: Mapping[str, Callable[[Ground, Fault], str]] = {
    "controller-killed": _kill_controller,
    "kueue-killed": _kill_kueue,
    "copy-deleted": _delete_copy,
    "share-deleted": _delete_share,
    "worker-deleted": _delete_worker,
    "job-deleted": _delete_job,
    "scaled": _scale,
}


def _picked(objects: Sequence[Raw], fault: Fault) -> Raw:
    ordered = sorted(objects, key=_order)
    return ordered[fault.pick % len(ordered)] if ordered else {}


def _order(raw: Raw) -> tuple[str, str, str]:
    """By gang, then slot; names have parts that are made anew in every run."""
    gang = label(raw, names.RAY_GCS_CLUSTER_LABEL) or label(raw, names.RAY_CLUSTER_LABEL)
    return gang or label(raw, names.PLACEMENT_LABEL), slot_of(raw), meta(raw)["name"]


def _gang(ground: Ground, fault: Fault) -> str:
    ground.load.fill()
    known = list(ground.load.wanted)
    return known[fault.pick % len(known)]


def _delete(ground: Ground, fault: Fault, where: str, kind: str, found: Raw) -> str:
    if not found:
        return NOBODY
    cluster, name = ground.cluster(where), str(meta(found)["name"])
    words = ("-n", ground.stage.name, "delete", kind, name, "--ignore-not-found", "--wait=false")
    taken(lambda: cluster.kubectl(*words, *_GRACE.get(fault.way, ())))
    return name


def _edit(ground: Ground, name: str, fields: Raw) -> None:
    """Change fields of a RayCluster's only worker group."""
    patch = [{"op": "add", "path": f"/spec/workerGroupSpecs/0/{key}", "value": value} for key, value in fields.items()]
    words = ("-n", ground.stage.name, "patch", "raycluster", name, "--type=json", "-p", json.dumps(patch))
    taken(lambda: ground.stage.manager.kubectl(*words))
