"""Where does a gang stand in the order of planning, and who comes before it? Reckoned once for each version of its Workload.

What that order is, is for planning/ordering.py to say: each plan asks it of all that queue, a thousand times a thousand in a crowd.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from adapter import names
from adapter.objects.unstructured import Raw, is_true
from adapter.objects.workload import Workload
from adapter.planning import ordering
from adapter.planning.ordering import Turn
from adapter.shell.clusters.manager_cache import Manager


class _Queued(NamedTuple):
    """A Workload that holds the manager's quota; of an elastic job its turn hangs on the job, too."""

    work: Workload
    turn: Turn | None


class Turns:
    """The Workloads that hold the manager's quota and are not over."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._queued = partial(_queued, manager)  # one function, by which the store knows what was read

    def before(self, mine: Turn) -> Iterator[tuple[Turn, Workload]]:
        """Those whose turn comes before this one, each as old as it counts, and as they stand in the store."""
        for found in self._manager.workloads.readings(self._queued).values():
            if found is None:
                continue
            work, theirs = found
            if theirs is None:
                work = aged(self._manager, work)
                theirs = turn(self._manager, work)
            if theirs < mine:
                yield theirs, work


def _queued(manager: Manager, raw: Raw) -> _Queued | None:
    if not is_true(raw, names.QUOTA_RESERVED) or is_true(raw, names.FINISHED):
        return None  # most of them, and to read one whole takes time
    work = manager.work(raw)
    return _Queued(work, None if work.elastic and work.job else turn(manager, work))


def aged(manager: Manager, work: Workload) -> Workload:
    """A gang's Workload as old as it counts: the very same one for as long as it and its job are, so that what is kept of it is found."""
    if not (work.elastic and work.job):
        return work
    job = manager.job(work.job)
    return manager.beside(work).of(ordering.aged, (work, job), lambda: ordering.aged(work, job))


def turn(manager: Manager, work: Workload) -> Turn:
    """The turn of a gang, by its Workload as `aged` gives it, as a key to sort by."""
    return manager.beside(work).of(ordering.turn, (work,), lambda: ordering.turn(work))
