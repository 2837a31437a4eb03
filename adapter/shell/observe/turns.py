"""Where does a gang stand in the order of planning, reckoned once for each version of its Workload?

What that order is, is for planning/gangorder.py to say: a queue of a thousand asks it at every change of room, and for that alone a
fifth of a second would go.
"""

from adapter.objects.workload import Workload
from adapter.planning import gangorder
from adapter.planning.gangorder import Turn
from adapter.shell.clusters.manager import Manager


def aged(manager: Manager, work: Workload) -> Workload:
    """A gang's Workload as old as it counts: the very same one for as long as it and its job are, so that what is kept of it is found."""
    if not (work.elastic and work.job):
        return work
    job = manager.job(work.job)
    return manager.beside(work).of(gangorder.aged, (work, job), lambda: gangorder.aged(work, job))


def turn(manager: Manager, work: Workload) -> Turn:
    """The turn of a gang, by its Workload as `aged` gives it, as a key to sort by."""
    return manager.beside(work).of(gangorder.turn, (work,), lambda: gangorder.turn(work))
