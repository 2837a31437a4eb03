"""`rayspan where`: print the head and the workers of a job as a tree, as the manager cluster shows them."""

import argparse
from datetime import UTC, datetime

from adapter.cli import common, job_reader, rayservice_report, where_table
from adapter.cli.common import EXIT_OK
from adapter.cli.job_reader import SelectedJobs
from adapter.cli.terminal import print_text
from adapter.diagnosis.job_document import describe_job
from adapter.shell.kube.client import Client


def main(args: argparse.Namespace) -> int:
    """Print the tree or the document; return the exit code."""

    async def report(_: Client, selection: SelectedJobs) -> int:
        documents, now = [describe_job(facts) for facts in selection.jobs], datetime.now(UTC)
        if args.output == "table":
            texts = [where_table.render(document, now) for document in documents]
            print_text(rayservice_report.combine_texts(selection, texts))
        else:
            print_text(common.format_document(rayservice_report.combine_documents(selection, documents), args.output))
        return EXIT_OK

    return job_reader.run_on_job(args, report)
