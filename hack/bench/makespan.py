"""Measures how much sooner skewed work is done by one RayJob over two clusters than by two RayJobs with half each.

The first half of the tasks weighs ten times the second. One job with four workers, two in each cluster, takes them all.
Then two jobs with two workers each take the halves, as a user without spanning would split them. Ray is real and tasks
sleep, so the machine matters little. Seconds count inside the jobs, from the first task's start to the last one's end:
Ray's start is left out, and of two jobs the longer one counts.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from adapter import names
from adapter.objects.placement import PlacementState
from hack.bench import promises
from hack.bench.promises import Found
from hack.lab.base.progress import LabError, step
from hack.testbed import deployment, figures
from hack.testbed.clusters import Clusters, wait
from hack.testbed.rayjob import JOB_SECONDS, Job

NAME = "makespan"
HELP = "skewed tasks of one RayJob over two clusters, against the same split by hand over two RayJobs; with real Ray"

_HEAVY, _LIGHT = 5.0, 0.5  # seconds of a task: longer ones would say no more, shorter ones would measure Ray itself
# 132 s of work: 33 s for four workers, 60 s for the two with the heavy half. So 0.55 is the best ratio here, and 0.5 of
# any list. A milder skew, such as 8 tasks of 5 s and 40 of 1 s, gives 0.71 at best and would show nothing.
TASKS = (*[_HEAVY] * 24, *[_LIGHT] * 24)
_WORKERS = 4  # two fill a worker cluster's queue (manifests/queues/worker)
_JOINED = 120  # seconds for workers to join: the tests' patience with Ray on two busy cores
_DONE = 240  # seconds for all tasks: four times what the heavy half takes

_PROGRAM = """
import json, sys, time
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

@ray.remote(num_cpus=1)
def work(seconds):
    begun = time.time()
    time.sleep(seconds)
    return begun, time.time(), ray.get_runtime_context().get_node_id()

def workers():
    alive = (n for n in ray.nodes() if n["Alive"] and "node:__internal_head__" not in n["Resources"])
    return {{n["NodeID"]: n["Labels"].get("{label}", "") for n in alive}}

ray.init()
deadline = time.monotonic() + {joined}
while len(workers()) < {workers}:
    if time.monotonic() > deadline:
        sys.exit("Not all workers joined.")
    time.sleep(0.2)
where = workers()
# Once on each, so that no process of Ray's starts while tasks are timed.
ray.get([work.options(scheduling_strategy=On(node, soft=False)).remote(0) for node in where], timeout={done})
ran = ray.get([work.remote(seconds) for seconds in {tasks}], timeout={done})
seconds = max(end for _, end, _ in ran) - min(begun for begun, _, _ in ran)
clusters = [where[node] for _, _, node in ran]
tasks = {{cluster: clusters.count(cluster) for cluster in where.values()}}
print("RAYSPAN-RESULT", json.dumps({{"seconds": seconds, "tasks": tasks}}), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """How long the tasks of a job took, and how many of them ran in which cluster."""

    seconds: float
    tasks: dict[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def run(asked: argparse.Namespace) -> Found:
    """Measure, print a table, and return the line for programs, and what is judged."""
    fleet = deployment.on_lab(renew=asked.renew)
    with step(f"makespan: {len(TASKS)} tasks, one RayJob over two clusters"):
        spanning = _spanning(fleet)
    with step("makespan: the same, two RayJobs with a half each"):
        heavy, light = _by_hand(fleet)
    print("\n" + table(spanning, heavy, light))
    values = outcome(spanning, heavy, light)
    rows = promises.rows(NAME, f"{len(TASKS)} tasks", values, promises.MAKESPAN)
    return Found([figures.line(NAME, values)], rows)


def halves() -> tuple[Sequence[float], Sequence[float]]:
    """The list as somebody splits it by hand: in the middle."""
    middle = len(TASKS) // 2
    return TASKS[:middle], TASKS[middle:]


def outcome(spanning: Ran, heavy: Ran, light: Ran) -> dict[str, figures.Value]:
    """Seconds, and the ratio of the makespans."""
    by_hand = max(heavy.seconds, light.seconds)
    return {
        "tasks": len(TASKS),
        "spanning_s": spanning.seconds,
        "ideal_s": sum(TASKS) / _WORKERS,
        "by_hand_s": by_hand,
        "heavy_s": heavy.seconds,
        "light_s": light.seconds,
        "ratio": figures.ratio(spanning.seconds, by_hand),
    }


def table(spanning: Ran, heavy: Ran, light: Ran) -> str:
    """Each job with its seconds and its clusters."""
    jobs = (("one over two clusters", spanning), ("the heavy half", heavy), ("the light half", light))
    where = (" and ".join(f"{count} in {cluster}" for cluster, count in sorted(ran.tasks.items())) for _, ran in jobs)
    rows = [(name, ran.seconds, tasks) for (name, ran), tasks in zip(jobs, where, strict=True)]
    return figures.table((NAME, "s", "tasks"), rows)


def program(tasks: Sequence[float], workers: int) -> str:
    """The program of the job."""
    return _PROGRAM.format(label=names.CLUSTER_LABEL, joined=_JOINED, workers=workers, done=_DONE, tasks=list(tasks))


def _spanning(fleet: Clusters) -> Ran:
    job = Job(fleet, "bench-makespan", _WORKERS)
    with _gone_afterwards(job):
        job.submit(program(TASKS, _WORKERS))
        ran = _ran(job)
    _check(len(ran.tasks) == 2, f"{job.name} ran in {_where(ran)}, and was to run in two clusters")
    return ran


def _by_hand(fleet: Clusters) -> tuple[Ran, Ran]:
    """Two of the sample's workers fill a cluster's queue, so the first job gets the first cluster and the other the
    next.
    """
    jobs = [Job(fleet, f"bench-makespan-{half}", _WORKERS // 2) for half in ("heavy", "light")]
    with _gone_afterwards(*jobs):
        for job, tasks in zip(jobs, halves(), strict=True):
            job.submit(program(tasks, job.workers))
            wait(partial(_placed, job), JOB_SECONDS, f"{job.name} is placed", job.dump)
        heavy, light = map(_ran, jobs)
    apart = len(heavy.tasks) == len(light.tasks) == 1 and heavy.tasks.keys() != light.tasks.keys()
    _check(apart, f"the halves ran in {_where(heavy)} and {_where(light)}, and were to run in one cluster each")
    return heavy, light


def _placed(job: Job) -> bool:
    return (job.placement().get("status") or {}).get("state") == PlacementState.PLACED


def _ran(job: Job) -> Ran:
    ended = job.wait_for_end()
    if ended != "SUCCEEDED":
        raise LabError(f"{job.name} has ended as {ended}: {job.output()[-2000:]}")
    result = job.result()
    return Ran(float(result["seconds"]), result["tasks"])


def _where(ran: Ran) -> str:
    return " and ".join(sorted(ran.tasks))


def _check(kept: bool, otherwise: str) -> None:
    if not kept:
        raise LabError(f"This is not what was to be measured: {otherwise}.")


@contextmanager
def _gone_afterwards(*jobs: Job) -> Iterator[None]:
    """Delete all of the jobs before, as an interrupted run may have left them, and afterwards; then wait
    for the end."""
    with ExitStack() as before:
        _leave(before, jobs)
    with ExitStack() as after:
        _leave(after, jobs)
        yield


def _leave(stack: ExitStack, jobs: Sequence[Job]) -> None:
    for job in jobs:
        stack.callback(job.wait_until_gone)
    for job in jobs:  # what is pushed last goes first
        stack.callback(job.delete)
