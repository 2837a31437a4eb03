"""Deletes expired WorkerAccesses: reads all of them at an interval, and deletes those that no request can use.

Their creators do not delete them: a command line may be interrupted at any moment, and so needs no right to delete.
Users who may view a namespace can create as many as its ResourceQuota allows, so the memory of a sweep is bounded.
"""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Any, Final

from adapter import names
from adapter.access import grant
from adapter.objects.unstructured import Raw, key_of, uid_of
from adapter.objects.well_formed import malformed_reason
from adapter.shell.kube import object_size
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.memory_budget import BudgetExceeded, MemoryBudget
from adapter.shell.kube.pagination import read_pages
from adapter.shell.kube.resources import WORKER_ACCESSES

log = logging.getLogger(__name__)

# An expired grant only takes space: it is in etcd for a minute longer than it is valid.
EVERY_SECONDS: Final = 60.0
# Weight of some ten thousand grants of 2.4 KiB each: 20 namespaces with their maximum. They take half of it in memory.
# A page takes 64 MiB at most while it is read, all streams 120 MiB (concurrency.py), and the pod has 256 MiB.
MOST_BYTES: Final = 24 * 2**20


async def run(manager: Client) -> None:
    """Sweep until cancelled; a failed sweep is only logged."""
    while True:
        try:
            await sweep_once(manager)
        except (ApiError, Unreachable) as error:
            log.warning("WorkerAccesses cannot be swept: %s", error)
        await asyncio.sleep(EVERY_SECONDS)


async def sweep_once(manager: Client) -> None:
    """Delete the expired grants.

    Where there are more than a sweep can read, it deletes among a part, since a grant that is due in a part is due in
    all. The next sweep has the rest.
    """
    grants = _SweptGrants()
    try:
        await read_pages(manager, WORKER_ACCESSES.path(), grants.take_page, grants.memory_quota.budget.page_lock)
    except BudgetExceeded:
        log.warning(
            "there are more than %d WorkerAccesses, which is as many as are read at once: bound them in each "
            "namespace by a ResourceQuota for count/%s.%s (docs/logs.md)",
            len(grants.objects),
            WORKER_ACCESSES.plural,
            names.DOMAIN,
        )
    for raw in grant.grants_to_delete(grants.objects, datetime.now(UTC)):
        await _delete_grant(manager, raw)


async def _delete_grant(manager: Client, raw: Raw) -> None:
    key = key_of(raw)
    try:
        await manager.delete(WORKER_ACCESSES.path(*key), uid_of(raw))
    except ApiError as error:  # the fault may be of this grant alone
        log.warning("WorkerAccess %s/%s cannot be deleted, and is tried again: %s", *key, error)


class _SweptGrants:
    """The grants that a sweep has read, within its memory quota."""

    def __init__(self) -> None:
        self.objects: list[Raw] = []
        self.memory_quota = MemoryBudget(MOST_BYTES).new_quota(WORKER_ACCESSES.plural)

    def take_page(self, items: list[Any], _: str) -> None:
        grants = [grant.without_command(item) for item in items if not malformed_reason(item)]
        self.objects += grants
        self.memory_quota.set_used(self.memory_quota.used_bytes + object_size.weigh_object(grants))
