"""Reads our writes in a namespace from the worker clusters' audit logs, so that "nothing was held" covers a time span.

An API server logs a request before it answers it, and every attempt, a forbidden one too: what is not in its log was
never asked for. A dry run writes nothing and does not count.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hack.testbed.audit import Log, Request
from hack.testbed.clusters import Cluster
from hack.testbed.stage import Stage

WRITES = ("create", "update", "patch", "delete", "deletecollection")
_OURS = "rayspan"  # what the names of our accounts begin with


@dataclass(frozen=True, slots=True)
class Write:
    """One write that one of our accounts asked for."""

    cluster: str
    verb: str
    what: str  # the plural, with its subresource
    name: str

    def __str__(self) -> str:
        return f"{self.cluster}: {self.verb} {self.what} {self.name}"


class Written:
    """Our writes in a stage's namespace in each worker cluster, from the creation of this object on."""

    def __init__(self, stage: Stage) -> None:
        self._namespace = stage.name
        self._logs = {name: log_of(cluster) for name, cluster in stage.fleet.workers.items()}

    def take(self, verbs: Iterable[str] = WRITES) -> list[Write]:
        """List the writes since the last call, those of a cluster in their order; `verbs`: of these only."""
        wanted = frozenset(verbs)
        return [
            write
            for cluster, log in self._logs.items()
            for write in writes(cluster, log.take(), [self._namespace])
            if write.verb in wanted
        ]


def writes(cluster: str, requests: Iterable[Request], namespaces: Collection[str]) -> list[Write]:
    """Our writes in these namespaces among the requests to a cluster, in their order."""
    return [
        Write(cluster, each.kind.verb, each.kind.what, each.name)
        for each in requests
        if each.namespace in namespaces and each.kind.verb in WRITES and not each.dry and _by_us(each)
    ]


def gangs(writes: Iterable[Write]) -> set[str]:
    """The Placements for which shares were requested: a share is named after its Placement and its round."""
    return {one.name.rpartition("-")[0] for one in writes if (one.verb, one.what) == ("create", "workloads")}


def log_of(cluster: Cluster) -> Log:
    """Read a cluster's audit log from now on; raises FileNotFoundError without one, as in clusters that are not the
    lab's.
    """
    return Log(cluster.kubeconfig.with_name("audit.log"))


def _by_us(one: Request) -> bool:
    return one.kind.client.startswith(_OURS)
