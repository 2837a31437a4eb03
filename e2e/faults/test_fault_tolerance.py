"""Does a head whose GCS keeps its state in Redis find its workers in other clusters as it left them when it is restarted?

KubeRay's gcsFaultToleranceOptions. A detached actor on each worker tells: it holds a count in memory, so only the same
process, under the same raylet, counts on. Asked of one RayCluster, whose worker in east has the head's address, and whose worker in west
has its name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest

from adapter import names
from hack.lab.base.progress import LabError
from hack.testbed import rayspec, redis
from hack.testbed.clusters import Clusters, wait
from hack.testbed.raycluster import PATIENCE, RayCluster
from hack.testbed.rayjob import NAMESPACE
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import found_by

# That workers and mirrors follow a head, where no Ray is: tests/integration/test_losses.py, test_head.py.
pytestmark = pytest.mark.long

BY_NAME = {"west": {"address": "ServiceMirror"}}
# Kueue suspends the Job by which KubeRay empties Redis (docs/networks.md): KubeRay shall not wait five minutes for it.
HURRY = {"ray.io/gcs-ft-deletion-timeout": "1"}
GONE = 60  # seconds: for the head, at which KubeRay looks every ten
# An actor is called like the cluster that it is in, and starts again in that one only. The label's name is the program's one word.
START = """
import sys
import ray

@ray.remote(num_cpus=0.1, max_restarts=-1, max_task_retries=-1)
class Counter:
    count = 0
    def ask(self):
        import os
        self.count += 1
        return os.getpid(), os.getppid(), ray.get_runtime_context().get_node_id(), self.count

ray.init(namespace="e2e", logging_level="ERROR")
nodes = [n for n in ray.nodes() if n["Alive"] and "node:__internal_head__" not in n["Resources"]]
here = [n["Labels"][sys.argv[1]] for n in nodes]
counters = [Counter.options(name=c, lifetime="detached", label_selector={sys.argv[1]: c}).remote() for c in here]
ray.get([c.ask.remote() for c in counters])
"""
ASK = """
import json, sys
import ray

ray.init(namespace="e2e", logging_level="ERROR")
counters = [ray.get_actor(name) for name in sys.argv[1:]]
print(json.dumps(ray.get([c.ask.remote() for c in counters], timeout=30)))
"""
EVERYWHERE = ("east", "west")


@dataclass(frozen=True)
class Answer:
    """Of an actor."""

    process: int
    raylet: int  # the process that started it
    node: str
    count: int  # how often it was asked


Answers = Mapping[str, Answer]
"""Of the actor in each cluster."""
Containers = Mapping[str, tuple[str, ...]]
"""In each cluster the uid of the worker's copy, and its containers' ids: others after a restart."""


@dataclass(frozen=True)
class Seen:
    """At one time: the head's address, and what was found in each cluster that could be asked then."""

    address: str
    containers: Containers
    answers: Answers


@dataclass(frozen=True)
class Story:
    """Of a head: before anything happened to it, when its GCS was killed, and when its pod was deleted."""

    first: Seen
    killed: Seen
    moved: Seen
    again: Answers  # in the end, of all
    marked: list[str]  # what of ours is on the head
    secrets: list[Raw]  # that were copied to worker clusters


