"""A small model of a cluster's scheduler and kubelets: an ungated pod starts, runs, and ends when it is deleted."""

import itertools
from collections.abc import Callable
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw, condition, is_condition_true, key_of, label, meta
from adapter.objects.worker_pod import has_ended, is_deleting
from adapter.shell.kube import resources
from hack.simulation.apiserver import ApiServer
from hack.simulation.kueue import Later

_RUNNING = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready", "PodScheduled")


class Kubelet:
    """All nodes of a cluster. `may_be_ready`: whether a Ray node has joined its head."""

    def __init__(self, server: ApiServer, later: Later, network: int, may_be_ready: Callable[[Raw], bool]) -> None:
        self.server, self._later, self._network = server, later, network
        self._may_be_ready, self._addresses = may_be_ready, itertools.count(2)
        self.start, self.end = (0.5, 8.0), (0.3, 5.0)  # seconds until a pod runs, and until it has ended
        self.on_ready: Callable[[Raw], None] = lambda _: None
        self._known: set[str] = set()
        self.is_cordoned = False  # all nodes are
        self.crashing: set[str] = set()  # uids of pods whose container ends each time it starts
        server.follow(self._changed)

    def _changed(self, path: str, before: Raw | None, after: Raw | None) -> None:
        if path != resources.PODS.path() or after is None:
            return
        if before is not None and not is_deleting(before) and is_deleting(after):
            self._later(*self.end, self._remove, after)
        elif not after["spec"].get("schedulingGates") and not after["spec"].get("nodeName") and self._is_new(after):
            self._later(0.02, 0.5, self._bind, after)

    def _is_new(self, pod: Raw) -> bool:
        uid, selector = meta(pod)["uid"], pod["spec"].get("nodeSelector") or {}
        is_new = uid not in self._known and names.LOCK_NODE_SELECTOR not in selector
        self._known |= {uid} if is_new else set()
        return is_new

    def _remove(self, pod: Raw) -> None:
        self._known.discard(meta(pod)["uid"])
        self.server.remove(resources.PODS, pod, "kubelet")

    def _current(self, pod: Raw) -> dict[str, Any] | None:
        known = self.server.find(resources.PODS, *key_of(pod))
        is_same = known is not None and meta(known)["uid"] == meta(pod)["uid"]
        return known if is_same else None

    def _bind(self, pod: Raw) -> None:
        if self.is_cordoned:
            self._wait_for_node(pod)
            return
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.server.stamp()}
        change = {"spec": {"nodeName": "node-0"}, "status": {"phase": "Pending", "conditions": [scheduled]}}
        if self.server.patch(resources.PODS, pod, change, "scheduler"):
            self._later(*self.start, self._run, pod)

    def _wait_for_node(self, pod: Raw) -> None:
        known = self._current(pod)
        if known is None:
            return
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                   "message": "0/1 nodes are available: 1 node(s) were unschedulable.",
                   "lastTransitionTime": self.server.stamp()}  # fmt: skip
        if condition(known, "PodScheduled").get("reason") != refused["reason"]:
            self.server.patch(resources.PODS, pod, {"status": {"conditions": [refused]}}, "scheduler")
        self._later(1.0, 5.0, self._bind, pod)

    def _run(self, pod: Raw) -> None:
        known = self._current(pod)
        if known is None or is_deleting(known) or has_ended(known):
            return
        if meta(known)["uid"] in self.crashing or not self._may_be_ready(known):
            self._later(2.0, 5.0, self._run, pod)
            return
        ready = self.server.patch(resources.PODS, known, {"status": self._running(known)}, "kubelet")
        if ready:
            self.on_ready(ready)

    def _running(self, pod: Raw) -> Raw:
        now, number = self.server.stamp(), next(self._addresses)
        address = pod.get("status", {}).get("podIP") or f"10.{self._network}.{number // 250}.{number % 250 + 1}"
        states = [
            {"name": one["name"], "ready": True, "restartCount": 0, "state": {"running": {"startedAt": now}}}
            for one in pod["spec"]["containers"]
        ]
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in _RUNNING]
        return {"phase": "Running", "conditions": conditions, "containerStatuses": states, "podIP": address,
                "podIPs": [{"ip": address}], "hostIP": "10.0.0.7", "startTime": now}  # fmt: skip

    def resume(self, pod: Raw) -> None:
        """Take up a pod that a backup brought back."""
        if not pod["spec"].get("nodeName"):
            self._known.discard(meta(pod)["uid"])
            self._changed(resources.PODS.path(), None, pod)
        elif not is_condition_true(pod, "Ready"):
            self._later(*self.start, self._run, pod)

    def finish(self, pod: Raw) -> None:
        """Have a pod end that is being deleted."""
        self._later(*self.end, self._remove, pod)

    def unready(self, pod: Raw) -> None:
        """A container ended, and starts again."""
        known = self._current(pod)
        if known is None or has_ended(known) or not is_condition_true(known, "Ready"):
            return
        conditions = [
            {**one, "status": "False"} if one["type"] in ("Ready", "ContainersReady") else one
            for one in known["status"]["conditions"]
        ]
        self.server.patch(resources.PODS, known, {"status": {"conditions": conditions}}, "kubelet")
        self._later(2.0, 10.0, self._run, pod)

    def fail(self, pod: Raw, reason: str) -> None:
        """A pod ends by a fault of its node: it was evicted."""
        known = self._current(pod)
        if known is not None and not has_ended(known):
            status = {"phase": "Failed", "reason": reason, "message": f"{reason}, drawn"}
            self.server.patch(resources.PODS, known, {"status": status}, "kubelet")

    def workers(self) -> list[dict[str, Any]]:
        """The remote pods, in any state."""
        return [pod for pod in self.server.all(resources.PODS) if label(pod, names.POD_UID_LABEL)]


def is_alive(pod: Raw) -> bool:
    """Whether a pod's containers may run."""
    return bool(pod["spec"].get("nodeName")) and not has_ended(pod)


def runs(pod: Raw) -> bool:
    """Whether it runs and is not being stopped."""
    return is_alive(pod) and pod.get("status", {}).get("phase") == "Running" and not is_deleting(pod)
