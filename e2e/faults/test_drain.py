"""Does a worker that is stopped from outside finish what it has begun, seen from inside Ray, and lose no more than it must?

Whoever deletes a worker's pod in its cluster, a Kueue that preempts or a node that is drained, does what kubectl does here.
"""

from typing import Any

from adapter import names
from hack.testbed.clusters import Cluster, wait
from hack.testbed.rayjob import NAMESPACE, Job

TASKS = 36
# What both programs have in common: the nodes, by address, and what Ray says of those that died.
NODES = """
import json, sys, time
import ray

def told(word, **what):
    print(word, json.dumps(what), flush=True)

def is_head(node):
    return "node:__internal_head__" in node["Resources"]

def workers():
    return {n["NodeID"]: n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"] and not is_head(n)}

def deaths():
    return {n["NodeManagerAddress"]: n["DeathReasonMessage"] for n in ray.nodes() if not n["Alive"]}

def wait_for(what, seconds=120):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            sys.exit("It never came to what was waited for.")
        time.sleep(0.2)
    return found

ray.init()
wait_for(lambda: len(workers()) == 4)
"""
# A worker has one CPU, so each runs one task at a time, and none is ever without one: the counter is on the head.
COUNTED_TASKS = (
    NODES
    + f"""
TASKS = {TASKS}

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
    time.sleep(3)
    return task

counter = Counter.remote()
tasks = [work.remote(counter, task) for task in range(TASKS)]
busy = set(workers().values())
wait_for(lambda: {{address for _, address in ray.get(counter.seen.remote())}} >= busy)
told("RAYSPAN-BUSY", addresses=sorted(busy))
results = ray.get(tasks)
told("RAYSPAN-RESULT", results=results, starts=ray.get(counter.seen.remote()), deaths=deaths())
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


def test_a_worker_that_is_stopped_finishes_its_task(job: Job) -> None:
    """Four workers of one task at a time; one pod is deleted under its task: every task is started once and all end right."""
    job.submit(COUNTED_TASKS)
    address = _stop_one(job, job.said("RAYSPAN-BUSY")["addresses"])
    assert job.wait_for_end() == "SUCCEEDED", job.output()

    result = job.result()
    assert result["results"] == list(range(TASKS))
    again = [start for start in result["starts"] if [task for task, _ in result["starts"]].count(start[0]) > 1]
    assert not again, f"started more than once: {again}"
    assert address in [where for _, where in result["starts"]]
    # Not by Ray's own, later handling of a signal: by the hook, which works without it, too.
    assert result["deaths"] == {address: names.DRAIN_REASON}


def test_what_never_ends_is_stopped_in_time_and_starts_elsewhere(job: Job) -> None:
    """An actor holds its node until the grace period is nearly over; then the head knows at once, and restarts it."""
    job.submit(ENDLESS_ACTOR)
    address = _stop_one(job, job.said("RAYSPAN-BUSY")["addresses"])
    assert job.wait_for_end() == "SUCCEEDED", job.output()

    result = job.result()
    assert result["before"] == address != result["after"]
    assert result["deaths"] == {address: names.DRAIN_REASON}


def _stop_one(job: Job, addresses: list[str]) -> str:
    """`kubectl delete` the pod of one of these Ray nodes in its worker cluster; returns the node's address."""
    pods: dict[str, tuple[Cluster, str]] = {
        pod["status"]["podIP"]: (cluster, pod["metadata"]["name"])
        for cluster in job.fleet.workers.values()
        for pod in cluster.items("pods", NAMESPACE, names.MANAGER_LABEL)
        if pod["status"].get("podIP") in addresses
    }
    address = min(pods)
    cluster, name = pods[address]
    cluster.delete("pod", name, NAMESPACE, wait=False)

    def stopping() -> Any:
        found = cluster.get("pods", name, NAMESPACE)
        return not found or found["metadata"].get("deletionTimestamp")

    wait(stopping, 10, f"{name} is being stopped", job.dump)
    return address
