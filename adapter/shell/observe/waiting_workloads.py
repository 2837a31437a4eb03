"""Who queues behind the gangs for the manager's quota: from when on, by ClusterQueue?

Of a strict one nobody counts behind a Workload that no quota would help: who gave way would do so for nobody, and for as long as that one
is there might not come back. Of a ClusterQueue that borrows, who waits in another one of its cohort counts, too: it may wait for what was borrowed.

Read from all Workloads of the manager once a second: who gives way has waited for ten, and many that wait ask this at every look. But
who finds nobody does not look again for long: where more or less is pending than when it was read, it is read anew for him. Where Kueue
counts more than are seen, somebody may be about to be seen, and nothing that comes then would tell of it: the count stays as it is.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from adapter.objects.pending_workload import TRIED_IN, Turn, is_pending, stands_still, turn, waits_from
from adapter.objects.queues import ClusterQueue, read_cluster_queue
from adapter.objects.unstructured import Raw, key_of, mapping_field, text_field
from adapter.objects.workload import Workload
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.supervise import each

_FOR = timedelta(seconds=1)


class _Waits(NamedTuple):
    """A Workload without quota."""

    queue: str  # its ClusterQueue
    turn: Turn
    since: datetime | None  # from when on it counts
    stuck: bool  # nobody behind it in its queue is tried


class Pending:
    """What was seen last, and when."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._seen: datetime | None = None
        self._counts: Mapping[str, int] = {}  # by ClusterQueue, how many Kueue said were pending then
        self._found: Mapping[str, int] = {}  # likewise, how many were seen
        self._earliest: Mapping[str, datetime] = {}  # likewise, from when on the first of them counts

    def waits_from(self, work: Workload, now: datetime) -> datetime | None:
        """From when on somebody counts who waits for the quota that this Workload's queue gives; None while nobody does. Who is not seen
        yet may count as soon as he is tried."""
        queues = self._that_want(self._manager.cluster_queue((work.namespace, work.queue)))
        if not queues:
            return None
        fresh = self._seen is not None and self._seen <= now < self._seen + _FOR
        if not fresh or (self._first(queues) is None and not queues.items() <= self._counts.items()):
            self._read(now)
        unseen = any(count > self._found.get(one, 0) for one, count in queues.items())
        return self._first(queues) or (now + TRIED_IN if unseen else None)

    def _first(self, queues: Mapping[str, int]) -> datetime | None:
        return min((self._earliest[one] for one in queues if one in self._earliest), default=None)

    def _that_want(self, queue: ClusterQueue) -> dict[str, int]:
        """The ClusterQueues with somebody pending whom quota of this one may help, and how many are."""
        if not (queue.cohort and queue.borrows):
            return {queue.name: queue.pending} if queue.pending else {}
        queues = self._manager.cluster_queues.readings(read_cluster_queue).values()
        return {each.name: each.pending for each in queues if each.cohort == queue.cohort and each.pending}

    def _read(self, now: datetime) -> None:
        found: dict[str, datetime] = {}
        waiting = [one for _, one in each("look", self._manager.workloads, lambda raw: self._waiting(raw, now)) if one]
        stuck: dict[str, Turn] = {}  # by strict queue, the turn of the first behind whom it stands still
        for one in waiting:
            if one.stuck:
                stuck[one.queue] = min(one.turn, stuck.get(one.queue, one.turn))
        for one in waiting:
            if one.since is not None and (one.queue not in stuck or one.turn < stuck[one.queue]):
                found[one.queue] = min(one.since, found.get(one.queue, one.since))
        counts = {
            queue.name: queue.pending for queue in self._manager.cluster_queues.readings(read_cluster_queue).values()
        }
        self._seen, self._counts, self._earliest = now, counts, found
        self._found = Counter(one.queue for one in waiting)

    def _waiting(self, raw: Raw, now: datetime) -> _Waits | None:
        if not is_pending(raw):  # most are not
            return None
        queue = self._manager.cluster_queue((key_of(raw)[0], text_field(mapping_field(raw, "spec"), "queueName")))
        strict = queue.is_strict
        return _Waits(queue.name, turn(raw), waits_from(raw, strict, now), strict and stands_still(raw))
