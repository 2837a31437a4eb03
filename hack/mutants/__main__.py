"""`python -m hack.mutants`: checks that each break of the product turns its tests red. Exit code 1 if one does not.

Each patch of hack/mutants/patches breaks a promise of the README in a copy of the checkout. The tests that it names
must be red there, and green without it. Those of tier unit need nothing; those of tier lab need the lab with fake
nodes.
"""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hack.lab.base import sidebyside
from hack.lab.base.progress import LabError, step, told
from hack.mutants import patch as patches
from hack.mutants import trial
from hack.mutants.patch import TIERS, Patch
from hack.mutants.trial import Verdict
from hack.testbed import install, seed


def main(argv: Sequence[str] | None = None) -> int:
    """Try the breaks that are asked for; returns the exit code."""
    asked = _parser().parse_args(argv)
    return told(lambda: _tried(_drawn(asked, argv)))


def _drawn(asked: argparse.Namespace, argv: Sequence[str] | None = None) -> list[Patch]:
    found = patches.chosen(patches.every(), asked.names, asked.tier)
    if asked.n is None or asked.n >= len(found):
        return found
    number = seed.drawn(asked.seed)
    seed.tell(number, seed.again("hack.mutants", argv, number))
    return sorted(random.Random(number).sample(found, asked.n), key=lambda one: one.name)


def _tried(found: Sequence[Patch]) -> int:
    without = [patch for patch in found if patch.tier == "unit"]
    with_lab = [patch for patch in found if patch.tier == "lab"]
    words = _on_lab() if with_lab else []  # a missing lab is reported before all else
    with trial.copied() as base:
        verdicts = _tier(without, base, [], os.cpu_count() or 1) + _tier(with_lab, base, words, 1)
    print(report(verdicts), flush=True)
    missed = [one for one in verdicts if one.word != trial.CAUGHT]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} mutants caught")
    return 1 if missed or not verdicts else 0


def _on_lab() -> list[str]:
    """pytest's options, once the checkout is installed as it is.

    The broken controller is a process of the tests, and no pod ever runs it.
    """
    install.on_lab()
    return ["--installed"]


def _tier(found: Sequence[Patch], base: Path, words: Sequence[str], at_once: int) -> list[Verdict]:
    """Run all tests of some patches unpatched, once, then with each patch; raises LabError if they are not green
    unpatched.
    """
    if not found:
        return []
    with step(f"{len(found)} mutants: their tests without them"):
        before = trial.run(base, [test for patch in found for test in patch.tests], words)
    if before.code != 0:
        raise LabError(f"The tests that the mutants name are not green without them.\n{before.said}")
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(lambda patch: _one(patch, base, words), found))


def _one(patch: Patch, base: Path, words: Sequence[str]) -> Verdict:
    with step(f"mutant {patch.name}"):
        return trial.attempt(patch, base, words)


def report(verdicts: Sequence[Verdict]) -> str:
    """A table, and below it what there is to say of those that were not caught."""
    rows = [("MUTANT", "PROMISE", "VERDICT", "SECONDS", "TEST")]
    rows += [(one.patch.name, one.patch.label, one.word, f"{one.seconds:.1f}", one.patch.tests[0]) for one in verdicts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    missed = (one for one in verdicts if one.word != trial.CAUGHT)
    return "\n".join([*table, *(f"{one.patch.name}: {one.why}. It {one.patch.broken}" for one in missed)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a patch, without .patch; all when none is named")
    parser.add_argument("--n", type=int, help="how many, drawn; all when it is not given")
    parser.add_argument("--seed", type=int, help=seed.HELP)
    parser.add_argument("--tier", choices=(*TIERS, "all"), default="all", help="only those of a tier (default all)")
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
