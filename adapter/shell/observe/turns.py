"""Where does a gang stand in the order of planning, reckoned once for each version of its Workload?

What that order is, is for planning/gangorder.py to say: a queue of a thousand asks it at every change of room, and for that alone a
fifth of a second would go.
"""

from adapter.objects.workload import Workload
from adapter.planning import gangorder
from adapter.planning.gangorder import Turn
from adapter.shell.clusters.manager import Manager


def turn(manager: Manager, work: Workload) -> Turn:
    """The turn of a gang, as a key to sort by."""
    return manager.beside(work).of(gangorder.turn, (work,), lambda: gangorder.turn(work))
