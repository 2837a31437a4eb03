"""Counts how much a run had to help, and bounds it. Pure but for the counting.

Programs of others give up, wait and forget, and faults do not always find a target. A run repairs that and goes on, but
reports it. Where it is more than the faults explain, the run has failed: it would otherwise have proved nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from hack.lab.base.lab import MANAGER
from hack.trials.chaos.draw import Fault

# Faults after which KubeRay may have to make workers again while Kueue suspends their RayCluster, which is where it
# forgets.
_SUSPENDING = (
    "scaled", "preempted", "share-deleted", "cut", "kubeconfig-swapped", "kubeconfig-mistyped", "etcd-restored",
    "limit-range", "placement-deleted", "readiness-clock",
)  # fmt: skip
_SERVERS = ("apiserver-killed", "etcd-killed", "etcd-restored")


@dataclass
class Help:
    """Counts: of a run, or how many of each there may be."""

    reminders: int = 0  # of KubeRay
    pods: int = 0  # deleted because their containers waited for a restart
    processes: int = 0  # of a cluster, restarted because they ended during an outage
    missed: int = 0  # moments that a new gang did not reach in time
    nobody: int = 0  # deeds without a target
    surplus: int = 0  # elastic gangs with surplus workers that were named


_WORDS = {
    "reminders": "reminders of KubeRay",
    "pods": "pods deleted that waited for a start",
    "processes": "processes started again",
    "missed": "moments not reached",
    "nobody": "deeds that hit nobody",
    "surplus": "gangs with workers too many",
}


def most(struck: Sequence[Fault]) -> Help:
    """The most help that so many faults may need. One of each is allowed to the shortest run; the rest is argued by
    line.
    """
    suspending = sum(fault.kind in _SUSPENDING for fault in struck)
    aimed = sum(bool(fault.moment) for fault in struck)
    deeds = sum(not fault.lasts for fault in struck)
    return Help(
        # A race of KubeRay's that was seen once or twice in fifty faults, of which sixteen suspend: a third of those is
        # far more.
        reminders=1 + suspending // 3,
        # A container waits only after it ended, so no more such pods exist than ends that the trial caused.
        pods=1 + sum(map(_ends, struck)),
        # The processes that depend on an API server or its etcd: the other one, controller-manager, scheduler, kwok.
        processes=1 + 4 * sum(fault.kind in _SERVERS for fault in struck),
        # A gang is ready in five seconds on an idle lab, and is given fifteen; it is judged only when all is well.
        missed=1 + aimed // 5,
        # Five gangs are always there and have six to fifteen workers: a cluster without any of them is rare.
        nobody=1 + deeds // 10,
        # A worker that is replaced between the read and the write that names it: only during an outage.
        surplus=1 + sum(fault.kind == "shrunk" for fault in struck) // 4,
    )


def excess(given: Help, allowed: Help) -> list[str]:
    """A sentence for each kind of help that was more than may be."""
    pairs = [(_WORDS[one.name], getattr(given, one.name), getattr(allowed, one.name)) for one in fields(Help)]
    return [
        f"{count} {words} are more than these faults explain: {limit}" for words, count, limit in pairs if count > limit
    ]


def line(given: Help, allowed: Help) -> str:
    """All counts, with how many there may be."""
    return ", ".join(
        f"{getattr(given, one.name)} {_WORDS[one.name]} (of {getattr(allowed, one.name)})" for one in fields(Help)
    )


def _ends(fault: Fault) -> int:
    """How many operators' processes may end by a fault: a server's outage costs those of its cluster their Leases."""
    if fault.kind in _SERVERS:
        return 3 if fault.where == MANAGER else 1  # Kueue, KubeRay and our controller, or Kueue alone
    return int(fault.kind in ("kueue-killed", "controller-killed", "controller-stopped"))
