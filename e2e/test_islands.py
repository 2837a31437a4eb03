"""Does the head of one stock RayJob see twenty GPU workers, ten in each of two islands that none of them could hold alone?

With real Ray: twenty-one Ray nodes, which a machine of two cores needs five minutes and six gigabytes for. The GPUs are pretended
(hack/lab/cluster/node.py), so Ray counts them and nothing computes on them. On fake nodes: tests/integration/test_islands.py.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from hack.lab.base.lab import GPUS
from hack.lab.cluster import addons
from hack.lab.cluster.node import GPU
from hack.testbed import quotas
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.rayjob import Job, removed
from hack.testbed.reader import Raw

pytestmark = pytest.mark.byhand

ISLAND = 10  # GPUs of each worker cluster
_SECONDS = 900  # for twenty-one Ray nodes to start on two cores, each of which takes some ten seconds of them
_AMPLE = {"cpu": "100", "memory": "100Gi"}
PROGRAM = f"""
import collections, json, subprocess, time
import ray

ray.init(logging_level="ERROR")
deadline = time.monotonic() + {_SECONDS}
while ray.cluster_resources().get("GPU", 0) < {2 * ISLAND} and time.monotonic() < deadline:
    time.sleep(1)
nodes = [node for node in ray.nodes() if node["Alive"] and "GPU" in node["Resources"]]
zones = collections.Counter(node["Labels"]["ray.io/availability-zone"] for node in nodes)
status = subprocess.check_output(["ray", "status"], text=True)
print("SEEN " + json.dumps({{"zones": zones, "status": status}}), flush=True)
"""


@pytest.fixture
def islands(fleet: Clusters) -> Iterator[Clusters]:
    """Each worker cluster has ten GPUs, in its node and in its queue."""
    with ExitStack() as stack:
        stack.enter_context(quotas.given(fleet.manager, {**_AMPLE, GPU: str(2 * ISLAND)}))
        stack.enter_context(_without_init_containers(fleet.manager))
        for worker in fleet.workers.values():
            stack.enter_context(quotas.given(worker, {**_AMPLE, GPU: str(ISLAND)}))
            stack.enter_context(_gpus(worker))
        yield fleet


@pytest.mark.timeout(3 * _SECONDS)
def test_the_head_sees_twenty_workers_on_two_islands_of_ten(islands: Clusters) -> None:
    with removed(Job(islands, "islands", 2 * ISLAND)) as job:
        job.submit(PROGRAM, _each_with_a_gpu)
        seen = job.said("SEEN", _SECONDS)
        assert seen["zones"] == dict.fromkeys(islands.workers, ISLAND), seen
        assert f"/{2 * ISLAND}.0 GPU" in seen["status"], seen["status"]
        print(seen["status"])
    # `removed` waits until nothing of it is left: for 60 s at most, in every cluster.


def _each_with_a_gpu(cluster: Raw) -> None:
    (group,) = cluster["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    container["resources"]["limits"][GPU] = "1"
    container["resources"]["requests"]["cpu"] = "50m"  # a node of the lab has two, and ten workers to hold


@contextmanager
def _without_init_containers(manager: Cluster) -> Iterator[None]:
    """Let KubeRay give workers no init container that waits for the GCS: it asks for 200m each, and a node of two processors holds seven.
    Source: ray-operator/controllers/ray/common/pod.go, getEnableInitContainerInjection."""
    try:
        _configured(manager, "ENABLE_INIT_CONTAINER_INJECTION=false")
        yield
    finally:
        _configured(manager, "ENABLE_INIT_CONTAINER_INJECTION-")


def _configured(manager: Cluster, word: str) -> None:
    """Set a word of KubeRay's environment, or take it out, and wait until an operator runs by it."""
    operator = "-n", addons.KUBERAY.namespace, f"deployment/{addons.KUBERAY.deployment}"
    manager.kubectl("set", "env", *operator, word)
    manager.kubectl("rollout", "status", *operator, "--timeout=120s")


@contextmanager
def _gpus(worker: Cluster) -> Iterator[None]:
    """Let its real node pretend that it has as many GPUs."""
    try:
        _pretend(worker, ISLAND)
        yield
    finally:
        _pretend(worker, GPUS)


def _pretend(worker: Cluster, count: int) -> None:
    path = f"/status/capacity/{GPU.replace('/', '~1')}"
    patch = json.dumps([{"op": "add", "path": path, "value": str(count)}])
    worker.kubectl("patch", "node", worker.name, "--subresource=status", "--type=json", "-p", patch)
    wait(lambda: _allocatable(worker) == str(count), 60, f"the node of {worker.name} has {count} GPUs")


def _allocatable(worker: Cluster) -> str:
    return str(worker.get("nodes", worker.name)["status"]["allocatable"].get(GPU))
