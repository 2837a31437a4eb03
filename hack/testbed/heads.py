"""How do the workers of each cluster find the head, for a while: sets `spec.head`, and stands in for what an admin provides.

The stand-in for a Multi-Cluster Services implementation, or for an admin's own DNS, is a zone in the worker cluster's CoreDNS
that asks the manager's: the name of a headless Service then gives its head's address, as an export of it would.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from adapter import names
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.reader import Raw

STATIC = "{service}.{namespace}.ray.example.com:6379"
_ZONES = {
    "clusterset.local": ".svc.clusterset.local",
    "ray.example.com": ".ray.example.com",
}  # zone -> what stands for .svc.cluster.local


@contextmanager
def found_by(fleet: Clusters, ways: Mapping[str, Raw]) -> Iterator[None]:
    """Give worker clusters these `spec.head`; by the pod's IP again in the end."""
    try:
        _set(fleet, ways)
        yield
    finally:
        _set(fleet, {name: {"address": "PodIP"} for name in ways})


@contextmanager
def resolving(fleet: Clusters, name: str) -> Iterator[None]:
    """Let a worker cluster's DNS answer for the zones of others."""
    worker = fleet.workers[name]
    before = worker.get("configmaps", "coredns", "kube-system")["data"]["Corefile"]
    (dns,) = fleet.manager.items("pods", "kube-system", "k8s-app=kube-dns")
    blocks = "".join(_block(zone, suffix, dns["status"]["podIP"]) for zone, suffix in _ZONES.items())
    try:
        _serve(worker, blocks + before)
        yield
    finally:
        _serve(worker, before)


def _set(fleet: Clusters, ways: Mapping[str, Raw]) -> None:
    for name, head in ways.items():
        patch = json.dumps([{"op": "replace", "path": "/spec/head", "value": head}])
        fleet.manager.kubectl("patch", "workercluster", name, "--type=json", "-p", patch)
    wait(lambda: all(_known(fleet, name) for name in ways), 30, "the controller knows it")


def _known(fleet: Clusters, name: str) -> bool:
    found = fleet.manager.get("workerclusters", name)
    connected = condition(found, names.CONNECTED)
    same = connected.get("observedGeneration") == found["metadata"]["generation"]
    return same and connected.get("status") == "True"


def _block(zone: str, suffix: str, upstream: str) -> str:
    rule = f"rewrite stop name suffix {suffix}. .svc.cluster.local. answer auto"
    return f"{zone}:53 {{\n    errors\n    {rule}\n    forward . {upstream}\n}}\n"


def _serve(cluster: Cluster, corefile: str) -> None:
    patch = json.dumps({"data": {"Corefile": corefile}})
    cluster.kubectl("-n", "kube-system", "patch", "configmap", "coredns", "--type=merge", "-p", patch)
    cluster.kubectl("-n", "kube-system", "rollout", "restart", "deployment/coredns")
    cluster.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
