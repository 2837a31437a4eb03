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

from adapter.objects.pending_workload import (
    TRIED_WITHIN,
    QueueOrder,
    blocks_strict_queue,
    counts_as_waiting_from,
    is_pending,
    queue_order,
)
from adapter.objects.queues import ClusterQueue, read_cluster_queue
from adapter.objects.unstructured import Raw, key_of, mapping_field, text_field
from adapter.objects.workload import Workload
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.supervise import read_each

_READ_VALID_FOR = timedelta(seconds=1)


class _WaitingWorkload(NamedTuple):
    """A Workload without quota."""

    queue: str  # its ClusterQueue
    order_key: QueueOrder
    since: datetime | None  # from when on it counts
    stuck: bool  # nobody behind it in its queue is tried


class WaitingWorkloads:
    """What was seen last, and when."""

    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self._read_at: datetime | None = None
        self._pending_counts: Mapping[str, int] = {}  # by ClusterQueue, how many Kueue said were pending then
        self._read_counts: Mapping[str, int] = {}  # likewise, how many were seen
        self._first_waits: Mapping[str, datetime] = {}  # likewise, from when on the first of them counts

    def others_wait_from(self, workload: Workload, now: datetime) -> datetime | None:
        """From when on somebody counts who waits for the quota that this Workload's queue gives; None while nobody does. Who is not seen
        yet may count as soon as he is tried."""
        queues = self._queues_with_pending(self._manager.cluster_queue_of((workload.namespace, workload.queue)))
        if not queues:
            return None
        fresh = self._read_at is not None and self._read_at <= now < self._read_at + _READ_VALID_FOR
        if not fresh or (self._earliest_wait(queues) is None and not queues.items() <= self._pending_counts.items()):
            self._read_workloads(now)
        unseen = any(count > self._read_counts.get(one, 0) for one, count in queues.items())
        return self._earliest_wait(queues) or (now + TRIED_WITHIN if unseen else None)

    def _earliest_wait(self, queues: Mapping[str, int]) -> datetime | None:
        return min((self._first_waits[one] for one in queues if one in self._first_waits), default=None)

    def _queues_with_pending(self, queue: ClusterQueue) -> dict[str, int]:
        """The ClusterQueues with somebody pending whom quota of this one may help, and how many are."""
        if not (queue.cohort and queue.borrows):
            return {queue.name: queue.pending} if queue.pending else {}
        queues = self._manager.cluster_queues.read_all_cached(read_cluster_queue).values()
        return {each.name: each.pending for each in queues if each.cohort == queue.cohort and each.pending}

    def _read_workloads(self, now: datetime) -> None:
        found: dict[str, datetime] = {}
        waiting = [
            one
            for _, one in read_each("look", self._manager.workloads, lambda raw: self._read_waiting(raw, now))
            if one
        ]
        stuck: dict[str, QueueOrder] = {}  # by strict queue, the turn of the first behind whom it stands still
        for one in waiting:
            if one.stuck:
                stuck[one.queue] = min(one.order_key, stuck.get(one.queue, one.order_key))
        for one in waiting:
            if one.since is not None and (one.queue not in stuck or one.order_key < stuck[one.queue]):
                found[one.queue] = min(one.since, found.get(one.queue, one.since))
        counts = {
            queue.name: queue.pending
            for queue in self._manager.cluster_queues.read_all_cached(read_cluster_queue).values()
        }
        self._read_at, self._pending_counts, self._first_waits = now, counts, found
        self._read_counts = Counter(one.queue for one in waiting)

    def _read_waiting(self, raw: Raw, now: datetime) -> _WaitingWorkload | None:
        if not is_pending(raw):  # most are not
            return None
        queue = self._manager.cluster_queue_of((key_of(raw)[0], text_field(mapping_field(raw, "spec"), "queueName")))
        strict = queue.is_strict
        return _WaitingWorkload(
            queue.name, queue_order(raw), counts_as_waiting_from(raw, strict, now), strict and blocks_strict_queue(raw)
        )
