"""A worker cluster that lies costs the others nothing. One controller follows two real clusters and an attacker.

Gangs are placed again and again on the real ones, as quickly as before the attacker came. In the end the controller is
the same process, and no larger than its Deployment allows. The attacker (hack/testbed/liar.py) stands for no real
component. Hypothesis chooses its lies.
"""

import base64
import itertools
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from adapter import names
from hack.lab.base.paths import REPO
from hack.testbed import install, procstat
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.controller import Controller
from hack.testbed.liar import TOKEN, Liar, beside, certified
from hack.testbed.lies import DRAWN, SORTS, Lie
from hack.testbed.oddities import FORGED
from hack.testbed.pace import HASTY
from hack.testbed.stage import Stage
from hack.testbed.world import World

# It runs a controller of its own, and registers a cluster for it. Cheaper: tests/unit/shell/kube/test_liar.py tells
# each lie once.
pytestmark = [pytest.mark.alone, pytest.mark.long]

LIAR = "liar"
ALL_LIES = int(os.environ.get("RAYSPAN_LIES", 600))  # ten thousand, by hand, take three minutes and a half
BATCHES = 10  # of lies that are told together, each while a gang is placed
LIES = st.builds(Lie, st.sampled_from(DRAWN), st.integers(0, 2**32))
DEALT = st.lists(LIES, min_size=20, max_size=60)
# Of ten answers to one kind one is enough that the cluster is unreachable: with few lies gangs are tried there as well.
SHARES = st.sampled_from([0.05, 0.4, 0.7, 0.95])
BEFORE = 3  # gangs that show how long it takes without the liar
WORKERS = 4
# Both cores of the machine are shared with the attacker and with two real clusters: what is told apart here is a gang
# that
# waits for somebody (a time-out is 3 s, a reservation's 30 s, a broken task's pause up to 60 s) from one that is
# computed slowly.
RATIO, SLACK = 3.0, 5.0
PATIENCE = 60.0
# More than this is a restart (`manifests/controller.yaml`).
MOST = next(
    float(one["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"].removesuffix("Mi"))
    for one in yaml.safe_load_all((REPO / "manifests/controller.yaml").read_text())
    if one["kind"] == "Deployment"
)


@pytest.fixture
def hasty(standing: Controller, parked: Clusters, tmp_path: Path) -> Iterator[Controller]:
    """A controller of the test's own that asks again at once; no other runs."""
    standing.stop()
    made = Controller(standing.manager, tmp_path, pace=HASTY)
    yield made
    made.stop()


@pytest.fixture
def liar(stage: Stage, tmp_path: Path) -> Iterator[Liar]:
    world = World()
    world.furnish(stage.name, 64)
    world.furnish(_bait(stage), 64)
    with beside(Liar(world, certified(tmp_path))) as made:
        yield made


@dataclass
class Course:
    """Gangs, one after the other, and how long each took from its submission until all of its workers ran."""

    stage: Stage
    running: Controller
    number: Iterator[int] = field(default_factory=itertools.count)

    def run(self) -> float:
        """Submit a gang, wait for it, and remove it; returns the seconds."""
        stage, name = self.stage, f"gang-{next(self.number)}"
        begun = time.monotonic()
        stage.ray_cluster(name, workers=WORKERS)
        wait(lambda: stage.running(WORKERS), PATIENCE, f"{name} runs", lambda: self._dump(name))
        took = time.monotonic() - begun
        assert stage.where(name) == "2 east, 2 west"
        stage.manager.delete("raycluster", name, stage.name, wait=False)
        wait(self._empty, PATIENCE, f"{name} is gone", self.running.tail)
        return took

    def _empty(self) -> bool:
        return not (self.stage.workers() or self.stage.leftovers() or self.stage.reserving())

    def _dump(self, name: str) -> str:
        return f"{_said(self.stage, name)}\n{self.running.tail()}"


