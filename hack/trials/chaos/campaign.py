"""A run of faults: gangs run, a fault strikes, all must be well again; then comes the next one.

It stops at the first failure: what is broken then is the evidence, which later faults would bury. The lab is repaired
however the run ends.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError
from hack.testbed.reader import Unreachable
from hack.testbed.stage import Stage
from hack.trials.chaos import borrowing, ends, faults, ground, settling, snapshot
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.faults import DEEDS, OUTAGES
from hack.trials.chaos.ground import CPU, Ground, Load
from hack.trials.chaos.invariants import BLIND, DOUBLED, LAB, LEDGER, Finding
from hack.trials.chaos.outcome import Failure, Outcome
from hack.trials.chaos.picking import NOBODY
from hack.trials.chaos.settling import Tell, Unsettled
from hack.trials.chaos.snapshot import Snapshot
from hack.trials.outages import Outages
from hack.trials.sampler import COPIES_PERIOD, QuotaSampler
from hack.trials.watch import Blind

_ARRIVAL = 15.0  # seconds for a gang to come to a moment; a slower one is struck on the way there
_LINES = 60  # of the controller's log: its last seconds, and the last trouble before
_LOOK = 0.05  # between two reads for a moment: some last for a tenth of a second
_BEYOND = 5  # reported samples beyond quota: one cause gives ten a second
_SPREAD = {"strategy": "Spread"}  # so that most gangs are in both clusters, and each fault there hits most gangs
_PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
# More memory than is ever requested: no gang requests any, but a LimitRange may add some (mistakes.py).
_MEMORY = [
    {"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/1/nominalQuota", "value": "200Gi"},
]
# Shorter than the default, so that a share in a cluster that has just gone out is given up within the campaign's own
# timeout.
_TIMEOUT = "10s"


@dataclass
class Campaign:
    """A run over a stage that is built; `tell` hears one line for each fault."""

    ground: Ground
    tell: Tell
    outcome: Outcome

    def run(self, bunches: Sequence[Sequence[Fault]]) -> None:
        """Let the faults strike one after another, and note every result."""
        stage = self.ground.stage
        workers = [self.ground.cluster(name) for name in stage.clusters]
        sampler = QuotaSampler(
            workers, stage.name, [stage.name, borrowing.owner_name(stage)], self.ground.outages, period=COPIES_PERIOD
        )
        try:
            with sampler:
                self._all(bunches, sampler)
        except Blind as blind:
            said = [Finding(BLIND, one) for one in blind.said]
            self.outcome.failures.append(Failure((), "not everything was seen", said))
        self._note(sampler)

    def _all(self, bunches: Sequence[Sequence[Fault]], sampler: QuotaSampler) -> None:
        if not self._well((), sampler, self.ground.load.fill):
            return
        for bunch in bunches:
            if not self._well(bunch, sampler, partial(self._strike, bunch)):
                return
        self._well((), sampler, self.ground.load.end)

    def _well(self, bunch: Sequence[Fault], sampler: QuotaSampler, play: Callable[[], object]) -> bool:
        """Play something, wait until all is well, and note how it went."""
        try:
            self.ground.load.struck()
            play()
            recovery = settling.settle(self.ground, self.tell, settling.patience(bunch))
            if never := [*_doubled(sampler), *_beyond(sampler)]:
                raise Unsettled("there was what must never be", never)
        except Unsettled as found:
            self._fail(bunch, found.why, found.findings, found.seen)
            return False
        except LabError as trouble:
            self._fail(bunch, "it could not be done", [Finding(LAB, str(trouble))], None)
            return False
        finally:
            self.outcome.struck.extend(bunch)
        if bunch:
            self.outcome.recoveries.append(recovery)
            self.tell(f"       well after {recovery:.1f} s")
        return not sampler.deaths  # a dead sampler is reported in the end; further faults would prove nothing

    def _fail(self, bunch: Sequence[Fault], why: str, findings: Sequence[Finding], seen: Snapshot | None) -> None:
        self.outcome.failures.append(Failure(bunch, why, findings, self._evidence(seen)))

    def _note(self, sampler: QuotaSampler) -> None:
        """The figures of the last line."""
        self.outcome.help = self.ground.help
        self.outcome.ends = self.ground.controller.book.ends()
        self.outcome.killed = len(self.ground.controller.killed)
        self.outcome.looks = sum(map(len, sampler.looks.values()))
        self.outcome.gap = sampler.longest_gap()

    def _strike(self, bunch: Sequence[Fault]) -> None:
        first, *meanwhile = bunch
        self.ground.load.fill()
        if first.moment:
            self._bring(first.moment)
        if first.kind in DEEDS:
            self._do(first)
            return
        with ExitStack() as outage:
            self.tell(f"{first.number:5}  {first}")
            self._expect(first)
            outage.enter_context(OUTAGES[first.kind](self.ground, first))
            parts = 1 + len(meanwhile)
            for deed in (*meanwhile, None):
                time.sleep(first.lasts / parts)
                if deed:
                    self._do(deed)

    def _expect(self, outage: Fault) -> None:
        """Note what an outage excuses: looks at a cluster that is silent, and a leader that loses its Lease."""
        if faults.silences(outage):
            self.ground.outages.begin(outage.where)
        self.ground.controller.book.excuses += ends.may_cost_the_lease(outage)

    def _do(self, deed: Fault) -> None:
        hit = DEEDS[deed.kind](self.ground, deed)
        self.ground.help.nobody += hit == NOBODY
        self.tell(f"{deed.number:5}  {deed}: {hit}")

    def _bring(self, moment: str) -> None:
        """Exchange a gang for a new one, and return when that has come to a moment."""
        gang = self.ground.load.renew()
        deadline = time.monotonic() + _ARRIVAL
        while time.monotonic() < deadline:
            with suppress(Unreachable):  # it is read again
                if snapshot.reached(moment, gang, self._look()):
                    return
            time.sleep(_LOOK)
        self.ground.help.missed += 1
        self.tell(f"       {gang} was not {moment} within {_ARRIVAL:.0f} s")

    def _look(self) -> Snapshot:
        return snapshot.take(self.ground.stage, self.ground.load.wanted, self.ground.load.rejected)

    def _evidence(self, seen: Snapshot | None) -> str:
        """The objects and the controller's log, without what does not answer."""
        known: list[str] = []
        with suppress(LabError):
            known.append(snapshot.text(seen or self._look()))
        with suppress(LabError):
            known.append(self.ground.controller.tail(_LINES))
        return "\n".join(known)


