"""The result of a run. Pure: one sentence for each failure, and a last line with all figures."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hack.testbed import figures
from hack.trials.chaos import helping
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.helping import Help
from hack.trials.chaos.invariants import DOUBLED, LOST, ORPHAN, Finding

# Seconds. Half of the recoveries took 4 to 8 s on two busy cores. Resyncs come every 30 s or later, so a recovery that
# needs one takes half of that on average.
_LATE = 15.0


@dataclass(frozen=True)
class Failure:
    """The violations after these faults (none: before the first, after the last, or throughout), and all that was
    seen."""

    faults: Sequence[Fault]
    why: str
    findings: Sequence[Finding]
    evidence: str = ""


@dataclass
class Outcome:
    """A run's faults and results; `recoveries` are seconds from the end of a fault until all was well."""

    struck: list[Fault] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    help: Help = field(default_factory=Help)
    ends: int = 0  # of our controller's processes
    killed: int = 0  # of these, killed by the trial
    looks: int = 0  # reads of the worker clusters, for violations
    gap: float = 0.0  # the longest time without a read, in seconds

    @property
    def kinds(self) -> Counter[str]:
        """How many faults of each kind there were."""
        return Counter(fault.kind for fault in self.struck)

    def sentences(self) -> list[str]:
        """Every way in which it failed; none when all is well."""
        found = [f"{one.kind}: {one.text}" for failure in self.failures for one in failure.findings]
        return [*found, *helping.excess(self.help, helping.most(self.struck)), *self._late()]

    def _late(self) -> list[str]:
        """Half of all recoveries took longer than a resync lets any wait: then resyncs repaired them."""
        if not self.struck and not self.failures:
            return ["no fault struck, so nothing was seen"]
        median = figures.percentile(self.recoveries, 50)
        return (
            [f"half of the recoveries took {median:.0f} s and more, and {_LATE:.0f} s is late"]
            if median > _LATE
            else []
        )


def closing(outcome: Outcome, seed: int, again: str) -> str:
    """The last lines: what failed, a sentence a line, and all figures in one."""
    failed = [f"FAILED: {sentence}" for sentence in outcome.sentences()]
    return "\n".join([*failed, f"{last_line(outcome)}, seed {seed}; again: {again}"])


def last_line(outcome: Outcome) -> str:
    """Faults and kinds; what was lost, doubled and left behind; recovery times; help; ended processes; reads."""
    found = Counter(finding.kind for failure in outcome.failures for finding in failure.findings)
    p50, most = figures.percentile(outcome.recoveries, 50), max(outcome.recoveries, default=float("nan"))
    return (
        f"faults {len(outcome.struck)} (kinds {len(outcome.kinds)}), lost {found[LOST]}, "
        f"doubled {found[DOUBLED]}, orphans {found[ORPHAN]}, failures {len(outcome.sentences())}, "
        f"recovery P50 {p50:.1f} s, max {most:.1f} s, "
        f"help: {helping.line(outcome.help, helping.most(outcome.struck))}, "
        f"controllers ended {outcome.ends} (killed {outcome.killed}), "
        f"looks {outcome.looks} (longest gap {outcome.gap:.1f} s)"
    )


def told(found: Failure, seed: int, longest: float, kinds: Sequence[str] = ()) -> str:
    """The violations, the faults before them, the command that replays them, and the evidence."""
    struck = [f"After fault {fault.number} of seed {seed}, {fault}" for fault in found.faults] or ["Without a fault"]
    wrong = [f"  {one.kind}: {one.text}" for one in found.findings]
    return "\n".join([*struck, f"{found.why}:", *wrong, *_again(found, seed, longest, kinds), found.evidence])


def _again(found: Failure, seed: int, longest: float, kinds: Sequence[str]) -> Iterator[str]:
    if found.faults:
        number = found.faults[-1].number
        command = f".venv/bin/python -m hack.trials.chaos --seed {seed} --longest {longest:g}"
        command += f" --kinds {' '.join(kinds)}" if kinds else ""
        yield f"Again, alone: {command} --only {number}"
        yield f"Again, with all before it: {command} --n {number}"
