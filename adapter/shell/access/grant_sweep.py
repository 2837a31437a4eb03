"""Deletes expired WorkerAccesses at an interval, so that their creators need no right to delete them."""

import asyncio
import logging
from typing import Any, Final

from adapter import names
from adapter.access.expired_grants import ExpiredGrants, GrantRef
from adapter.objects.well_formed import malformed_reason
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.pagination import read_pages
from adapter.shell.kube.resources import WORKER_ACCESSES

log = logging.getLogger(__name__)

# The interval of sweeps; until then, an expired grant only takes space in etcd.
EVERY_SECONDS: Final = 60.0


class _SelectionFull(Exception):
    """This sweep may delete no more grants."""


async def run(manager: Client) -> None:
    """Sweep until cancelled; failures are logged."""
    first_namespace = ""
    while True:
        try:
            first_namespace = await sweep_once(manager, first_namespace)
        except (ApiError, Unreachable) as error:
            log.warning("WorkerAccesses cannot be swept: %s", error)
        await asyncio.sleep(EVERY_SECONDS)


async def sweep_once(manager: Client, first_namespace: str = "") -> str:
    """Delete the expired grants from `first_namespace` on; return the namespace where the next sweep begins.

    Of 320 MiB of the pod, a page takes 64 at most, and all streams take 120 (concurrency.py).
    """
    expired = ExpiredGrants(first_namespace)

    def take_page(items: list[Any], _: str) -> None:
        now = manager.clock.earliest_now()  # the answer may have set the clock
        for item in items:
            if not malformed_reason(item):
                expired.add_object(item, now)
        if expired.next_namespace:
            raise _SelectionFull

    try:
        await read_pages(manager, WORKER_ACCESSES.path(), take_page, asyncio.Lock())
    except _SelectionFull:
        log.warning(
            "more than %d WorkerAccesses are to be deleted, and the next sweep goes on at namespace %s: bound them in "
            "each namespace by a ResourceQuota for count/%s.%s (docs/logs.md)",
            len(expired.refs),
            expired.next_namespace,
            WORKER_ACCESSES.plural,
            names.DOMAIN,
        )
    for ref in expired.refs:
        await _delete_grant(manager, ref)
    return expired.next_namespace


async def _delete_grant(manager: Client, ref: GrantRef) -> None:
    try:
        await manager.delete(WORKER_ACCESSES.path(ref.namespace, ref.name), ref.uid)
    except ApiError as error:  # the error may concern this grant only
        log.warning("WorkerAccess %s/%s cannot be deleted, and is tried again: %s", ref.namespace, ref.name, error)
