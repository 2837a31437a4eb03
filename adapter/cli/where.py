"""`rayspan where`: where are the head and the workers of a job? Prints them as a tree, by what the manager cluster shows.

Exit code 0: it is shown; 2: there is no such job; 1: the manager cannot be asked.
"""

import argparse
from datetime import UTC, datetime

from adapter.cli import common, job_reader, rayservice_report, where_table
from adapter.cli.common import EXIT_OK
from adapter.cli.job_reader import SelectedJobs
from adapter.diagnosis.job_document import describe_job
from adapter.shell.kube.client import Client


def main(args: argparse.Namespace) -> int:
    """Read, print, and return the exit code."""

    async def tell(_: Client, asked: SelectedJobs) -> int:
        found, now = [describe_job(facts) for facts in asked.jobs], datetime.now(UTC)
        if args.output == "table":
            print(rayservice_report.combine_texts(asked, [where_table.render(one, now) for one in found]), end="")
        else:
            print(common.format_document(rayservice_report.combine_documents(asked, found), args.output), end="")
        return EXIT_OK

    return job_reader.run_on_job(args, tell)
