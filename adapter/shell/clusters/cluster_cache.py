"""The cache of one cluster: watched kinds with their stores, and the errors in reading them.

The manager's and the worker clusters' caches decide what an unreachable cluster means.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from adapter.shell.clusters.namespace_reload import NamespaceReloader
from adapter.shell.kube import reflector
from adapter.shell.kube.client import Client, Unreachable
from adapter.shell.kube.memory_budget import MemoryBudget
from adapter.shell.kube.namespace_shares import NamespaceShares
from adapter.shell.kube.reflector import FollowConfig
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.server_clock import ServerClock
from adapter.shell.kube.store import Store
from adapter.shell.supervise import run_with_restarts

ErrorPredicate = Callable[[Exception], bool]
PROBE, CONNECTION, CLAIM = "probe", "connection", "claim"  # sources of errors beside the watched kinds


def never(_: Exception) -> bool:
    return False


def always(_: Exception) -> bool:
    return True


@dataclass(frozen=True, eq=False, slots=True)
class WatchedKind:
    """A watched kind, and what an error in reading it means."""

    resource: Resource
    store: Store
    namespace: str = ""
    selectors: Mapping[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    optional_if: ErrorPredicate = never  # on such an error, the cache goes on without the kind
    # Whether the cluster is unreachable then; asked only if `optional_if` is False.
    unreachable_if: ErrorPredicate = always
    deferred: bool = False  # thousands of objects, followed only by a process that decides


class ClusterCache:
    """One API server with a store for each kind; `run` keeps them up to date."""

    def __init__(self, client: Client, most_bytes: int, most_namespace_bytes: int | None = None) -> None:
        self.client = client
        self.budget = MemoryBudget(most_bytes, most_namespace_bytes=most_namespace_bytes)
        self.clock = ServerClock()
        self.unreadable_kinds: dict[Resource, Exception] = {}
        self.restored_at: datetime | None = None  # when it went back to an older version
        self._watched_kinds: Sequence[WatchedKind] = ()
        # Caches `synced`; reset when a store is emptied or another kind must be read.
        self._all_synced = False
        self._follows_deferred = asyncio.Event()
        self._follows_deferred.set()
        self._errors: dict[WatchedKind | str, Exception] = {}  # by source

    @property
    def namespace_shares(self) -> NamespaceShares:
        """Which namespaces are complete: from the others' objects nothing may be concluded."""
        return self.budget.namespaces

    def metered_kinds(self) -> Iterable[WatchedKind]:
        """The kinds that tenants' objects are of, as far as they are read."""
        return [
            row
            for row in self._watched_kinds
            if row.store.metered and not self._is_skipped(row) and row.resource not in self.unreadable_kinds
        ]

    def extra_budget(self, most_bytes: int) -> MemoryBudget:
        """A budget for reads beside the stores; its pages and the stores' are read one at a time."""
        return MemoryBudget(most_bytes, self.budget.page_lock)

    def skip_deferred(self) -> None:
        """Leave out deferred kinds until `follow_deferred`; a standby calls this before `run`."""
        self._follows_deferred.clear()

    def follow_deferred(self) -> None:
        """Follow deferred kinds; the cache is synced once they are listed."""
        self._follows_deferred.set()
        self._all_synced = False

    def _watch_kinds(self, kinds: Sequence[WatchedKind]) -> None:
        self._watched_kinds = kinds
        for kind in kinds:
            if kind.store.metered:
                self.namespace_shares.add_store(kind.resource.plural, kind.store)

    @property
    def synced(self) -> bool:
        """Whether each required kind is listed."""
        # A reconcile reads this of a hundred clusters several times, and nearly always it is True.
        if not self._all_synced:
            self._all_synced = all(map(self._is_synced, self._watched_kinds))
        return self._all_synced

    def _is_synced(self, kind: WatchedKind) -> bool:
        return kind.store.synced or kind.resource in self.unreadable_kinds or self._is_skipped(kind)

    def _is_skipped(self, kind: WatchedKind) -> bool:
        return kind.deferred and not self._follows_deferred.is_set()

    @property
    def first_error(self) -> Exception | None:
        return next(iter(self._errors.values()), None)

    async def run(self) -> None:
        self.client.clock = self.clock
        self._note_error(CONNECTION, None)
        self.budget.clear()
        followed = [
            FollowConfig(
                self.client,
                row.resource,
                row.store,
                functools.partial(self._on_follow_result, row),
                row.namespace,
                dict(row.selectors),
                self._on_restored,
                self.budget.new_quota(row.resource.plural),
                self.verify_identity,
                begun=self._follows_deferred if row.deferred else reflector.already_begun(),
            )
            for row in self._watched_kinds
        ]
        on_probe_result = functools.partial(self._note_error, PROBE)
        reloading = asyncio.create_task(run_with_restarts("namespaces", NamespaceReloader(self).run))
        try:
            await reflector.follow_all(
                self.client, on_probe_result, followed, self._on_stores_emptied, self.verify_identity
            )
        finally:
            reloading.cancel()
            await asyncio.gather(reloading, return_exceptions=True)

    def drop_objects(self) -> None:
        """Empty the stores of a cluster that is not followed any more.

        Objects left in the stores would last as long as the process. The cache and its stores refer to each other, and
        the garbage collector skips objects from the process's start (`shell.gc_tuning`).
        """
        for row in self._watched_kinds:
            row.store.clear()
        self._on_stores_emptied()

    def _on_stores_emptied(self) -> None:
        self._all_synced = False
        self.namespace_shares.clear()
        self._forget_derived()

    def _forget_derived(self) -> None:
        """Drop everything derived from the stores."""

    async def verify_identity(self) -> None:
        """Raise WrongCluster for another cluster."""

    def _on_restored(self) -> None:
        self.restored_at = self.clock.now()

    def on_run_failed(self, error: Exception) -> None:
        """Count the cluster as unreachable until each kind is followed again."""
        outage = Unreachable(f"reading it ended by {type(error).__name__}; see the controller's log")
        for row in self._watched_kinds:
            self._on_follow_result(row, outage)
        self._note_error(CONNECTION, outage)

    def _on_follow_result(self, kind: WatchedKind, error: Exception | None) -> None:
        self._all_synced = False
        if error is None:
            self.unreadable_kinds.pop(kind.resource, None)
        elif kind.optional_if(error):
            self.unreadable_kinds[kind.resource] = error
        is_outage = (
            error is not None
            and not kind.optional_if(error)
            and kind.unreachable_if(error)
            and not self._is_skipped(kind)
        )
        self._note_error(kind, error if is_outage else None)

    def _note_error(self, source: WatchedKind | str, error: Exception | None) -> None:
        if error is None:
            self._errors.pop(source, None)
        else:
            self._errors[source] = error