@pytest.fixture(scope="module")
def storage(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[None]:
    """A Redis in the manager."""
    if not request.config.getoption("--manager"):
        redis.bring()
    with redis.running(fleet.manager):
        yield


@pytest.fixture(scope="module")
def story(storage: None, fleet: Clusters) -> Story:
    """A RayCluster that keeps its state there, and what becomes of it."""
    cluster = RayCluster(fleet, "fault-tolerant", len(EVERYWHERE))
    with found_by(fleet, BY_NAME):
        try:
            cluster.create(_fault_tolerant)
            return _told(cluster)
        finally:
            cluster.delete()
            wait(lambda: not fleet.manager.get("raycluster", cluster.name), GONE, "its finalizer is gone", cluster.dump)


def test_workers_go_on_under_a_head_that_they_find_by_name(story: Story) -> None:
    """Another head with another address: the same pod, containers, raylet and actor, which has forgotten nothing."""
    assert story.marked == []
    assert story.moved.address != story.first.address
    assert story.moved.containers["west"] == story.first.containers["west"]
    assert story.moved.answers["west"] == _next(story.killed.answers["west"])
    assert not story.secrets


def test_workers_are_replaced_when_the_address_that_they_have_is_gone(story: Story) -> None:
    """A head that is restarted in its pod keeps its address, and its workers; another pod has another one."""
    assert story.killed.address == story.first.address
    assert story.killed.containers == story.first.containers
    assert story.killed.answers == {where: _next(answer) for where, answer in story.first.answers.items()}
    assert not set(story.moved.containers["east"]) & set(story.first.containers["east"])
    assert story.again["east"].node not in {answer.node for answer in story.first.answers.values()}
    assert story.again["west"].process == story.first.answers["west"].process, "who goes on is not started again"


def _told(cluster: RayCluster) -> Story:
    cluster.wait_until_joined()
    cluster.ask(START, names.CLUSTER_LABEL)
    head = cluster.head()
    first = _seen(cluster, *EVERYWHERE)
    manager = cluster.fleet.manager
    manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "pkill", "gcs_server")
    wait(lambda: _restarts(cluster.head()) and cluster.joined(), PATIENCE, "its GCS is restarted", cluster.dump)
    killed = _seen(cluster, *EVERYWHERE)
    manager.kubectl("delete", "pod", head["metadata"]["name"], "--wait=false")
    cluster.wait_for_another_head(head)
    moved = _seen(cluster, "west")  # who asks east's actor before it is there may ask west's several times
    again = wait(lambda: _answers(cluster), PATIENCE, "its actor in east is started again", cluster.dump)
    copied = [s for w in cluster.fleet.workers.values() for s in w.items("secrets", NAMESPACE, names.MANAGER_LABEL)]
    return Story(first, killed, moved, again, _ours(head), copied)


def _fault_tolerant(raw: Raw) -> None:
    raw["metadata"]["annotations"] = HURRY
    raw["spec"]["gcsFaultToleranceOptions"] = redis.OPTIONS
    rayspec.apart(raw["spec"])
    rayspec.impatient(raw["spec"])  # a head that is back remembers workers that are gone meanwhile


def _seen(cluster: RayCluster, *asked: str) -> Seen:
    return Seen(cluster.head()["status"]["podIP"], _containers(cluster), _asked(cluster, *asked))


def _asked(cluster: RayCluster, *actors: str) -> Answers:
    told = cluster.ask(ASK, *actors)
    return {where: Answer(*answer) for where, answer in zip(actors, told, strict=True)}


def _answers(cluster: RayCluster) -> Answers:
    """Those of all, none while not all answer."""
    try:
        return _asked(cluster, *EVERYWHERE)
    except LabError:
        return {}


def _next(answer: Answer) -> Answer:
    """What the same process says to the next question."""
    return replace(answer, count=answer.count + 1)


def _containers(cluster: RayCluster) -> Containers:
    found = {
        where: (copy["metadata"]["uid"], *(c["containerID"] for c in copy["status"]["containerStatuses"]))
        for where, worker in cluster.fleet.workers.items()
        for copy in worker.items(
            "pods", NAMESPACE, f"{names.MANAGER_LABEL},{names.REMOTE_RAY_CLUSTER_LABEL}={cluster.name}"
        )
    }
    assert sorted(found) == sorted(EVERYWHERE)
    return found


def _restarts(pod: Raw) -> int:
    return sum(c["restartCount"] for c in (pod.get("status") or {}).get("containerStatuses") or ())


def _ours(pod: Raw) -> list[str]:
    """What we put onto a pod: nothing, onto a head."""
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
    keys = [*pod["metadata"]["labels"], *pod["metadata"].get("annotations", {}), *gates]
    return [key for key in keys if names.DOMAIN in key]
