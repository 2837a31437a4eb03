"""Tests that the head of one stock RayJob sees twenty GPU workers, ten in each of two islands of ten GPUs.

With real Ray, twenty-one Ray nodes take five minutes and six gigabytes on two cores. The GPUs are only declared
(hack/lab/cluster/node.py), so Ray counts them and nothing computes on them. On fake nodes:
tests/integration/test_islands.py.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from hack.lab.cluster import addons
from hack.lab.cluster.node import GPU
from hack.testbed import gpus, quotas
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.rayjob import Job, removed
from hack.testbed.reader import Raw

pytestmark = pytest.mark.byhand

ISLAND = 10  # GPUs of each worker cluster
_SECONDS = 900  # for twenty-one Ray nodes to start on two cores; each takes about ten seconds of both
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
            stack.enter_context(gpus.declared(worker, ISLAND))
        yield fleet


@pytest.mark.timeout(3 * _SECONDS)
def test_the_head_sees_twenty_workers_on_two_islands_of_ten(islands: Clusters) -> None:
    with removed(Job(islands, "islands", 2 * ISLAND)) as job:
        job.submit(PROGRAM, _each_with_a_gpu)
        seen = job.said("SEEN", _SECONDS)
        assert seen["zones"] == dict.fromkeys(islands.workers, ISLAND), seen
        assert f"/{2 * ISLAND}.0 GPU" in seen["status"], seen["status"]
        print(seen["status"])
    # `removed` waits at most 60 s until the job is removed from every cluster.


def _each_with_a_gpu(cluster: Raw) -> None:
    (group,) = cluster["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    container["resources"]["limits"][GPU] = "1"
    container["resources"]["requests"]["cpu"] = "50m"  # a node of the lab has two CPUs for ten workers


@contextmanager
def _without_init_containers(manager: Cluster) -> Iterator[None]:
    """Turn off KubeRay's init container that waits for the GCS.

    It requests 200m in each worker, and a node with two processors holds seven.
    Source: ray-operator/controllers/ray/common/pod.go, getEnableInitContainerInjection.
    """
    try:
        _set_operator_env(manager, "ENABLE_INIT_CONTAINER_INJECTION=false")
        yield
    finally:
        _set_operator_env(manager, "ENABLE_INIT_CONTAINER_INJECTION-")


def _set_operator_env(manager: Cluster, assignment: str) -> None:
    """Set or remove (`NAME-`) an environment variable of KubeRay's operator, and wait for the rollout."""
    operator = "-n", addons.KUBERAY.namespace, f"deployment/{addons.KUBERAY.deployment}"
    manager.kubectl("set", "env", *operator, assignment)
    manager.kubectl("rollout", "status", *operator, "--timeout=120s")
