"""What becomes of workers whose node is lost: the kubelet of east's real node dies, and comes back after minutes?

It is the hard case: nobody stops their containers, so Ray's processes live on, and must not get company on their slots.
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

# What is decided of such a worker: tests/unit/worker/test_dispatch.py. It takes a kubelet that dies to see it.
pytestmark = pytest.mark.long

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


def test_a_worker_of_a_lost_node_is_replaced_where_it_was(pair: Job, lab: Lab, east: Cluster, tmp_path: Path) -> None:
    """It is failed with the cause, and the one that takes its place runs when the node has given up the old one, not before."""
    actors.submit(pair, _leave_soon)  # one in each cluster, and neither has room for more
    before, copies = _by_uid(pair), _copies(pair)
    lost = {uid for uid, pod in before.items() if pod["metadata"]["labels"][names.CLUSTER_LABEL] == "east"}
    assert len(lost) == len(copies) == 1
    with (
        watched(
            pair.manager, WORKERS, tmp_path / "manager", ".metadata.uid", ".status.reason", ".status.message"
        ) as said,
        watched(pair.fleet.workers["east"], names.MANAGER_LABEL, tmp_path / "east", ".metadata.uid", _SLOT) as done,
    ):
        processes.end(east, "kubelet")
        wait(lambda: _unready(pair) == lost, MISSED, "the worker there is not ready", pair.dump)
        wait(lambda: _evicted(pair) == lost, 30, "its cluster evicts it, and says why", pair.dump)
        assert set(_by_uid(pair)) & lost == lost, "its time is not over"
        wait(lambda: set(_failed(said)) == lost, GRACE + 120, "it is failed", pair.dump)
        due = max(parse_time(copy["metadata"]["deletionTimestamp"]) or datetime.max for copy in _copies(pair).values())
        assert timedelta(0) < datetime.now(UTC) - due - STUCK_AFTER < timedelta(seconds=15)
        assert all("its node may be lost: Taint manager:" in text for text in _failed(said).values())
        wait(lambda: len(_by_uid(pair).keys() - before) == 1, 30, "KubeRay made another", pair.dump)
        fresh = _by_uid(pair).keys() - before.keys()
        assert not any(names.SLOT_ANNOTATION in _notes(_by_uid(pair)[uid]) for uid in fresh)
        assert _copies(pair).keys() == copies.keys()
        assert actors.seen(pair).alive == 2, "Ray still hears from the old one, and from nobody new"

        restarts.start(lab, east, "kubelet")
        wait(lambda: _ready(pair) == set(_by_uid(pair)) and len(_ready(pair)) == 2, 180, "all run", pair.dump)
        assert _ready(pair) == fresh | (before.keys() - lost)
        _one_at_a_time(done())
        found = actors.end(pair)
    assert len(found["alive"]) == 2
    first = {(process, where) for process, where, _ in found["first"]}
    stayed = [count for process, where, count in found["last"] if (process, where) in first]
    assert stayed == [found["asked"]], "the one in west ran on, and the other moved"


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
    """The worker in east."""
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
    """The slot had never two copies; two came and one stayed."""
    held: dict[str, list[str]] = {}
    for kind, uid, slot in done:
        here = held.setdefault(slot, [])
        if kind == "ADDED":
            assert not here, f"{slot}: {uid} came before {here} was gone"
            here.append(uid)
        elif kind == "DELETED":
            here.remove(uid)
    assert [len(here) for here in held.values()] == [1], held
    assert len({uid for _, uid, _ in done}) == 2, done
