"""Is a worker that Ray hears from, and of which the manager's pod says nothing yet, taken for dead by anybody?

Ray's autoscaler ends nodes that it finds no instance for, and an instance is a pod of the manager. The pod is there before its copy is,
and tells of it later: here much later, because the controller is killed in between.
"""

from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed.clusters import Clusters, wait
from hack.testbed.deployment import Deployment
from hack.testbed.rayjob import ELASTIC, JOB_SECONDS, NAMESPACE, Job, removed
from hack.testbed.reader import Raw

pytestmark = pytest.mark.long

MORE = 3
# Of the autoscaler, which looks every five seconds: four looks.
SECONDS = 20
PROGRAM = f"""
import json, os, sys, time
import ray

@ray.remote(num_cpus=1)
class Actor:
    def where(self):
        return os.getpid(), ray.get_runtime_context().get_node_id()

ray.init()
first = Actor.remote()
ray.get(first.where.remote(), timeout=120)
print("STARTED {{}}", flush=True)
actors = [first, *(Actor.remote() for _ in range({MORE}))]
before = ray.get([one.where.remote() for one in actors], timeout=240)
print("JOINED {{}}", flush=True)
began = time.monotonic()
while time.monotonic() - began < {SECONDS}:
    assert ray.get([one.where.remote() for one in actors], timeout=120) == before, "somebody was taken for dead"
    time.sleep(1)
print("STAYED " + json.dumps(len({{node for _, node in before}})), flush=True)
"""


@pytest.fixture
def deployment(fleet: Clusters) -> Iterator[Deployment]:
    """The deployed controller, which runs again when the test is over."""
    made = Deployment(fleet.manager)
    yield made
    made.unpark()


def test_nobody_takes_a_worker_for_dead_that_ray_hears_from(fleet: Clusters, deployment: Deployment) -> None:
    """The controller is killed as soon as all copies are made, and comes back when they have worked for some looks of the autoscaler."""
    with removed(Job(fleet, "unseen", 1, sample=ELASTIC)) as job:
        job.submit(PROGRAM)
        job.said("STARTED")
        wait(lambda: len(_copies(job)) == 1 + MORE, JOB_SECONDS, "all copies are made", job.dump)
        deployment.kill()
        before = _uids(job)
        job.said("JOINED")
        unseen = [pod for pod in job.pods() if pod["status"].get("phase") == "Pending"]
        assert unseen, "the manager's pods tell of all of them, so nothing was asked"
        assert job.said("STAYED") == 1 + MORE
        assert _uids(job) == before
        deployment.unpark()
        assert job.wait_for_end() == "SUCCEEDED", job.output()


def _uids(job: Job) -> set[str]:
    """Its workers in the manager."""
    return {pod["metadata"]["uid"] for pod in job.pods()}


def _copies(job: Job) -> list[Raw]:
    return [
        pod for cluster in job.fleet.workers.values() for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    ]
