"""Reads and parks the deployed controller: its identity, what it spends, and its absence for a while.

Integration tests park it while they run their own; a bench waits until it is back. install.py decides what it runs.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from adapter import names
from hack.lab import faults, startup
from hack.lab.base import lab as definition
from hack.lab.base import lock
from hack.lab.base.lab import Lab
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError, step
from hack.testbed import clusters, install
from hack.testbed.clusters import Cluster, Clusters
from hack.testbed.reader import Raw

FAKE_NODES = 2

_PARKED = 900.0  # seconds; as long as all integration tests take
_PATIENCE = 120.0
_AWAY = 600.0  # until a Deployment's last pod is gone, however busy the machine is
# Our pods, the controller's stand-ins among them, without the webhooks.
_OURS = "app.kubernetes.io/name=rayspan,app.kubernetes.io/component!=admission"
_PORT = 8081
_SPENT = ("process_cpu_seconds_total", "rayspan_reconciles_total", "rayspan_actions_total")
_SAMPLE = re.compile(r"^(\w+)(?:\{[^}]*\})? ([\d.e+-]+)$", re.MULTILINE)


@dataclass
class Spent:
    """The controller's total cost; filled when the measurement is over."""

    cpu_s: float = 0.0
    looks: float = 0.0
    actions: float = 0.0

    def per(self, workers: int) -> dict[str, float]:
        """The same for each worker."""
        return {
            "cpu_ms": self.cpu_s * 1000 / workers,
            "looks": self.looks / workers,
            "actions": self.actions / workers,
        }


class Deployment:
    """The controller that is installed in the manager cluster."""

    def __init__(self, manager: Cluster) -> None:
        self._manager, self._had = manager, 0

    def park(self) -> None:
        """Scale it to nothing, so that there are no controllers but those under test."""
        self._scale_down()
        pods = f"{_OURS},pod-template-hash"  # those of the Deployment, without stand-ins
        clusters.wait(
            lambda: not self._manager.items("pods", names.SYSTEM_NAMESPACE, pods), 60, "the deployed controller is gone"
        )

    def kill(self) -> None:
        """Kill every replica (SIGKILL), and let none come back."""
        self._scale_down()
        now = ("delete", "pods", "-l", _OURS, "--grace-period=0", "--force")
        self._manager.kubectl("-n", names.SYSTEM_NAMESPACE, *now)

    def unpark(self) -> None:
        """Undo `park` or `kill`."""
        if self._had:
            _scale(self._manager, install.CONTROLLER, names.SYSTEM_NAMESPACE, self._had)
            rollout = ("rollout", "status", "deployment", install.CONTROLLER, "--timeout=60s")
            self._manager.kubectl("-n", names.SYSTEM_NAMESPACE, *rollout)
            self._had = 0

    def _scale_down(self) -> None:
        self._had = self._had or _replicas(self._manager)
        _scale(self._manager, install.CONTROLLER, names.SYSTEM_NAMESPACE, 0)


def on_lab(*, renew: bool, fake_nodes: int = FAKE_NODES) -> Clusters:
    """The lab with fake nodes and our controller; `renew` deploys the checkout as it is now, which may restart it."""
    old = definition.find()
    usual = Lab(fake_nodes=fake_nodes)
    lab = replace(usual, workers=old.workers) if old and old.workers > usual.workers else usual
    if old and _cut(old):
        with step("waiting until others heal the lab"):
            clusters.wait(lambda: not _cut(old), _PARKED, "nothing is cut (`python -m hack.lab heal` ends all cuts)")
    with lock.held(STATE / "lock", "waiting for another command on the lab"), step("lab: clusters with fake nodes"):
        startup.up(lab)
    fleet = clusters.of_lab()
    deployed = bool(fleet.manager.get("deployment", install.CONTROLLER, names.SYSTEM_NAMESPACE))
    if deployed:
        _await_unparked(fleet.manager)
    if renew or not deployed:
        install.on_lab()
    wait_until_ready(fleet.manager)
    return fleet


