"""`rayspan check`: report whether jobs can be dispatched now, and what prevents it, for scripts and probes.

The exit code is 1 also when this user may not read enough to decide. `diagnosis.dispatch_check` decides.
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
# A leader renews its Lease every two seconds; five reads also catch a renewal that is two seconds late.
LEASE_READS, PAUSE_SECONDS = 5, 1.0
_EXIT_CODES = {True: EXIT_OK, False: EXIT_NOT_DISPATCHING, None: EXIT_ERROR}
_ANSWERS = {
    True: "Jobs can be dispatched.",
    False: "Nothing can be dispatched.",
    None: "Whether jobs can be dispatched is not known.",
}


def main(args: argparse.Namespace) -> int:
    """Print the document; return the exit code."""
    return common.print_document(args, _read_document, render, lambda document: _EXIT_CODES[document["dispatches"]])


async def _read_document(client: Client) -> Document:
    reader = ManagerReader(client)
    clusters = await reader.list_objects(WORKER_CLUSTERS)
    queues = await reader.list_whole_objects(CLUSTER_QUEUES)  # managedFields show the version of their files
    checks = await reader.list_objects(ADMISSION_CHECKS)
    policies = await policy_objects.read_policies(reader, clusters)
    return dispatch_check.describe_dispatch(
        queues, checks, policies, await _missing_leader(reader), reader.unread_reasons, reader.missing_kinds
    )


async def _missing_leader(reader: ManagerReader) -> str:
    """A sentence when no controller leads; empty when one does, or when this user may not read the Lease.

    A Lease that seems old is read several times, because its holder's clock may differ from this machine's.
    """
    lease = await _read_lease(reader)
    reason = dispatch_check.no_leader_reason(lease, datetime.now(UTC))
    if LEASES.plural in reader.unread_reasons or not reason:
        return ""
    for _ in range(LEASE_READS if dispatch_check.is_lease_held(lease) else 0):
        await asyncio.sleep(PAUSE_SECONDS)
        if dispatch_check.is_lease_renewed(lease, await _read_lease(reader)):
            return ""
    return reason


async def _read_lease(reader: ManagerReader) -> Raw:
    return await reader.get_object(LEASES, names.LEASE, names.SYSTEM_NAMESPACE)


def render(document: Document) -> str:
    """The answer, then one line for each obstacle and each unknown."""
    return join_lines([_ANSWERS[document["dispatches"]], *document["obstacles"], *document["notes"]])
