"""Does a running job outlive a cut link, and does nothing of it run twice? Asked of Ray itself: actors, processes, results."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from adapter import names
from adapter.facts import moment
from e2e.job import NAMESPACE, Job
from hack.clusters import Clusters, condition, wait
from hack.lab import faults
from hack.lab.lab import Lab

TIMEOUT = timedelta(seconds=10)  # the policy's workerLostTimeout here: the shortest there is
POLICY = "everywhere"
# One actor on each worker, asked once a second until its owner says that it is enough; it counts what it was asked.
DRIVER = """
import json, os, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

@ray.remote(num_cpus=0.1, max_restarts=-1, max_task_retries=-1)
class Counter:
    count = 0
    def ask(self):
        self.count += 1
        return os.getpid(), ray.get_runtime_context().get_node_id(), self.count

ray.init()
workers = [n["NodeID"] for n in ray.nodes() if n["Alive"] and "node:__internal_head__" not in n["Resources"]]
counters = [Counter.options(scheduling_strategy=On(node, soft=True)).remote() for node in workers]
first = ray.get([c.ask.remote() for c in counters])
print("RAYSPAN-READY", flush=True)
asked = 1
while not os.path.exists("/tmp/enough"):
    last = ray.get([c.ask.remote() for c in counters])
    asked += 1
    time.sleep(1)
alive = [n["NodeID"] for n in ray.nodes() if n["Alive"] and "node:__internal_head__" not in n["Resources"]]
print("RAYSPAN-RESULT", json.dumps({"first": first, "last": last, "asked": asked, "alive": alive}), flush=True)
"""


@pytest.fixture
def hasty(fleet: Clusters) -> Iterator[None]:
    """A policy that gives up what it cannot see after ten seconds."""
    _policy(fleet, f"{TIMEOUT.seconds}s")
    yield
    _policy(fleet, None)


@pytest.mark.usefixtures("hasty")
def test_what_ray_hears_from_is_not_given_up(job: Job, lab: Lab) -> None:
    """East's API is silent for longer than the policy waits; the pods' network is whole. No process is replaced."""
    _submit(job)
    before = {pod["metadata"]["uid"] for pod in job.pods()}
    faults.cut(lab, lab.cluster("east"), scope="api", way="drop")
    wait(lambda: len(_unknown(job)) == 2, 60, "nothing is known of east's two workers", job.dump)
    wait(
        lambda: _lost_for(job) > TIMEOUT + timedelta(seconds=15),
        60,
        "the timeout is over, and Ray was asked since",
        job.dump,
    )
    assert {pod["metadata"]["uid"] for pod in job.pods()} == before
    faults.heal(lab)
    wait(lambda: not _unknown(job), 60, "east is seen again", job.dump)
    found = _end(job)
    assert {pod["metadata"]["uid"] for pod in job.pods()} == before
    assert [one[:2] for one in found["first"]] == [one[:2] for one in found["last"]], "an actor moved or started again"
    assert {count for _, _, count in found["last"]} == {found["asked"]}, "something was asked twice, or not at all"


def test_what_ray_lost_is_replaced_and_never_doubled(job: Job, lab: Lab) -> None:
    """East is cut off altogether. Ray gives its nodes up, their workers come up in west, and the old ones do not come back."""
    west = job.fleet.workers["west"]
    _set_quota(job, "800m", "2Gi")
    try:
        _submit(job)
        old = {pod["metadata"]["uid"] for pod in job.pods() if _cluster(pod) == "east"}
        faults.cut(lab, lab.cluster("east"), way="drop")
        wait(lambda: not old & {pod["metadata"]["uid"] for pod in job.pods()}, 180, "Ray gave them up", job.dump)
        wait(
            lambda: [_cluster(pod) for pod in job.pods() if _ready(pod)] == ["west"] * 4,
            120,
            "all run in west",
            job.dump,
        )
        faults.heal(lab)
        wait(
            lambda: not job.fleet.workers["east"].items("pods", NAMESPACE, names.MANAGER_LABEL),
            60,
            "east's are gone",
            job.dump,
        )
        found = _end(job)
        assert len(found["alive"]) == 4, "more nodes than workers"
        assert len(west.items("pods", NAMESPACE, names.MANAGER_LABEL)) == 4
    finally:
        _set_quota(job, "400m", "1Gi")


def _submit(job: Job) -> None:
    """A RayJob whose driver asks an actor on each worker until it is told that it is enough."""
    job.submit(DRIVER)
    job.wait_for_workers()
    wait(lambda: "RAYSPAN-READY" in job.output(), 120, "the actors answer", job.dump)


def _end(job: Job) -> dict[str, list[list[object]]]:
    """Tell the driver that it is enough, and read what it found."""
    heads = job.manager.items("pods", NAMESPACE, f"{names.RAY_NODE_TYPE_LABEL}=head")
    head = next(h for h in heads if h["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL].startswith(job.name))
    job.manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "touch", "/tmp/enough")
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    return job.result()


def _unknown(job: Job) -> list[object]:
    found = (condition(pod, names.DISPATCHED_CONDITION) for pod in job.pods())
    return [one for one in found if one.get("status") == "Unknown"]


def _lost_for(job: Job) -> timedelta:
    since = moment((job.manager.get("workerclusters", "east").get("status") or {}).get("lostSince"))
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
