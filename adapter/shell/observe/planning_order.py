"""Where does a gang stand in the order of planning, and who comes before it? Reckoned once for each version of its Workload.

What that order is, is for planning/ordering.py to say: each plan asks it of all that queue, a thousand times a thousand in a crowd.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from adapter import names
from adapter.objects.unstructured import Raw, is_condition_true
from adapter.objects.workload import Workload
from adapter.planning import ordering
from adapter.planning.ordering import OrderKey
from adapter.shell.clusters.manager_cache import ManagerCache


class _QueuedWorkload(NamedTuple):
    """A Workload that holds the manager's quota; of an elastic job its turn hangs on the job, too."""

    workload: Workload
    order_key: OrderKey | None


class PlanningOrder:
    """The Workloads that hold the manager's quota and are not over."""

    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self._queued_reader = partial(_read_queued, manager)  # one function, by which the store knows what was read

    def workloads_before(self, own_key: OrderKey) -> Iterator[tuple[OrderKey, Workload]]:
        """Those whose turn comes before this one, each as old as it counts, and as they stand in the store."""
        for found in self._manager.workloads.read_all_cached(self._queued_reader).values():
            if found is None:
                continue
            work, theirs = found
            if theirs is None:
                work = aged_workload(self._manager, work)
                theirs = order_key(self._manager, work)
            if theirs < own_key:
                yield theirs, work


def _read_queued(manager: ManagerCache, raw: Raw) -> _QueuedWorkload | None:
    if not is_condition_true(raw, names.QUOTA_RESERVED) or is_condition_true(raw, names.FINISHED):
        return None  # most of them, and to read one whole takes time
    work = manager.read_workload(raw)
    return _QueuedWorkload(work, None if work.elastic and work.job else order_key(manager, work))


def aged_workload(manager: ManagerCache, workload: Workload) -> Workload:
    """A gang's Workload as old as it counts: the very same one for as long as it and its job are, so that what is kept of it is found."""
    if not (workload.elastic and workload.job):
        return workload
    job = manager.job_object(workload.job)
    return manager.memo_of(workload).get_or_find(
        ordering.with_job_age, (workload, job), lambda: ordering.with_job_age(workload, job)
    )


def order_key(manager: ManagerCache, workload: Workload) -> OrderKey:
    """The turn of a gang, by its Workload as `aged` gives it, as a key to sort by."""
    return manager.memo_of(workload).get_or_find(ordering.order_key, (workload,), lambda: ordering.order_key(workload))