@contextmanager
def undisturbed(manager: Cluster) -> Iterator[Spent]:
    """Measure what the controller spends; raises LabError if it, or a link of it, is not the same at the end."""
    wait_until_ready(manager)
    before, start = _state(manager), _metrics(manager)
    spent = Spent()
    yield spent
    if _state(manager) != before:
        raise LabError("The controller or a link to a worker cluster was exchanged or cut meanwhile: run it again.")
    now = _metrics(manager)
    spent.cpu_s, spent.looks, spent.actions = (now.get(key, 0.0) - start.get(key, 0.0) for key in _SPENT)


def wait_until_ready(manager: Cluster) -> None:
    """Wait until the controller is whole, leads and sees its worker clusters, however long others keep it parked."""
    _await_unparked(manager)
    manager.wait(lambda: _leads(manager), _PATIENCE, "every replica of the controller is ready, and one of them leads")
    manager.wait(lambda: _connected(manager), _PATIENCE, "all worker clusters are connected")


def exposition(manager: Cluster) -> str:
    """The /metrics of the leader, through the API server."""
    return _exposed(manager, install.leader(manager))


@contextmanager
def parked(cluster: Cluster, name: str, namespace: str) -> Iterator[None]:
    """Scale a deployment to zero within the context. It gets its replicas back at the end, without a wait."""
    found = cluster.get("deployment", name, namespace)
    if not found:
        raise LabError(f"{cluster.name}: there is no deployment {namespace}/{name}.")
    selector = ",".join(f"{key}={value}" for key, value in found["spec"]["selector"]["matchLabels"].items())
    try:
        _scale(cluster, name, namespace, 0)
        cluster.wait(lambda: not cluster.items("pods", namespace, selector), _AWAY, f"{name} is gone")
        yield
    finally:
        _scale(cluster, name, namespace, found["spec"]["replicas"] or 1)


def _cut(lab: Lab) -> bool:
    """Whether there are faults; a lab that is only half there has none, and is about to be mended."""
    try:
        return any(faults.active(cluster) for cluster in lab.clusters)
    except LabError:
        return False


def _await_unparked(manager: Cluster) -> None:
    if not _replicas(manager):
        with step("waiting until others give the controller back"):
            manager.wait(
                lambda: _replicas(manager),
                _PARKED,
                "the controller is scaled up (tests park it; `kubectl scale` brings it back)",
            )


def _leads(manager: Cluster) -> bool:
    ready = [pod["metadata"]["name"] for pod in _ready(manager)]
    return len(ready) == _replicas(manager) and install.leader(manager) in ready


def _replicas(manager: Cluster) -> int:
    """How many the Deployment wants: 0 while it is parked."""
    return int(manager.get("deployment", install.CONTROLLER, names.SYSTEM_NAMESPACE)["spec"]["replicas"])


def _ready(manager: Cluster) -> list[Raw]:
    pods = manager.items("pods", names.SYSTEM_NAMESPACE, install.PODS)
    there = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return [pod for pod in there if clusters.condition(pod, "Ready").get("status") == "True"]


def _state(manager: Cluster) -> list[str]:
    """What must not change: the process (a restarted container gets another id), and since when each link holds."""
    processes = (status["containerID"] for pod in _ready(manager) for status in pod["status"]["containerStatuses"])
    links = (clusters.condition(one, names.CONNECTED) for one in manager.items("workerclusters"))
    return [*processes, *(f"{link.get('status')} since {link.get('lastTransitionTime')}" for link in links)]


def _connected(manager: Cluster) -> bool:
    found = manager.items("workerclusters")
    return bool(found) and all(clusters.condition(one, names.CONNECTED).get("status") == "True" for one in found)


def _exposed(manager: Cluster, pod: str) -> str:
    path = manager.reader.path("pods", f"{pod}:{_PORT}", names.SYSTEM_NAMESPACE) + "/proxy/metrics"
    return manager.reader.text(path, accept="*/*")


def _metrics(manager: Cluster) -> dict[str, float]:
    """Samples of one name are summed over all pods: a standby costs as well."""
    sums: dict[str, float] = {}
    for pod in _ready(manager):
        for name, value in _SAMPLE.findall(_exposed(manager, pod["metadata"]["name"])):
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def _scale(cluster: Cluster, name: str, namespace: str, replicas: int) -> None:
    cluster.kubectl("-n", namespace, "scale", "deployment", name, f"--replicas={replicas}")
