"""`rayspan where`: where are the head and the workers of a job? Prints them as a tree, by what the manager cluster shows.

Exit code 0: it is shown; 2: there is no such job; 1: the manager cannot be asked.
"""

import argparse
import json
from datetime import UTC, datetime

from adapter.cli import jobfacts, wheretable
from adapter.cli.common import DONE
from adapter.shell.kube.client import Client
from adapter.whereabouts.document import document
from adapter.whereabouts.facts import Facts


def main(given: argparse.Namespace) -> int:
    """Read, print, and return the exit code."""

    async def tell(_: Client, facts: Facts) -> int:
        found = document(facts)
        as_json = given.output == "json"
        print(json.dumps(found, indent=2) + "\n" if as_json else wheretable.render(found, datetime.now(UTC)), end="")
        return DONE

    return jobfacts.attempt(given, tell)
