"""Tests that a worker stopped from outside finishes its tasks, is drained in Ray, and is replaced.

`kubectl delete` of its pod in the worker cluster stands for a preemption by Kueue or a node drain.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from adapter import names
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.rayjob import NAMESPACE, Job, removed
from hack.testbed.reader import Raw

# The short tier tests the replacement (tests/integration/test_gang.py) and the hook with a fake Ray (test_prestop.py).
pytestmark = pytest.mark.long

WORKERS = 2
TASKS = 12  # one is held on each worker; the others wait for a CPU
GRACE = 15  # seconds, of which an endless actor gets ten; the default of 30 would prove no more
# Shared by both programs: the nodes by address, and the death reasons that Ray reports.
NODES = f"""
import json, os, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

def report(word, **facts):
    print(word, json.dumps(facts), flush=True)

def is_head(node):
    return "node:__internal_head__" in node["Resources"]

def workers():
    return {{n["NodeID"]: n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"] and not is_head(n)}}

def deaths():
    return {{n["NodeManagerAddress"]: n["DeathReasonMessage"] for n in ray.nodes() if not n["Alive"]}}

def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            sys.exit("The awaited condition never became true.")
        time.sleep(0.2)
    return value

ray.init()
wait_for(lambda: len(workers()) == {WORKERS})
"""
# A worker has one CPU and runs one task at a time; the counter is on the head. The first task on each worker ends when
# a file appears in its pod, so that it is running when the pod is stopped. It polls a file, because a task that waits
# for an object gives its CPU away.
COUNTED_TASKS = (
    NODES
    + f"""
TASKS, HELD = {TASKS}, {WORKERS}

@ray.remote(num_cpus=0, resources={{"node:__internal_head__": 0.001}})
class Counter:
    def __init__(self):
        self.starts = []

    def started(self, task, address):
        self.starts.append([task, address])

    def all_starts(self):
        return self.starts

@ray.remote(num_cpus=1, max_retries=3)
def work(counter, task):
    ray.get(counter.started.remote(task, ray.util.get_node_ip_address()))
    while task < HELD and not os.path.exists("/tmp/enough"):
        time.sleep(0.1)
    time.sleep(0.5)
    return task

counter, first = Counter.remote(), workers()
pinned = [work.options(scheduling_strategy=On(node, soft=False)) for node in first]
tasks = [each.remote(counter, task) for task, each in enumerate(pinned)]
wait_for(lambda: len(ray.get(counter.all_starts.remote())) == HELD)
tasks += [work.remote(counter, task) for task in range(HELD, TASKS)]
report("RAYSPAN-BUSY", addresses=sorted(first.values()))
results = ray.get(tasks)
fresh = wait_for(lambda: {{n: a for n, a in workers().items() if n not in first}})
ray.get([work.options(scheduling_strategy=On(node, soft=False)).remote(counter, TASKS) for node in fresh])
starts = ray.get(counter.all_starts.remote())
report("RAYSPAN-RESULT", results=results, starts=starts, deaths=deaths(), fresh=sorted(fresh.values()))
"""
)
ENDLESS_ACTOR = (
    NODES
    + """
@ray.remote(num_cpus=1, max_restarts=1, max_task_retries=-1)
class Endless:
    def where(self):
        return ray.util.get_node_ip_address()

actor = Endless.remote()
before = ray.get(actor.where.remote())
report("RAYSPAN-BUSY", addresses=[before])
after = wait_for(lambda: (address := ray.get(actor.where.remote())) != before and address)
report("RAYSPAN-RESULT", before=before, after=after, deaths=deaths())
"""
)
Pods = Mapping[str, tuple[Cluster, str]]
"""The cluster and pod name of each Ray node, by its address."""


@dataclass(frozen=True)
class Story:
    """A job with one worker stopped during its task: the stopped address, all first addresses, and the job's result."""

    stopped: str
    first: frozenset[str]
    result: Mapping[str, Any]


@pytest.fixture(scope="module")
def story(fleet: Clusters) -> Story:
    """Delete a pod while its task is held, release the tasks once the pod is terminating, and let the job succeed."""
    with removed(Job(fleet, "stopped", WORKERS, apart=True)) as job:
        job.submit(COUNTED_TASKS)
        pods = _pods(job, job.said("RAYSPAN-BUSY")["addresses"])
        assert len(pods) == WORKERS
        stopped = _stop_one(job, pods)
        for cluster, name in pods.values():
            cluster.kubectl("-n", NAMESPACE, "exec", name, "-c", "ray-worker", "--", "touch", "/tmp/enough")
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        return Story(stopped, frozenset(pods), job.result())


def test_a_stopped_worker_finishes_its_task(story: Story) -> None:
    """Every task starts exactly once, the interrupted one included, and returns its result."""
    assert story.result["results"] == list(range(TASKS))
    starts = [task for task, _ in story.result["starts"]]
    assert sorted(starts) == list(range(TASKS + 1)), "started more than once, or never"
    assert story.stopped in [where for task, where in story.result["starts"] if task < WORKERS]


def test_the_drain_hook_reports_the_stop_to_the_head(story: Story) -> None:
    """The death reason is the hook's, not that of Ray's own, later signal handling."""
    assert story.result["deaths"] == {story.stopped: names.DRAIN_MESSAGE}


def test_a_stopped_worker_is_replaced(story: Story) -> None:
    """One new worker has an address of its own, and runs the task pinned to it."""
    (fresh,) = story.result["fresh"]
    assert fresh not in story.first
    assert [TASKS, fresh] in story.result["starts"]


def test_an_endless_actor_restarts_elsewhere(pair: Job) -> None:
    """An endless actor holds its node for most of the grace period; then the head restarts the actor at once."""
    pair.submit(ENDLESS_ACTOR, _set_grace_period)
    address = _stop_one(pair, _pods(pair, pair.said("RAYSPAN-BUSY")["addresses"]))
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()

    result = pair.result()
    assert result["before"] == address != result["after"]
    assert result["deaths"] == {address: names.DRAIN_MESSAGE}


def _set_grace_period(spec: Raw) -> None:
    spec["workerGroupSpecs"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE


def _pods(job: Job, addresses: list[str]) -> Pods:
    """The pods of the Ray nodes `addresses` in the worker clusters."""
    return {
        pod["status"]["podIP"]: (cluster, pod["metadata"]["name"])
        for cluster in job.fleet.workers.values()
        for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
        if pod["status"].get("podIP") in addresses
    }


def _stop_one(job: Job, pods: Pods) -> str:
    """`kubectl delete` one of `pods` in its worker cluster; return the address of its node once it is terminating."""
    address = min(pods)
    cluster, name = pods[address]
    cluster.delete("pod", name, NAMESPACE, wait=False)

    def is_stopping() -> Any:
        pod = cluster.get("pods", name, NAMESPACE)
        return not pod or pod["metadata"].get("deletionTimestamp")

    wait(is_stopping, 10, f"{name} is being stopped", job.dump)
    return address
