"""How does a run of faults go: some gangs run, a fault strikes, all must be well again; then the next one.

It stops at the first failure: what is broken then is the evidence, and later faults would bury it.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from hack.lab.base.progress import LabError
from hack.testbed.reader import Unreachable
from hack.trials.chaos import describe, look, moments
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.faults import DEEDS
from hack.trials.chaos.finding import DOUBLED, LAB, Finding
from hack.trials.chaos.ground import Ground
from hack.trials.chaos.look import Sight
from hack.trials.chaos.outages import OUTAGES
from hack.trials.chaos.settling import Unsettled, settle
from hack.trials.sampler import Sampler

Tell = Callable[[str], None]

_ARRIVAL = 15.0  # seconds to come to a moment; whoever does not is struck on the way there
_LINES = 60  # of the controller's log: what it did in the last seconds, and the last trouble before
_LOOK = 0.05  # between two looks for a moment: some last for a tenth of a second


@dataclass(frozen=True)
class Failure:
    """What was wrong after these faults (none: before the first or after the last), and all that was seen then."""

    faults: Sequence[Fault]
    why: str
    findings: Sequence[Finding]
    evidence: str


@dataclass
class Outcome:
    """What was tried and how it went; `recoveries` are seconds from the end of a fault until all was well."""

    kinds: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    failure: Failure | None = None


@dataclass
class Campaign:
    """A run over a stage that is built; `tell` hears one line for each fault."""

    ground: Ground
    tell: Tell
    outcome: Outcome = field(default_factory=Outcome)

    def run(self, bunches: Sequence[Sequence[Fault]]) -> Outcome:
        """Let them strike one after another; returns what came of it, whatever it is."""
        workers = [self.ground.cluster(name) for name in self.ground.stage.clusters]
        with Sampler(workers, self.ground.stage.name) as sampler:
            if self._well((), sampler, self.ground.load.fill):
                for bunch in bunches:
                    if not self._well(bunch, sampler, partial(self._strike, bunch)):
                        return self.outcome
                self._well((), sampler, self.ground.load.end)
        return self.outcome

    def _well(self, bunch: Sequence[Fault], sampler: Sampler, play: Callable[[], object]) -> bool:
        """Play something, wait until all is well, and note how it went."""
        try:
            play()
            recovery = settle(self.ground, self.tell)
            doubled = sampler.lives.doubled()
            if doubled:
                raise Unsettled("there was what must never be", [Finding(DOUBLED, one) for one in doubled])
        except Unsettled as found:
            self.outcome.failure = Failure(bunch, found.why, found.findings, self._evidence(found.seen))
            return False
        except LabError as trouble:
            why, said = "it could not be done", [Finding(LAB, str(trouble))]
            self.outcome.failure = Failure(bunch, why, said, self._evidence(None))
            return False
        finally:
            self.outcome.kinds.update(fault.kind for fault in bunch)
        if bunch:
            self.outcome.recoveries.append(recovery)
            self.tell(f"       well after {recovery:.1f} s")
        return True

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
            outage.enter_context(OUTAGES[first.kind](self.ground, first))
            parts = 1 + len(meanwhile)
            for deed in (*meanwhile, None):
                time.sleep(first.lasts / parts)
                if deed:
                    self._do(deed)

    def _do(self, deed: Fault) -> None:
        hit = DEEDS[deed.kind](self.ground, deed)
        self.tell(f"{deed.number:5}  {deed}: {hit}")

    def _bring(self, moment: str) -> None:
        """Exchange a gang for a new one, and return when that has come to a moment."""
        gang = self.ground.load.renew()
        deadline = time.monotonic() + _ARRIVAL
        while time.monotonic() < deadline:
            try:
                if moments.reached(moment, gang, self._look()):
                    return
            except Unreachable:
                pass  # it is asked again
            time.sleep(_LOOK)

    def _look(self) -> Sight:
        return look.look(self.ground.stage, self.ground.load.wanted)

    def _evidence(self, seen: Sight | None) -> str:
        """What there is, and what the controller said; whatever does not answer is left out."""
        known: list[str] = []
        with suppress(LabError):
            known.append(describe.text(seen or self._look()))
        with suppress(LabError):
            known.append(self.ground.controller.tail(_LINES))
        return "\n".join(known)
