"""Tests that a worker known to Ray is not ended while its manager pod does not report it yet.

Ray's autoscaler ends nodes without an instance, and an instance is a manager pod. The manager pod exists before its
remote pod and reports it later: here much later, because the controller is killed in between.
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
SECONDS = 20  # four intervals of the autoscaler
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
before = ray.get([actor.where.remote() for actor in actors], timeout=240)
print("JOINED {{}}", flush=True)
began = time.monotonic()
while time.monotonic() - began < {SECONDS}:
    assert ray.get([actor.where.remote() for actor in actors], timeout=120) == before, "a worker was ended"
    time.sleep(1)
print("STAYED " + json.dumps(len({{node for _, node in before}})), flush=True)
"""


@pytest.fixture
def deployment(fleet: Clusters) -> Iterator[Deployment]:
    """The deployed controller; it runs again after the test."""
    controller = Deployment(fleet.manager)
    yield controller
    controller.unpark()


def test_the_autoscaler_keeps_a_worker_that_its_manager_pod_does_not_report_yet(
    fleet: Clusters, deployment: Deployment
) -> None:
    """The controller is killed once all remote pods exist, and returns after some intervals of the autoscaler."""
    with removed(Job(fleet, "unseen", 1, sample=ELASTIC)) as job:
        job.submit(PROGRAM)
        job.said("STARTED")
        wait(lambda: len(_remote_pods(job)) == 1 + MORE, JOB_SECONDS, "all remote pods are created", job.dump)
        deployment.kill()
        before = _uids(job)
        job.said("JOINED")
        unreported = [pod for pod in job.pods() if pod["status"].get("phase") == "Pending"]
        assert unreported, "the manager pods report all remote pods, so nothing is tested"
        assert job.said("STAYED") == 1 + MORE
        assert _uids(job) == before
        deployment.unpark()
        assert job.wait_for_end() == "SUCCEEDED", job.output()


def _uids(job: Job) -> set[str]:
    """The uids of the manager pods."""
    return {pod["metadata"]["uid"] for pod in job.pods()}


def _remote_pods(job: Job) -> list[Raw]:
    return [
        pod for cluster in job.fleet.workers.values() for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    ]
