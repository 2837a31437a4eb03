"""`python -m hack.simulation`: runs the real controller on virtual time, and looks for broken promises.

With --seed one trial, whose digest is the same each time; --shrink leaves out its events one after the other for as
long as the same promise is broken. With --campaign drawn seeds on all processors, for some minutes. Exit code 1 when a
promise was broken.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from hack.simulation import campaign, virtualtime

_HASH_SEED = "PYTHONHASHSEED"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; returns the exit code."""
    asked = _parser().parse_args(argv)
    if asked.campaign is not None:
        return campaign.run(asked.campaign, asked.hours, asked.seed)
    if asked.seed is None:
        _parser().error("--seed or --campaign is needed")
    if asked.shrink:
        return campaign.shrink(asked.seed, asked.hours, asked.within)
    return _trial(asked)


def _fix_hashes() -> None:
    """Start this program again with one order of sets of texts: the product iterates over some."""
    if os.environ.get(_HASH_SEED) != "0":
        sys.stdout.flush()
        words = [sys.executable, "-m", "hack.simulation", *sys.argv[1:]]
        os.execve(sys.executable, words, {**os.environ, _HASH_SEED: "0"})


def _trial(asked: argparse.Namespace) -> int:
    _fix_hashes()
    virtualtime.install()
    from hack.simulation import report, trial  # after the clocks: the product keeps references to them

    only = None if asked.only is None else {int(number) for number in asked.only.split(",") if number}
    outcome = trial.run(asked.seed, asked.hours, only, print if asked.trace else None)
    print(report.as_json(outcome) if asked.json else report.as_text(outcome))
    return 1 if outcome.violations else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="of one trial, or the first one of a campaign")
    parser.add_argument("--hours", type=float, default=0.8, help="virtual time of a trial (default 0.8)")
    parser.add_argument("--only", help="numbers of the events of a trial, by commas; all others are left out")
    parser.add_argument("--trace", action="store_true", help="print each write, fault and violation")
    parser.add_argument("--json", action="store_true", help="print the outcome for a program")
    parser.add_argument("--shrink", action="store_true", help="find few events that break the same promise")
    parser.add_argument("--within", type=float, default=10.0, help="minutes for --shrink (default 10)")
    parser.add_argument("--campaign", type=float, metavar="MINUTES", help="run trials of drawn seeds for so long")
    return parser


if __name__ == "__main__":
    sys.exit(main())
