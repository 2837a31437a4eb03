"""Tests that a job survives a controller that is killed while it dispatches and stays away longer than its Lease.

tests/integration/test_crashes.py kills the controller at every write, on fake nodes. Here Ray and KubeRay keep running.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from adapter import names
from adapter.objects.unstructured import parse_time
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.deployment import Deployment
from hack.testbed.rayjob import JOB_SECONDS, NAMESPACE, Job
from hack.testbed.reader import Raw

# The takeover after a killed leader: tests/integration/faults/test_leader.py.
pytestmark = pytest.mark.long


@pytest.fixture
def deployment(fleet: Clusters) -> Iterator[Deployment]:
    """The deployed controller; it runs again after the test."""
    controller = Deployment(fleet.manager)
    yield controller
    controller.unpark()


def test_a_job_survives_a_long_absence_of_the_controller(pair: Job, deployment: Deployment) -> None:
    """The controller is killed after it dispatched two workers, and returns when both run.

    Meanwhile the Lease expires and one worker is deleted in the manager. Running workers stay, the missing one is
    dispatched on return, and none twice.
    """
    pair.submit()
    wait(lambda: len(_remote_pods(pair)) == 2, 120, "both workers are dispatched", pair.dump)
    deployment.kill()
    before = _remote_pods(pair)
    wait(lambda: _lease_expired(pair), 60, "the Lease has run out", pair.dump)
    lost = _delete_one(pair)
    wait(lambda: len(_uids(pair) - {lost}) == 2, 60, "KubeRay has created a replacement", pair.dump)
    wait(lambda: _running(pair) == before.keys(), JOB_SECONDS, "the dispatched workers run", pair.dump)
    assert _remote_pods(pair) == before, "a remote pod changed without a controller"
    deployment.unpark()
    pair.wait_for_workers()
    unchanged = {remote: worker for remote, worker in before.items() if worker != lost}
    assert len(unchanged) == 1 and unchanged.items() <= _remote_pods(pair).items(), (
        "a worker that was dispatched was replaced"
    )
    assert sorted(_remote_pods(pair).values()) == sorted(_uids(pair)), "a worker was created twice, or not removed"
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    assert pair.result()["ok"]


def _delete_one(job: Job) -> str:
    """`kubectl delete` a worker's pod in the manager; return its uid."""
    pod = job.pods()[0]["metadata"]
    job.manager.delete("pod", pod["name"], wait=False)
    return str(pod["uid"])


def _uids(job: Job) -> set[str]:
    """The uids of the manager pods."""
    return {pod["metadata"]["uid"] for pod in job.pods()}


def _remote_pods(job: Job) -> dict[str, str]:
    """The uid of each remote pod and of its manager pod."""
    return {pod["metadata"]["uid"]: pod["metadata"]["labels"][names.POD_UID_LABEL] for pod in _list_remote(job)}


def _running(job: Job) -> set[str]:
    """The uids of the ready remote pods."""
    return {pod["metadata"]["uid"] for pod in _list_remote(job) if condition(pod, "Ready").get("status") == "True"}


def _list_remote(job: Job) -> list[Raw]:
    return [
        pod for cluster in job.fleet.workers.values() for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    ]


def _lease_expired(job: Job) -> bool:
    """Whether the Lease was not renewed in time, or was released."""
    spec = job.manager.get("leases", names.LEASE, names.SYSTEM_NAMESPACE)["spec"]
    renewed = parse_time(spec["renewTime"])
    assert renewed
    return datetime.now(UTC) - renewed > timedelta(seconds=spec["leaseDurationSeconds"])
