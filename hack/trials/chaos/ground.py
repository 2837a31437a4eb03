"""The targets of faults: the lab, the stage's gangs, our controller and others' operators; and whether all is back.

The gangs are a load that renews itself: small ones on fake nodes, replaced when they go, some of them elastic. It
strikes nothing itself. A campaign only asks the load what it wants to run and has it changed. For an elastic gang the
load plays Ray's autoscaler, which alone sets the number of workers and names those that go.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

import yaml

from adapter import names
from adapter.objects.unstructured import Raw, is_condition_true, meta
from hack.lab.base import lab as definition
from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError
from hack.lab.cluster import kwok
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Refused
from hack.testbed.readinessclock import ReadinessClock
from hack.testbed.stage import Stage
from hack.trials.chaos import draw, restarts
from hack.trials.chaos.helping import Help
from hack.trials.chaos.restarts import Container
from hack.trials.outages import Outages

T = TypeVar("T")

GANGS = 5  # alive at any time: over two clusters, and few enough that a change of all settles in seconds
# For each worker cluster: what gangs of a fixed size want at most fits into both with capacity to spare, and three
# quarters of it into one.
CPU = 12
# Elastic gangs leave so much of both clusters to others: a worker that leaves uses its capacity while its successor
# starts.
_SPARE = 2
# A worker takes one to five seconds to end: a premature release of its capacity then shows in many samples.
_LEAVES_WITHIN = "5s"
_PATIENCE = 60.0  # seconds for an order to be taken; operators with required webhooks may still be starting
_PAUSE = 0.3
_FINAL = ("denied request:", " is invalid: ")  # rejections by a ValidatingAdmissionPolicy and by a CRD


class Load:
    """The gangs that must run: `wanted` is name -> workers, oldest first; `least`, of elastic ones, the fewest.

    `scaled` are those whose number or choice of workers changed since `since`, when the last fault began. `rejected`
    are jobs beside the gangs, name -> kind, that KubeRay rejects: they must hold nothing, and go at the next fault.
    """

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage, self._seed = stage, seed
        self.wanted: dict[str, int] = {}
        self.least: dict[str, int] = {}
        self.scaled: set[str] = set()
        self.rejected: dict[str, str] = {}
        self.since = datetime.now(UTC)
        self._made = 0

    def struck(self) -> None:
        """A fault begins: what was done before it is over."""
        self.scaled.clear()
        self.since = datetime.now(UTC)
        while self.rejected:
            name, kind = self.rejected.popitem()
            self._delete(kind, name, "background")

    def submit_rejected(self, job: Raw) -> str:
        """Submit a job that KubeRay rejects; returns its name."""
        name = str(meta(job)["name"])
        self.rejected[name] = str(job["kind"])
        taken(lambda: self.stage.manager.apply(yaml.safe_dump(job)))
        return name

    def fill(self) -> None:
        """Submit gangs until there are enough."""
        while len(self.wanted) < GANGS:
            self.add()

    def add(self) -> str:
        """Submit one more; returns its name."""
        self._made += 1
        name = f"gang-{self._made:04}"
        made = draw.gang(self._seed, self._made)
        self.wanted[name] = made.workers
        if made.elastic:
            self.least[name] = made.least
        taken(lambda: self._submit(name, made))
        return name

    def _submit(self, name: str, made: draw.Gang) -> None:
        self.stage.ray_cluster(
            name,
            workers=made.workers,
            annotations={kwok.LEAVES_WITHIN: _LEAVES_WITHIN},
            elastic=draw.MOST if made.elastic else 0,
            least=made.least,
            autoscaled=made.elastic,
        )

    def room(self, name: str) -> int:
        """By how many workers a gang may grow."""
        return draw.room(self.wanted, name, CPU * len(self.stage.clusters) - _SPARE)

    def renew(self) -> str:
        """Let the oldest gang end and submit a new one; returns the new one's name."""
        self.fill()
        self.remove(next(iter(self.wanted)))
        return self.add()

    def remove(self, name: str, policy: str = "background") -> None:
        """Delete a gang, and do not wait until it is gone."""
        del self.wanted[name]
        self.least.pop(name, None)
        self._delete("raycluster", name, policy)

    def _delete(self, kind: str, name: str, policy: str) -> None:
        words = ("-n", self.stage.name, "delete", kind, name, f"--cascade={policy}")
        taken(lambda: self.stage.manager.kubectl(*words, "--ignore-not-found", "--wait=false"))

    def end(self) -> None:
        """Delete all gangs."""
        for name in tuple(self.wanted):
            self.remove(name)


