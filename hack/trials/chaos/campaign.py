"""How does a run of faults go: some gangs run, a fault strikes, all must be well again; then the next one. What is said of it in the end?

It stops at the first failure: what is broken then is the evidence, and later faults would bury it. The lab is made whole again,
however the run ends.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

from adapter import names
from adapter.objects.raw import label, meta
from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError
from hack.testbed import figures
from hack.testbed.reader import Unreachable
from hack.testbed.stage import Stage
from hack.trials.chaos import faults, ground, invariants, snapshot
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.faults import DEEDS, OUTAGES
from hack.trials.chaos.ground import CPU, Ground, Load
from hack.trials.chaos.invariants import CRASH, DOUBLED, LAB, LOST, ORPHAN, Finding
from hack.trials.chaos.snapshot import Snapshot
from hack.trials.sampler import CopySampler

Tell = Callable[[str], None]

_ARRIVAL = 15.0  # seconds to come to a moment; whoever does not is struck on the way there
_LINES = 60  # of the controller's log: what it did in the last seconds, and the last trouble before
_LOOK = 0.05  # between two looks for a moment: some last for a tenth of a second
PATIENCE = 60.0  # seconds that our controller has from when the clusters are whole: what the project promises
# For the clusters themselves: an API server takes ten seconds, and then operators that lost their leases take half a minute.
_REPAIR = 240.0
# KubeRay expects pods that it made, though it deleted them itself because Kueue suspended their RayCluster in that moment (a
# RayCluster that is scaled up, say). For thirty seconds it then makes no others, and afterwards it looks again only when
# something changes, or after five minutes (kuberay:controllers/ray/expectations/scale_expectations.go). So something changes.
_REMINDER = 35.0
_PAUSE = 0.2
_LOOKS = 2  # in a row that must find nothing: the lists of one look are not of one instant
_SPREAD = {"strategy": "Spread"}  # so that most gangs are in both clusters, and each fault there hits most gangs
_PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
# Shorter than the default: a share in a cluster that has just gone out is given up within the campaign's own patience.
_TIMEOUT = "10s"


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


class Unsettled(Exception):
    """It is not well, in a few words: what was found at last, and what was seen then (None: nobody answered)."""

    def __init__(self, why: str, findings: Sequence[Finding], seen: Snapshot | None = None) -> None:
        super().__init__(why)
        self.why, self.findings, self.seen = why, findings, seen


@dataclass
class Campaign:
    """A run over a stage that is built; `tell` hears one line for each fault."""

    ground: Ground
    tell: Tell
    outcome: Outcome = field(default_factory=Outcome)

    def run(self, bunches: Sequence[Sequence[Fault]]) -> Outcome:
        """Let them strike one after another; returns what came of it, whatever it is."""
        workers = [self.ground.cluster(name) for name in self.ground.stage.clusters]
        with CopySampler(workers, self.ground.stage.name) as sampler:
            if self._well((), sampler, self.ground.load.fill):
                for bunch in bunches:
                    if not self._well(bunch, sampler, partial(self._strike, bunch)):
                        return self.outcome
                self._well((), sampler, self.ground.load.end)
        return self.outcome

    def _well(self, bunch: Sequence[Fault], sampler: CopySampler, play: Callable[[], object]) -> bool:
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
                if snapshot.reached(moment, gang, self._look()):
                    return
            except Unreachable:
                pass  # it is asked again
            time.sleep(_LOOK)

    def _look(self) -> Snapshot:
        return snapshot.take(self.ground.stage, self.ground.load.wanted)

    def _evidence(self, seen: Snapshot | None) -> str:
        """What there is, and what the controller said; whatever does not answer is left out."""
        known: list[str] = []
        with suppress(LabError):
            known.append(snapshot.text(seen or self._look()))
        with suppress(LabError):
            known.append(self.ground.controller.tail(_LINES))
        return "\n".join(known)


def run(lab: Lab, stage: Stage, seed: int, bunches: Sequence[Sequence[Fault]]) -> Outcome:
    """Build the stage and let the faults strike; each is told on standard output when it does."""
    stage.build(dict.fromkeys(stage.clusters, CPU), timeout=_TIMEOUT, policy=_SPREAD)
    for name in stage.clusters:
        patch = ("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(_PREEMPTION))
        stage.fleet.workers[name].kubectl(*patch)
    try:
        return Campaign(ground.prepare(lab, stage, Load(stage, seed)), _told).run(bunches)
    finally:
        faults.mend(lab)


def _told(line: str) -> None:
    print(line, flush=True)


def settle(ground: Ground, tell: Callable[[str], None]) -> float:
    """Wait until the clusters are whole and every invariant holds; returns after how many seconds it was so.

    KubeRay is reminded of workers that it does not make, and `tell` hears of it. Raises Unsettled when it takes too long, and
    at once where something was that must never be.
    """
    begun = whole = reminded = time.monotonic()
    well: list[float] = []
    while len(well) < _LOOKS:
        trouble, findings, seen = _judge(ground)
        now = time.monotonic()
        if trouble:
            whole = now
        if (trouble or findings) and (now - whole > PATIENCE or now - begun > _REPAIR):
            why = f"after {now - begun:.0f} s it is still not so that all is well"
            raise Unsettled(why, findings or [Finding(LAB, trouble)], seen)
        if seen and findings and now - reminded > _REMINDER:
            reminded = now
            _remind(ground, seen, tell)
        well = [] if trouble or findings else [*well, now]
        time.sleep(_PAUSE)
    return well[0] - begun


def _remind(ground: Ground, seen: Snapshot, tell: Callable[[str], None]) -> None:
    for name in unmade(seen):
        ground.touch(name)
        tell(f"       KubeRay is reminded of {name}")


def unmade(seen: Snapshot) -> list[str]:
    """The gangs of which KubeRay has to make workers: they may run, and have too few."""
    there = Counter(label(pod, names.RAY_GCS_CLUSTER_LABEL) for pod in seen.workers)
    may_run = {meta(job)["name"] for job in seen.jobs if not (job.get("spec") or {}).get("suspend")}
    return [name for name, count in seen.wanted.items() if name in may_run and there[name] < count]


def _judge(ground: Ground) -> tuple[str, list[Finding], Snapshot | None]:
    """What of the clusters is missing, what else is wrong, and what was seen."""
    trouble = ground.trouble()
    if trouble:
        return trouble, [], None
    try:
        seen = snapshot.take(ground.stage, ground.load.wanted)
        contact = [Finding(LAB, one) for one in ground.estranged()]
        crashed = ground.controller.ended_by_itself()
    except Unreachable as silence:
        return f"an API server does not answer ({silence})", [], None
    broken = invariants.never(seen) + ([Finding(CRASH, crashed)] if crashed else [])
    if broken:
        raise Unsettled("there is what must never be", broken, seen)
    return "", [*contact, *invariants.findings(seen)], seen


def last_line(outcome: Outcome, seed: int) -> str:
    """Faults, kinds, what was lost, doubled and left behind, and how long it took."""
    wrong = Counter(finding.kind for finding in outcome.failure.findings) if outcome.failure else Counter[str]()
    p50, most = figures.percentile(outcome.recoveries, 50), max(outcome.recoveries, default=float("nan"))
    return (
        f"faults {outcome.kinds.total()} (kinds {len(outcome.kinds)}), lost {wrong[LOST]}, "
        f"doubled {wrong[DOUBLED]}, orphans {wrong[ORPHAN]}, "
        f"recovery P50 {p50:.1f} s, max {most:.1f} s, seed {seed}"
    )


def failure(found: Failure, seed: int, longest: float) -> str:
    """What went wrong after which faults, how it is played again, and the evidence."""
    struck = [f"After fault {fault.number} of seed {seed}, {fault}" for fault in found.faults] or ["Without a fault"]
    wrong = [f"  {one.kind}: {one.text}" for one in found.findings]
    again = _again(found, seed, longest) if found.faults else []
    return "\n".join([*struck, f"{found.why}:", *wrong, *again, found.evidence])


def _again(found: Failure, seed: int, longest: float) -> list[str]:
    number = found.faults[-1].number
    command = f".venv/bin/python -m hack.trials.chaos --seed {seed} --longest {longest:g}"
    return [f"Again, alone: {command} --only {number}", f"Again, with all before it: {command} --n {number}"]
