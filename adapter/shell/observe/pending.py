"""Who queues behind the gangs for the manager's quota: from when on, by ClusterQueue?

Of a ClusterQueue that borrows, who waits in another one of its cohort counts, too: it may wait for what was borrowed.

Read from all Workloads of the manager once a second: who gives way has waited for ten, and many that wait ask this at every look.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from adapter import names
from adapter.objects.pendingworkload import is_pending, waits_from
from adapter.objects.raw import Raw, key_of
from adapter.objects.workload import Workload
from adapter.shell.clusters.manager import Manager
from adapter.shell.guard import each

_FOR = timedelta(seconds=1)


class Pending:
    """What was seen last, and when."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._seen: datetime | None = None
        self._earliest: dict[str, datetime] = {}  # by ClusterQueue

    def waits_from(self, work: Workload, now: datetime) -> datetime | None:
        """From when on somebody counts who waits for the quota that this Workload's queue gives; None while nobody does."""
        queues = [*self._that_want(self._manager.cluster_queue((work.namespace, work.queue)))]
        if not queues:
            return None
        if self._seen is None or not self._seen <= now < self._seen + _FOR:
            self._seen, self._earliest = now, self._read(now)
        return min((self._earliest[one] for one in queues if one in self._earliest), default=None)

    def _that_want(self, queue: Raw) -> Iterator[str]:
        """The ClusterQueues with somebody pending whom quota of this one may help."""
        cohort = (queue.get("spec") or {}).get("cohortName")
        others = self._manager.cluster_queues if cohort and _borrows(queue) else (queue,)
        for one in others:
            same = one is queue or (one.get("spec") or {}).get("cohortName") == cohort
            if same and (one.get("status") or {}).get("pendingWorkloads"):
                yield key_of(one)[1]

    def _read(self, now: datetime) -> dict[str, datetime]:
        found: dict[str, datetime] = {}
        for _, (queue, since) in each("look", self._manager.workloads, lambda raw: self._waiting(raw, now)):
            if since is not None:
                found[queue] = min(since, found.get(queue, since))
        return found

    def _waiting(self, raw: Raw, now: datetime) -> tuple[str, datetime | None]:
        """The ClusterQueue of a Workload, and from when on it counts there."""
        if not is_pending(raw):  # most are not
            return "", None
        queue = self._manager.cluster_queue((key_of(raw)[0], (raw.get("spec") or {}).get("queueName") or ""))
        strict = (queue.get("spec") or {}).get("queueingStrategy") == names.STRICT_FIFO
        return key_of(queue)[1], waits_from(raw, strict, now)


def _borrows(queue: Raw) -> bool:
    flavors = (queue.get("status") or {}).get("flavorsReservation") or ()
    return any(each.get("borrowed") not in (None, "", "0") for one in flavors for each in one.get("resources") or ())