@pytest.mark.timeout(1800)
def test_who_lies_costs_the_others_nothing(stage: Stage, hasty: Controller, liar: Liar) -> None:
    stage.build({"east": 2, "west": 2})
    hasty.start()
    wait(lambda: stage.connected(stage.clusters), PATIENCE, "the real clusters are seen", hasty.tail)
    course, pid = Course(stage, hasty), hasty.pid
    course.run()  # the first one pays for what is imported and connected once
    before = [course.run() for _ in range(BEFORE)]
    beside_lies: list[float] = []
    with _registered(stage.manager, liar):
        wait(lambda: stage.connected([LIAR]), PATIENCE, "who tells the truth yet is seen", hasty.tail)
        _listed(stage, [*stage.clusters, LIAR])
        with _baited(stage):

            @settings(
                max_examples=BATCHES, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
            )
            @given(some=DEALT, share=SHARES)
            def batch(some: list[Lie], share: float) -> None:
                enough = liar.lies + ALL_LIES // BATCHES
                liar.deal(some, share)
                beside_lies.append(course.run())
                liar.deal(some, max(share, 0.7))  # the rest of them, however few were told meanwhile
                wait(
                    lambda: liar.lies >= enough,
                    3 * PATIENCE,
                    f"{enough} lies are told",
                    lambda: f"{liar.told}\n{hasty.tail()}",
                )

            batch()
            while liar.lies < ALL_LIES:  # Hypothesis may have drawn fewer batches than it was asked for
                liar.deal([Lie(sort, number) for sort in SORTS for number in range(20)], 0.4)
                beside_lies.append(course.run())
        assert hasty.pid == pid and hasty.status() is None, hasty.tail()
        report = _report(liar, hasty, pid, before, beside_lies)
        sys.stdout.write(f"{report}\n")
        assert procstat.peak(pid) < MOST, report
        assert statistics.median(beside_lies) <= RATIO * statistics.median(before) + SLACK, report
        assert max(beside_lies) <= RATIO * max(before) + 2 * SLACK, report
        _nothing_leaked(stage.manager, liar)
        _nothing_broke(hasty, report)


@contextmanager
def _registered(manager: Cluster, liar: Liar) -> Iterator[None]:
    """Let it be one more worker cluster."""
    data = {names.KUBECONFIG_KEY: base64.b64encode(liar.kubeconfig().encode()).decode()}
    metadata = {"name": LIAR, "namespace": names.SYSTEM_NAMESPACE}
    manager.apply(yaml.safe_dump({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))
    spec = {"source": {"kubeConfig": {"secretRef": {"name": LIAR}}}, "zone": LIAR}
    made = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": {"name": LIAR}}
    manager.apply(yaml.safe_dump({**made, "spec": spec}))
    try:
        yield
    finally:
        manager.kubectl("annotate", "workercluster", LIAR, f"{names.FORCE_DELETE_ANNOTATION}=true", "--overwrite")
        manager.delete("workercluster", LIAR, wait=False)
        manager.delete("secret", LIAR, names.SYSTEM_NAMESPACE)


def _bait(stage: Stage) -> str:
    return f"{stage.name}-bait"


@contextmanager
def _baited(stage: Stage) -> Iterator[None]:
    """A gang that may go nowhere but to the liar, so that it is written to as well."""
    with Stage(stage.fleet, _bait(stage), clusters=(LIAR,)) as bait:
        bait.build({})
        bait.ray_cluster("bait", workers=2)
        wait(lambda: bait.workload("bait"), PATIENCE, "the bait is queued")
        yield


def _listed(stage: Stage, clusters: list[str]) -> None:
    patch = json.dumps([{"op": "replace", "path": "/spec/clusters/names", "value": clusters}])
    stage.manager.kubectl("patch", "dispatchpolicy", stage.name, "--type=json", "-p", patch)


def _nothing_leaked(manager: Cluster, liar: Liar) -> None:
    """It was logged in to by its own token alone, and nobody followed it elsewhere."""
    others = [install.worker_kubeconfig(manager, name) for name in ("east", "west")]
    tokens = [yaml.safe_load(one)["users"][0]["user"]["token"] for one in others]
    assert liar.logins == {f"Bearer {TOKEN}"}
    assert not any(token in login for token in tokens for login in liar.logins)
    assert liar.strayed == [], "a redirect was followed"


def _nothing_broke(running: Controller, report: str) -> None:
    """Its log tells of nothing that nobody guards, and has no line that the liar wrote."""
    log = running.log.read_text(errors="replace")
    assert "Traceback (most recent call last)" not in log, report + running.tail(200)
    assert "never retrieved" not in log and "Unclosed" not in log, report
    assert not re.search(rf"^{FORGED}", log, re.MULTILINE), report


def _report(liar: Liar, running: Controller, pid: int, before: list[float], beside_lies: list[float]) -> str:
    guarded = [line for line in running.metrics().splitlines() if line.startswith("rayspan_task_failures_total")]
    return "\n".join([
        f"{liar.lies} lies in {sum(liar.asked.values())} requests: {dict(liar.told)}",
        f"asked: {dict(liar.asked)}",
        f"seconds of a gang before: {_seconds(before)}; beside lies: {_seconds(beside_lies)}",
        f"memory: {procstat.memory([pid]):.0f} MB, {procstat.peak(pid):.0f} at most, of {MOST:.0f}",
        *guarded,
    ])  # fmt: skip


def _seconds(some: list[float]) -> str:
    return f"median {statistics.median(some):.1f}, longest {max(some):.1f} of {len(some)}"


def _said(stage: Stage, name: str) -> str:
    return (
        f"{stage.state(name)} {stage.reason(name)} "
        f"{condition(stage.manager.get('workerclusters', LIAR), names.CONNECTED)}"
    )
