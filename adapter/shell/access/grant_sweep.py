"""When do WorkerAccesses go that are over? Once in a while all are read, and those that serve nobody any more are deleted.

Who creates them does not delete them: a command line may be interrupted at any moment, and needs no right to it so. Anybody who may
view a namespace creates as many as its ResourceQuota lets him, so what is read of them at once is bounded.
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

# What is over serves nobody, and only takes room: a grant is in etcd for a minute longer than it is good.
EVERY_SECONDS: Final = 60.0
# Some ten thousand, of which each weighs 2.4 KiB as it is kept: 20 namespaces with all that they may have. They take half of it, beside
# a page of 64 MiB at most as it is read and the 120 MiB of all streams (concurrency.py), of the 256 MiB that the pod has.
MOST_BYTES: Final = 24 * 2**20


async def run(manager: Client) -> None:
    """Sweep for as long as the process runs; an API server that does not answer is asked again the next time."""
    while True:
        try:
            await sweep_once(manager)
        except (ApiError, Unreachable) as error:
            log.warning("WorkerAccesses cannot be swept: %s", error)
        await asyncio.sleep(EVERY_SECONDS)


async def sweep_once(manager: Client) -> None:
    """Delete those that are over now. Of more than are read at once the next sweep has the rest: what is over of a part is over of all."""
    kept = _SweptGrants()
    try:
        await read_pages(manager, WORKER_ACCESSES.path(), kept.take_page, kept.memory_quota.budget.page_lock)
    except BudgetExceeded:
        log.warning(
            "there are more than %d WorkerAccesses, which is as many as are read at once: bound them in each namespace by a ResourceQuota for "
            "count/%s.%s (docs/logs.md)", len(kept.objects), WORKER_ACCESSES.plural, names.DOMAIN,
        )  # fmt: skip
    for one in grant.grants_to_delete(kept.objects, datetime.now(UTC)):
        await _delete_grant(manager, one)


async def _delete_grant(manager: Client, raw: Raw) -> None:
    place = key_of(raw)
    try:
        await manager.delete(WORKER_ACCESSES.path(*place), uid_of(raw))
    except ApiError as error:  # something holds this one, and no other
        log.warning("WorkerAccess %s/%s cannot be deleted, and is tried again: %s", *place, error)


class _SweptGrants:
    """What was read until there was no more room."""

    def __init__(self) -> None:
        self.objects: list[Raw] = []
        self.memory_quota = MemoryBudget(MOST_BYTES).new_quota(WORKER_ACCESSES.plural)

    def take_page(self, items: list[Any], _: str) -> None:
        some = [grant.without_command(one) for one in items if not malformed_reason(one)]
        self.objects += some
        self.memory_quota.set_used(self.memory_quota.used_bytes + object_size.weigh_object(some))
