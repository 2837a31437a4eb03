"""A small model of Kueue in a worker cluster: one ClusterQueue, group Workloads, and the gate on their pods.

It admits by priority and age what fits beside what it admitted, writes the queue's usage, evicts for a tenant of higher
priority, and frees an evicted Workload's quota when the last of its pods has ended.
"""

from collections.abc import Callable
from typing import Any

from adapter import names
from adapter.objects.pod_requests import pod_requests
from adapter.objects.unstructured import Raw, annotation, condition_true_since, is_condition_true, key_of, meta
from adapter.objects.worker_pod import has_ended
from adapter.shell.kube import resources
from hack.simulation.apiserver import ApiServer
from hack.simulation.readiness import DEFAULT, ReadinessClock, is_group_ready

_HAD_PODS = "simulation/had-pods"  # on a share: without a pod whose end it notices, Kueue frees no evicted quota
GATE = "kueue.x-k8s.io/admission"
QUEUE = "team"
Later = Callable[..., None]


class WorkerKueue:
    """Kueue of one worker cluster; `later` calls a function after a drawn time. `clock` is its waitForPodsReady."""

    def __init__(self, server: ApiServer, later: Later, cpus: int, clock: float = DEFAULT) -> None:
        self.server, self._later, self.cpus = server, later, cpus
        self.tenant = 0  # CPUs that a local tenant of higher priority uses
        self.pace = (0.02, 0.4)  # seconds until it acts
        self._is_due = False
        self.clock = ReadinessClock(
            server, clock, lambda share: is_group_ready(self.pods_of(share)), self._write, self.evict
        )
        self.clock.start(later)
        server.follow(self._changed)
        server.put(resources.CLUSTER_QUEUES, self._queue(0))
        server.put(resources.LOCAL_QUEUES, {"metadata": {"name": QUEUE, "namespace": "demo"},
                                            "spec": {"clusterQueue": "all"}})  # fmt: skip
        server.put(resources.FLAVORS, {"metadata": {"name": "default"}, "spec": {}})

    def admit(self, path: str, raw: dict[str, Any]) -> dict[str, Any]:
        """Its webhook: a pod of a queue is gated."""
        if path != resources.PODS.path() or names.QUEUE_LABEL not in (meta(raw).get("labels") or {}):
            return raw
        gates = [*(raw["spec"].get("schedulingGates") or ()), {"name": GATE}]
        return {**raw, "spec": {**raw["spec"], "schedulingGates": gates}, "status": {"phase": "Pending"}}

    def want(self, cpus: int) -> None:
        """Have the local tenant use so many CPUs, for which others are evicted."""
        self.tenant = min(cpus, self.cpus)
        self._plan()

    def evict(self, share: Raw, reason: str, message: str) -> None:
        """Stop a Workload's pods; its quota is free when the last one has ended."""
        self._write(share, names.EVICTED, "True", reason, message)
        for pod in self.pods_of(share):
            self.server.delete(resources.PODS, pod, "kueue")

    def pods_of(self, share: Raw) -> list[dict[str, Any]]:
        """The pods on a share, also those that have ended."""
        own = key_of(share)
        found = self.server.all(resources.PODS)
        return [pod for pod in found if (key_of(pod)[0], annotation(pod, names.PREBUILT_ANNOTATION)) == own]

    def holders(self) -> list[dict[str, Any]]:
        """The Workloads that hold quota, in the order in which they got it."""
        return [one for one in self.server.all(resources.WORKLOADS) if is_condition_true(one, names.QUOTA_RESERVED)]

    def used(self) -> int:
        """CPUs in use."""
        return self.tenant + sum(map(cpus_of, self.holders()))

    def _changed(self, path: str, before: Raw | None, after: Raw | None) -> None:
        if path in (resources.WORKLOADS.path(), resources.PODS.path()):
            self._plan()

    def _plan(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._later(*self.pace, self._reconcile)

    def _reconcile(self) -> None:
        self._is_due = False
        for share in self.server.all(resources.WORKLOADS):
            if is_condition_true(share, names.EVICTED) and is_condition_true(share, names.QUOTA_RESERVED):
                self._release(share)
        while self.used() > self.cpus and (victims := self._victims()):
            self.evict(victims[-1], "Preempted", "Preempted to accommodate a workload due to prioritization")
            break  # the next one when the quota of this one is free
        waiting = [one for one in self.server.all(resources.WORKLOADS) if self._waits(one)]
        for share in sorted(waiting, key=_order):
            self._try(share)
        for pod in self.server.all(resources.PODS):
            self._ungate(pod)
        self._write_queue()

    def _victims(self) -> list[dict[str, Any]]:
        found = [one for one in self.holders() if not is_condition_true(one, names.EVICTED)]
        return sorted(found, key=_order)

    def _release(self, share: Raw) -> None:
        if not all(map(has_ended, self.pods_of(share))) or not annotation(share, _HAD_PODS):
            return
        self._write(share, names.QUOTA_RESERVED, "False", "Pending", "Previously evicted", admission=None)

    def _waits(self, share: Raw) -> bool:
        return not (is_condition_true(share, names.QUOTA_RESERVED) or is_condition_true(share, names.EVICTED))

    def _try(self, share: Raw) -> None:
        asked, free = cpus_of(share), self.cpus - self.used()
        if asked > free:
            message = (
                f"couldn't assign flavors to pod set {share['spec']['podSets'][0]['name']}: insufficient unused quota "
                f"for cpu in flavor default, {asked - free} more needed"
            )
            self._write(share, names.QUOTA_RESERVED, "False", "Pending", message)
            return
        roles = [
            {"name": role["name"], "count": role["count"], "flavors": {"cpu": "default", "memory": "default"},
             "resourceUsage": {"cpu": str(cpus_of({"spec": {"podSets": [role]}}))}}
            for role in share["spec"]["podSets"]
        ]  # fmt: skip
        admission = {"clusterQueue": "all", "podSetAssignments": roles}
        self._write(share, names.QUOTA_RESERVED, "True", "QuotaReserved", "Quota reserved", admission=admission)
        if held := self.server.find(resources.WORKLOADS, *key_of(share)):
            self._write(held, names.ADMITTED, "True", "Admitted", "The workload is admitted")

    def _ungate(self, pod: dict[str, Any]) -> None:
        gates = pod["spec"].get("schedulingGates") or []
        share = self.server.find(resources.WORKLOADS, key_of(pod)[0], annotation(pod, names.PREBUILT_ANNOTATION))
        if not any(gate["name"] == GATE for gate in gates) or share is None:
            return
        if is_condition_true(share, names.ADMITTED) and not is_condition_true(share, names.EVICTED):
            kept = [gate for gate in gates if gate["name"] != GATE]
            self.server.put(resources.PODS, {**pod, "spec": {**pod["spec"], "schedulingGates": kept}}, "kueue")
            self.server.patch(resources.WORKLOADS, share, {"metadata": {"annotations": {_HAD_PODS: "1"}}}, "kueue")

    def _write(self, share: Raw, kind: str, status: str, reason: str, message: str, **fields: Any) -> None:
        change = with_condition(share, kind, status, reason, message, self.server.stamp())
        if kind == names.QUOTA_RESERVED and status == "False" and is_condition_true(share, names.ADMITTED):
            change = with_condition({"status": {"conditions": change}}, names.ADMITTED, "False", reason, message,
                                    self.server.stamp())  # fmt: skip
        if change != share.get("status", {}).get("conditions"):
            self.server.patch(resources.WORKLOADS, share, {"status": {"conditions": change, **fields}}, "kueue")

    def _queue(self, used: int) -> dict[str, Any]:
        quotas = {"cpu": str(self.cpus), "memory": f"{4 * self.cpus}Gi"}
        listed = [{"name": name, "nominalQuota": most} for name, most in quotas.items()]
        held = [{"name": "default", "resources": [{"name": "cpu", "total": str(used)}]}]
        groups = [{"coveredResources": [*quotas], "flavors": [{"name": "default", "resources": listed}]}]
        return {
            "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
            "status": {"flavorsReservation": held, "flavorsUsage": held},
        }

    def _write_queue(self) -> None:
        known = self.server.find(resources.CLUSTER_QUEUES, "", "all")
        wanted = self._queue(self.used())
        if known and known["status"] != wanted["status"]:
            self.server.patch(resources.CLUSTER_QUEUES, known, {"status": wanted["status"]}, "kueue")


def cpus_of(share: Raw) -> int:
    """The CPUs that a Workload asks for."""
    asked: int = sum(pod_requests(one["template"]["spec"]).get("cpu", 0) * one["count"] for one in _podsets(share))
    return asked // 1000


def with_condition(raw: Raw, kind: str, status: str, reason: str, message: str, now: str) -> list[Raw]:
    """The conditions of an object after one of them is set."""
    known: list[Raw] = list((raw.get("status") or {}).get("conditions") or ())
    before = next((one for one in known if one["type"] == kind), {})
    since = before.get("lastTransitionTime") if before.get("status") == status else now
    entry = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
    if before == entry:
        return known
    return [*(one for one in known if one["type"] != kind), entry]


def _podsets(share: Raw) -> list[Raw]:
    found: list[Raw] = share["spec"]["podSets"]
    return found


def _order(share: Raw) -> tuple[int, str, str]:
    since = condition_true_since(share, names.QUOTA_RESERVED)
    return -int(share["spec"].get("priority") or 0), str(since or meta(share)["creationTimestamp"]), meta(share)["uid"]
