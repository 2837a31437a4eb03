"""Gives a gang another number of workers, or other ones, while faults strike.

One of a fixed size is edited, and its job restarts. Of an elastic one the replicas are patched, as Ray's autoscaler
does, which does not run on fake nodes. It names the leaving workers and asks for as many fewer in one write, or asks
for more and names none (ray:autoscaler/v2/instance_manager/cloud_providers/kuberay/cloud_provider.py). KubeRay deletes
those that are named and no others (kuberay:controllers/ray/raycluster_controller.go, reconcilePods). A named worker may
just have been replaced. Then there is a surplus worker, which the autoscaler would name in its next round; here it is
named when all else is well.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence

from adapter import names
from adapter.objects.unstructured import label, meta
from hack.testbed.reader import Raw
from hack.trials.chaos import draw
from hack.trials.chaos.draw import LARGEST, Fault
from hack.trials.chaos.ground import Ground, taken
from hack.trials.chaos.picking import NOBODY, one, picked, turned
from hack.trials.chaos.snapshot import Snapshot


def _scale(ground: Ground, fault: Fault) -> str:
    """Another number of workers, of a gang of a fixed size; or as many of any gang, without the one that is named."""
    if fault.way == "named":
        return _replace(ground, fault)
    load = ground.load
    name = one(load, fault, lambda gang: gang not in load.least)
    if not name:
        return NOBODY
    count = (load.wanted[name] + fault.pick % (LARGEST - 1)) % LARGEST + 1  # always different from the present number
    return _resize(ground, name, count, {"minReplicas": count, "maxReplicas": count})


def _replace(ground: Ground, fault: Fault) -> str:
    workers = [pod for pod in ground.stage.workers() if _gang(pod) in ground.load.wanted]
    worker = picked(workers, fault)
    if not worker:
        return NOBODY
    ground.load.scaled.add(_gang(worker))
    _edit(ground, _gang(worker), _without([worker]))
    return str(meta(worker)["name"])


def _grow(ground: Ground, fault: Fault) -> str:
    """More workers for an elastic gang, as far as all that is wanted then fits."""
    load = ground.load
    name = one(load, fault, lambda gang: gang in load.least and load.room(gang) > 0)
    if not name:
        return NOBODY
    return _resize(ground, name, draw.grown(load.wanted[name], load.room(name), fault.pick), _without([]))


def _shrink(ground: Ground, fault: Fault) -> str:
    """Fewer workers for an elastic gang: the leaving ones are named."""
    load = ground.load
    name = one(load, fault, lambda gang: gang in load.least and load.wanted[gang] > load.least[gang])
    if not name:
        return NOBODY
    count = draw.shrunk(load.wanted[name], load.least[name], fault.pick)
    there = turned(_staying(ground.stage.workers(), name), fault)
    return _resize(ground, name, count, _without(there[: load.wanted[name] - count]))


DEEDS: Mapping[str, Callable[[Ground, Fault], str]] = {"scaled": _scale, "grown": _grow, "shrunk": _shrink}


def name_surplus(ground: Ground, seen: Snapshot) -> list[str]:
    """Name the workers of elastic gangs that are too many; returns the gangs that had some."""
    found = surplus(seen, ground.load.least)
    for gang, workers in found.items():
        _edit(ground, gang, _without(workers))
    return list(found)


def surplus(seen: Snapshot, elastic: Collection[str]) -> dict[str, list[Raw]]:
    """The surplus workers of elastic gangs; those that are named already come first, so that no others go with them."""
    jobs = {meta(job)["name"]: job for job in seen.jobs}
    found = {}
    for gang in elastic:
        there, named = _staying(seen.workers, gang), _named(jobs.get(gang, {}))
        more = len(there) - seen.wanted[gang]
        if more > 0:
            found[gang] = sorted(there, key=lambda pod: (meta(pod)["name"] not in named, meta(pod)["name"]))[:more]
    return found


def _named(job: Raw) -> list[str]:
    groups = (job.get("spec") or {}).get("workerGroupSpecs") or ()
    return [name for group in groups for name in (group.get("scaleStrategy") or {}).get("workersToDelete") or ()]


def _resize(ground: Ground, name: str, count: int, more: Mapping[str, object]) -> str:
    ground.load.wanted[name] = count
    ground.load.scaled.add(name)
    _edit(ground, name, {"replicas": count, **more})
    return f"{name} to {count}"


def _without(workers: Sequence[Raw]) -> dict[str, object]:
    return {"scaleStrategy": {"workersToDelete": [meta(pod)["name"] for pod in workers]}}


def _staying(workers: Sequence[Raw], gang: str) -> list[Raw]:
    return [pod for pod in workers if _gang(pod) == gang and not meta(pod).get("deletionTimestamp")]


def _gang(pod: Raw) -> str:
    return label(pod, names.RAY_GCS_CLUSTER_LABEL)


def _edit(ground: Ground, name: str, fields: Mapping[str, object]) -> None:
    """Change fields of a RayCluster's only worker group."""
    patch = [{"op": "add", "path": f"/spec/workerGroupSpecs/0/{key}", "value": value} for key, value in fields.items()]
    words = ("-n", ground.stage.name, "patch", "raycluster", name, "--type=json", "-p", json.dumps(patch))
    taken(lambda: ground.stage.manager.kubectl(*words))
