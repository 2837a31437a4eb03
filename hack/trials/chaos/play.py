"""How is a campaign set up on a stage, and the lab made whole again after it, however it ends?"""

import json
from collections.abc import Sequence

from hack.lab.base.lab import Lab
from hack.testbed.stage import Stage
from hack.trials.chaos import ground, outages
from hack.trials.chaos.campaign import Campaign, Outcome
from hack.trials.chaos.draw import Fault
from hack.trials.chaos.load import CPU, Load

_SPREAD = {"strategy": "Spread"}  # so that most gangs are in both clusters, and each fault there hits most gangs
_PREEMPTION = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
# Shorter than the default: a share in a cluster that has just gone out is given up within the campaign's own patience.
_TIMEOUT = "10s"


def play(lab: Lab, stage: Stage, seed: int, bunches: Sequence[Sequence[Fault]]) -> Outcome:
    """Build the stage and let the faults strike; each is told on standard output when it does."""
    stage.build(dict.fromkeys(stage.clusters, CPU), timeout=_TIMEOUT, policy=_SPREAD)
    for name in stage.clusters:
        patch = ("patch", "clusterqueue", stage.name, "--type=merge", "-p", json.dumps(_PREEMPTION))
        stage.fleet.workers[name].kubectl(*patch)
    try:
        return Campaign(ground.prepare(lab, stage, Load(stage, seed)), _told).run(bunches)
    finally:
        outages.mend(lab)


def _told(line: str) -> None:
    print(line, flush=True)
