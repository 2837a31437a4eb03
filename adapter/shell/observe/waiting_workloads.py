"""Finds for each ClusterQueue the time from which Workloads wait behind the gangs for the manager's quota.

In a strict queue, Workloads behind one that quota would not help do not count. A gang deactivated for them would help
no Workload, and might not come back. For a ClusterQueue that borrows, Workloads in its cohort's other ClusterQueues
count: they may wait for the borrowed quota.

The Workloads are read at most once a second: each reconcile of a waiting gang needs them, and a gang is deactivated
only after ten seconds. A gang that finds no waiting Workload is not reconciled for long, so the Workloads are read
again for it when a pending count has changed. Where Kueue counts more Workloads than are observed, one may be about to
be observed, and the count would not announce that.
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
    queue: str  # its ClusterQueue
    order_key: QueueOrder
    since: datetime | None  # the time from which it counts
    stuck: bool  # Kueue tries no Workload behind it in its queue


class WaitingWorkloads:
    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self._read_at: datetime | None = None
        self._pending_counts: Mapping[str, int] = {}  # by ClusterQueue: Kueue's count then
        self._read_counts: Mapping[str, int] = {}  # by ClusterQueue: observed
        self._first_waits: Mapping[str, datetime] = {}  # by ClusterQueue
        self._first_orders: Mapping[str, QueueOrder] = {}  # by ClusterQueue: of the first that counts already

    def others_wait_from(self, workload: Workload, now: datetime) -> datetime | None:
        """The time from which some Workload counts as waiting for this queue's quota; None if there is none.

        A Workload that is not observed yet may count once Kueue has tried it.
        """
        queues = self._queues_with_pending(self._manager.cluster_queue_of((workload.namespace, workload.queue)))
        if not queues:
            return None
        self._refresh(queues, now)
        has_unobserved = any(count > self._read_counts.get(name, 0) for name, count in queues.items())
        return self._earliest_wait(queues) or (now + TRIED_WITHIN if has_unobserved else None)

    def earlier_one_waits(self, workload: Workload, now: datetime) -> bool:
        """Whether a Workload that comes before this one in Kueue's order counts as waiting for its quota."""
        queues = self._queues_with_pending(self._manager.cluster_queue_of((workload.namespace, workload.queue)))
        if not queues or workload.queued_at is None:
            return False
        self._refresh(queues, now)
        own_order = -(workload.priority or 0), workload.queued_at, workload.uid
        return any(self._first_orders[name] < own_order for name in queues if name in self._first_orders)

    def _refresh(self, queues: Mapping[str, int], now: datetime) -> None:
        fresh = self._read_at is not None and self._read_at <= now < self._read_at + _READ_VALID_FOR
        if not fresh or (self._earliest_wait(queues) is None and not queues.items() <= self._pending_counts.items()):
            self._read_workloads(now)

    def _earliest_wait(self, queues: Mapping[str, int]) -> datetime | None:
        return min((self._first_waits[name] for name in queues if name in self._first_waits), default=None)

    def _queues_with_pending(self, queue: ClusterQueue) -> dict[str, int]:
        if not (queue.cohort and queue.borrows):
            return {queue.name: queue.pending} if queue.pending else {}
        queues = self._manager.cluster_queues.read_all_cached(read_cluster_queue).values()
        return {other.name: other.pending for other in queues if other.cohort == queue.cohort and other.pending}

    def _read_workloads(self, now: datetime) -> None:
        first_waits: dict[str, datetime] = {}
        first_orders: dict[str, QueueOrder] = {}
        waiting = [
            workload
            for _, workload in read_each("reconcile", self._manager.workloads, lambda raw: self._read_waiting(raw, now))
            if workload
        ]
        stuck: dict[str, QueueOrder] = {}  # the first Workload that blocks it
        for workload in waiting:
            if workload.stuck:
                stuck[workload.queue] = min(workload.order_key, stuck.get(workload.queue, workload.order_key))
        for workload in waiting:
            if workload.since is not None and (
                workload.queue not in stuck or workload.order_key < stuck[workload.queue]
            ):
                first_waits[workload.queue] = min(workload.since, first_waits.get(workload.queue, workload.since))
                if workload.since <= now:
                    first_orders[workload.queue] = min(
                        workload.order_key, first_orders.get(workload.queue, workload.order_key)
                    )
        counts = {
            queue.name: queue.pending
            for queue in self._manager.cluster_queues.read_all_cached(read_cluster_queue).values()
        }
        self._read_at, self._pending_counts, self._first_waits = now, counts, first_waits
        self._first_orders = first_orders
        self._read_counts = Counter(workload.queue for workload in waiting)

    def _read_waiting(self, raw: Raw, now: datetime) -> _WaitingWorkload | None:
        if not is_pending(raw):  # most Workloads
            return None
        queue = self._manager.cluster_queue_of((key_of(raw)[0], text_field(mapping_field(raw, "spec"), "queueName")))
        strict = queue.is_strict
        return _WaitingWorkload(
            queue.name, queue_order(raw), counts_as_waiting_from(raw, strict, now), strict and blocks_strict_queue(raw)
        )
