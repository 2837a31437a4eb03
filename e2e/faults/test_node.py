"""Tests workers of a lost node: the kubelet of east's real node dies and returns minutes later.

No kubelet stops the containers, so Ray's processes live on and must not be joined by another pod on their slots.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapter import names
from adapter.objects.unstructured import parse_time
from adapter.worker.report import STUCK_AFTER
from hack.lab.base.lab import Cluster, Lab
from hack.lab.cluster import addons, node, processes
from hack.testbed import actors
from hack.testbed.clusters import condition, wait
from hack.testbed.podwatch import Story, watched
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw
from hack.trials.chaos import restarts

# The decisions about such a worker: tests/unit/worker/test_dispatch.py. Only a dead kubelet shows their effect.
pytestmark = pytest.mark.long

TOLERATED = 5  # seconds before the workers are evicted from an unreachable node; the default of Kubernetes is 300
GRACE = 10  # seconds
MISSED = 90  # seconds; Kubernetes reports a node as unreachable after 50
WORKERS = f"{names.RAY_NODE_TYPE_LABEL}=worker"


@pytest.fixture
def east(lab: Lab) -> Iterator[Cluster]:
    """East; its kubelet and its node's pods run again after the test."""
    cluster = lab.cluster("east")
    yield cluster
    restarts.start(lab, cluster, "kubelet")
    node.await_ready(cluster)
    addons.await_ready(cluster)


def test_a_worker_of_a_lost_node_is_replaced_where_it_was(pair: Job, lab: Lab, east: Cluster, tmp_path: Path) -> None:
    """The worker fails with the cause. Its replacement runs only after the node has removed the old remote pod."""
    actors.submit(pair, _set_short_times)  # one worker in each cluster, and no capacity for more
    before, remotes = _by_uid(pair), _east_remotes(pair)
    lost = {uid for uid, pod in before.items() if pod["metadata"]["labels"][names.CLUSTER_LABEL] == "east"}
    assert len(lost) == len(remotes) == 1
    with (
        watched(
            pair.manager, WORKERS, tmp_path / "manager", ".metadata.uid", ".status.reason", ".status.message"
        ) as manager_story,
        watched(
            pair.fleet.workers["east"], names.MANAGER_LABEL, tmp_path / "east", ".metadata.uid", _SLOT
        ) as east_story,
    ):
        processes.end(east, "kubelet")
        wait(lambda: _unready(pair) == lost, MISSED, "the worker in east is not ready", pair.dump)
        wait(lambda: _evicted(pair) == lost, 30, "east evicts it and sets the reason", pair.dump)
        assert set(_by_uid(pair)) & lost == lost, "the evicted worker was replaced too early"
        wait(lambda: set(_failed(manager_story)) == lost, GRACE + 120, "the worker is failed", pair.dump)
        due = max(
            parse_time(remote["metadata"]["deletionTimestamp"]) or datetime.max
            for remote in _east_remotes(pair).values()
        )
        assert timedelta(0) < datetime.now(UTC) - due - STUCK_AFTER < timedelta(seconds=15)
        assert all("its node may be lost: Taint manager:" in text for text in _failed(manager_story).values())
        wait(lambda: len(_by_uid(pair).keys() - before) == 1, 30, "KubeRay has created a replacement", pair.dump)
        fresh = _by_uid(pair).keys() - before.keys()
        assert not any(names.SLOT_ANNOTATION in _annotations(_by_uid(pair)[uid]) for uid in fresh)
        assert _east_remotes(pair).keys() == remotes.keys()
        assert actors.seen(pair).alive == 2, "Ray reaches the old worker, and no new one"

        restarts.start(lab, east, "kubelet")
        wait(lambda: _ready(pair) == set(_by_uid(pair)) and len(_ready(pair)) == 2, 180, "all run", pair.dump)
        assert _ready(pair) == fresh | (before.keys() - lost)
        _check_one_at_a_time(east_story())
        result = actors.end(pair)
    assert len(result["alive"]) == 2
    first = {(process, where) for process, where, _ in result["first"]}
    stayed = [count for process, where, count in result["last"] if (process, where) in first]
    assert stayed == [result["asked"]], "the actor in west ran on, and the other moved"


_SLOT = ".metadata.annotations." + names.SLOT_ANNOTATION.replace(".", r"\.")


def _set_short_times(spec: Raw) -> None:
    pod = spec["workerGroupSpecs"][0]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = GRACE
    pod["tolerations"] = [
        {
            "key": f"node.kubernetes.io/{state}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATED,
        }
        for state in ("not-ready", "unreachable")
    ]


def _by_uid(job: Job) -> dict[str, Raw]:
    return {pod["metadata"]["uid"]: pod for pod in job.pods()}


def _east_remotes(job: Job) -> dict[str, Raw]:
    """The remote pods in east, by uid."""
    pods = job.fleet.workers["east"].items("pods", NAMESPACE, names.MANAGER_LABEL)
    return {pod["metadata"]["uid"]: pod for pod in pods}


def _unready(job: Job) -> set[str]:
    """The uids of manager pods that are Running and not ready."""
    return {
        uid
        for uid, pod in _by_uid(job).items()
        if _has_condition(pod, "Ready", "False") and pod["status"]["phase"] == "Running"
    }


def _ready(job: Job) -> set[str]:
    return {uid for uid, pod in _by_uid(job).items() if _has_condition(pod, "Ready", "True")}


def _evicted(job: Job) -> set[str]:
    """The uids of unready manager pods with the condition DisruptionTarget."""
    return {uid for uid in _unready(job) if _has_condition(_by_uid(job)[uid], "DisruptionTarget", "True")}


def _has_condition(pod: Raw, kind: str, status: str) -> bool:
    return bool(condition(pod, kind).get("status") == status)


def _annotations(pod: Raw) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _failed(manager_story: Story) -> dict[str, str]:
    """The message of each manager pod that failed because its remote pod did not end, by uid."""
    return {uid: text for _, uid, reason, text in manager_story() if reason == "RemotePodStuck"}


def _check_one_at_a_time(changes: list[list[str]]) -> None:
    """Check that the slot never had two remote pods at once: two were added, and one stayed."""
    remotes_by_slot: dict[str, list[str]] = {}
    for kind, uid, slot in changes:
        remotes = remotes_by_slot.setdefault(slot, [])
        if kind == "ADDED":
            assert not remotes, f"{slot}: {uid} was added before {remotes} was deleted"
            remotes.append(uid)
        elif kind == "DELETED":
            remotes.remove(uid)
    assert [len(remotes) for remotes in remotes_by_slot.values()] == [1], remotes_by_slot
    assert len({uid for _, uid, _ in changes}) == 2, changes
