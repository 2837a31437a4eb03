"""Reads incomplete namespaces again, at a bounded pace, until each fits into its share.

A read stops as soon as the namespace exceeds its share, so it takes no more memory than a share. The watches of the
whole cluster go on meanwhile, and no other namespace is read.
"""

import asyncio
import functools
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from adapter.objects.unstructured import UNREADABLE
from adapter.shell.kube import pagination
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.memory_budget import MemoryBudget
from adapter.shell.kube.pagination import OversizedObject
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store

log = logging.getLogger(__name__)

# How often namespaces are checked, and the pause before the next read of one. It doubles, because each read takes the
# memory of a share once more.
TURN_SECONDS = 5.0
FIRST_PAUSE, LAST_PAUSE = 15.0, 300.0
# A read within this time knows of each deletion meanwhile (`store.REMEMBERED_SECONDS`).
READ_SECONDS = 45.0
# The pause after each read, as a multiple of its time, and the longest pause in seconds. So reads of up to 10 s take a
# quarter of the time at most, however many namespaces are incomplete.
REST_FACTOR, LONGEST_REST = 3.0, 30.0


class _ReloadEnded(Exception):
    """The namespace exceeds its share again, or was listed again meanwhile."""


class ReloadedKind(Protocol):
    """A kind that tenants' objects are of."""

    @property
    def resource(self) -> Resource: ...
    @property
    def store(self) -> Store: ...
    @property
    def selectors(self) -> Mapping[str, str]: ...


class ReloadedCluster(Protocol):
    """A cluster's cache (`cluster_cache.py`)."""

    client: Client
    budget: MemoryBudget

    @property
    def synced(self) -> bool: ...
    @property
    def first_error(self) -> Exception | None: ...
    def metered_kinds(self) -> Iterable[ReloadedKind]: ...
    async def verify_identity(self) -> None: ...


class NamespaceReloader:
    def __init__(self, cluster: ReloadedCluster) -> None:
        self._cluster, self._shares = cluster, cluster.budget.namespaces
        # By namespace: the time, by the loop's clock, of the next read, and the pause after it.
        self._schedule: dict[str, tuple[float, float]] = {}

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            for namespace in self._due_namespaces(clock()):
                if self._cluster.synced and not self._cluster.first_error:
                    began = clock()
                    await self._reload(namespace)
                    await asyncio.sleep(min(REST_FACTOR * (clock() - began), LONGEST_REST))
            await asyncio.sleep(TURN_SECONDS)

    def _due_namespaces(self, now: float) -> list[str]:
        """The namespaces to read now; the pause of one that was complete for long begins again."""
        incomplete = self._shares.incomplete()
        for namespace in incomplete:
            self._schedule.setdefault(namespace, (now + FIRST_PAUSE, FIRST_PAUSE))
        ended = [name for name, (due, _) in self._schedule.items() if name not in incomplete and now > due + LAST_PAUSE]
        for namespace in ended:
            del self._schedule[namespace]
        due_namespaces = [name for name in incomplete if self._schedule[name][0] <= now]
        for namespace in due_namespaces:
            pause = min(self._schedule[namespace][1] * 2, LAST_PAUSE)
            self._schedule[namespace] = now + pause, pause
        return due_namespaces

    async def _reload(self, namespace: str) -> None:
        shares = self._shares
        if shares.is_complete(namespace):  # all stores were emptied while the namespace before it was read
            return
        shares.begin_reload(namespace)
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._cluster.verify_identity()
                await self._reload_kinds(namespace)
            shares.end_reload(namespace)
        except (ApiError, Unreachable, TimeoutError, _ReloadEnded, *UNREADABLE, RecursionError) as trouble:
            log.info("namespace %s is left incomplete: %s", namespace, str(trouble) or type(trouble).__name__)
        finally:
            shares.abort_reload(namespace)  # without effect once it has ended

    async def _reload_kinds(self, namespace: str) -> None:
        """Read all kinds; raises _ReloadEnded if a full list was stored meanwhile.

        The stores then no longer know of the deletions before that list, so deleted objects may have been read.
        """
        kinds = list(self._cluster.metered_kinds())
        before = [kind.store.listed_version for kind in kinds]
        for kind in kinds:
            await self._reload_kind(namespace, kind)
        if before != [kind.store.listed_version for kind in kinds]:
            raise _ReloadEnded

    async def _reload_kind(self, namespace: str, kind: ReloadedKind) -> None:
        store_page = functools.partial(_store_page, self._cluster.budget, namespace, kind)
        path, lock = kind.resource.path(namespace), self._cluster.budget.page_lock
        await pagination.read_pages(self._cluster.client, path, store_page, lock, True, **kind.selectors)


def _store_page(budget: MemoryBudget, namespace: str, kind: ReloadedKind, items: list[Any], _: str) -> None:
    shares = budget.namespaces
    for raw in items:
        if isinstance(raw, OversizedObject):
            shares.drop_unreadable(namespace, kind.resource.plural)
            raise _ReloadEnded
        kind.store.reload_object(raw)
    shares.check(namespace)
    budget.check_total()
    if not shares.is_reloading(namespace):
        raise _ReloadEnded