@dataclass(frozen=True)
class Ground:
    """The place of a campaign."""

    lab: Lab
    stage: Stage
    load: Load
    controller: Container
    kueues: dict[str, Container]  # by cluster
    kuberay: Container
    borrow: bool = False
    outages: Outages = field(default_factory=Outages)
    help: Help = field(default_factory=Help)
    readiness_clock: ReadinessClock = field(default_factory=ReadinessClock)

    def cluster(self, name: str) -> Cluster:
        return next(one for one in self.stage.fleet.all if one.name == name)

    def trouble(self) -> str:
        """What the clusters themselves lack, empty when all is there: until then nothing is expected of us.

        Processes and operators that gave up during an outage are restarted, and that is counted.
        """
        try:
            for name in self.kueues:
                if said := self._restarted(self.lab.cluster(name)):
                    return said
            for one in (self.kuberay, *self.kueues.values()):
                if said := one.trouble():
                    self.help.pods += one.mend()
                    return said
        except Refused:
            raise  # it answers, and will go on rejecting
        except LabError as failure:
            return str(failure)
        return ""

    def _restarted(self, home: definition.Cluster) -> str:
        """Start again what ended because something else did; says what it was."""
        gone = restarts.gone(home)
        if gone:
            self.help.processes += len(gone)
            restarts.start_all(self.lab, home)
        return f"{' and '.join(gone)} of {home.name} had ended" if gone else ""

    def touch(self, gang: str) -> None:
        """Let KubeRay look at a gang: a change that means nothing."""
        words = ("-n", self.stage.name, "annotate", "raycluster", gang, f"touched={time.time()}")
        self.stage.manager.kubectl(*words, "--overwrite")

    def estranged(self) -> list[str]:
        """How far our controller is not there, or not in contact with the worker clusters: sentences."""
        if said := self.controller.trouble():
            self.help.pods += self.controller.mend()
            return [said]
        links = {name: self.stage.manager.get("workerclusters", name) for name in self.stage.clusters}
        return [f"worker cluster {name} is not connected" for name, one in links.items() if not _connected(one)]


def _connected(one: Raw) -> bool:
    return is_condition_true(one, names.CONNECTED)


def prepare(lab: Lab, stage: Stage, load: Load, outages: Outages, *, borrow: bool = False) -> Ground:
    """Find everything; what the controller went through before does not count.

    `borrow`: most of each cluster's quota belongs to an owner. `outages` records unreachable clusters.
    """
    named = {cluster.name: cluster for cluster in stage.fleet.all}
    manager, home = stage.manager, lab.manager
    found = Ground(
        lab=lab,
        stage=stage,
        load=load,
        controller=restarts.controller(manager, home),
        kueues={name: restarts.kueue(named[name], lab.cluster(name)) for name in (home.name, *stage.clusters)},
        kuberay=restarts.kuberay(manager, home),
        borrow=borrow,
        outages=outages,
    )
    found.controller.begin()
    return found


def taken(order: Callable[[], T]) -> T:
    """Repeat an order until it is taken: just after a fault a required webhook may be missing.

    Only for orders that may be repeated. A rejection by a policy or a schema is final: those are ours.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return order()
        except LabError as refusal:
            if time.monotonic() > deadline or any(word in str(refusal) for word in _FINAL):
                raise
            time.sleep(_PAUSE)
