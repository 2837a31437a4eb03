"""What is followed in one cluster, and can it be seen: a table of stores, and what is in the way of reading them.

The manager and each worker cluster are one of these. Which kinds they read, and what they can do without, they say by their
table; what follows from a silence is for them and their listeners to judge.
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
PROBE, CONNECTION, CLAIM = "probe", "connection", "claim"  # who meets trouble beside the rows of the table


def never(_: Exception) -> bool:
    return False


def always(_: Exception) -> bool:
    return True


@dataclass(frozen=True, eq=False, slots=True)
class WatchedKind:
    """One kind that is followed into one store, and what trouble with it means."""

    resource: Resource
    store: Store
    namespace: str = ""
    selectors: Mapping[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    optional_if: ErrorPredicate = never  # the cluster does without this kind, until it is read after all
    unreachable_if: ErrorPredicate = (
        always  # nothing may be concluded from the whole cluster; asked where it is not spared
    )
    deferred: bool = False  # thousands of objects, which nobody reads who does not decide


class ClusterCache:
    """One API server with a store for each kind that we read there; `run` keeps them true until cancelled."""

    def __init__(self, client: Client, most_bytes: int) -> None:
        """`kept`: how much memory its objects may take, over all kinds."""
        self.client, self._budget = client, MemoryBudget(most_bytes)
        self.unreadable_kinds: dict[Resource, Exception] = {}  # kinds that it does without, and why
        self.restored_at: datetime | None = None  # when it was last found to have gone back to an older version
        self._watched_kinds: Sequence[WatchedKind] = ()
        self._all_synced = (
            False  # as it was found last: anew whenever a store is emptied, or another kind is to be read
        )
        self._follows_deferred = asyncio.Event()  # kinds that are `late` are followed, too
        self._follows_deferred.set()
        self._errors: dict[WatchedKind | str, Exception] = {}  # by who met it: one watch that is refused is enough

    def extra_budget(self, most_bytes: int) -> MemoryBudget:
        """A budget for what is read of it beside its stores, a page in turn with theirs."""
        return MemoryBudget(most_bytes, self._budget.page_lock)

    def skip_deferred(self) -> None:
        """Leave out the kinds that are `late`, until `complete`; for a process that stands by, before `run`."""
        self._follows_deferred.clear()

    def follow_deferred(self) -> None:
        """Follow those, too: it is not synced until they were read."""
        self._follows_deferred.set()
        self._all_synced = False

    @property
    def synced(self) -> bool:
        """Whether each kind that is to be followed was read at least once, but for those that it does without."""
        if not self._all_synced:  # each look asks this of a hundred clusters several times, and nearly always it is so
            self._all_synced = all(map(self._is_synced, self._watched_kinds))
        return self._all_synced

    def _is_synced(self, kind: WatchedKind) -> bool:
        return kind.store.synced or kind.resource in self.unreadable_kinds or self._is_skipped(kind)

    def _is_skipped(self, kind: WatchedKind) -> bool:
        return kind.deferred and not self._follows_deferred.is_set()

    @property
    def first_error(self) -> Exception | None:
        """What was met first of all that is in the way of seeing it, None when nothing is."""
        return next(iter(self._errors.values()), None)

    async def run(self) -> None:
        """Follow everything, and probe, until cancelled."""
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
        tell = functools.partial(self._note_error, PROBE)
        await reflector.follow_all(self.client, tell, followed, self._on_stores_emptied, self.verify_identity)

    def drop_objects(self) -> None:
        """Keep nothing of it, for it is followed no more. It and its stores hold each other: what stood when all was settled is never
        looked through for such (`shell.gc_tuning`), and would stay for as long as the process."""
        for row in self._watched_kinds:
            row.store.clear()
        self._on_stores_emptied()

    def _on_stores_emptied(self) -> None:
        """Hear that its stores were emptied: they held more than may be kept of one cluster, or it is followed no more."""
        self._all_synced = False
        self._forget_derived()

    def _forget_derived(self) -> None:
        """Keep nothing that was read of them."""

    async def verify_identity(self) -> None:
        """Ask who answers; raises Stranger when it is not the cluster that it was. Nobody doubts it here."""

    def _on_restored(self) -> None:
        """Hear that it went back to an older version."""
        self.restored_at = datetime.now(UTC)

    def on_run_failed(self, error: Exception) -> None:
        """Note that `run` ended by itself: nothing is seen until each kind is followed again."""
        why = Unreachable(f"reading it ended by {type(error).__name__}; see the controller's log")
        for row in self._watched_kinds:
            self._on_follow_result(row, why)
        self._note_error(CONNECTION, why)

    def _on_follow_result(self, kind: WatchedKind, error: Exception | None) -> None:
        """Take what became of following a row: None when it goes well."""
        self._all_synced = False
        if error is None:
            self.unreadable_kinds.pop(kind.resource, None)
        elif kind.optional_if(error):
            self.unreadable_kinds[kind.resource] = error
        silences = (
            error is not None
            and not kind.optional_if(error)
            and kind.unreachable_if(error)
            and not self._is_skipped(kind)
        )
        self._note_error(kind, error if silences else None)

    def _note_error(self, source: WatchedKind | str, error: Exception | None) -> None:
        if error is None:
            self._errors.pop(source, None)
        else:
            self._errors[source] = error
