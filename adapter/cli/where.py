"""`rayspan where`: where are the head and the workers of a job? Prints them as a tree, by what the manager cluster shows.

Exit code 0: it is shown; 2: there is no such job; 1: the manager cannot be asked.
"""

import argparse
from datetime import UTC, datetime

from adapter.cli import common, job_reader, rayservice_report, where_table
from adapter.cli.common import DONE
from adapter.cli.job_reader import Asked
from adapter.diagnosis.job_document import document
from adapter.shell.kube.client import Client


def main(given: argparse.Namespace) -> int:
    """Read, print, and return the exit code."""

    async def tell(_: Client, asked: Asked) -> int:
        found, now = [document(facts) for facts in asked.jobs], datetime.now(UTC)
        if given.output == "table":
            print(rayservice_report.rendered(asked, [where_table.render(one, now) for one in found]), end="")
        else:
            print(common.written(rayservice_report.document(asked, found), given.output), end="")
        return DONE

    return job_reader.attempt(given, tell)
