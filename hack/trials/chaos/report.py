"""What is said of a campaign? Pure: what came of it in, sentences out."""

from collections import Counter

from hack.testbed import figures
from hack.trials.chaos.campaign import Failure, Outcome
from hack.trials.chaos.finding import DOUBLED, LOST, ORPHAN


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
