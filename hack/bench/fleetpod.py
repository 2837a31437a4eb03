"""A worker pod of the fleet's bench, as KubeRay makes it and as its remote pod runs.

It is a golden pod (tests/unit/rewrite/golden) with what API servers and kubelets add: 10 KB each.
"""

import functools
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import yaml

from adapter.objects.unstructured import Raw, format_time

SINCE = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)  # of all old objects
POD, UID, SLOT, INDEX = "POD-TO-BE-NAMED", "UID-TO-BE-GIVEN", "SLOT-TO-BE-TAKEN", "4711471147"
_GOLDEN = Path(__file__).parents[2] / "tests/unit/rewrite/golden/kuberay-1.6.2/plain.in.yaml"


@functools.cache
def golden() -> Any:
    return yaml.safe_load(_GOLDEN.read_text())


def named(text: str, name: str, slot: str, number: int) -> Raw:
    """A pod of its own, of a text that has places for what tells it from its siblings."""
    for place, told in ((POD, name), (UID, f"uid-of-{name}"), (SLOT, slot), (INDEX, str(number))):
        text = text.replace(place, told)
    found: Raw = orjson.loads(text)
    return found


def ran(copy: Raw) -> Raw:
    """A copy as its cluster shows it when it runs: a node has it, and its kubelet says so."""
    spec, since = copy["spec"], format_time(datetime.now(UTC))
    kinds = "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"
    inits = [_container(one, "terminated", since) for one in spec.get("initContainers") or ()]
    status = {
        "phase": "Running",
        "conditions": [{"lastProbeTime": None, "lastTransitionTime": since, "status": "True",
            "type": kind} for kind in kinds],
        "containerStatuses": [_container(one, "running", since) for one in spec["containers"]],
        "initContainerStatuses": inits,
        "hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}], "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
        "qosClass": "Guaranteed", "startTime": since,
    }  # fmt: skip
    return written({**copy, "spec": {**spec, "schedulingGates": [], "nodeName": "node-0"}, "status": status})


def written(raw: Raw) -> Raw:
    """Add the managedFields that an API server records."""
    body = {key: value for key, value in raw.items() if key in ("metadata", "spec", "status")}
    about = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    body["metadata"] = {key: about[key] for key in ("labels", "annotations") if key in about}
    noted = {"manager": "kuberay-operator", "operation": "Update", "apiVersion": "v1", "time": format_time(SINCE)}
    fields = {**noted, "fieldsType": "FieldsV1", "fieldsV1": _fields(body)}
    return {**raw, "metadata": {**about, "managedFields": [fields]}}


def _container(one: Raw, state: str, since: str) -> Raw:
    ended = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": since,
        "finishedAt": since,
        "containerID": f"containerd://{'0' * 64}",
    }
    return {
        "name": one["name"], "image": one["image"], "imageID": f"{one['image']}@sha256:{'0' * 64}",
        "containerID": f"containerd://{'0' * 64}", "ready": True, "restartCount": 0, "started": state == "running",
        "lastState": {},
        "state": {state: {"startedAt": since} if state == "running" else ended},
        "allocatedResources": one["resources"]["requests"], "resources": one["resources"],
        "volumeMounts": one.get("volumeMounts") or [],
    }  # fmt: skip


def _fields(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {f"f:{key}": _fields(value) for key, value in raw.items()}
    if isinstance(raw, list) and raw and isinstance(raw[0], dict):
        key = next((key for key in ("name", "type", "key") if key in raw[0]), "")
        return {f'k:{{"{key}":"{one.get(key)}"}}': {".": {}, **_fields(one)} for one in raw} if key else {}
    return {}
