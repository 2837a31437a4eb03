"""`rayspan`: one command with one verb for each thing that it can do."""

import argparse
import sys

from adapter import __version__
from adapter.cli import controller


def main() -> int:
    """Read the command line and run the verb; returns the exit code."""
    parser = argparse.ArgumentParser(prog="rayspan", description="Spans one RayCluster over many Kubernetes clusters.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("controller", help="run the controller (what the Deployment does)")
    run.add_argument("--port", type=int, default=8081, help="port of /healthz, /readyz and /metrics (default 8081)")
    run.add_argument("--verbose", action="store_true", help="log every reconciliation")
    given = parser.parse_args()
    return controller.main(given.port, given.verbose)


if __name__ == "__main__":
    sys.exit(main())
