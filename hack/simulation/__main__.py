"""`python -m hack.simulation`: runs the real controller on virtual time, and looks for broken promises.

--seed runs one trial, whose digest is the same each time. With --shrink it leaves out its events for as long as the
same promise is broken. --scenario runs a trial that is written down. --campaign runs drawn seeds on all processors for
some minutes. --find runs seeds until one breaks a promise. --mutants puts known faults back, each in a copy of the
checkout, and says which are found. Exit code 1 when a promise was broken, or when a fault that was put back was not
found.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from math import inf

_HASH_SEED = "PYTHONHASHSEED"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; returns the exit code."""
    parser = _parser()
    asked = parser.parse_args(argv)
    if asked.mutants is not None:
        from hack.simulation import mutants

        return mutants.run(asked.mutants, asked.seeds, asked.workers)
    if not any((asked.seed is not None, asked.campaign is not None, asked.find is not None, asked.scenario)):
        parser.error("--seed, --scenario, --campaign, --find or --mutants is needed")
    _fix_hashes()
    if asked.scenario:
        return _scenario(asked)
    if asked.campaign is None and asked.find is None and not asked.shrink:
        return _trial(asked)
    return _forked(asked)


def _fix_hashes() -> None:
    """Start this program again with one order of sets of texts: the product iterates over some."""
    if os.environ.get(_HASH_SEED) != "0":
        sys.stdout.flush()
        words = [sys.executable, "-m", "hack.simulation", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, _HASH_SEED: "0"})


def _forked(asked: argparse.Namespace) -> int:
    from hack.simulation import forked_trial

    forked_trial.prepare()
    from hack.simulation import campaign, report  # after the clocks: the product keeps references to them

    if asked.campaign is not None:
        return campaign.run(asked.campaign, asked.hours, asked.seed, asked.workers)
    if asked.shrink:
        return campaign.shrink(asked.seed, asked.hours, asked.within)
    result = campaign.find(asked.find, asked.hours, asked.seed or 0, asked.workers, asked.seconds)
    print(report.as_json_of_find(result) if asked.json else report.as_text_of_find(result, asked.find))
    return 1 if result else 0


def _scenario(asked: argparse.Namespace) -> int:
    from hack.simulation import virtualtime

    virtualtime.install()
    from hack.simulation import report, trial  # after the clocks: the product keeps references to them
    from hack.simulation.scenarios import SCENARIOS

    one = SCENARIOS.get(asked.scenario)
    if one is None:
        raise SystemExit(f"there is no scenario {asked.scenario}; there are {', '.join(SCENARIOS)}")
    show = print if asked.trace else None
    outcome = trial.play(one.seed, one.shape, one.events, one.seconds, show, until=report.ANY)
    print(report.as_json(outcome) if asked.json else report.as_text(outcome))
    return 1 if outcome.violations else 0


def _trial(asked: argparse.Namespace) -> int:
    from hack.simulation import virtualtime

    virtualtime.install()
    from hack.simulation import report, trial  # after the clocks: the product keeps references to them

    only = None if asked.only is None else {int(number) for number in asked.only.split(",") if number}
    outcome = trial.run(asked.seed, asked.hours, only, print if asked.trace else None, longest=asked.seconds)
    print(report.as_json(outcome) if asked.json else report.as_text(outcome))
    return 1 if outcome.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="of one trial, or the first one of a campaign or of --find")
    parser.add_argument(
        "--scenario", metavar="NAME", help="run a written trial until it breaks a promise (scenarios.py)"
    )
    parser.add_argument("--hours", type=float, default=0.8, help="virtual time of a trial (default 0.8)")
    parser.add_argument("--seconds", type=float, default=inf, help="end a trial of --seed or --find after so many")
    parser.add_argument("--only", help="numbers of the events of a trial, by commas; all others are left out")
    parser.add_argument("--trace", action="store_true", help="print each write, fault and violation")
    parser.add_argument("--json", action="store_true", help="print the outcome for a program")
    parser.add_argument("--shrink", action="store_true", help="find few events that break the same promise")
    parser.add_argument("--within", type=float, default=10.0, help="minutes for --shrink (default 10)")
    parser.add_argument("--campaign", type=float, metavar="MINUTES", help="run trials of drawn seeds for so long")
    parser.add_argument("--workers", type=int, help="trials or mutants at once (default: as many as processors)")
    parser.add_argument("--find", type=int, metavar="TRIALS", help="run so many trials until one breaks a promise")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="put these faults back; all when none is named")
    parser.add_argument("--seeds", type=int, help="trials for each mutant (default 40)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
