"""Sets Kueue's readiness clock (`waitForPodsReady`) to a minute in all clusters of a stage, and back.

Each WorkerCluster says meanwhile how long the clock of its Kueue is.
"""

import json
from contextlib import ExitStack

from hack.testbed import kueueconfig
from hack.testbed.clusters import Cluster
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage

CLOCK = "1m"
SET, SET_BACK = "set to a minute", "set back"


class ReadinessClock:
    """The clock of every Kueue of a stage, which evicts a Workload whose pods are not all ready for so long."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self.is_short = False

    def turn(self, stage: Stage) -> str:
        """Set it to a minute, or back if it is a minute; returns which, when every Kueue leads again."""
        if self.is_short:
            self.set_back()
            return SET_BACK
        self.is_short = True
        clusters = [stage.manager, *(stage.fleet.workers[name] for name in stage.clusters)]
        self._undo.callback(kueueconfig.restart, clusters)
        for cluster in clusters:
            self._undo.enter_context(kueueconfig.changed(cluster, with_clock))
        for name in stage.clusters:
            before = stage.manager.get("workercluster", name)["spec"].get("podsReadyTimeout")
            self._undo.callback(report_clock, stage.manager, name, before)
            report_clock(stage.manager, name, CLOCK)
        kueueconfig.restart(clusters)
        return SET

    def set_back(self) -> None:
        """Set it to what it was at first; nothing where that was not changed."""
        self._undo.close()
        self.is_short = False


def with_timeouts(config: Raw) -> Raw:
    """Kueue's configuration with a minute to start and to recover."""
    return {**config, "waitForPodsReady": {"timeout": CLOCK, "recoveryTimeout": CLOCK}}


def with_clock(config: Raw) -> Raw:
    """The same; and an evicted Workload queues again at once."""
    short = with_timeouts(config)
    strategy = {"timestamp": "Eviction", "backoffBaseSeconds": 1}
    return {**short, "waitForPodsReady": {**short["waitForPodsReady"], "requeuingStrategy": strategy}}


def report_clock(manager: Cluster, name: str, clock: str | None) -> None:
    """Say in a WorkerCluster how long the clock of its Kueue is; None for the default."""
    patch = json.dumps({"spec": {"podsReadyTimeout": clock}})
    manager.kubectl("patch", "workercluster", name, "--type=merge", "-p", patch)
