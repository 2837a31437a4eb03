"""How is each cluster? One line, asked afresh; it repairs nothing."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from hack.lab import addons, api, cgroups, control_plane, faults, node
from hack.lab.lab import Cluster, Lab
from hack.lab.progress import LabError

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


def _row(cluster: Cluster) -> Row:
    return Row(
        cluster=cluster.name,
        api=_yes(lambda: _control_plane(cluster)),
        node=_yes(lambda: node.ready(cluster)),
        kueue=_yes(lambda: addons.ready(cluster, addons.KUEUE)),
        kuberay=_yes(lambda: addons.ready(cluster, addons.KUBERAY)) if cluster.is_manager else _ABSENT,
        rayspan=_said(lambda: _rayspan(cluster)),
        pods=_said(lambda: _pods(cluster)),
        memory=f"{_memory(cgroups.processes(cluster)) / 1e6:.0f} MB",
        faults=_said(lambda: ", ".join(faults.active(cluster)) or _ABSENT),
    )


def _control_plane(cluster: Cluster) -> bool:
    control_plane.check(cluster)
    return control_plane.serving(cluster)


def _yes(ready: Callable[[], bool]) -> str:
    return _said(lambda: "yes" if ready() else "no", otherwise="no")


def _said(ask: Callable[[], str], otherwise: str = _ABSENT) -> str:
    try:
        return ask()
    except (OSError, api.Refused, LabError):
        return otherwise


def _rayspan(cluster: Cluster) -> str:
    """Our own controller, if it is deployed; its Deployments' names are not the lab's business."""
    found = api.get(cluster, _RAYSPAN)["items"]
    if not found:
        return _ABSENT
    return "yes" if all(one["status"].get("availableReplicas") for one in found) else "no"


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
