"""`python -m hack.bench [NAME…]`: every bench prints tables for people, and in the end a line `BENCH name key=value …` for programs.

A promise that is broken (promises.py) is told as a sentence, and then the status is 1. Figures of one run are to be compared with each other only; who works on the machine meanwhile changes them all.
"""

import argparse
import sys
from collections.abc import Sequence

from hack.bench import crowd, dispatch, fleet, fleetfaults, planner, reserve, rewriter, walk
from hack.lab.base import sidebyside
from hack.lab.base.progress import LabError

_BENCHES = {module.NAME: module for module in (crowd, dispatch, fleet, fleetfaults, planner, reserve, rewriter, walk)}


def main(argv: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    lines: list[str] = []
    broken: list[str] = []
    try:
        for name in asked.names or _BENCHES:
            found = _BENCHES[name].run(asked)
            lines += found.lines
            broken += [f"BROKEN: {sentence}" for sentence in found.broken]
    except LabError as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        print("", *lines, *broken, sep="\n", flush=True)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    text = "\n".join(f"  {name:<8} {module.HELP}" for name, module in _BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="python -m hack.bench", description=__doc__, epilog=f"benches:\n{text}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *_BENCHES], help="which benches (default all)")
    parser.add_argument("--as-is", dest="renew", action="store_false",
                        help="measure the controller that is deployed, not the checkout's")  # fmt: skip
    for module in _BENCHES.values():
        module.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sidebyside.interruptible()
    sys.exit(main())
