"""`python -m hack.oracle`: compares our quota arithmetic with Kueue's on random trees; exit code 1 if they differ.

The last line says how many trees and questions were tried, how many answers of Kueue differed from ours, and the
command that draws these trees again. Each different answer is printed with all that is needed to reproduce it: the
objects, what was admitted before, and what was asked.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from adapter.shell.kube.client import ApiError, Unreachable
from hack.lab.base.progress import LabError
from hack.oracle.draw import ROUNDS
from hack.oracle.rounds import line, report, run
from hack.testbed import clusters, seed


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    asked.seed = seed.drawn(asked.seed)
    again = seed.again("hack.oracle", argv, asked.seed)
    seed.tell(asked.seed, again)
    began = time.monotonic()
    try:
        outcome = run(_kubeconfig(asked), asked.seed, range(asked.first, asked.first + asked.n), asked.rounds)
    except (LabError, ApiError, Unreachable) as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for found in outcome.disagreements:
        print(report(found))
    print("questions:", ", ".join(f"{count} {kind}" for kind, count in outcome.kinds.most_common()))
    print(f"{line(outcome, asked.seed, time.monotonic() - began)}; again: {again}", flush=True)
    return 1 if outcome.disagreements else 0


def _kubeconfig(asked: argparse.Namespace) -> Path:
    if asked.kubeconfig:
        return Path(asked.kubeconfig)
    workers = clusters.of_lab().workers
    if asked.cluster not in workers:
        raise LabError(f"The lab has no worker cluster {asked.cluster}, only {', '.join(workers)}.")
    return workers[asked.cluster].kubeconfig


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.oracle", description=__doc__)
    parser.add_argument("--n", type=int, default=200, help="how many trees (default 200)")
    parser.add_argument("--seed", type=int, help=seed.HELP)
    parser.add_argument("--first", type=int, default=0, help="the number of the first tree, to try one of them again")
    parser.add_argument("--rounds", type=int, choices=range(1, ROUNDS + 1), default=ROUNDS,
                        help=f"questions about each tree (default {ROUNDS})")  # fmt: skip
    parser.add_argument("--cluster", default="east", help="a worker cluster of the lab (default east)")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster that is none of the lab's; it needs Kueue")
    return parser


if __name__ == "__main__":
    sys.exit(main())
