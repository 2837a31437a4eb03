"""A cluster's etcd is restored from a backup: both replicas notice, no running gang is lost, and nothing runs twice.

Real etcd, restored as an admin does it (hack/trials/restore.py): versions count on from the backup's. Real Kueue and
KubeRay, which restart; workers on fake nodes. The controllers are a leader and a standby, and neither is restarted.
"""

from collections.abc import Sequence

import pytest

from adapter.names import EventReason
from adapter.shell.kube import reflector
from hack.lab.base.lab import Lab
from hack.testbed.clusters import Cluster, wait
from hack.testbed.controller import Controller
from hack.testbed.preemption import uids
from hack.testbed.stage import Stage, pods_by_cluster
from hack.trials import restore
from hack.trials.chaos import invariants, snapshot
from hack.trials.chaos.restarts import Container
from hack.trials.outages import Outages
from hack.trials.sampler import CopySampler

pytestmark = [pytest.mark.alone, pytest.mark.long]  # an API server and the operators of a cluster end

Pair = tuple[Controller, Controller]
# What a cluster writes while it starts again must not bring it past what it had come to: those who come back within
# half a
# minute are to see that it went back. It writes some hundreds.
VERSIONS = 1000
# Seconds: operators that start and take up their leases, and then KubeRay's and Kueue's way to workers that run.
STARTED, WELL = 180, 180
TAKEN_OVER = 20  # the Lease's duration and one look


def test_a_restored_worker_cluster(stage: Stage, pair: Pair, lab: Lab) -> None:
    """The backup knows neither a second gang nor who replaced a worker of the first, and knows the worker that went."""
    stage.build(
        {"east": 8, "west": 8}
    )  # for twice both gangs: what the backup brought back holds quota until it is gone
    east, home = stage.fleet.workers["east"], lab.cluster("east")
    stage.ray_cluster("pi", workers=2)
    wait(lambda: _well(stage, pi=2), WELL, "the first gang runs", lambda: _wrong(stage, pair, pi=2))
    copy, before = restore.backup(home), _said(stage)

    _come_on(east, stage.name)
    stage.ray_cluster("next", workers=2)
    _replace_one(stage)
    wait(lambda: _well(stage, pi=2, next=2), WELL, "both run", lambda: _wrong(stage, pair, pi=2, next=2))
    assert pods_by_cluster(stage.workers()) == {"east": 4}, "all of it is what the backup is about"

    outages = Outages()
    with CopySampler(list(stage.fleet.workers.values()), stage.name, outages) as sampler:
        outages.begin("east")
        operators = restore.operators(east, home)
        restore.put_back(lab, home, copy, operators)
        _await(operators)
        outages.over()
        wait(lambda: _said(stage) > before, 60, "the WorkerCluster says that it was restored", pair[0].tail)
        wait(lambda: _well(stage, pi=2, next=2), WELL, "all is well", lambda: _wrong(stage, pair, pi=2, next=2))
    assert sampler.lives.doubled() == []
    assert [_noticed(one, "worker cluster east") for one in pair] == [True, True]
    _hand_over(stage, pair, pi=2, next=2)


def test_a_restored_manager(stage: Stage, pair: Pair, lab: Lab) -> None:
    """The first gang does not notice. The shares of the second one have no owner any more, and are deleted."""
    stage.build({"east": 8, "west": 8})
    stage.ray_cluster("pi", workers=2)
    wait(lambda: _well(stage, pi=2), WELL, "the first gang runs", lambda: _wrong(stage, pair, pi=2))
    copies = uids(stage, "east")
    copy = restore.backup(lab.manager)

    _come_on(stage.manager, stage.name)
    stage.ray_cluster("next", workers=2)
    wait(lambda: _well(stage, pi=2, next=2), WELL, "both run", lambda: _wrong(stage, pair, pi=2, next=2))

    with CopySampler(list(stage.fleet.workers.values()), stage.name) as sampler:
        operators = restore.operators(stage.manager, lab.manager)
        restore.put_back(lab, lab.manager, copy, operators)
        ended = {*_revive(pair)}
        _await(operators)
        wait(lambda: _well(stage, pi=2), WELL, "only the first gang is there", lambda: _wrong(stage, pair, pi=2))
        ended |= {*_revive(pair)}
    assert uids(stage, "east") == copies, "its workers are the same"
    assert sampler.lives.doubled() == []
    assert len(ended) < 2, "who stands by holds no Lease that it could lose"
    assert all(_noticed(one, "manager cluster") for one in pair if one not in ended)
    _hand_over(stage, pair, pi=2)


