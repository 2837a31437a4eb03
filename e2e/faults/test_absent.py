"""What becomes of a job when our controller is killed while it dispatches, and stays away until its Lease has run out and more?

To be killed at any write is asked on fake nodes (tests/integration/test_crashes.py); here Ray goes on meanwhile, and so does KubeRay.
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

# That a killed leader is followed by another one: tests/integration/faults/test_leader.py.
pytestmark = pytest.mark.long


@pytest.fixture
def deployment(fleet: Clusters) -> Iterator[Deployment]:
    """The deployed controller, which runs again when the test is over."""
    made = Deployment(fleet.manager)
    yield made
    made.unpark()


def test_a_controller_that_is_gone_for_longer_than_its_lease(pair: Job, deployment: Deployment) -> None:
    """Killed when two workers were dispatched: what runs stays, what is missing comes when it is back, nothing twice.

    What is missing is the successor of a worker that somebody deletes when the Lease has run out. The controller comes back when the two
    that it had dispatched run, so that nothing is under way that it had begun.
    """
    pair.submit()
    wait(lambda: len(_copies(pair)) == 2, 120, "both workers are dispatched", pair.dump)
    deployment.kill()
    before = _copies(pair)
    wait(lambda: _lease_is_out(pair), 60, "the Lease has run out", pair.dump)
    lost = _delete_one(pair)
    wait(lambda: len(_uids(pair) - {lost}) == 2, 60, "KubeRay has made another one", pair.dump)
    wait(lambda: _running(pair) == before.keys(), JOB_SECONDS, "what was dispatched runs", pair.dump)
    assert _copies(pair) == before, "nobody is there who could have made or removed one"
    deployment.unpark()
    pair.wait_for_workers()
    kept = {copy: worker for copy, worker in before.items() if worker != lost}
    assert len(kept) == 1 and kept.items() <= _copies(pair).items(), "a worker that was dispatched was replaced"
    assert sorted(_copies(pair).values()) == sorted(_uids(pair)), "a worker was made twice, or one was not removed"
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()
    assert pair.result()["ok"]


def _delete_one(job: Job) -> str:
    """`kubectl delete` a worker's pod in the manager; returns its uid."""
    pod = job.pods()[0]["metadata"]
    job.manager.delete("pod", pod["name"], wait=False)
    return str(pod["uid"])


def _uids(job: Job) -> set[str]:
    """Its workers in the manager."""
    return {pod["metadata"]["uid"] for pod in job.pods()}


def _copies(job: Job) -> dict[str, str]:
    """The copies in the worker clusters: their uids, and whose copies they are."""
    return {pod["metadata"]["uid"]: pod["metadata"]["labels"][names.POD_UID_LABEL] for pod in _remote(job)}


def _running(job: Job) -> set[str]:
    """The copies that are ready, by their uids."""
    return {pod["metadata"]["uid"] for pod in _remote(job) if condition(pod, "Ready").get("status") == "True"}


def _remote(job: Job) -> list[Raw]:
    return [
        pod for cluster in job.fleet.workers.values() for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    ]


def _lease_is_out(job: Job) -> bool:
    """Whether whoever held it has not renewed it in time, or gave it back."""
    spec = job.manager.get("leases", names.LEASE, names.SYSTEM_NAMESPACE)["spec"]
    renewed = parse_time(spec["renewTime"])
    assert renewed
    return datetime.now(UTC) - renewed > timedelta(seconds=spec["leaseDurationSeconds"])
