"""Changes WorkerClusters for a while: which exist, how workers find the head (`spec.head`), what `spec.pods` names,
whether they can grow, what they cost.

Worker clusters beyond the demo's two are added and removed. Their Secrets exist already, since the installation hands
over the kubeconfig of every worker cluster of the lab. A zone in the worker cluster's CoreDNS that asks the manager's
replaces a Multi-Cluster Services implementation, or an admin's own DNS: the name of a headless Service then resolves to
its head's address, as an export of it would.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import yaml

from adapter import names
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.reader import Raw

STATIC = "{service}.{namespace}.ray.example.com:6379"
# zone -> what stands for .svc.cluster.local
_ZONES = {"clusterset.local": ".svc.clusterset.local", "ray.example.com": ".ray.example.com"}
_PATIENCE = 60.0  # seconds; a connection takes one or two


@contextmanager
def connected(fleet: Clusters, chosen: Sequence[str]) -> Iterator[None]:
    """See to it that each of the clusters has a WorkerCluster and is connected; those made here go in the end."""
    manager = fleet.manager
    missing = [name for name in chosen if not manager.get("workerclusters", name)]
    for name in missing:
        spec = {"source": {"kubeConfig": {"secretRef": {"name": name}}}, "zone": name}
        made = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": name}}
        manager.apply(yaml.safe_dump({**made, "spec": spec}))
    try:
        for name in chosen:
            manager.wait(partial(_connected, fleet, name), _PATIENCE, f"{name} is connected")
        yield
    finally:
        for name in missing:  # jobs that still hold quota there after a failed run are deleted
            manager.kubectl("annotate", "workercluster", name, f"{names.FORCE_DELETE_ANNOTATION}=true", "--overwrite")
            manager.delete("workercluster", name)


def _connected(fleet: Clusters, name: str) -> bool:
    found = fleet.manager.get("workerclusters", name)
    return bool(condition(found, names.CONNECTED).get("status") == "True")


def uid(cluster: Cluster) -> str:
    """A cluster's identity, as the controller remembers it."""
    return str(cluster.get("namespaces", "kube-system")["metadata"]["uid"])


def meant(cluster: Cluster) -> Raw:
    """The annotations of a WorkerCluster that register a cluster of another WorkerCluster a second time, on purpose."""
    return {names.ACCEPT_CLUSTER_ANNOTATION: uid(cluster)}


@contextmanager
def found_by(fleet: Clusters, ways: Mapping[str, Raw]) -> Iterator[None]:
    """Give worker clusters these `spec.head`; by the pod's IP again in the end."""
    try:
        _write(fleet, "/spec/head", ways)
        yield
    finally:
        _write(fleet, "/spec/head", {name: {"address": "PodIP"} for name in ways})


@contextmanager
def mapped(fleet: Clusters, pods: Mapping[str, Raw]) -> Iterator[None]:
    """Add fields to `spec.pods` of worker clusters; without them again in the end."""
    before = {name: fleet.manager.get("workerclusters", name)["spec"].get("pods", {}) for name in pods}
    try:
        _write(fleet, "/spec/pods", {name: {**before[name], **more} for name, more in pods.items()})
        yield
    finally:
        _write(fleet, "/spec/pods", before)


@contextmanager
def growing(fleet: Clusters, name: str) -> Iterator[None]:
    """Let a worker cluster count as one to which an autoscaler adds nodes; not any more in the end."""
    try:
        _write(fleet, "/spec/canGrow", {name: True})
        yield
    finally:
        _write(fleet, "/spec/canGrow", {name: False})


@contextmanager
def priced(fleet: Clusters, prices: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """Give worker clusters these prices; those of before in the end."""
    before = {name: fleet.manager.get("workerclusters", name)["spec"].get("pricePerHour", {}) for name in prices}
    try:
        set_prices(fleet, prices)
        yield
    finally:
        set_prices(fleet, before)


def set_prices(fleet: Clusters, prices: Mapping[str, Mapping[str, str]]) -> None:
    _write(fleet, "/spec/pricePerHour", {name: dict(price) for name, price in prices.items()})


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


def _write(fleet: Clusters, path: str, values: Mapping[str, Raw | bool]) -> None:
    """Set a field of each of these WorkerClusters, and wait until the controller knows it."""
    for name, value in values.items():
        patch = json.dumps([{"op": "add", "path": path, "value": value}])  # adding replaces the present value
        fleet.manager.kubectl("patch", "workercluster", name, "--type=json", "-p", patch)
    wait(lambda: all(_known(fleet, name) for name in values), 30, "the controller knows it")


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
