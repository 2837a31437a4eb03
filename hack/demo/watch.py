"""Watches the job twice a second until it has ended, and shows what changed.

On a terminal one block is redrawn; elsewhere every change is a line. It judges nothing.
"""

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from adapter import names
from adapter.relay.relay_network import CLUSTER_DOMAIN
from hack.demo import job
from hack.lab.base.progress import LabError
from hack.testbed import clusters
from hack.testbed.clusters import Clusters
from hack.testbed.reader import NotThere, Raw, Unreachable

_PATIENCE = 300.0  # seconds; the job takes about 30 on an idle machine
_PAUSE = 0.5
_ENDED = ("Complete", "Failed")


@dataclass
class Seen:
    """A record of the running job; most of its objects are deleted afterwards."""

    job: Raw = field(default_factory=dict)
    placements: list[Raw] = field(default_factory=list)
    pods: dict[str, list[Raw]] = field(default_factory=dict)
    """By cluster, as they are now."""
    gangs: set[str] = field(default_factory=set)
    homes: dict[str, str] = field(default_factory=dict)
    """By the address of a pod that really runs, the cluster in which its kubelet does."""

    @property
    def ended(self) -> bool:
        return self.job.get("status", {}).get("jobDeploymentStatus") in _ENDED


def until_ended(fleet: Clusters) -> Seen:
    """Show the job until it has ended; raises LabError when it does not within minutes."""
    seen, screen, begun = Seen(), _Screen(), time.monotonic()
    while not seen.ended:
        try:
            _look(fleet, seen)
        except (Unreachable, NotThere) as failure:
            screen.note(str(failure))
        screen.show(time.monotonic() - begun, list(_lines(fleet, seen)))
        if time.monotonic() - begun > _PATIENCE:
            late = f"The job has not ended after {_PATIENCE:.0f} s; it stays, for you to look at."
            raise LabError(" ".join((late, *waiting_reasons(seen))))
        time.sleep(_PAUSE)
    return seen


def waiting_reasons(seen: Seen) -> Iterator[str]:
    """A sentence for each pod that no node takes, or whose container does not start."""
    for cluster, pods in seen.pods.items():
        for pod in pods:
            if reason := "" if _held(pod) else _waiting_reason(pod):
                yield f"Pod {pod['metadata']['name']} in {cluster} waits: {reason.rstrip('.')}."


def _waiting_reason(pod: Raw) -> str:
    scheduled = clusters.condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("message") or scheduled.get("reason"))
    for status in pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", []):
        waiting = status["state"].get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            return f"{status['name']}: {waiting['reason']}: {waiting.get('message') or 'no more is known'}"
    return ""


def _look(fleet: Clusters, seen: Seen) -> None:
    seen.job = job.find(fleet.manager)
    if not seen.job:
        raise LabError(f"Somebody deleted the RayJob {job.NAME} while the demo was watching it: run the demo again.")
    seen.placements = job.placements(fleet.manager)
    seen.gangs |= job.gangs(fleet.manager)
    for cluster in fleet.all:
        seen.pods[cluster.name] = job.pods(cluster, seen.gangs)
        here = [pod for pod in seen.pods[cluster.name] if cluster is not fleet.manager or not _held(pod)]
        seen.homes |= {address: cluster.name for pod in here for address in _addresses(pod)}


def _addresses(pod: Raw) -> Iterator[str]:
    """What Ray may call a node: its pod's IP, or the pod's name in a relayed network."""
    spec, ip = pod["spec"], pod["status"].get("podIP")
    if ip and "subdomain" in spec:
        yield f"{spec['hostname']}.{spec['subdomain']}.{pod['metadata']['namespace']}.{CLUSTER_DOMAIN}"
    elif ip:
        yield ip


def _lines(fleet: Clusters, seen: Seen) -> Iterator[str]:
    status = seen.job.get("status", {})
    phases = (status.get("jobDeploymentStatus") or "new", status.get("jobStatus"))
    yield f"RayJob     {', '.join(filter(None, phases))}"
    for placed in seen.placements:
        yield f"Placement  {_placed(placed.get('status', {}))}"
    for cluster in fleet.all:
        yield f"{cluster.name:<10} {_pods(seen.pods.get(cluster.name, []))}"


def _placed(status: Raw) -> str:
    state = status.get("state") or "new"
    where = status.get("where") or status.get("reason") or ""
    return f"{state}: {where}" if where else state


def _pods(pods: list[Raw]) -> str:
    counted = Counter((_role(pod), _state(pod)) for pod in pods)
    return ", ".join(f"{n} {role} {state}" for (role, state), n in sorted(counted.items())) or "-"


def _role(pod: Raw) -> str:
    if names.POD_UID_LABEL in _labels(pod):
        return "worker"
    return "mirrored worker" if _held(pod) else _labels(pod).get(names.RAY_NODE_TYPE_LABEL, names.SUBMITTER)


def _held(pod: Raw) -> bool:
    """Whether a manager's pod only stands for one in a worker cluster."""
    return any(gate["name"] == names.GATE for gate in pod["spec"].get("schedulingGates") or ())


def _state(pod: Raw) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "stopping"
    phase = str(pod["status"].get("phase"))
    if phase == "Running":
        return "ready" if clusters.condition(pod, "Ready").get("status") == "True" else "not ready"
    if phase == "Pending" and clusters.condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        return "gated"
    return {"Pending": "pending", "Succeeded": "done", "Failed": "failed"}.get(phase, phase)


def _labels(pod: Raw) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


class _Screen:
    """Where the picture goes: standard output."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._height = 0
        self._last: list[str] = []
        self._noted = ""

    def show(self, seconds: float, lines: list[str]) -> None:
        if self._live:
            width = shutil.get_terminal_size().columns - 1  # a wrapped line would spoil the count of lines
            up = f"\033[{self._height}F" if self._height else ""
            text = "".join(f"\033[K{f'{seconds:4.0f} s  {line}'[:width]}\n" for line in lines)
            print(f"{up}{text}\033[J", end="", flush=True)
            self._height = len(lines)
        else:
            for line in lines:
                if line not in self._last:
                    print(f"{seconds:6.1f} s  {line}", flush=True)
        self._last = lines

    def note(self, text: str) -> None:
        if text != self._noted:
            print(text, file=sys.stderr)
            self._height = 0
        self._noted = text
