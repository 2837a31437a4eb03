"""`rayspan check`: can jobs be dispatched now, and what is in the way? For a script, a probe or a pipeline that waits for that.

Exit code 0: they can; 3: nothing can be dispatched; 2: the command line is wrong; 1: the manager cannot be asked, or does not show
enough of itself to this user.
"""

import argparse
import asyncio
from datetime import UTC, datetime

from adapter import names
from adapter.cli import common, policy_objects
from adapter.cli.common import DONE, TROUBLE, as_lines
from adapter.cli.manager_reader import Look
from adapter.diagnosis import dispatch_check
from adapter.diagnosis.job_document import Document
from adapter.objects.unstructured import Raw
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, LEASES, WORKER_CLUSTERS

STOPPED = 3
# A leader renews its Lease every two seconds; one that is late by as much again is seen.
LOOKS, PAUSE_SECONDS = 5, 1.0
_CODES = {True: DONE, False: STOPPED, None: TROUBLE}
_SAID = {
    True: "Jobs can be dispatched.",
    False: "Nothing can be dispatched.",
    None: "Whether jobs can be dispatched is not known.",
}


def main(given: argparse.Namespace) -> int:
    """Read, print, and return the exit code; trouble is one sentence on the standard error."""
    return common.shown(given, _looked, render, lambda found: _CODES[found["dispatches"]])


async def _looked(client: Client) -> Document:
    look = Look(client)
    clusters = await look.all(WORKER_CLUSTERS)
    queues, checks = await look.all(CLUSTER_QUEUES), await look.all(ADMISSION_CHECKS)
    found = await policy_objects.written(look, clusters)
    return dispatch_check.document(queues, checks, found, await _leaderless(look), look.unread, look.lacks)


async def _leaderless(look: Look) -> str:
    """That no controller leads, a sentence; empty where one does, or where this user may not see it.

    A Lease that seems old is looked at for a while: it is renewed by a clock that need not agree with this machine's.
    """
    first = await _lease(look)
    said = dispatch_check.leaderless(first, datetime.now(UTC))
    if LEASES.plural in look.unread or not said:
        return ""
    for _ in range(LOOKS if dispatch_check.is_held(first) else 0):
        await asyncio.sleep(PAUSE_SECONDS)
        if dispatch_check.is_renewed(first, await _lease(look)):
            return ""
    return said


async def _lease(look: Look) -> Raw:
    return await look.one(LEASES, names.LEASE, names.SYSTEM_NAMESPACE)


def render(found: Document) -> str:
    """The answer, then a sentence for each thing that is in the way or is not known; each line ended."""
    return as_lines([_SAID[found["dispatches"]], *found["obstacles"], *found["notes"]])
