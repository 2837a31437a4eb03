"""`rayspan check`: can jobs be dispatched now, and what is in the way? For a script, a probe or a pipeline that waits for that.

Exit code 0: they can; 3: nothing can be dispatched; 2: the command line is wrong; 1: the manager cannot be asked, or does not show
enough of itself to this user.
"""

import argparse
import asyncio
from datetime import UTC, datetime

from adapter import names
from adapter.cli import common, policy_objects
from adapter.cli.common import EXIT_ERROR, EXIT_OK, join_lines
from adapter.cli.manager_reader import ManagerReader
from adapter.diagnosis import dispatch_check
from adapter.diagnosis.job_document import Document
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, LEASES, WORKER_CLUSTERS

EXIT_NOT_DISPATCHING = 3
# A leader renews its Lease every two seconds; one that is late by as much again is seen.
LEASE_READS, PAUSE_SECONDS = 5, 1.0
_EXIT_CODES = {True: EXIT_OK, False: EXIT_NOT_DISPATCHING, None: EXIT_ERROR}
_ANSWERS = {
    True: "Jobs can be dispatched.",
    False: "Nothing can be dispatched.",
    None: "Whether jobs can be dispatched is not known.",
}


def main(args: argparse.Namespace) -> int:
    """Read, print, and return the exit code; trouble is one sentence on the standard error."""
    return common.print_document(args, _read_document, render, lambda found: _EXIT_CODES[found["dispatches"]])


async def _read_document(client: Client) -> Document:
    look = ManagerReader(client)
    clusters = await look.list_objects(WORKER_CLUSTERS)
    queues, checks = await look.list_objects(CLUSTER_QUEUES), await look.list_objects(ADMISSION_CHECKS)
    found = await policy_objects.read_policies(look, clusters)
    return dispatch_check.describe_dispatch(
        queues, checks, found, await _missing_leader(look), look.unread_reasons, look.missing_kinds
    )


async def _missing_leader(reader: ManagerReader) -> str:
    """That no controller leads, a sentence; empty where one does, or where this user may not see it.

    A Lease that seems old is looked at for a while: it is renewed by a clock that need not agree with this machine's.
    """
    first = await _read_lease(reader)
    said = dispatch_check.no_leader_reason(first, datetime.now(UTC))
    if LEASES.plural in reader.unread_reasons or not said:
        return ""
    for _ in range(LEASE_READS if dispatch_check.is_lease_held(first) else 0):
        await asyncio.sleep(PAUSE_SECONDS)
        if dispatch_check.is_lease_renewed(first, await _read_lease(reader)):
            return ""
    return said


async def _read_lease(reader: ManagerReader) -> Raw:
    return await reader.get_object(LEASES, names.LEASE, names.SYSTEM_NAMESPACE)


def render(document: Document) -> str:
    """The answer, then a sentence for each thing that is in the way or is not known; each line ended."""
    return join_lines([_ANSWERS[document["dispatches"]], *document["obstacles"], *document["notes"]])
