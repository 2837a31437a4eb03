"""A RayJob with one actor on each worker, asked once a second until told to stop: who answered, and how often.

Ray itself shows by it whether a process was replaced, ran twice or lost an answer. The driver also writes its last
result to a file in the head's container, for readers while it runs.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed.clusters import wait
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw

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

def alive():
    return [n["NodeID"] for n in ray.nodes() if n["Alive"] and "node:__internal_head__" not in n["Resources"]]

def note(**seen):
    with open("/tmp/seen.new", "w") as file:
        json.dump(seen, file)
    os.replace("/tmp/seen.new", "/tmp/seen")

ray.init()
counters = [Counter.options(scheduling_strategy=On(node, soft=True)).remote() for node in alive()]
first = ray.get([c.ask.remote() for c in counters])
print("RAYSPAN-READY", flush=True)
asked = 1
while not os.path.exists("/tmp/enough"):
    last = ray.get([c.ask.remote() for c in counters])
    asked += 1
    note(last=last, asked=asked, alive=alive())
    time.sleep(1)
print("RAYSPAN-RESULT", json.dumps({"first": first, "last": last, "asked": asked, "alive": alive()}), flush=True)
"""


@dataclass(frozen=True)
class Seen:
    """The driver's last result: for each actor its process, its node, and its answers since it started."""

    actors: tuple[tuple[int, str, int], ...]
    asked: int
    alive: int  # Ray nodes beside the head

    @property
    def processes(self) -> tuple[tuple[int, str], ...]:
        """The processes that answer: others after a restart."""
        return tuple(actor[:2] for actor in self.actors)


def submit(job: Job, change: Callable[[Raw], None] = lambda _: None) -> None:
    """Submit it, and wait until each worker's actor has answered; `change` as in `Job.submit`."""
    job.submit(DRIVER, change)
    job.wait_for_workers()
    wait(lambda: "RAYSPAN-READY" in job.output(), 120, "the actors answer", job.dump)


def seen(job: Job) -> Seen:
    """The driver's last result."""
    told = json.loads(_on_head(job, "cat", "/tmp/seen"))
    return Seen(tuple((pid, node, count) for pid, node, count in told["last"]), told["asked"], len(told["alive"]))


def seen_after(job: Job, times: int, seconds: float = 60) -> Seen:
    """Wait until the driver has asked the actors more than `times` times; return what it saw."""

    def seen_since() -> Seen | None:
        try:
            last = seen(job)
        except LabError:  # the driver has no output yet
            return None
        return last if last.asked > times else None

    last = wait(seen_since, seconds, "the actors are asked", job.dump)
    assert last
    return last


def end(job: Job) -> dict[str, Any]:
    """Tell the driver that it is enough, and read what it found: `first`, `last`, `asked`, `alive`."""
    _on_head(job, "touch", "/tmp/enough")
    assert job.wait_for_end() == "SUCCEEDED", job.output()
    return job.result()


def _on_head(job: Job, *words: str) -> str:
    heads = job.manager.items("pods", NAMESPACE, f"{names.RAY_NODE_TYPE_LABEL}=head")
    head = next(h for h in heads if h["metadata"]["labels"][names.RAY_GCS_CLUSTER_LABEL].startswith(job.name))
    return job.manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", *words)
