"""Publishes devices of fake nodes while a test runs, as a DRA driver would. No driver prepares them: kwok runs no pods.

Kueue counts claims for them where `deviceClassMappings` of its configuration says so (`kueueconfig`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw

DRIVER = "gpu.example.com"
DEVICE_CLASS = "gpu.example.com"
_API = "resource.k8s.io/v1"


@contextmanager
def published(cluster: Cluster, node: str, count: int) -> Iterator[None]:
    """Have a fake node show so many devices of one class, for a while."""
    made = (_device_class(), _slice(node, count))
    for body in made:
        cluster.apply(yaml.safe_dump(body))
    try:
        yield
    finally:
        for body in made:
            cluster.kubectl("delete", body["kind"].lower(), body["metadata"]["name"], "--ignore-not-found")


def claim_template(namespace: str, name: str, *, count: int = 1) -> Raw:
    """A ResourceClaimTemplate for so many devices of the class."""
    request = {"deviceClassName": DEVICE_CLASS, "allocationMode": "ExactCount", "count": count}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    return _object("ResourceClaimTemplate", name, {"spec": spec}, namespace=namespace)


def allocated(cluster: Cluster, namespace: str) -> dict[str, list[str]]:
    """The devices of each claim that is allocated and reserved for a pod, by the name of the pod."""
    claims = (claim.get("status") or {} for claim in cluster.items("resourceclaims", namespace))
    return {
        holder["name"]: [result["device"] for result in status["allocation"]["devices"]["results"]]
        for status in claims
        for holder in status.get("reservedFor") or ()
    }


def _device_class() -> Raw:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return _object("DeviceClass", DEVICE_CLASS, {"selectors": [selector]})


def _slice(node: str, count: int) -> Raw:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{index}"} for index in range(count)]
    return _object(
        "ResourceSlice", f"{node}-gpu", {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    )


def _object(kind: str, name: str, spec: dict[str, Any], *, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}
