"""What do all clusters hold of a stage's gangs, as one look shows it? It reads, and judges nothing.

The lists of one look are not of one instant. What they show together may be half of a change; who judges looks again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.raw import label
from hack.testbed.reader import Raw
from hack.testbed.stage import Stage


@dataclass(frozen=True, slots=True)
class Member:
    """One worker cluster: our objects in the stage's namespace, all of its Workloads, and its ClusterQueue."""

    pods: list[Raw] = field(default_factory=list)
    shares: list[Raw] = field(default_factory=list)
    anchors: list[Raw] = field(default_factory=list)
    workloads: list[Raw] = field(default_factory=list)
    queue: Raw = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sight:
    """The stage over all clusters; `wanted` says how many workers each gang has that shall run."""

    wanted: Mapping[str, int]
    jobs: list[Raw] = field(default_factory=list)
    pods: list[Raw] = field(default_factory=list)
    workloads: list[Raw] = field(default_factory=list)
    placements: list[Raw] = field(default_factory=list)
    members: Mapping[str, Member] = field(default_factory=dict)

    @property
    def workers(self) -> list[Raw]:
        """The manager's worker pods."""
        return [pod for pod in self.pods if label(pod, names.RAY_NODE_TYPE_LABEL) == "worker"]

    @property
    def heads(self) -> list[Raw]:
        return [pod for pod in self.pods if label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD]


def look(stage: Stage, wanted: Mapping[str, int]) -> Sight:
    """Read every cluster; raises Unreachable where one does not answer.

    The manager is read last: what stands in a worker cluster without a reason in the manager is then an orphan, and not
    merely newer than what was read of the manager.
    """
    members = {name: _member(stage, name) for name in stage.clusters}
    manager = stage.manager
    return Sight(
        wanted=dict(wanted),
        jobs=manager.items("rayclusters", stage.name),
        pods=manager.items("pods", stage.name),
        workloads=manager.items("workloads", stage.name),
        placements=manager.items("placements", stage.name),
        members=members,
    )


def _member(stage: Stage, name: str) -> Member:
    cluster = stage.fleet.workers[name]
    workloads = cluster.items("workloads", stage.name)
    return Member(
        pods=cluster.items("pods", stage.name, names.MANAGER_LABEL),
        shares=[one for one in workloads if label(one, names.MANAGER_LABEL)],
        anchors=cluster.items("configmaps", stage.name, names.MANAGER_LABEL),
        workloads=workloads,
        queue=cluster.get("clusterqueues", stage.name),
    )
