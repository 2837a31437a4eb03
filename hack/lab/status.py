"""Prints one line about each cluster, read afresh. It repairs nothing."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from hack.lab import faults
from hack.lab.base.lab import API_PORT, ISLANDS, NETWORKS, OPEN_PORT, Cluster, Lab
from hack.lab.base.progress import LabError
from hack.lab.cluster import addons, api, cgroups, control_plane, node

_RAYSPAN = "/apis/apps/v1/namespaces/rayspan-system/deployments"
_ABSENT = "-"


@dataclass(frozen=True)
class Row:
    cluster: str
    api: str
    node: str
    kueue: str
    kuberay: str
    rayspan: str
    pods: str
    memory: str
    faults: str

    @property
    def healthy(self) -> bool:
        return "no" not in (self.api, self.node, self.kueue, self.kuberay)


def table(lab: Lab) -> list[Row]:
    with ThreadPoolExecutor(max_workers=len(lab.clusters)) as pool:
        return list(pool.map(_row, lab.clusters))


def text(rows: Sequence[Row]) -> str:
    lines = [tuple(field.name.upper() for field in fields(Row)), *(astuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def network_lines(lab: Lab) -> list[str]:
    """What leads from one cluster to another; nothing about a flat network, where everything does."""
    if lab.network != ISLANDS:
        return [] if lab.network == "flat" else [f"Network {lab.network}: {NETWORKS[lab.network]}."]
    manager = lab.manager
    servers = ", ".join(f"{cluster.name} at {cluster.address}:{API_PORT}" for cluster in lab.worker_clusters)
    return [
        f"Network {ISLANDS}: every cluster has the pod CIDR {manager.pods}, behind a NAT of its own.",
        f"All may dial {manager.name} at {manager.address}:{OPEN_PORT}, a NodePort.",
        f"{manager.name} may dial the API servers: {servers}.",
    ]


def _row(cluster: Cluster) -> Row:
    up = _said(lambda: _word(_control_plane(cluster)), "no")
    ask = _said if up == "yes" else _unasked  # each request to an unreachable server would take its whole timeout
    return Row(
        cluster=cluster.name,
        api=up,
        node=ask(lambda: _word(node.ready(cluster)), "no"),
        kueue=ask(lambda: _word(addons.ready(cluster, addons.KUEUE)), "no"),
        kuberay=ask(lambda: _word(addons.ready(cluster, addons.KUBERAY)), "no") if cluster.is_manager else _ABSENT,
        rayspan=ask(lambda: _rayspan(cluster), _ABSENT),
        pods=ask(lambda: _pods(cluster), _ABSENT),
        memory=f"{_memory(cgroups.processes(cluster)) / 1e6:.0f} MB",
        faults=_said(lambda: ", ".join(faults.active(cluster)) or _ABSENT, _ABSENT),
    )


def _control_plane(cluster: Cluster) -> bool:
    control_plane.check(cluster)
    return control_plane.serving(cluster)


def _said(ask: Callable[[], str], otherwise: str) -> str:
    try:
        return ask()
    except (OSError, api.Refused, LabError):
        return otherwise


def _unasked(ask: Callable[[], str], otherwise: str) -> str:
    return otherwise


def _word(truth: bool) -> str:
    return "yes" if truth else "no"


def _rayspan(cluster: Cluster) -> str:
    """Our own controller, if it is deployed; its Deployments' names are not the lab's business."""
    found = api.get(cluster, _RAYSPAN)["items"]
    if not found:
        return _ABSENT
    return _word(all(one["status"].get("availableReplicas") for one in found))


def _pods(cluster: Cluster) -> str:
    phases = [pod["status"].get("phase") for pod in api.get(cluster, "/api/v1/pods")["items"]]
    return f"{phases.count('Running')}/{len(phases)}"


def _memory(pids: Iterable[int]) -> int:
    """Proportional set size: what several processes share is counted once in the sum, not once each."""
    return sum(_proportional(pid) for pid in pids)


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has just ended
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
