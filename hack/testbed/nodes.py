"""Adds a node while a test runs, as an autoscaler would: a fake one, whose pods run because kwok says so."""

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw


@contextmanager
def added(cluster: Cluster, pool: str, devices: Raw | None = None) -> Iterator[None]:
    """Add a fake node of that name for a while, like those of the cluster, with the label `pool`.

    `devices` is what it has beside cpu and memory, such as `{"example.com/gpu": "8"}`.
    """
    template = next(n for n in cluster.items("nodes") if n["metadata"]["labels"].get("type") == "kwok")
    made = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": pool,
            "annotations": {k: v for k, v in template["metadata"]["annotations"].items() if k.startswith("kwok")},
            "labels": {"type": "kwok", "pool": pool, "kubernetes.io/hostname": pool},
        },
        "spec": {"taints": [t for t in template["spec"]["taints"] if t["key"].startswith("kwok")]},
        "status": {
            "capacity": {**template["status"]["capacity"], **(devices or {})},
            "allocatable": {**template["status"]["capacity"], **(devices or {})},
        },
    }
    cluster.apply(yaml.safe_dump(made))
    try:
        yield
    finally:
        cluster.kubectl("delete", "node", pool, "--ignore-not-found", "--wait=false")
