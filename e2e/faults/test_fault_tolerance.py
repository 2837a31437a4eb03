"""Does a head whose GCS keeps its state in Redis find its workers in other clusters as it left them when it is restarted?

KubeRay's gcsFaultToleranceOptions. A detached actor on each worker tells: it holds a count in memory, so only the same
process, under the same raylet, counts on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed import rayspec, redis
from hack.testbed.clusters import Clusters, wait
from hack.testbed.raycluster import PATIENCE, RayCluster
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.reader import Raw

# That workers and mirrors follow a head, where no Ray is: tests/integration/test_losses.py, test_head.py.
pytestmark = pytest.mark.long

WORKERS = 2
# Kueue suspends the Job by which KubeRay empties Redis (docs/networks.md): KubeRay shall not wait five minutes for it.
HURRY = {"ray.io/gcs-ft-deletion-timeout": "1"}
GONE = 60  # seconds: for the head, at which KubeRay looks every ten
START = """
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

@ray.remote(num_cpus=0.1, max_restarts=-1, max_task_retries=-1)
class Counter:
    count = 0
    def ask(self):
        import os
        self.count += 1
        return os.getpid(), os.getppid(), ray.get_runtime_context().get_node_id(), self.count

ray.init(namespace="e2e", logging_level="ERROR")
nodes = [n["NodeID"] for n in ray.nodes() if n["Alive"] and "node:__internal_head__" not in n["Resources"]]
counters = [Counter.options(name=f"c{i}", lifetime="detached", scheduling_strategy=On(node, soft=True)).remote()
            for i, node in enumerate(nodes)]
ray.get([c.ask.remote() for c in counters])
"""
ASK = """
import json, sys
import ray

ray.init(namespace="e2e", logging_level="ERROR")
counters = [ray.get_actor(f"c{i}") for i in range(int(sys.argv[1]))]
print(json.dumps(ray.get([c.ask.remote() for c in counters], timeout=30)))
"""


@dataclass(frozen=True)
class Answer:
    """Of an actor."""

    process: int
    raylet: int  # the process that started it
    node: str
    count: int  # how often it was asked


@pytest.fixture(scope="module")
def storage(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[None]:
    """A Redis in the manager."""
    if not request.config.getoption("--manager"):
        redis.bring()
    with redis.running(fleet.manager):
        yield


@pytest.fixture
def cluster(storage: None, fleet: Clusters) -> Iterator[RayCluster]:
    """A RayCluster that keeps its state there."""
    made = RayCluster(fleet, "fault-tolerant", WORKERS)
    made.create(_fault_tolerant)
    yield made
    made.delete()
    wait(lambda: not fleet.manager.get("raycluster", made.name), GONE, "KubeRay's finalizer is gone", made.dump)


def test_workers_go_on_under_a_head_that_they_find_by_name(mirroring: None, cluster: RayCluster) -> None:
    """Another head with another address: the same pods, containers, raylets and actors, which have forgotten nothing."""
    cluster.wait_until_joined()
    head, workers, counted = cluster.head(), _containers(cluster), _started(cluster)
    assert _ours(head) == []
    _delete(cluster, head)
    fresh = cluster.wait_for_another_head(head)
    assert fresh["status"]["podIP"] != head["status"]["podIP"]
    assert _containers(cluster) == workers
    assert _asked(cluster) == [Answer(a.process, a.raylet, a.node, a.count + 1) for a in counted]
    assert not [s for w in cluster.fleet.workers.values() for s in w.items("secrets", NAMESPACE, names.MANAGER_LABEL)]


def test_workers_are_replaced_when_the_address_that_they_have_is_gone(cluster: RayCluster) -> None:
    """A head that is restarted in its pod keeps its address, and its workers; another pod has another one."""
    cluster.wait_until_joined()
    head, workers, counted = cluster.head(), _containers(cluster), _started(cluster)
    cluster.fleet.manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "pkill", "gcs_server")
    wait(lambda: _restarts(cluster.head()) and cluster.joined(), PATIENCE, "its GCS is restarted", cluster.dump)
    assert _containers(cluster) == workers
    assert _asked(cluster) == [Answer(a.process, a.raylet, a.node, a.count + 1) for a in counted]
    _delete(cluster, head)
    cluster.wait_for_another_head(head)
    assert not _containers(cluster).keys() & workers.keys()
    again = wait(lambda: _answers(cluster), PATIENCE, "its actors are started again", cluster.dump)
    assert not {a.node for a in again} & {a.node for a in counted}


def _fault_tolerant(raw: Raw) -> None:
    raw["metadata"]["annotations"] = HURRY
    raw["spec"]["gcsFaultToleranceOptions"] = redis.OPTIONS
    rayspec.apart(raw["spec"])
    rayspec.impatient(raw["spec"])  # a head that is back remembers workers that are gone meanwhile


def _started(cluster: RayCluster) -> list[Answer]:
    cluster.ask(START)
    return _asked(cluster)


def _asked(cluster: RayCluster) -> list[Answer]:
    return [Answer(*told) for told in cluster.ask(ASK, str(WORKERS))]


def _answers(cluster: RayCluster) -> list[Answer]:
    """The same, none while not all answer."""
    try:
        return _asked(cluster)
    except LabError:
        return []


def _containers(cluster: RayCluster) -> dict[str, tuple[str, ...]]:
    """Of each worker the copy's uid and its containers: others after a restart."""
    return {
        uid: (copy["metadata"]["uid"], *(c["containerID"] for c in copy["status"]["containerStatuses"]))
        for uid, copy in cluster.copies().items()
    }


def _restarts(pod: Raw) -> int:
    return sum(c["restartCount"] for c in (pod.get("status") or {}).get("containerStatuses") or ())


def _ours(pod: Raw) -> list[str]:
    """What we put onto a pod: nothing, onto a head."""
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
    keys = [*pod["metadata"]["labels"], *pod["metadata"].get("annotations", {}), *gates]
    return [key for key in keys if names.DOMAIN in key]


def _delete(cluster: RayCluster, pod: Raw) -> None:
    cluster.fleet.manager.kubectl("delete", "pod", pod["metadata"]["name"], "--wait=false")
