"""Clocks that are wrong for a while: those of all processes of a cluster, or those of our controller's processes.

They are set as in hack/trials/clocks.py, so each fault is two steps of a clock: away from the right time, and back.

A cluster's clocks are set ahead and not back, by less than a minute. API servers accept a token for a minute before it
is valid, and samplers take a remote pod to be born no earlier than its timestamp says (hack/trials/sampler.py). A clock
that is set right again goes back, and two clusters are then ahead of and behind each other as well. The clock of a node
with a controller may be wrong by any time.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from hack.lab.base.lab import Cluster
from hack.lab.cluster import cgroups
from hack.trials import clocks
from hack.trials.chaos import restarts
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.ground import Ground

STEP = 40  # seconds
_HOUR = 3600
_STEPS = {"ahead": _HOUR, "back": -_HOUR}  # of our controller


@contextmanager
def _cluster_ahead(ground: Ground, fault: Fault) -> Iterator[None]:
    cluster = ground.lab.cluster(fault.where)
    try:
        with restarts.alone():
            clocks.set_ahead(cgroups.processes(cluster), STEP)
        ground.load.renew()  # so that timestamps of this time are judged later
        yield
    finally:
        set_right(cluster)


@contextmanager
def _controller_wrong(ground: Ground, fault: Fault) -> Iterator[None]:
    """Both replicas are on one node."""
    try:
        clocks.set_ahead(ground.controller.processes(), _STEPS[fault.way])
        yield
    finally:
        set_right(ground.lab.manager)


def set_right(cluster: Cluster) -> None:
    """Give every process of a cluster the right time."""
    with restarts.alone():
        clocks.set_ahead(cgroups.processes(cluster), 0)


OUTAGES: Mapping[str, Callable[[Ground, Fault], AbstractContextManager[None]]] = {
    "clock-jumped": _cluster_ahead,
    "controller-clock-jumped": _controller_wrong,
}
