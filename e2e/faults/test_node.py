"""What becomes of workers whose node is lost: the kubelet of east's real node dies, and comes back after minutes?

It is the hard case: nobody stops their containers, so Ray's processes live on, and must not get company on their slots.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from adapter import names
from adapter.objects.raw import moment
from adapter.worker.report import STUCK_AFTER
from hack.lab.base.lab import Cluster, Lab
from hack.lab.cluster import addons, node, processes
from hack.testbed import actors
from hack.testbed.clusters import condition, wait
from hack.testbed.podwatch import Story, watched
from hack.testbed.rayjob import NAMESPACE, Job
from hack.testbed.reader import Raw
from hack.trials.chaos import restarts

TOLERATED = 5  # seconds that the workers stay on a node that is not heard of; Kubernetes' own default is 300
GRACE = 10  # seconds
MISSED = 90  # Kubernetes calls a node lost after 50
WORKERS = f"{names.RAY_NODE_TYPE_LABEL}=worker"


@pytest.fixture
def east(lab: Lab) -> Iterator[Cluster]:
    """East, where the kubelet runs again afterwards, and whatever is on its node."""
    cluster = lab.cluster("east")
    yield cluster
    restarts.start(lab, cluster, "kubelet")
    node.await_ready(cluster)
    addons.await_ready(cluster)


def test_workers_of_a_lost_node_are_replaced_where_they_were(job: Job, lab: Lab, east: Cluster, tmp_path: Path) -> None:
    """They are failed with the cause, and those that take their place run when the node has given up the old ones, not before."""
    actors.submit(job, _leave_soon)  # two in each cluster, and neither has room for more
    before, copies = _by_uid(job), _copies(job)
    lost = {uid for uid, pod in before.items() if pod["metadata"]["labels"][names.CLUSTER_LABEL] == "east"}
    assert len(lost) == len(copies) == 2
    with (
        watched(
            job.manager, WORKERS, tmp_path / "manager", ".metadata.uid", ".status.reason", ".status.message"
        ) as said,
        watched(job.fleet.workers["east"], names.MANAGER_LABEL, tmp_path / "east", ".metadata.uid", _SLOT) as done,
    ):
        processes.end(east, "kubelet")
        wait(lambda: _unready(job) == lost, MISSED, "the workers there are not ready", job.dump)
        wait(lambda: len(_evicted(job)) == 2, 30, "their cluster evicts them, and says why", job.dump)
        assert _evicted(job) == lost == set(_by_uid(job)) & lost, "their time is not over"
        wait(lambda: set(_failed(said)) == lost, GRACE + 120, "they are failed", job.dump)
        due = max(moment(copy["metadata"]["deletionTimestamp"]) or datetime.max for copy in _copies(job).values())
        assert timedelta(0) < datetime.now(UTC) - due - STUCK_AFTER < timedelta(seconds=15)
        assert all("its node may be lost: Taint manager:" in text for text in _failed(said).values())
        wait(lambda: len(_by_uid(job).keys() - before) == 2, 30, "KubeRay made others", job.dump)
        fresh = _by_uid(job).keys() - before.keys()
        assert not any(names.SLOT_ANNOTATION in _notes(_by_uid(job)[uid]) for uid in fresh)
        assert _copies(job).keys() == copies.keys()
        assert actors.seen(job).alive == 4, "Ray still hears from the old ones, and from nobody new"

        restarts.start(lab, east, "kubelet")
        wait(lambda: _ready(job) == set(_by_uid(job)) and len(_ready(job)) == 4, 180, "all run", job.dump)
        assert _ready(job) == fresh | (before.keys() - lost)
        _one_at_a_time(done())
        found = actors.end(job)
    assert len(found["alive"]) == 4
    first = {(process, where) for process, where, _ in found["first"]}
    stayed = [count for process, where, count in found["last"] if (process, where) in first]
    assert stayed == [found["asked"]] * 2, "those in west ran on, and the others moved"


_SLOT = ".metadata.annotations." + names.SLOT_ANNOTATION.replace(".", r"\.")


def _leave_soon(spec: Raw) -> None:
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


def _copies(job: Job) -> dict[str, Raw]:
    """The workers in east."""
    found = job.fleet.workers["east"].items("pods", NAMESPACE, names.MANAGER_LABEL)
    return {pod["metadata"]["uid"]: pod for pod in found}


def _unready(job: Job) -> set[str]:
    """Those that count as running, and as not ready."""
    return {
        uid for uid, pod in _by_uid(job).items() if _is(pod, "Ready", "False") and pod["status"]["phase"] == "Running"
    }


def _ready(job: Job) -> set[str]:
    return {uid for uid, pod in _by_uid(job).items() if _is(pod, "Ready", "True")}


def _evicted(job: Job) -> set[str]:
    """Those that run as far as anybody knows, and of which their cluster says that they shall go."""
    return {uid for uid in _unready(job) if _is(_by_uid(job)[uid], "DisruptionTarget", "True")}


def _is(pod: Raw, kind: str, status: str) -> bool:
    return bool(condition(pod, kind).get("status") == status)


def _notes(pod: Raw) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _failed(said: Story) -> dict[str, str]:
    """Those that were failed because their copies did not end: uid -> message."""
    return {uid: text for _, uid, reason, text in said() if reason == "RemotePodStuck"}


def _one_at_a_time(done: list[list[str]]) -> None:
    """No slot had two copies at any time; four came and two stayed."""
    held: dict[str, list[str]] = {}
    for kind, uid, slot in done:
        here = held.setdefault(slot, [])
        if kind == "ADDED":
            assert not here, f"{slot}: {uid} came before {here} was gone"
            here.append(uid)
        elif kind == "DELETED":
            here.remove(uid)
    assert sum(len(here) for here in held.values()) == 2, held
    assert len({uid for _, uid, _ in done}) == 4, done
