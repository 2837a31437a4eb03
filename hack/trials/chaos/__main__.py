"""`python -m hack.trials.chaos`: faults strike gangs that run on the lab, with the controller that is deployed there.

The last line gives the faults and their kinds, what was lost, doubled or left behind, the recovery times, the help that
others got, our processes that ended, the number of reads, and the command that repeats the run. A failure is reported
with all that was seen and the command that replays it, and once more as a sentence before the last line; then the
status is 1.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from hack.lab.base import lab as definition
from hack.lab.base import sidebyside
from hack.lab.base.progress import LabError, told
from hack.testbed import deployment, seed
from hack.testbed.stage import Stage
from hack.trials.chaos import campaign, draw, outcome, withray, withserve
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.invariants import LAB, Finding
from hack.trials.chaos.outcome import Failure, Outcome
from hack.trials.outages import Outages

_LONGEST = 20.0  # seconds; beyond the 15 after which an unreachable cluster certainly counts as lost


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    asked.seed = seed.drawn(asked.seed)
    return told(lambda: _run(asked, seed.again("hack.trials.chaos", argv, asked.seed)))


def _run(asked: argparse.Namespace, again: str) -> int:
    seed.tell(asked.seed, again)
    fleet, found, outages = deployment.on_lab(renew=asked.renew), Outcome(), Outages()
    ray = withray.beside(fleet, outages) if asked.ray else nullcontext()
    serve = withserve.beside(fleet, outages) if asked.serve else nullcontext()
    try:
        with Stage(fleet, "chaos", draw.WORKERS) as stage, ray, serve:
            campaign.run(definition.load(), stage, asked.seed, _chosen(asked), outages, found, borrow=asked.borrow)
    except LabError as trouble:  # of the stage, or of what has real Ray
        found.failures.append(Failure((), "it could not be done", [Finding(LAB, str(trouble))]))
    for failure in found.failures:
        print(outcome.told(failure, asked.seed, asked.longest, asked.kinds))
    print(outcome.closing(found, asked.seed, again))
    return 1 if found.sentences() else 0


def _chosen(asked: argparse.Namespace) -> list[tuple[Fault, ...]]:
    """Ray takes a minute to give up a node, so what has real Ray would not outlast a readiness clock of a minute."""
    kinds = set(asked.kinds or draw.NAMES) - ({draw.READINESS_CLOCK} if asked.ray or asked.serve else set())
    if asked.only:
        return draw.containing(draw.bunches(asked.seed, asked.only, asked.longest, kinds), asked.only)
    return draw.since(draw.bunches(asked.seed, asked.n, asked.longest, kinds), asked.first)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hack.trials.chaos", description=__doc__)
    parser.add_argument("--n", type=int, default=50, metavar="N", help="how many faults (default 50)")
    parser.add_argument("--seed", type=int, help=seed.HELP)
    parser.add_argument("--longest", type=float, default=_LONGEST, metavar="SECONDS",
                        help="how long an outage may last (default 20); other lengths are other faults")  # fmt: skip
    parser.add_argument("--kinds", nargs="+", choices=draw.NAMES, metavar="KIND", default=(),
                        help=f"draw N faults of these kinds alone: {', '.join(draw.NAMES)}")  # fmt: skip
    real = parser.add_mutually_exclusive_group()  # the queue of both has room for four workers
    real.add_argument(
        "--ray", action="store_true", help="let a RayJob with real Ray run beside the gangs, and end well"
    )
    real.add_argument(
        "--serve", action="store_true", help="let a RayService with real Ray answer beside the gangs, and end well"
    )
    parser.add_argument(
        "--borrow", action="store_true", help="let the gangs borrow most of their quota, in small shares"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", type=int, metavar="K", help="fault K alone, with the outage that it is part of")
    which.add_argument("--from", type=int, dest="first", default=1, metavar="K", help="from fault K on")
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="use the controller that is deployed, not the checkout's")  # fmt: skip
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
