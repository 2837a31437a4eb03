"""Computes the order keys of gangs (planning/ordering.py), once per version of the Workload.

Each plan needs the order keys of all queued gangs: a thousand times a thousand in a crowd.
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
    """A Workload with quota. For an elastic job there is no order key yet, because it depends on the job too."""

    workload: Workload
    order_key: OrderKey | None


class PlanningOrder:
    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        # Created once: the store caches by the reader's identity.
        self._queued_reader = partial(_read_queued, manager)

    def workloads_before(self, own_key: OrderKey) -> Iterator[tuple[OrderKey, Workload]]:
        """The Workloads with quota before `own_key`, with their order keys, in the sequence of the store."""
        for queued in self._manager.workloads.read_all_cached(self._queued_reader).values():
            if queued is None:
                continue
            workload, key = queued
            if key is None:
                workload = aged_workload(self._manager, workload)
                key = order_key(self._manager, workload)
            if key < own_key:
                yield key, workload


def _read_queued(manager: ManagerCache, raw: Raw) -> _QueuedWorkload | None:
    if not is_condition_true(raw, names.QUOTA_RESERVED) or is_condition_true(raw, names.FINISHED):
        return None  # most Workloads; a full read is slow
    workload = manager.read_workload(raw)
    return _QueuedWorkload(workload, None if workload.elastic and workload.job else order_key(manager, workload))


def aged_workload(manager: ManagerCache, workload: Workload) -> Workload:
    """A Workload with its effective age.

    The result stays one object until the Workload, its job or its Placement changes, since memos go by identity.
    """
    if not (workload.elastic and workload.job):
        return workload
    job, placements = manager.job_object(workload.job), manager.placements.by_index("/".join(workload.gang_key))
    placement = next((parsed for parsed in map(manager.read_placement, placements) if parsed.job), None)
    facts = workload, job, placement
    return manager.memo_of(workload).get_or_find(
        ordering.with_age_in_order, facts, lambda: ordering.with_age_in_order(*facts)
    )


def order_key(manager: ManagerCache, workload: Workload) -> OrderKey:
    """A gang's order key; `workload` is its `aged_workload`."""
    return manager.memo_of(workload).get_or_find(ordering.order_key, (workload,), lambda: ordering.order_key(workload))
