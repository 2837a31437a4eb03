"""Which of a cluster's processes are gone, and how do they run again? By the lab's own functions, which start only what is missing."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from hack.lab.base import lock
from hack.lab.base.lab import Cluster, Lab
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError
from hack.lab.cluster import api, control_plane, kwok, node, processes

_ALL = (*control_plane.SERVERS, *control_plane.CLIENTS, *node.NAMES, kwok.NAME)


def gone(cluster: Cluster) -> list[str]:
    """The names of those that should run and do not."""
    return [name for name in _ALL if not processes.alive(cluster, name)]


def one(lab: Lab, cluster: Cluster, name: str) -> None:
    """Start again what was killed; it is not waited for until it serves."""
    with alone():
        _BY_NAME[name](lab, cluster)


def all_of(lab: Lab, cluster: Cluster) -> None:
    """Start whatever is missing; waits until the API server serves, for some end at once without it."""
    with alone():
        control_plane.ensure_servers(cluster)
        control_plane.ensure_clients(cluster)
        node.ensure(cluster)
        _fake_nodes(lab, cluster)


def alone() -> AbstractContextManager[None]:
    """One command changes the lab at a time, as the lab's own do."""
    return lock.held(STATE / "lock", "waiting for another command on the lab")


def _fake_nodes(lab: Lab, cluster: Cluster) -> None:
    """It starts the process first; that the nodes are still there can be asked in vain while an API server starts."""
    try:
        kwok.ensure(cluster, lab.fake_nodes)
    except (OSError, api.Refused) as failure:
        if not processes.alive(cluster, kwok.NAME):
            raise LabError(f"kwok of {cluster.name} could not be started: {failure}.") from failure


_BY_NAME: Mapping[str, Callable[[Lab, Cluster], None]] = {
    "etcd": lambda lab, cluster: control_plane.ensure_servers(cluster),
    "kube-apiserver": lambda lab, cluster: control_plane.ensure_servers(cluster),
    "kubelet": lambda lab, cluster: node.ensure(cluster),
    kwok.NAME: _fake_nodes,
}
