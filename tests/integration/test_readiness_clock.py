"""Workers that compute keep running while Kueue's `waitForPodsReady` clock is a minute long in every cluster.

Kueue 0.19 has that clock on by default, with half an hour to start and half an hour to recover. Real Kueue and KubeRay;
workers on fake nodes.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml

from adapter import names
from hack.lab import faults
from hack.lab.base.lab import Lab
from hack.testbed import kueueconfig
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller, dump
from hack.testbed.reader import Raw
from hack.testbed.readinessclock import CLOCK, report_clock, with_timeouts
from hack.testbed.stage import QUEUE, Stage, plain_pod

pytestmark = pytest.mark.alone

JOBS = ("shrinks", "limps", "grows")
STRIKES = 150  # seconds until a clock that has just begun has struck, and Kueue has evicted


@pytest.fixture(scope="module")
def clocks(fleet: Clusters) -> Iterator[None]:
    """Every Kueue evicts a Workload whose pods are not all ready for a minute."""
    with ExitStack() as cleanup:
        cleanup.callback(kueueconfig.restart, fleet.all)
        for cluster in fleet.all:
            cleanup.enter_context(kueueconfig.changed(cluster, with_timeouts))
        kueueconfig.restart(fleet.all)
        yield


@pytest.mark.usefixtures("clocks")
def test_workers_outlast_siblings_that_leave_or_are_not_ready(stage: Stage, running: Controller) -> None:
    """One job is scaled down within its share, in another a worker is never ready again, and one waits to grow.

    In each, the workers that are ready run on.
    """
    stage.clusters = tuple(_own_cluster(stage, name) for name in ("east", "west"))
    stage.build({"east": 6, "west": 2})
    stage.ray_cluster("shrinks", workers=2, elastic=8, least=2)
    stage.ray_cluster("limps", workers=2)
    stage.ray_cluster("grows", workers=1, elastic=8, least=1)
    wait(lambda: stage.running(5), 90, "five workers run in east", lambda: dump(stage, running))
    (unready, ready), east = _remote_pods(stage, "limps"), stage.fleet.workers["east"]
    _start_canary(stage, east)
    _shrink(stage, "shrinks")
    _set_unready(east, unready)
    stage.scale("grows", 0, 5)
    wait(lambda: len(_remote_pods(stage, "shrinks")) == 1, 30, "one worker is left", running.tail)
    survivors = {_uid(pod) for job in ("shrinks", "grows") for pod in _remote_pods(stage, job)} | {_uid(ready)}

    _outlast_clock(stage, east)

    running_uids = {_uid(pod) for job in JOBS for pod in _remote_pods(stage, job)}
    assert survivors <= running_uids, "a worker that was ready was stopped"
    assert _uid(unready) not in running_uids, "the worker that was not ready is created again"
    assert [job for job in JOBS if "ShareLost" in stage.events(job) or _is_evicted(stage.workload(job))] == []
    assert "PodsNotReady" not in stage.events("grows"), "KubeRay called it ready before it grew"


@pytest.mark.long
@pytest.mark.usefixtures("clocks", "deployed")
def test_workers_outlast_a_silent_cluster_a_drain_and_a_suspension(stage: Stage, lab: Lab) -> None:
    """East falls silent, west is drained while only one worker finds capacity in east, and a job is suspended before.

    All workers that run then run on.
    """
    east, west = (_own_cluster(stage, name) for name in ("east", "west"))
    stage.clusters = (east, west)
    stage.build({"east": 2, "west": 4})
    stage.ray_cluster("silent", workers=2)
    wait(lambda: stage.where("silent") == f"2 {east}", 60, "one job is in east")
    stage.ray_cluster("drained", workers=3)
    wait(lambda: stage.where("drained") == f"3 {west}" and stage.running(5), 60, "another one is in west")
    stage.set_quota(stage.fleet.workers["east"], 4)
    stage.ray_cluster("resumed", workers=1)
    wait(lambda: stage.running(6), 60, "a third one is in east")
    _set_active(stage, "resumed", active=False)
    wait(lambda: not _remote_pods(stage, "resumed"), 60, "it is suspended")
    _set_active(stage, "resumed", active=True)
    # Its pod in the manager stays ready for a moment after the remote one is deleted.
    wait(lambda: len(_remote_pods(stage, "resumed")) == 1 and stage.running(6), 60, "and resumed")
    stage.manager.kubectl("patch", "workercluster", west, "--type=merge", "-p", '{"spec": {"draining": true}}')
    wait(lambda: len(_remote_pods(stage, "drained")) == 1 and stage.running(6), 60, "one worker moves to east")
    survivors = _running_uids(stage)
    assert len(survivors) == 6

    _start_canary(stage, stage.fleet.workers["west"])
    faults.cut(lab, lab.cluster("east"), scope="api", way="drop")
    _outlast_clock(stage, stage.fleet.workers["west"])
    faults.heal(lab)
    wait(lambda: stage.connected((east, west)), 60, "east is reachable again")
    wait(lambda: stage.running(6), 30, "all run on")

    assert _running_uids(stage) == survivors
    assert [job for job in ("silent", "drained", "resumed") if _is_evicted(stage.workload(job))] == []


def _running_uids(stage: Stage) -> set[str]:
    return {
        _uid(pod) for pods in stage.remote().values() for pod in pods if condition(pod, "Ready")["status"] == "True"
    }


def _set_active(stage: Stage, job: str, *, active: bool) -> None:
    """Suspend or resume a job as its user does in Kueue."""
    patch = json.dumps({"spec": {"active": active}})
    name = stage.workload(job)["metadata"]["name"]
    stage.manager.kubectl("-n", stage.name, "patch", "workload", name, "--type=merge", "-p", patch)


def _own_cluster(stage: Stage, name: str) -> str:
    """Create a WorkerCluster that says how long the clock of its Kueue is."""
    own = stage.own(name)
    report_clock(stage.manager, own, CLOCK)
    return own


def _remote_pods(stage: Stage, job: str) -> list[Raw]:
    """The pods of a job in east."""
    pods = stage.fleet.workers["east"].items("pods", stage.name, names.MANAGER_LABEL)
    return [pod for pod in pods if pod["metadata"]["name"].startswith(job)]


def _shrink(stage: Stage, job: str) -> None:
    least = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/minReplicas", "value": 1}]
    stage.manager.kubectl("-n", stage.name, "patch", "raycluster", job, "--type=json", "-p", json.dumps(least))
    stage.scale(job, 0, 1)


def _set_unready(cluster: Cluster, pod: Raw) -> None:
    """Make a pod not ready for good: kwok makes it ready only once."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    conditions = [
        {**entry, "status": "False"} if entry["type"] == "Ready" else entry for entry in pod["status"]["conditions"]
    ]
    patch = json.dumps({"status": {"conditions": conditions}})
    cluster.kubectl("-n", namespace, "patch", "pod", name, "--subresource=status", "-p", patch)


