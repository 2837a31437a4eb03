"""The cache of one cluster: a table of watched kinds with their stores, and the errors in reading them.

The manager's cache and each worker cluster's build on it. Their tables say which kinds they read and which ones are
optional. What an unreachable cluster means is for them and their listeners.
"""

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from adapter.shell.kube import reflector
from adapter.shell.kube.client import Client, Unreachable
from adapter.shell.kube.memory_budget import MemoryBudget
from adapter.shell.kube.reflector import FollowConfig
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store

ErrorPredicate = Callable[[Exception], bool]
PROBE, CONNECTION, CLAIM = "probe", "connection", "claim"  # sources of errors beside the watched kinds


def never(_: Exception) -> bool:
    return False


def always(_: Exception) -> bool:
    return True


@dataclass(frozen=True, eq=False, slots=True)
class WatchedKind:
    """One kind that is watched into one store, and what an error in reading it means."""

    resource: Resource
    store: Store
    namespace: str = ""
    selectors: Mapping[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    optional_if: ErrorPredicate = never  # the cache goes on without this kind until it can be read
    # The whole cluster is unreachable; evaluated where `optional_if` is False.
    unreachable_if: ErrorPredicate = always
    deferred: bool = False  # thousands of objects, read only by a process that decides


class ClusterCache:
    """One API server with a store for each kind that is read from it; `run` keeps them up to date until cancelled."""

    def __init__(self, client: Client, most_bytes: int) -> None:
        """`most_bytes`: the memory for all of its objects."""
        self.client, self._budget = client, MemoryBudget(most_bytes)
        self.unreadable_kinds: dict[Resource, Exception] = {}  # optional kinds that cannot be read, and why
        self.restored_at: datetime | None = None  # when it was last seen to have gone back to an older version
        self._watched_kinds: Sequence[WatchedKind] = ()
        # Memo of `synced`. It is reset when a store is emptied or another kind must be read.
        self._all_synced = False
        self._follows_deferred = asyncio.Event()  # deferred kinds are followed, too
        self._follows_deferred.set()
        self._errors: dict[WatchedKind | str, Exception] = {}  # by source: one failing watch is enough

    def extra_budget(self, most_bytes: int) -> MemoryBudget:
        """A budget for reads beside the stores; both read their pages by turns."""
        return MemoryBudget(most_bytes, self._budget.page_lock)

    def skip_deferred(self) -> None:
        """Leave out the deferred kinds until `follow_deferred`; for a standby, before `run`."""
        self._follows_deferred.clear()

    def follow_deferred(self) -> None:
        """Follow the deferred kinds, too: the cache is synced only when they have been listed."""
        self._follows_deferred.set()
        self._all_synced = False

    @property
    def synced(self) -> bool:
        """Whether each kind that must be followed has been listed, optional unreadable kinds aside."""
        # A reconcile asks this of a hundred clusters several times, and nearly always it is True.
        if not self._all_synced:
            self._all_synced = all(map(self._is_synced, self._watched_kinds))
        return self._all_synced

    def _is_synced(self, kind: WatchedKind) -> bool:
        return kind.store.synced or kind.resource in self.unreadable_kinds or self._is_skipped(kind)

    def _is_skipped(self, kind: WatchedKind) -> bool:
        return kind.deferred and not self._follows_deferred.is_set()

    @property
    def first_error(self) -> Exception | None:
        """The oldest current error that makes the cluster unreachable, None without one."""
        return next(iter(self._errors.values()), None)

    async def run(self) -> None:
        """Follow all kinds, and probe, until cancelled."""
        self._note_error(CONNECTION, None)
        self._budget.clear()
        followed = [
            FollowConfig(
                self.client,
                row.resource,
                row.store,
                functools.partial(self._on_follow_result, row),
                row.namespace,
                dict(row.selectors),
                self._on_restored,
                self._budget.new_quota(row.resource.plural),
                self.verify_identity,
                begun=self._follows_deferred if row.deferred else reflector.already_begun(),
            )
            for row in self._watched_kinds
        ]
        on_probe_result = functools.partial(self._note_error, PROBE)
        await reflector.follow_all(
            self.client, on_probe_result, followed, self._on_stores_emptied, self.verify_identity
        )

    def drop_objects(self) -> None:
        """Empty the stores of a cluster that is not followed any more.

        The cache and its stores refer to each other. The garbage collector skips the objects that were
        read at the start (`shell.gc_tuning`), so the contents would stay for as long as the process.
        """
        for row in self._watched_kinds:
            row.store.clear()
        self._on_stores_emptied()

    def _on_stores_emptied(self) -> None:
        """Handle that the stores were emptied: they were over the budget, or the cluster is not followed any more."""
        self._all_synced = False
        self._forget_derived()

    def _forget_derived(self) -> None:
        """Drop everything that was derived from the stores."""

    async def verify_identity(self) -> None:
        """Check the cluster's identity; raises WrongCluster when it is another cluster. Here it checks nothing."""

    def _on_restored(self) -> None:
        """Record that the cluster went back to an older version."""
        self.restored_at = datetime.now(UTC)

    def on_run_failed(self, error: Exception) -> None:
        """Record that `run` failed: the cluster is unreachable until each kind is followed again."""
        outage = Unreachable(f"reading it ended by {type(error).__name__}; see the controller's log")
        for row in self._watched_kinds:
            self._on_follow_result(row, outage)
        self._note_error(CONNECTION, outage)

    def _on_follow_result(self, kind: WatchedKind, error: Exception | None) -> None:
        """Handle the result of following a kind: None when it goes well."""
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
