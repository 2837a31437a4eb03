"""Does a worker that is stopped from outside finish what it has begun, seen from inside Ray, lose no more than it must, and get a successor?

Whoever deletes a worker's pod in its cluster, a Kueue that preempts or a node that is drained, does what kubectl does here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from adapter import names
from hack.testbed.clusters import Cluster, Clusters, wait
from hack.testbed.rayjob import NAMESPACE, Job, removed
from hack.testbed.reader import Raw

# In the short tier: tests/integration/test_gang.py of the one that takes its place, and the hook with a play Ray in test_prestop.py.
pytestmark = pytest.mark.long

WORKERS = 2
TASKS = 12  # one that is held on each worker, and others that press for a CPU all the while
GRACE = 15  # seconds, of which an actor that never ends gets ten; the usual 30 prove no more
# What both programs have in common: the nodes, by address, and what Ray says of those that died.
NODES = f"""
import json, os, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

def told(word, **what):
    print(word, json.dumps(what), flush=True)

def is_head(node):
    return "node:__internal_head__" in node["Resources"]

def workers():
    return {{n["NodeID"]: n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"] and not is_head(n)}}

def deaths():
    return {{n["NodeManagerAddress"]: n["DeathReasonMessage"] for n in ray.nodes() if not n["Alive"]}}

def wait_for(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            sys.exit("It never came to what was waited for.")
        time.sleep(0.2)
    return found

ray.init()
wait_for(lambda: len(workers()) == {WORKERS})
"""
# A worker has one CPU, so each runs one task at a time; the counter is on the head. The first tasks, one on each worker, end when
# they are told to in their own pods, so that they are under way whenever a pod is stopped. They look at a file, for a task that
# waits for an object gives its CPU away meanwhile.
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

    def seen(self):
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
wait_for(lambda: len(ray.get(counter.seen.remote())) == HELD)
tasks += [work.remote(counter, task) for task in range(HELD, TASKS)]
told("RAYSPAN-BUSY", addresses=sorted(first.values()))
results = ray.get(tasks)
fresh = wait_for(lambda: {{n: a for n, a in workers().items() if n not in first}})
ray.get([work.options(scheduling_strategy=On(node, soft=False)).remote(counter, TASKS) for node in fresh])
starts = ray.get(counter.seen.remote())
told("RAYSPAN-RESULT", results=results, starts=starts, deaths=deaths(), fresh=sorted(fresh.values()))
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
told("RAYSPAN-BUSY", addresses=[before])
after = wait_for(lambda: (found := ray.get(actor.where.remote())) != before and found)
told("RAYSPAN-RESULT", before=before, after=after, deaths=deaths())
"""
)
Pods = Mapping[str, tuple[Cluster, str]]
"""By the address of a Ray node its pod: the cluster and the name."""


@dataclass(frozen=True)
class Story:
    """A job of which one worker was stopped under its task: that worker's address, all that were there first, what the job told."""

    stopped: str
    first: frozenset[str]
    told: Mapping[str, Any]


@pytest.fixture(scope="module")
def story(fleet: Clusters) -> Story:
    """A pod is deleted while a task of its node is held, and the tasks are let go when it is being stopped; the job ends well."""
    with removed(Job(fleet, "stopped", WORKERS, apart=True)) as job:
        job.submit(COUNTED_TASKS)
        pods = _pods(job, job.said("RAYSPAN-BUSY")["addresses"])
        assert len(pods) == WORKERS
        stopped = _stop_one(job, pods)
        for cluster, name in pods.values():
            cluster.kubectl("-n", NAMESPACE, "exec", name, "-c", "ray-worker", "--", "touch", "/tmp/enough")
        assert job.wait_for_end() == "SUCCEEDED", job.output()
        return Story(stopped, frozenset(pods), job.result())


def test_a_worker_that_is_stopped_finishes_its_task(story: Story) -> None:
    """Every task is started once, also the one that it had begun, and all end right."""
    assert story.told["results"] == list(range(TASKS))
    starts = [task for task, _ in story.told["starts"]]
    assert sorted(starts) == list(range(TASKS + 1)), "started more than once, or never"
    assert story.stopped in [where for task, where in story.told["starts"] if task < WORKERS]


def test_the_head_hears_from_the_hook_that_it_is_stopped(story: Story) -> None:
    """Not by Ray's own, later handling of a signal: by the hook, which works without it, too."""
    assert story.told["deaths"] == {story.stopped: names.DRAIN_MESSAGE}


def test_another_worker_takes_its_place(story: Story) -> None:
    """One, with an address of its own; and a task that had to run there did."""
    (fresh,) = story.told["fresh"]
    assert fresh not in story.first
    assert [TASKS, fresh] in story.told["starts"]


def test_what_never_ends_is_stopped_in_time_and_starts_elsewhere(pair: Job) -> None:
    """An actor holds its node until the grace period is nearly over; then the head knows at once, and restarts it."""
    pair.submit(ENDLESS_ACTOR, _leave_soon)
    address = _stop_one(pair, _pods(pair, pair.said("RAYSPAN-BUSY")["addresses"]))
    assert pair.wait_for_end() == "SUCCEEDED", pair.output()

    result = pair.result()
    assert result["before"] == address != result["after"]
    assert result["deaths"] == {address: names.DRAIN_MESSAGE}


def _leave_soon(spec: Raw) -> None:
    spec["workerGroupSpecs"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = GRACE


def _pods(job: Job, addresses: list[str]) -> Pods:
    """The pods of these Ray nodes in the worker clusters."""
    return {
        pod["status"]["podIP"]: (cluster, pod["metadata"]["name"])
        for cluster in job.fleet.workers.values()
        for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
        if pod["status"].get("podIP") in addresses
    }


def _stop_one(job: Job, pods: Pods) -> str:
    """`kubectl delete` one of these pods in its worker cluster; returns the address of its node when it is being stopped."""
    address = min(pods)
    cluster, name = pods[address]
    cluster.delete("pod", name, NAMESPACE, wait=False)

    def stopping() -> Any:
        found = cluster.get("pods", name, NAMESPACE)
        return not found or found["metadata"].get("deletionTimestamp")

    wait(stopping, 10, f"{name} is being stopped", job.dump)
    return address