def _start_canary(stage: Stage, cluster: Cluster) -> None:
    """Start a pod of another user, which takes its quota before a job grows into it."""
    cluster.apply(yaml.safe_dump(plain_pod("canary", stage.name, QUEUE)))
    wait(lambda: _is_ready(cluster, stage.name, "canary"), 60, "the canary runs")


def _outlast_clock(stage: Stage, cluster: Cluster) -> None:
    """Wait until the clock has struck the canary, which is not ready from now on."""
    _set_unready(cluster, cluster.get("pod", "canary", stage.name))
    wait(lambda: "canary" in _evicted_pods(cluster, stage.name), STRIKES, "the clock strikes the canary")


def _is_ready(cluster: Cluster, namespace: str, name: str) -> bool:
    return condition(cluster.get("pod", name, namespace), "Ready").get("status") == "True"


def _evicted_pods(cluster: Cluster, namespace: str) -> set[str]:
    """The pods whose Workloads Kueue has evicted because of its clock."""
    events = cluster.items("events", namespace)
    text = "PodsReadyTimeout"
    return {"canary" for event in events if text in event["reason"] and "canary" in event["involvedObject"]["name"]}


def _is_evicted(workload: Raw) -> bool:
    return condition(workload, names.EVICTED).get("status") == "True"


def _uid(pod: Raw) -> str:
    return str(pod["metadata"]["uid"])
