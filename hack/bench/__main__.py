"""`python -m hack.bench [NAME…]`: runs benches, prints tables, and a line `BENCH name key=value …` for each.

Then each figure stands beside its goal (promises.py). A missed goal is a sentence and gives status 1. With --lenient,
for busy machines, only a goal missed by far does. Compare only figures of one run: other work on the machine changes
them all.
"""

import argparse
import sys
from collections.abc import Sequence

from hack.bench import (
    crowd,
    dispatch,
    fleet,
    fleetfaults,
    makespan,
    multikueue,
    page,
    planner,
    record,
    relay,
    reserve,
    rewriter,
    verdicts,
    walk,
)
from hack.bench.promises import Row
from hack.lab.base import sidebyside
from hack.lab.base.progress import LabError

_BENCHES = {
    module.NAME: module
    for module in (crowd, dispatch, fleet, fleetfaults, makespan, multikueue, planner, relay, reserve, rewriter, walk)
}


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    lines, rows, wrong = list[str](), list[Row](), list[str]()
    try:
        for name in asked.names or _BENCHES:
            found = _BENCHES[name].run(asked)
            lines += found.lines
            rows += found.rows
            wrong += verdicts.sentences(found.rows, lenient=asked.lenient)
            if asked.write:  # after each bench, so that an interrupted run keeps what it has
                page.write(record.keep(found.rows))
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        print("", verdicts.table(rows), "", *lines, *wrong, sep="\n", flush=True)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    text = "\n".join(f"  {name:<10} {module.HELP}" for name, module in _BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m hack.bench", description=__doc__, epilog=f"benches:\n{text}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *_BENCHES], help="which benches (default all)")
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="measure the controller that is deployed, not the checkout's")  # fmt: skip
    parser.add_argument(
        "--lenient", action="store_true", help="fail only where a promise is broken by far: for a busy machine"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="put the figures into docs/performance.md; rows that are not run keep theirs",
    )
    for module in _BENCHES.values():
        module.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