def _come_on(cluster: Cluster, namespace: str) -> None:
    """Let a cluster write so much that its versions are far beyond the backup's."""
    for number in range(VERSIONS):
        metadata = {"name": "versions", "namespace": namespace}
        cluster.writer.apply(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"at": str(number)}}
        )


def _replace_one(stage: Stage) -> None:
    """Delete one of the first gang's workers; KubeRay makes another one."""
    pods = [pod["metadata"] for pod in stage.workers()]
    name = min(pod["name"] for pod in pods if pod["name"].startswith("pi-"))
    stage.manager.kubectl("-n", stage.name, "delete", "pod", name)


def _await(operators: Sequence[Container]) -> None:
    """Wait until Kueue and the others serve again; one that gave up meanwhile is helped to a new start."""

    def trouble() -> str:
        found = [(one, said) for one in operators if (said := one.trouble())]
        for one, _ in found:
            one.mend()
        return ", ".join(said for _, said in found)

    wait(lambda: not trouble(), STARTED, "the cluster's operators serve again", trouble)


def _revive(pair: Pair) -> list[Controller]:
    """Start anew who lost its Lease while the API server was away, as its kubelet would; returns them."""
    ended = [one for one in pair if one.status() is not None]
    for one in ended:
        assert "stopped writing" in one.tail(), one.tail()
        one.start()
    return ended


def _well(stage: Stage, **wanted: int) -> bool:
    """Whether these gangs run with so many workers each, nothing else exists (no orphan), and all usage agrees."""
    return not invariants.findings(snapshot.take(stage, wanted))


def _wrong(stage: Stage, pair: Pair, **wanted: int) -> str:
    seen = snapshot.take(stage, wanted)
    said = [f"{one.kind}: {one.text}" for one in invariants.findings(seen)]
    return "\n".join([*said, snapshot.text(seen), *(one.tail() for one in pair)])


def _said(stage: Stage) -> str:
    """When it was last said of east that it was restored; empty if it was not."""
    uid = stage.manager.get("workerclusters", "east")["metadata"]["uid"]
    found = [one for one in stage.manager.items("events", "default") if one["involvedObject"].get("uid") == uid]
    return max((str(one["lastTimestamp"]) for one in found if one["reason"] == EventReason.RESTORED), default="")


def _noticed(one: Controller, whose: str) -> bool:
    """Whether a controller listed a cluster anew because it was restored."""
    lines = one.log.read_text(errors="replace").splitlines()
    return any(f"{whose}: following" in line and reflector.RESTORED in line for line in lines)


def _hand_over(stage: Stage, pair: Pair, **wanted: int) -> None:
    """Who leads dies. The other one knows of no ghosts either: it changes nothing, and places another gang."""
    wait(lambda: any(one.leads() for one in pair), TAKEN_OVER, "one of them leads")
    leader, other = sorted(pair, key=Controller.leads, reverse=True)
    wait(lambda: other.ask("/readyz") == "ok", STARTED, "the other one stands by", other.tail)
    before = {pod["metadata"]["uid"] for pod in stage.workers()}
    leader.stop()
    wait(other.leads, TAKEN_OVER, "the other one leads", other.tail)
    stage.ray_cluster("last", workers=2)
    wait(lambda: _well(stage, **wanted, last=2), WELL, "all is well", lambda: _wrong(stage, pair, **wanted, last=2))
    assert before < {pod["metadata"]["uid"] for pod in stage.workers()}, "none was replaced"
