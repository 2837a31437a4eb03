"""What can a fault hit: the lab, the stage's gangs, our controller and the operators of others. And is all of it there again?"""

import time
from dataclasses import dataclass

from adapter import names
from adapter.objects.raw import Raw, is_true
from hack.lab.base import lab as definition
from hack.lab.base.lab import Lab
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster
from hack.testbed.stage import Stage
from hack.trials.chaos import restarts, starts
from hack.trials.chaos.load import Load
from hack.trials.chaos.restarts import Container


@dataclass(frozen=True)
class Ground:
    """The place of a campaign."""

    lab: Lab
    stage: Stage
    load: Load
    controller: Container
    kueues: dict[str, Container]  # by cluster
    kuberay: Container

    def cluster(self, name: str) -> Cluster:
        return next(one for one in self.stage.fleet.all if one.name == name)

    def trouble(self) -> str:
        """What of the clusters themselves is not there yet, empty when all is: until then nothing is asked of our controller.

        Processes and operators that gave up while something else was out are helped to a new start.
        """
        try:
            for name in self.kueues:
                if said := self._restarted(self.lab.cluster(name)):
                    return said
            for one in (self.kuberay, *self.kueues.values()):
                if said := one.trouble():
                    one.mend()
                    return said
        except LabError as failure:
            return str(failure)
        return ""

    def _restarted(self, home: definition.Cluster) -> str:
        """Start again what ended because something else did; says what it was."""
        gone = starts.gone(home)
        if gone:
            starts.all_of(self.lab, home)
        return f"{' and '.join(gone)} of {home.name} had ended" if gone else ""

    def touch(self, gang: str) -> None:
        """Let KubeRay look at a gang: a change that means nothing."""
        words = ("-n", self.stage.name, "annotate", "raycluster", gang, f"touched={time.time()}")
        self.stage.manager.kubectl(*words, "--overwrite")

    def estranged(self) -> list[str]:
        """How far our controller is not there, or not in contact with the worker clusters: sentences."""
        if said := self.controller.trouble():
            self.controller.mend()
            return [said]
        links = {name: self.stage.manager.get("workerclusters", name) for name in self.stage.clusters}
        return [f"worker cluster {name} is not connected" for name, one in links.items() if not _connected(one)]


def _connected(one: Raw) -> bool:
    return is_true(one, names.CONNECTED)


def prepare(lab: Lab, stage: Stage, load: Load) -> Ground:
    """Find everything; what the controller went through before is held against nobody."""
    named = {cluster.name: cluster for cluster in stage.fleet.all}
    manager, home = stage.manager, lab.manager
    found = Ground(
        lab=lab,
        stage=stage,
        load=load,
        controller=restarts.controller(manager, home),
        kueues={name: restarts.kueue(named[name], lab.cluster(name)) for name in (home.name, *stage.clusters)},
        kuberay=restarts.kuberay(manager, home),
    )
    found.controller.forgive()
    return found
