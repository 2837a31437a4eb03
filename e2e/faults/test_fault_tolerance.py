"""Tests that a restarted head with its GCS state in Redis finds its workers in other clusters unchanged.

It uses KubeRay's gcsFaultToleranceOptions. A detached actor on each worker counts in memory, so only the same process
under the same raylet continues the count. In one RayCluster the worker in east has the head's address, and the worker
in west its name.
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

# Workers and mirrors that follow a head, without Ray: tests/integration/test_losses.py, test_head.py.
pytestmark = pytest.mark.long

BY_NAME = {"west": {"address": "ServiceMirror"}}
# Kueue suspends the Job that empties Redis for KubeRay (docs/networks.md); KubeRay must not wait five minutes for it.
HURRY = {"ray.io/gcs-ft-deletion-timeout": "1"}
GONE = 60  # seconds; KubeRay checks the head every ten
# An actor has the name of its cluster and restarts only there. The program's only argument is the label's name.
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
clusters = [n["Labels"][sys.argv[1]] for n in nodes]
counters = [Counter.options(name=c, lifetime="detached", label_selector={sys.argv[1]: c}).remote() for c in clusters]
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
    """The answer of an actor."""

    process: int
    raylet: int  # the process that started it
    node: str
    count: int  # how often it was asked


Answers = Mapping[str, Answer]
"""The answer of the actor in each cluster."""
Containers = Mapping[str, tuple[str, ...]]
"""The uid of the remote pod in each cluster, and its container ids, which a restart changes."""


@dataclass(frozen=True)
class Seen:
    """One observation: the head's address, the containers, and the answers of the actors that were asked."""

    address: str
    containers: Containers
    answers: Answers


@dataclass(frozen=True)
class Story:
    """Observations of a head at first, after its GCS was killed, and after its pod was deleted."""

    first: Seen
    killed: Seen
    moved: Seen
    last: Answers  # in the end, of all actors
    head_keys: list[str]  # labels, annotations and gates of Rayspan on the head
    secrets: list[Raw]  # copied to worker clusters


@pytest.fixture(scope="module")
def storage(fleet: Clusters, request: pytest.FixtureRequest) -> Iterator[None]:
    """A Redis in the manager cluster."""
    if not request.config.getoption("--manager"):
        redis.bring()
    with redis.running(fleet.manager):
        yield


@pytest.fixture(scope="module")
def story(storage: None, fleet: Clusters) -> Story:
    """Observations of a RayCluster with its state in Redis."""
    cluster = RayCluster(fleet, "fault-tolerant", len(EVERYWHERE))
    with found_by(fleet, BY_NAME):
        try:
            cluster.create(_fault_tolerant)
            return _observe(cluster)
        finally:
            cluster.delete()
            wait(lambda: not fleet.manager.get("raycluster", cluster.name), GONE, "its finalizer is gone", cluster.dump)


def test_workers_with_the_heads_name_survive_a_new_head_pod(story: Story) -> None:
    """A new head pod has a new address; the remote pod, containers, raylet and actor state stay the same."""
    assert story.head_keys == []
    assert story.moved.address != story.first.address
    assert story.moved.containers["west"] == story.first.containers["west"]
    assert story.moved.answers["west"] == _next_answer(story.killed.answers["west"])
    assert not story.secrets


def test_workers_with_the_heads_address_are_replaced_with_a_new_head_pod(story: Story) -> None:
    """A head restarted in its pod keeps its address and its workers; a new head pod has a new address."""
    assert story.killed.address == story.first.address
    assert story.killed.containers == story.first.containers
    assert story.killed.answers == {where: _next_answer(answer) for where, answer in story.first.answers.items()}
    assert not set(story.moved.containers["east"]) & set(story.first.containers["east"])
    assert story.last["east"].node not in {answer.node for answer in story.first.answers.values()}
    assert story.last["west"].process == story.first.answers["west"].process, "a surviving actor was restarted"


def _observe(cluster: RayCluster) -> Story:
    cluster.wait_until_joined()
    cluster.ask(START, names.CLUSTER_LABEL)
    head = cluster.head()
    first = _observation(cluster, *EVERYWHERE)
    manager = cluster.fleet.manager
    manager.kubectl("exec", head["metadata"]["name"], "-c", "ray-head", "--", "pkill", "gcs_server")
    wait(lambda: _restarts(cluster.head()) and cluster.joined(), PATIENCE, "its GCS is restarted", cluster.dump)
    killed = _observation(cluster, *EVERYWHERE)
    manager.kubectl("delete", "pod", head["metadata"]["name"], "--wait=false")
    cluster.wait_for_another_head(head)
    moved = _observation(cluster, "west")  # retries for east's missing actor would ask west's several times
    last = wait(lambda: _all_answers(cluster), PATIENCE, "its actor in east is started again", cluster.dump)
    copied = [s for w in cluster.fleet.workers.values() for s in w.items("secrets", NAMESPACE, names.MANAGER_LABEL)]
    return Story(first, killed, moved, last, _rayspan_keys(head), copied)


def _fault_tolerant(raw: Raw) -> None:
    raw["metadata"]["annotations"] = HURRY
    raw["spec"]["gcsFaultToleranceOptions"] = redis.OPTIONS
    rayspec.apart(raw["spec"])
    rayspec.impatient(raw["spec"])  # a returning head remembers workers that were deleted meanwhile


def _observation(cluster: RayCluster, *actors: str) -> Seen:
    return Seen(cluster.head()["status"]["podIP"], _containers(cluster), _ask(cluster, *actors))


def _ask(cluster: RayCluster, *actors: str) -> Answers:
    answers = cluster.ask(ASK, *actors)
    return {where: Answer(*answer) for where, answer in zip(actors, answers, strict=True)}


def _all_answers(cluster: RayCluster) -> Answers:
    """The answers of all actors; empty until all answer."""
    try:
        return _ask(cluster, *EVERYWHERE)
    except LabError:
        return {}


def _next_answer(answer: Answer) -> Answer:
    """The next answer of the same process."""
    return replace(answer, count=answer.count + 1)


def _containers(cluster: RayCluster) -> Containers:
    containers = {
        where: (remote["metadata"]["uid"], *(c["containerID"] for c in remote["status"]["containerStatuses"]))
        for where, worker in cluster.fleet.workers.items()
        for remote in worker.items(
            "pods", NAMESPACE, f"{names.MANAGER_LABEL},{names.REMOTE_RAY_CLUSTER_LABEL}={cluster.name}"
        )
    }
    assert sorted(containers) == sorted(EVERYWHERE)
    return containers


def _restarts(pod: Raw) -> int:
    return sum(c["restartCount"] for c in (pod.get("status") or {}).get("containerStatuses") or ())


def _rayspan_keys(pod: Raw) -> list[str]:
    """The labels, annotations and scheduling gates of Rayspan on a pod."""
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
    keys = [*pod["metadata"]["labels"], *pod["metadata"].get("annotations", {}), *gates]
    return [key for key in keys if names.DOMAIN in key]
