"""Does a running job outlive a cut link, and does nothing of it run twice? Asked of Ray itself: actors, processes, results.

One job is cut twice, for its start and its end take as long as a cut: first as it must not notice, then as it must.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from adapter import names
from adapter.objects.unstructured import parse_time
from adapter.worker.head_polling import POLL_SECONDS
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError
from hack.testbed import actors, rayspec
from hack.testbed.clusters import Clusters, condition, wait
from hack.testbed.rayjob import NAMESPACE, Job, removed
from hack.testbed.reader import Raw

# What becomes of a silent cluster where no Ray can be asked: tests/integration/faults/test_running.py.
pytestmark = pytest.mark.long

TIMEOUT = timedelta(seconds=10)  # the policy's workerLostTimeout here: the shortest there is
ASKED_SINCE = timedelta(seconds=POLL_SECONDS + 5)  # the head is asked so often, and may take that long to answer
POLICY = "everywhere"


@pytest.fixture(scope="module")
def job(fleet: Clusters) -> Iterator[Job]:
    """A worker in each cluster, and actors that are asked. Its head tells nobody without its token how its nodes are."""
    with removed(Job(fleet, "cut", 2, apart=True)) as made:
        actors.submit(made, _impatient_with_a_token)
        yield made


@pytest.fixture
def hasty(fleet: Clusters) -> Iterator[None]:
    """A policy that gives up what it cannot see after ten seconds."""
    _policy(fleet, f"{TIMEOUT.seconds}s")
    yield
    _policy(fleet, None)


@pytest.mark.usefixtures("hasty")
def test_what_ray_hears_from_is_not_given_up(job: Job, lab: Lab) -> None:
    """East's API is silent for longer than the policy waits; the pods' network is whole. No process is replaced."""
    before, first = {pod["metadata"]["uid"] for pod in job.pods()}, _asked_since(job, 0)
    faults.cut(lab, lab.cluster("east"), scope="api", way="drop")
    wait(lambda: len(_unknown(job)) == 1, 60, "nothing is known of east's worker", job.dump)
    wait(
        lambda: _lost_for(job) > TIMEOUT + ASKED_SINCE,
        60,
        "the timeout is over, and Ray was asked since",
        job.dump,
    )
    assert {pod["metadata"]["uid"] for pod in job.pods()} == before
    faults.heal(lab)
    wait(lambda: not _unknown(job), 60, "east is seen again", job.dump)
    last = _asked_since(job, actors.seen(job).asked)
    assert {pod["metadata"]["uid"] for pod in job.pods()} == before
    assert first.processes == last.processes, "an actor moved or started again"
    assert {count for _, _, count in last.actors} == {last.asked}, "something was asked twice, or not at all"


def test_what_ray_lost_is_replaced_and_never_doubled(job: Job, lab: Lab) -> None:
    """East is cut off altogether. Ray gives its node up, the worker comes up in west, and the old one does not come back.

    By the policy's own time it would be five minutes.
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
            "east's is gone",
            job.dump,
        )
        found = actors.end(job)
        assert len(found["alive"]) == 2, "more nodes than workers"
        assert len(west.items("pods", NAMESPACE, names.MANAGER_LABEL)) == 2
    finally:
        _set_quota(job, "400m", "1Gi")


def _impatient_with_a_token(spec: Raw) -> None:
    rayspec.impatient(spec)
    spec.update(authOptions={"mode": "token"})


def _asked_since(job: Job, times: int) -> actors.Seen:
    """What the driver saw when it had asked more often than that."""

    def found() -> actors.Seen | None:
        try:
            seen = actors.seen(job)
        except LabError:  # it has written nothing yet
            return None
        return seen if seen.asked > times else None

    seen = wait(found, 60, "the actors are asked", job.dump)
    assert seen
    return seen


def _unknown(job: Job) -> list[object]:
    found = (condition(pod, names.DISPATCHED_CONDITION) for pod in job.pods())
    return [one for one in found if one.get("status") == "Unknown"]


def _lost_for(job: Job) -> timedelta:
    since = parse_time((job.manager.get("workerclusters", "east").get("status") or {}).get("lostSince"))
    return datetime.now(UTC) - since if since else timedelta(0)


def _cluster(pod: dict[str, dict[str, dict[str, str]]]) -> str:
    return pod["metadata"]["labels"].get(names.CLUSTER_LABEL, "")


def _ready(pod: object) -> bool:
    return isinstance(pod, dict) and condition(pod, "Ready").get("status") == "True"


def _policy(fleet: Clusters, timeout: str | None) -> None:
    patch = json.dumps({"spec": {"workerLostTimeout": timeout}})
    fleet.manager.kubectl("patch", "dispatchpolicy", POLICY, "--type=merge", "-p", patch)


def _set_quota(job: Job, cpu: str, memory: str) -> None:
    path = "/spec/resourceGroups/0/flavors/0/resources"
    quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}]
    patch = json.dumps([{"op": "replace", "path": path, "value": quotas}])
    job.fleet.workers["west"].kubectl("patch", "clusterqueue", "ray", "--type=json", "-p", patch)
