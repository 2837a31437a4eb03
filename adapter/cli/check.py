"""`rayspan check`: can jobs be dispatched now, and what is in the way? For a script, a probe or a pipeline that waits for that.

Exit code 0: they can; 3: nothing can be dispatched; 2: the command line is wrong; 1: the manager cannot be asked, or does not show
enough of itself to this user.
"""

import argparse
from datetime import UTC, datetime

from adapter import names
from adapter.cli import common, policies
from adapter.cli.common import DONE, TROUBLE, as_lines
from adapter.cli.look import Look
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import ADMISSION_CHECKS, CLUSTER_QUEUES, LEASES, WORKER_CLUSTERS
from adapter.whereabouts import dispatching
from adapter.whereabouts.document import Document

STOPPED = 3
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
    found = await policies.written(look, clusters)
    lease = await look.one(LEASES, names.LEASE, names.SYSTEM_NAMESPACE)
    # A controller may lead all the same where this user may not see that.
    leaderless = "" if LEASES.plural in look.unread else dispatching.leaderless(lease, datetime.now(UTC))
    return dispatching.document(queues, checks, found, leaderless, look.unread, look.lacks)


def render(found: Document) -> str:
    """The answer, then a sentence for each thing that is in the way or is not known; each line ended."""
    return as_lines([_SAID[found["dispatches"]], *found["obstacles"], *found["notes"]])
