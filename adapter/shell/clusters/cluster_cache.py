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
from adapter.shell.kube.memory_budget import Budget
from adapter.shell.kube.reflector import Following
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store

Says = Callable[[Exception], bool]
PROBE, CONNECTION, CLAIM = "probe", "connection", "claim"  # who meets trouble beside the rows of the table


def never(_: Exception) -> bool:
    return False


def always(_: Exception) -> bool:
    return True


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """One kind that is followed into one store, and what trouble with it means."""

    resource: Resource
    store: Store
    namespace: str = ""
    selectors: Mapping[str, str] = field(default_factory=dict)  # labelSelector, fieldSelector
    spared: Says = never  # the cluster does without this kind, until it is read after all
    silences: Says = always  # nothing may be concluded from the whole cluster; asked where it is not spared
    late: bool = False  # thousands of objects, which nobody reads who does not decide


class Cluster:
    """One API server with a store for each kind that we read there; `run` keeps them true until cancelled."""

    def __init__(self, client: Client, kept: int) -> None:
        """`kept`: how much memory its objects may take, over all kinds."""
        self.client, self._budget = client, Budget(kept)
        self.unread: dict[Resource, Exception] = {}  # kinds that it does without, and why
        self.restored_at: datetime | None = None  # when it was last found to have gone back to an older version
        self._rows: Sequence[Row] = ()
        self._all_read = False  # as it was found last: anew whenever a store is emptied, or another kind is to be read
        self._whole = asyncio.Event()  # kinds that are `late` are followed, too
        self._whole.set()
        self._troubles: dict[Row | str, Exception] = {}  # by who met it: one watch that is refused is enough

    def aside(self, kept: int) -> Budget:
        """A budget for what is read of it beside its stores, a page in turn with theirs."""
        return Budget(kept, self._budget.page)

    def spare(self) -> None:
        """Leave out the kinds that are `late`, until `complete`; for a process that stands by, before `run`."""
        self._whole.clear()

    def complete(self) -> None:
        """Follow those, too: it is not synced until they were read."""
        self._whole.set()
        self._all_read = False

    @property
    def synced(self) -> bool:
        """Whether each kind that is to be followed was read at least once, but for those that it does without."""
        if not self._all_read:  # each look asks this of a hundred clusters several times, and nearly always it is so
            self._all_read = all(map(self._is_read, self._rows))
        return self._all_read

    def _is_read(self, row: Row) -> bool:
        return row.store.synced or row.resource in self.unread or self._left_out(row)

    def _left_out(self, row: Row) -> bool:
        return row.late and not self._whole.is_set()

    @property
    def trouble(self) -> Exception | None:
        """What was met first of all that is in the way of seeing it, None when nothing is."""
        return next(iter(self._troubles.values()), None)

    async def run(self) -> None:
        """Follow everything, and probe, until cancelled."""
        self._note(CONNECTION, None)
        self._budget.clear()
        followed = [
            Following(
                self.client,
                row.resource,
                row.store,
                functools.partial(self._followed, row),
                row.namespace,
                dict(row.selectors),
                self._restored,
                self._budget.room(row.resource.plural),
                self.prove,
                begun=self._whole if row.late else reflector.at_once(),
            )
            for row in self._rows
        ]
        tell = functools.partial(self._note, PROBE)
        await reflector.keep(self.client, tell, followed, self._emptied, self.prove)

    def release(self) -> None:
        """Keep nothing of it, for it is followed no more. It and its stores hold each other: what stood when all was settled is never
        looked through for such (`shell.gc_tuning`), and would stay for as long as the process."""
        for row in self._rows:
            row.store.forget()
        self._emptied()

    def _emptied(self) -> None:
        """Hear that its stores were emptied: they held more than may be kept of one cluster, or it is followed no more."""
        self._all_read = False
        self._forget()

    def _forget(self) -> None:
        """Keep nothing that was read of them."""

    async def prove(self) -> None:
        """Ask who answers; raises Stranger when it is not the cluster that it was. Nobody doubts it here."""

    def _restored(self) -> None:
        """Hear that it went back to an older version."""
        self.restored_at = datetime.now(UTC)

    def broken(self, error: Exception) -> None:
        """Note that `run` ended by itself: nothing is seen until each kind is followed again."""
        why = Unreachable(f"reading it ended by {type(error).__name__}; see the controller's log")
        for row in self._rows:
            self._followed(row, why)
        self._note(CONNECTION, why)

    def _followed(self, row: Row, error: Exception | None) -> None:
        """Take what became of following a row: None when it goes well."""
        self._all_read = False
        if error is None:
            self.unread.pop(row.resource, None)
        elif row.spared(error):
            self.unread[row.resource] = error
        silences = error is not None and not row.spared(error) and row.silences(error) and not self._left_out(row)
        self._note(row, error if silences else None)

    def _note(self, source: Row | str, error: Exception | None) -> None:
        if error is None:
            self._troubles.pop(source, None)
        else:
            self._troubles[source] = error
