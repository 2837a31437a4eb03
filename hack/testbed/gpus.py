"""Declares other numbers of GPUs on the real node of a worker cluster. No device exists (hack/lab/cluster/node.py).

Only on the lab, whose nodes have the names of their clusters.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from hack.lab.base.lab import GPUS
from hack.lab.cluster.node import GPU
from hack.testbed.clusters import Cluster, wait


@contextmanager
def declared(worker: Cluster, count: int) -> Iterator[None]:
    """Let the node of a worker cluster declare so many GPUs for a while."""
    try:
        declare(worker, count)
        yield
    finally:
        declare(worker, GPUS)


def declare(worker: Cluster, count: int) -> None:
    """Let the node declare so many GPUs from now on, and wait until pods may use them."""
    path = f"/status/capacity/{GPU.replace('/', '~1')}"
    patch = json.dumps([{"op": "add", "path": path, "value": str(count)}])
    worker.kubectl("patch", "node", worker.name, "--subresource=status", "--type=json", "-p", patch)
    wait(lambda: _allocatable(worker) == str(count), 60, f"the node of {worker.name} has {count} GPUs")


def _allocatable(worker: Cluster) -> str:
    return str(worker.get("nodes", worker.name)["status"]["allocatable"].get(GPU))
