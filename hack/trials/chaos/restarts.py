"""Kills, stops and restarts processes from outside of the clusters: a Deployment's container, or a cluster's own.

A container's processes are found by their cgroup, which is named by the container's id: no other is ever hit. The
kubelet restarts what was killed, with growing delays. A pod that waits for that is deleted, so that its successor
starts at once, but only after its recorded ends are noted. A cluster's own processes are restarted by the lab's own
functions, which start only what is missing.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from adapter import names
from adapter.objects.unstructured import is_condition_true, meta, uid_of
from hack.lab.base import lab as definition
from hack.lab.base import lock
from hack.lab.base.lab import Lab
from hack.lab.base.paths import STATE
from hack.lab.base.progress import LabError
from hack.lab.cluster import addons, api, cgroups, control_plane, kwok, node, processes
from hack.testbed import install
from hack.testbed.clusters import Cluster
from hack.testbed.reader import NotThere, Raw
from hack.trials.chaos.ends import Book, bare, container_status

_PATIENCE = 10.0  # seconds until a killed process is gone: milliseconds are usual
_PAUSE = 0.02
_ALL = (*control_plane.SERVERS, *control_plane.CLIENTS, *node.NAMES, kwok.NAME)  # of a cluster itself


@dataclass
class Container:
    """The container of the pods that `selector` finds; `home` is the lab's own idea of the cluster."""

    called: str
    cluster: Cluster
    home: definition.Cluster
    namespace: str
    selector: str
    elected: Callable[[Cluster], str] | None = None  # the working pod among standbys
    killed: set[str] = field(default_factory=set)  # ids of containers that were killed here
    book: Book = field(default_factory=Book)

    def kill(self) -> None:
        """End its processes as a power cut would; returns when they are gone."""
        self.take_evidence()  # a kill hides the previous end
        self._kill(self._id())

    def end(self) -> None:
        """Like `kill`, but for the present processes, which may be none."""
        self.take_evidence()
        for found in _running(self._pods()):
            self._kill(found)

    def _kill(self, found: str) -> None:
        self.killed.add(found)
        self._signal(found, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        while _processes(self.home, found):
            if time.monotonic() > deadline:
                raise LabError(f"The processes of {self.called} in {self.home.name} do not end; see `ps`.")
            time.sleep(_PAUSE)

    def stop(self) -> str:
        """Stop its processes; returns the container's id, for `go_on`."""
        found = self._id()
        self._signal(found, signal.SIGSTOP)
        return found

    def go_on(self, stopped: str) -> None:
        """Let the processes of that container go on; one that is gone meanwhile need not."""
        self._signal(stopped, signal.SIGCONT)

    def processes(self) -> list[int]:
        """The processes of all that runs of it."""
        return [one for found in _running(self._pods()) for one in _processes(self.home, found)]

    def trouble(self) -> str:
        """Why it does not serve now, empty when it does. A killed one counts as gone before its kubelet knows."""
        ready = [one for one in self._at_work() if is_condition_true(one, "Ready")]
        if len(ready) != 1 or _container(ready[0]) in self.killed:
            return f"{self.called} in {self.home.name} is not ready"
        return ""

    def mend(self) -> int:
        """Delete pods whose containers wait for their kubelet to start them again; returns how many."""
        self.take_evidence()
        waiting = [pod for pod in self._pods() if _waits(pod) == "CrashLoopBackOff"]
        for pod in waiting:
            self.book.deleted.add(uid_of(pod))
            self.cluster.delete("pod", meta(pod)["name"], self.namespace, wait=False)
        return len(waiting)

    def begin(self) -> None:
        """Hold no end against it that came before now."""
        self.book.begin(self._all())

    def take_evidence(self) -> None:
        """Note every end of its processes since the last read, and their last output; raises Unreachable, then to be
        retried.
        """
        pods = self._all()
        for look in self.book.news(pods):
            said = self._logs(look.pod, 5) if self.elected else []
            self.book.note(look, "\n".join(said), self.killed)
        self.book.saw(pods)

    def crashes(self) -> list[str]:
        """Sentences about noted ends that are not explained."""
        return self.book.crashes(f"{self.called} in {self.home.name}", self.killed)

    def tail(self, lines: int) -> str:
        """The end of what its containers said, this one's and the one's before it."""
        return "\n".join(part for pod in self._pods() for part in self._logs(meta(pod)["name"], lines))

    def _logs(self, pod: str, lines: int) -> list[str]:
        path = self.cluster.reader.path("pods", pod, self.namespace) + "/log"
        parts: list[str] = []
        # The present container is read first: one that restarts in between is then read twice, and not missed.
        for title, more in (("now", {}), ("before its last start", {"previous": "true"})):
            with suppress(NotThere):  # there may be no previous one
                said = self.cluster.reader.text(path, {"tailLines": str(lines), **more}, accept="*/*")
                parts.insert(0, f"--- {pod} {title}\n{said.rstrip()}")
        return parts

    def _at_work(self) -> list[Raw]:
        """Its pods, without those that stand by."""
        pods = self._pods()
        if self.elected is None:
            return pods
        leads = self.elected(self.cluster)
        return [pod for pod in pods if meta(pod)["name"] == leads]

    def _pods(self) -> list[Raw]:
        return [pod for pod in self._all() if not meta(pod).get("deletionTimestamp")]

    def _all(self) -> list[Raw]:
        """Those that leave, too."""
        return self.cluster.items("pods", self.namespace, self.selector)

    def _id(self) -> str:
        found = _running(self._at_work())
        if len(found) != 1:
            raise LabError(f"{self.called} in {self.home.name} has {len(found)} containers that run instead of one.")
        return found[0]

    def _signal(self, container: str, sign: signal.Signals) -> None:
        for process in _processes(self.home, container):
            with suppress(ProcessLookupError):
                os.kill(process, sign)


def controller(cluster: Cluster, home: definition.Cluster) -> Container:
    """Our own, as it is deployed in the manager."""
    return Container("the controller", cluster, home, names.SYSTEM_NAMESPACE, install.PODS, install.leader)


def kueue(cluster: Cluster, home: definition.Cluster) -> Container:
    return Container("Kueue", cluster, home, addons.KUEUE.namespace, "control-plane=controller-manager")


def kuberay(cluster: Cluster, home: definition.Cluster) -> Container:
    return Container("KubeRay", cluster, home, addons.KUBERAY.namespace, "app.kubernetes.io/component=kuberay-operator")


def admission(cluster: Cluster, home: definition.Cluster) -> Container:
    """Our webhooks, where the component is."""
    selector = f"app.kubernetes.io/component={names.ADMISSION_COMPONENT.removeprefix('rayspan-')},pod-template-hash"
    return Container("the webhooks", cluster, home, names.SYSTEM_NAMESPACE, selector)


def coredns(cluster: Cluster, home: definition.Cluster) -> Container:
    return Container("CoreDNS", cluster, home, addons.COREDNS.namespace, "k8s-app=kube-dns")


def _processes(home: definition.Cluster, container: str) -> list[int]:
    """Those of the cluster's processes whose cgroup is named after the container."""
    return [process for process in cgroups.processes(home) if container in _cgroup(process)]


def _cgroup(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8")
    except OSError:  # it has just ended
        return ""


def _waits(pod: Raw) -> str:
    """For what its container waits, empty if it does not."""
    return str(((container_status(pod).get("state") or {}).get("waiting") or {}).get("reason") or "")


def _running(pods: Sequence[Raw]) -> list[str]:
    """The ids of the containers that run."""
    running = [pod for pod in pods if (container_status(pod).get("state") or {}).get("running")]
    return [container for container in map(_container, running) if container]


def _container(pod: Raw) -> str:
    return bare(container_status(pod).get("containerID"))


def gone(cluster: definition.Cluster) -> list[str]:
    """The names of a cluster's own processes that should run and do not."""
    return [name for name in _ALL if not processes.alive(cluster, name)]


def start(lab: Lab, cluster: definition.Cluster, name: str) -> None:
    """Start a cluster's own process again that was killed; it is not waited for until it serves."""
    with alone():
        _BY_NAME[name](lab, cluster)


def start_all(lab: Lab, cluster: definition.Cluster) -> None:
    """Start the missing processes of a cluster, and wait for the API server: some end at once without it."""
    with alone():
        control_plane.ensure_servers(cluster)
        control_plane.ensure_clients(cluster)
        node.ensure(cluster)
        _fake_nodes(lab, cluster)


def alone() -> AbstractContextManager[None]:
    """One command changes the lab at a time, as the lab's own do."""
    return lock.held(STATE / "lock", "waiting for another command on the lab")


def _fake_nodes(lab: Lab, cluster: definition.Cluster) -> None:
    """It starts the process first; that the nodes are still there can be asked in vain while an API server starts."""
    try:
        kwok.ensure(cluster, lab.fake_nodes)
    except (OSError, api.Refused) as failure:
        if not processes.alive(cluster, kwok.NAME):
            raise LabError(f"kwok of {cluster.name} could not be started: {failure}.") from failure


_BY_NAME: Mapping[str, Callable[[Lab, definition.Cluster], None]] = {
    "etcd": lambda lab, cluster: control_plane.ensure_servers(cluster),
    "kube-apiserver": lambda lab, cluster: control_plane.ensure_servers(cluster),
    "kubelet": lambda lab, cluster: node.ensure(cluster),
    kwok.NAME: _fake_nodes,
}
