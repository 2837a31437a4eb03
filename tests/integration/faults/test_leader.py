"""Of two controllers only one writes, and the other takes over when it is stopped, dies or hangs.

Both are local processes of one election, against the real clusters; the deployed ones are parked.
"""

import json
import signal
import urllib.request

import pytest

from adapter import names
from hack.testbed import audit
from hack.testbed.auditlog import WRITES, log_of
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage, ray_cluster

pytestmark = pytest.mark.alone  # two controllers of one election

Pair = tuple[Controller, Controller]
OURS = ("rayspan-controller", "rayspan-worker")  # the controller's accounts, in the manager and in worker clusters
# Seconds: the Lease's duration and one look.
TAKEN_OVER = 20

_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def test_another_takes_over_from_one_that_dies(stage: Stage, pair: Pair) -> None:
    """Jobs run on, new ones are placed, and both could say beforehand what would be planned."""
    first, second = pair
    stage.build({"east": 2, "west": 2})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", first.tail)
    wait(lambda: _plan(stage, second) == _plan(stage, first), 10, "both plan the same", second.tail)
    assert not second.leads() and second.ask("/readyz") == "ok"
    before = _lease(stage.manager)
    uids = {pod["metadata"]["uid"] for pod in stage.workers()}

    first.stop()
    wait(second.leads, TAKEN_OVER, "the second one leads", second.tail)
    after = _lease(stage.manager)
    assert after["holderIdentity"] != before["holderIdentity"]
    assert after["leaseTransitions"] == before["leaseTransitions"] + 1
    stage.ray_cluster("next", workers=2)
    wait(lambda: stage.running(4), 90, "all workers run", second.tail)
    assert uids < {pod["metadata"]["uid"] for pod in stage.workers()}, "none was replaced"


@pytest.mark.long
def test_one_that_is_asked_to_stop_gives_the_lease_back(stage: Stage, pair: Pair) -> None:
    """The other one takes over sooner than a Lease runs out."""
    first, second = pair
    stage.build({"east": 1, "west": 1})
    first.stop(signal.SIGTERM)
    wait(second.leads, 10, "the second one leads", second.tail)
    assert first.status() == 0 and "is given back" in first.tail()
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", second.tail)


@pytest.mark.long
@pytest.mark.usefixtures("audited")
def test_a_leader_that_was_stopped_for_long_writes_nothing_more(stage: Stage, pair: Pair) -> None:
    """It resumes with a job to plan and no other controller running: it ends, and no API server saw a write of it."""
    first, second = pair
    stage.build({"east": 2, "west": 2})
    logs = _logs(stage.fleet)
    stage.ray_cluster("pi", workers=2)
    wait(lambda: stage.running(2), 90, "two workers run", first.tail)
    assert _writes(logs), "what it writes shows in the logs"

    first.send(signal.SIGSTOP)
    wait(second.leads, TAKEN_OVER, "the second one leads", second.tail)
    stage.ray_cluster("next", workers=1)
    wait(lambda: stage.running(3), 90, "a third worker runs", second.tail)
    second.stop(signal.SIGTERM)
    stage.ray_cluster("last", workers=1)
    wait(lambda: _waits(stage, "last"), 30, "a job waits for a plan")
    _writes(logs)

    first.send(signal.SIGCONT)
    wait(lambda: first.status() is not None, 30, "the first one ends", first.tail)
    assert first.status() == 1
    assert "stopped writing" in first.tail() and "Traceback" not in first.log.read_text()
    assert _writes(logs) == []
    assert not stage.placement("last")

    second.start()
    wait(lambda: stage.running(4), 90, "all workers run", second.tail)


def _plan(stage: Stage, one: Controller) -> str:
    """What it would make of a job."""
    question = {"namespace": stage.name, "object": ray_cluster("asked", stage.name, {"workers": 1})}
    url = f"http://127.0.0.1:{one.plan_port}{names.PLAN_PATH}"
    with _direct.open(url, data=json.dumps(question).encode(), timeout=10) as answer:
        return str(json.loads(answer.read())["sentence"])


def _lease(manager: Cluster) -> Raw:
    spec: Raw = manager.get("leases", names.LEASE, names.SYSTEM_NAMESPACE)["spec"]
    return spec


def _waits(stage: Stage, job: str) -> bool:
    return condition(stage.workload(job), names.QUOTA_RESERVED).get("status") == "True"


def _logs(fleet: Clusters) -> list[audit.Log]:
    return [log_of(cluster) for cluster in fleet.all]


def _writes(logs: list[audit.Log]) -> list[audit.Request]:
    """What our accounts wrote since the last call, in any cluster; the Lease and refusals count as well."""
    found = [request for log in logs for request in log.take()]
    return [request for request in found if request.kind.client in OURS and request.kind.verb in WRITES]