def run(
    lab: Lab,
    stage: Stage,
    seed: int,
    bunches: Sequence[Sequence[Fault]],
    outages: Outages,
    outcome: Outcome,
    *,
    borrow: bool = False,
) -> None:
    """Build the stage and let the faults strike; each is printed when it does, and `outcome` holds the result.

    `borrow`: the gangs borrow most of their quota.
    """
    policy = {**_SPREAD, "borrowingShares": borrowing.SHARES} if borrow else _SPREAD
    stage.build(dict.fromkeys(stage.clusters, CPU), timeout=_TIMEOUT, policy=policy, resource="memory")
    for name in stage.clusters:
        patch = ("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(_PREEMPTION))
        stage.fleet.workers[name].kubectl(*patch)
    for cluster in (stage.manager, *(stage.fleet.workers[name] for name in stage.clusters)):
        cluster.kubectl("patch", "clusterqueue", stage.name, "--type=json", "-p", json.dumps(_MEMORY))
    if borrow:
        borrowing.add_owners(stage)
    place = ground.prepare(lab, stage, Load(stage, seed), outages, borrow=borrow)
    try:
        Campaign(place, _told, outcome).run(bunches)
    finally:
        faults.mend(lab)
        place.readiness_clock.set_back()


def _told(line: str) -> None:
    print(line, flush=True)


def _doubled(sampler: QuotaSampler) -> list[Finding]:
    return [Finding(DOUBLED, one) for one in sampler.lives.doubled()]


def _beyond(sampler: QuotaSampler) -> list[Finding]:
    """The first samples in which more was used than may be."""
    return [Finding(LEDGER, f"in {one.cluster} {said}") for one in sampler.beyond[:_BEYOND] for said in one.beyond]
