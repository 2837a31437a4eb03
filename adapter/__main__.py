"""`rayspan`: one command with one verb for each thing that it can do."""

import argparse
import sys
from pathlib import Path

from adapter import __version__
from adapter.cli import common, controller, cordon, drain, plan, render, top, where, why
from adapter.cli.membership import join, leave, rotate
from adapter.cli.preflight import command

_INTERRUPTED = 130  # what a shell gives a program that Ctrl-C ended


def main() -> int:
    """Read the command line and run the verb; returns the exit code."""
    plugin = Path(sys.argv[0]).name == "kubectl-rayspan"
    parser = argparse.ArgumentParser(
        prog="kubectl rayspan" if plugin else "rayspan",
        description="Spans one RayCluster over many Kubernetes clusters.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("controller", help="run the controller (what the Deployment does)")
    run.add_argument("--port", type=int, default=8081, help="port of /healthz, /readyz and /metrics (default 8081)")
    run.add_argument("--plan-port", type=int, default=8082, help="port on which plans are asked for (default 8082)")
    run.add_argument("--verbose", action="store_true", help="log every reconciliation")
    run.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write only while holding the Lease, so that several may run (default); without it, run one alone",
    )
    join.add(verbs)
    rotate.add(verbs)
    leave.add(verbs)
    plan.add(verbs)
    where.add(verbs)
    why.add(verbs)
    top.add(verbs)
    render.add(verbs)
    cordon.add(verbs)
    drain.add(verbs)
    command.add(verbs)
    given = parser.parse_args()
    asked = {
        "join": join.main,
        "rotate": rotate.main,
        "leave": leave.main,
        "plan": plan.main,
        "where": where.main,
        "why": why.main,
        "top": top.main,
        "render": render.main,
        "cordon": cordon.main,
        "uncordon": cordon.main,
        "drain": drain.main,
        "preflight": command.main,
    }
    if given.verb in asked:
        try:
            return asked[given.verb](given)
        except KeyboardInterrupt:
            return common.complain("Interrupted.", _INTERRUPTED)
    return controller.main(given.port, given.plan_port, verbose=given.verbose, leader_elect=given.leader_elect)


if __name__ == "__main__":
    sys.exit(main())
