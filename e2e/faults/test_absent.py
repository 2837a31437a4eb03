"""What becomes of a job when our controller is killed while it dispatches, and stays away for two minutes?"""

import time
from collections.abc import Iterator

import pytest

from adapter import names
from hack.testbed.clusters import Clusters, wait
from hack.testbed.deployment import Deployment
from hack.testbed.rayjob import NAMESPACE, Job

ABSENT = 120  # seconds: longer than Leases, watches and Ray's own patience with a node


@pytest.fixture
def deployment(fleet: Clusters) -> Iterator[Deployment]:
    """The deployed controller, which runs again when the test is over."""
    made = Deployment(fleet.manager)
    yield made
    made.unpark()


def test_a_controller_that_is_gone_for_two_minutes(job: Job, deployment: Deployment) -> None:
    """Killed when the first worker was dispatched: what runs stays, what is missing comes when it is back, nothing twice."""
    job.submit()
    wait(lambda: _copies(job), 120, "the first worker is dispatched", job.dump)
    deployment.kill()
    before = _copies(job)
    time.sleep(ABSENT)
    assert _copies(job) == before, "nobody is there who could have made or removed one"
    deployment.unpark()
    job.wait_for_workers()
    assert before.items() <= _copies(job).items(), "a worker that was dispatched was replaced, or made twice"
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    assert job.result()["ok"]


def _copies(job: Job) -> dict[str, str]:
    """The copies in the worker clusters: their uids, and whose copies they are."""
    return {
        pod["metadata"]["uid"]: pod["metadata"]["labels"][names.POD_UID_LABEL]
        for cluster in job.fleet.workers.values()
        for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
    }
