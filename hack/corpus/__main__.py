"""`python -m hack.corpus`: remake docs/compatibility.md and the recorded pods, on the lab. `make compatibility` is
this.
"""

import argparse
import sys
from collections.abc import Sequence

from adapter.shell.kube.client import ApiError, Unreachable
from hack.corpus import golden, report
from hack.corpus.ask import run
from hack.lab.base.progress import LabError
from hack.testbed import clusters


def main(argv: Sequence[str] | None = None) -> int:
    # It has no options. Without a parser `--help` would start it, on a lab that others may be using.
    argparse.ArgumentParser(prog="python -m hack.corpus", description=__doc__).parse_args(argv)
    fleet = clusters.of_lab()
    try:
        seen = run(fleet.manager.kubeconfig, next(iter(fleet.workers.values())).kubeconfig)
    except (LabError, ApiError, Unreachable) as failure:
        print(failure, file=sys.stderr)
        return 1
    report.PAGE.write_text(report.page(seen), encoding="utf-8")
    for file, text in golden.recorded(seen).items():
        file.write_text(text, encoding="utf-8")
    print(report.line(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
