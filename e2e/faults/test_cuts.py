"""Tests that a running job survives a cut link and runs nothing twice, by Ray's actors, processes and results.

The tests share one job, because its start and end take as long as a cut. The first cut must change nothing; the second
must replace a worker.
"""

import json
from collections.abc import Iterator

import pytest

from adapter import names
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.testbed import actors, clusterloss, rayspec
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.rayjob import NAMESPACE, Job, removed
from hack.testbed.reader import Raw

# An unreachable cluster without Ray: tests/integration/faults/test_running.py.
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def job(fleet: Clusters) -> Iterator[Job]:
    """A job with a worker and an actor in each cluster. Its head answers only with its token."""
    with removed(Job(fleet, "cut", 2, apart=True)) as cut_job:
        actors.submit(cut_job, _impatient_with_a_token)
        yield cut_job


def test_a_worker_that_ray_still_reaches_is_not_replaced(job: Job, lab: Lab) -> None:
    """East's API server is unreachable past the timeout, the pods' network is not. No process is replaced."""
    before, first = {pod["metadata"]["uid"] for pod in job.pods()}, actors.seen_after(job, 0)
    with clusterloss.short_timeout(job.manager):
        faults.cut(lab, lab.cluster("east"), scope="api", way="drop")
        clusterloss.wait_for_given_up(job, "east")
        assert {pod["metadata"]["uid"] for pod in job.pods()} == before
        faults.heal(lab)
        wait(lambda: not clusterloss.unknown_conditions(job), 60, "east is reachable again", job.dump)
    last = actors.seen_after(job, actors.seen(job).asked)
    assert {pod["metadata"]["uid"] for pod in job.pods()} == before
    assert first.processes == last.processes, "an actor moved or restarted"
    assert {count for _, _, count in last.actors} == {last.asked}, "a call was made twice, or not at all"


def test_a_worker_that_ray_lost_is_replaced_and_never_runs_twice(job: Job, lab: Lab) -> None:
    """East is cut off completely: Ray gives up its node, the worker starts in west, and the old one never returns.

    The policy's own timeout would take five minutes.
    """
    west = job.fleet.workers["west"]
    _set_quota(job, "800m", "2Gi")
    try:
        (old,) = (pod["metadata"]["uid"] for pod in job.pods() if _cluster(pod) == "east")
        faults.cut(lab, lab.cluster("east"), way="drop")
        wait(lambda: old not in {pod["metadata"]["uid"] for pod in job.pods()}, 120, "Ray gave it up", job.dump)
        wait(
            lambda: [_cluster(pod) for pod in job.pods() if _ready(pod)] == ["west"] * 2,
            120,
            "both run in west",
            job.dump,
        )
        faults.heal(lab)
        wait(
            lambda: not job.fleet.workers["east"].items("pods", NAMESPACE, names.MANAGER_LABEL),
            60,
            "east's remote pod is deleted",
            job.dump,
        )
        result = actors.end(job)
        assert len(result["alive"]) == 2, "more nodes than workers"
        assert len(west.items("pods", NAMESPACE, names.MANAGER_LABEL)) == 2
    finally:
        _set_quota(job, "400m", "1Gi")


def _impatient_with_a_token(spec: Raw) -> None:
    rayspec.impatient(spec)
    spec.update(authOptions={"mode": "token"})


def _cluster(pod: dict[str, dict[str, dict[str, str]]]) -> str:
    return pod["metadata"]["labels"].get(names.CLUSTER_LABEL, "")


def _ready(pod: object) -> bool:
    return isinstance(pod, dict) and condition(pod, "Ready").get("status") == "True"


def _set_quota(job: Job, cpu: str, memory: str) -> None:
    path = "/spec/resourceGroups/0/flavors/0/resources"
    quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}]
    patch = json.dumps([{"op": "replace", "path": path, "value": quotas}])
    job.fleet.workers["west"].kubectl("patch", "clusterqueue", "ray", "--type=json", "-p", patch)
