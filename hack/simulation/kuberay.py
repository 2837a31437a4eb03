"""A small model of KubeRay and of Kueue in the manager: RayClusters with their Workloads, heads and workers."""

from datetime import timedelta
from typing import Any

import orjson

from adapter import names
from adapter.admission.gate import required_gates
from adapter.objects.unstructured import (
    Raw,
    controller_uid,
    format_time,
    is_condition_true,
    key_of,
    label,
    meta,
    parse_time,
)
from adapter.objects.worker_pod import has_ended, is_deleting
from adapter.shell.kube import resources
from hack.bench import fleetpod
from hack.simulation.apiserver import ApiServer
from hack.simulation.kueue import Later, with_condition
from hack.simulation.readiness import DEFAULT, EVICTION, ReadinessClock

NAMESPACE, CHECK, QUEUE = "demo", "rayspan", "team"
GROUP = "Workers"
_LONGEST_BACKOFF = 64  # seconds


def ray_cluster(name: str, workers: int) -> dict[str, Any]:
    """A RayCluster as its user submits it."""
    image = "rayproject/ray:2.60.0"
    asked = {"cpu": "1", "memory": "2Gi"}
    template = {"spec": {"containers": [{"name": "ray-worker", "image": image, "resources": {"requests": asked}}]}}
    head = {"spec": {"containers": [{"name": "ray-head", "image": image, "resources": {"requests": asked}}]}}
    group = {"groupName": GROUP, "replicas": workers, "minReplicas": workers, "maxReplicas": workers,
             "template": template}  # fmt: skip
    return {
        "apiVersion": names.RAY_API_VERSION,
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {names.QUEUE_LABEL: QUEUE}},
        "spec": {"suspend": True, "headGroupSpec": {"template": head}, "workerGroupSpecs": [group]},
    }


class ManagerKueue:
    """Kueue in the manager: each RayCluster has a Workload, which waits for the one check."""

    def __init__(self, server: ApiServer, later: Later, clock: float = DEFAULT) -> None:
        self.server, self._later = server, later
        self.clock = ReadinessClock(server, clock, self._is_ready, self._write, self._evict)
        self.clock.start(later)
        server.follow(self._changed)

    def _changed(self, path: str, before: Raw | None, after: Raw | None) -> None:
        if path == resources.RAY_CLUSTERS.path() and before is None and after is not None:
            self._later(0.05, 0.6, self._create, after)
        elif path == resources.RAY_CLUSTERS.path() and after is None and before is not None:
            self._later(0.05, 0.6, self._delete, before)
        elif path == resources.WORKLOADS.path() and after is not None:
            self._later(0.02, 0.3, self._reconcile, key_of(after))

    def _delete(self, cluster: Raw) -> None:
        for work in self.server.all(resources.WORKLOADS):
            if controller_uid(work) == meta(cluster)["uid"]:
                self.server.remove(resources.WORKLOADS, work, "kueue")

    def _create(self, cluster: Raw) -> None:
        if self.server.find(resources.RAY_CLUSTERS, *key_of(cluster)) is None:
            return
        spec, name = cluster["spec"], meta(cluster)["name"]
        owner = {"apiVersion": names.RAY_API_VERSION, "kind": "RayCluster", "name": name,
                 "uid": meta(cluster)["uid"], "controller": True}  # fmt: skip
        podsets = [{"name": "head", "count": 1, "template": spec["headGroupSpec"]["template"]}]
        podsets += [
            {"name": one["groupName"].lower(), "count": one["replicas"], "template": one["template"]}
            for one in spec["workerGroupSpecs"]
        ]
        about = {"name": f"raycluster-{name}-5ca1e", "namespace": NAMESPACE, "ownerReferences": [owner]}
        work = {"apiVersion": names.KUEUE_API_VERSION, "kind": "Workload", "metadata": about,
                "spec": {"active": True, "queueName": QUEUE, "priority": 0, "podSets": podsets}}  # fmt: skip
        self.server.put(resources.WORKLOADS, work, "kueue")

    def _reconcile(self, key: tuple[str, str]) -> None:
        work = self.server.find(resources.WORKLOADS, *key)
        if work is None:
            return
        checks = (work.get("status") or {}).get("admissionChecks") or [{}]
        reserved, admitted = (is_condition_true(work, kind) for kind in (names.QUOTA_RESERVED, names.ADMITTED))
        if work["spec"]["active"] is False and reserved:
            self._evict(work, "Deactivated", "The workload is deactivated")
        elif checks[0].get("state") == names.CHECK_REJECTED and reserved:
            self.server.patch(resources.WORKLOADS, work, {"spec": {"active": False}}, "kueue")
        elif checks[0].get("state") == names.CHECK_RETRY and reserved:
            self._evict(work, "AdmissionCheck", "At least one admission check is false")
        elif work["spec"]["active"] and not reserved:
            self._requeue(work)
        elif reserved and not admitted and checks[0].get("state") == names.CHECK_READY:
            self._set(work, names.ADMITTED, "True", "Admitted")
            self._start(work, checks[0].get("podSetUpdates") or [])

    def _requeue(self, work: Raw) -> None:
        """Reserve quota, unless it backs off after an eviction by the clock."""
        until = parse_time(((work.get("status") or {}).get("requeueState") or {}).get("requeueAt"))
        if until is not None and (rest := (until - self.server.now()).total_seconds()) > 0:
            self._later(rest, rest + 0.5, self._reconcile, key_of(work))
        elif until is not None:
            state = {"requeueState": {"requeueAt": None}}
            self._set(work, names.REQUEUED, "True", names.BACKOFF_FINISHED, **state)
        else:
            self._reserve(work)

    def _reserve(self, work: Raw) -> None:
        roles = [{"name": one["name"], "count": one["count"], "flavors": {"cpu": "default", "memory": "default"}}
                 for one in work["spec"]["podSets"]]  # fmt: skip
        check = {"name": CHECK, "state": names.CHECK_PENDING, "message": "",
                 "lastTransitionTime": self.server.stamp()}  # fmt: skip
        fields = {"admission": {"clusterQueue": "all", "podSetAssignments": roles}, "admissionChecks": [check]}
        self._set(work, names.QUOTA_RESERVED, "True", "QuotaReserved", **fields)
        current = self.server.find(resources.WORKLOADS, *key_of(work))
        if current and is_condition_true(current, names.EVICTED):
            self._set(current, names.EVICTED, "False", "QuotaReserved")

    def _evict(self, work: Raw, reason: str, message: str) -> None:
        now = self.server.stamp()
        conditions = with_condition(work, names.EVICTED, "True", reason, message, now)
        kinds = {names.QUOTA_RESERVED: "Pending", names.ADMITTED: "Pending", names.PODS_READY: "WaitForStart"}
        for kind, why in kinds.items():
            conditions = with_condition({"status": {"conditions": conditions}}, kind, "False", why, message, now)
        check = {"name": CHECK, "state": names.CHECK_PENDING, "message": "", "lastTransitionTime": now}
        status = {"conditions": conditions, "admission": None, "admissionChecks": [check]}
        if reason == EVICTION:
            status |= self._backoff(work)
        self._stop(work)
        self.server.patch(resources.WORKLOADS, work, {"status": status}, "kueue")

    def _backoff(self, work: Raw) -> dict[str, Any]:
        """Its time before it is queued again, which doubles each time."""
        count = 1 + int(((work.get("status") or {}).get("requeueState") or {}).get("count") or 0)
        until = self.server.now() + timedelta(seconds=min(2**count, _LONGEST_BACKOFF))
        return {"requeueState": {"count": count, "requeueAt": format_time(until)}}

    def _is_ready(self, work: Raw) -> bool:
        """Whether KubeRay calls the RayCluster ready (kueue:pkg/controller/jobs/raycluster, PodsReady)."""
        return (((self._job(work) or {}).get("status") or {}).get("state")) == "ready"

    def _write(self, work: Raw, kind: str, status: str, reason: str, _: str) -> None:
        self._set(work, kind, status, reason)

    def _set(self, work: Raw, kind: str, status: str, reason: str, **fields: Any) -> None:
        conditions = with_condition(work, kind, status, reason, "", self.server.stamp())
        self.server.patch(resources.WORKLOADS, work, {"status": {"conditions": conditions, **fields}}, "kueue")

    def _job(self, work: Raw) -> dict[str, Any] | None:
        owner = meta(work)["ownerReferences"][0]
        found = self.server.find(resources.RAY_CLUSTERS, NAMESPACE, owner["name"])
        return found if found and meta(found)["uid"] == owner["uid"] else None

    def _start(self, work: Raw, updates: list[Raw]) -> None:
        job = self._job(work)
        if job is None:
            return
        by_name = {one["name"]: one for one in updates}
        groups = [
            {**one, "template": _updated(one["template"], by_name.get(one["groupName"].lower(), {}))}
            for one in job["spec"]["workerGroupSpecs"]
        ]
        self.server.patch(resources.RAY_CLUSTERS, job, {"spec": {"suspend": False, "workerGroupSpecs": groups}},
                          "kueue")  # fmt: skip

    def _stop(self, work: Raw) -> None:
        job = self._job(work)
        if job is not None:
            templates = {one["name"]: one["template"] for one in work["spec"]["podSets"]}
            groups = [
                {**one, "template": templates[one["groupName"].lower()]} for one in job["spec"]["workerGroupSpecs"]
            ]
            self.server.patch(resources.RAY_CLUSTERS, job, {"spec": {"suspend": True, "workerGroupSpecs": groups}},
                              "kueue")  # fmt: skip


def _updated(template: Raw, update: Raw) -> Raw:
    about = template.get("metadata") or {}
    merged = {key: {**(about.get(key) or {}), **(update.get(key) or {})} for key in ("labels", "annotations")}
    selector = {**(template["spec"].get("nodeSelector") or {}), **(update.get("nodeSelector") or {})}
    return {**template, "metadata": {**about, **merged}, "spec": {**template["spec"], "nodeSelector": selector}}


class KubeRay:
    """KubeRay in the manager: one head and as many workers as a RayCluster says; a worker that ended is replaced."""

    def __init__(self, server: ApiServer, later: Later) -> None:
        self.server, self._later = server, later
        self._due: set[tuple[str, str]] = set()
        self.pace = (0.05, 1.0)  # seconds until it acts
        self._made = 0
        server.follow(self._changed)

    def gate(self, path: str, raw: dict[str, Any]) -> dict[str, Any]:
        """The policy that gates worker pods."""
        gates = required_gates(raw) if path == resources.PODS.path() else None
        return raw if gates is None else {**raw, "spec": {**raw["spec"], "schedulingGates": gates}}

    def _changed(self, path: str, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        if path == resources.RAY_CLUSTERS.path() and after is None:
            self._collect(raw)
        elif path == resources.RAY_CLUSTERS.path():
            self._plan(key_of(raw))
        elif path == resources.PODS.path() and (name := label(raw, names.RAY_GCS_CLUSTER_LABEL)):
            self._plan((NAMESPACE, name))

    def _plan(self, key: tuple[str, str]) -> None:
        if key not in self._due:
            self._due.add(key)
            self._later(*self.pace, self._reconcile, key)

    def _collect(self, cluster: Raw) -> None:
        for pod in self.server.all(resources.PODS):
            if controller_uid(pod) == meta(cluster)["uid"]:
                self.server.delete(resources.PODS, pod, "gc")

    def _reconcile(self, key: tuple[str, str]) -> None:
        self._due.discard(key)
        cluster = self.server.find(resources.RAY_CLUSTERS, *key)
        if cluster is None:
            return
        pods = [pod for pod in self.server.all(resources.PODS) if controller_uid(pod) == meta(cluster)["uid"]]
        if cluster["spec"]["suspend"]:
            for pod in pods:
                self.server.delete(resources.PODS, pod, "kuberay")
            self._report(cluster, "suspended")
            return
        heads = [pod for pod in pods if label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD]
        workers = [pod for pod in pods if pod not in heads]
        for pod in filter(has_ended, pods):
            self.server.delete(resources.PODS, pod, "kuberay")
        if not heads:
            self._create_head(cluster)
        living = [pod for pod in workers if not has_ended(pod) and not is_deleting(pod)]
        for group in cluster["spec"]["workerGroupSpecs"]:
            self._scale(cluster, group, living)
        if living and all(is_condition_true(pod, "Ready") for pod in (*heads, *living)):
            self._report(cluster, "ready")

    def _report(self, cluster: Raw, state: str) -> None:
        """It stays ready when pods are lost later, until it is suspended."""
        if (cluster.get("status") or {}).get("state") != state:
            self.server.patch(resources.RAY_CLUSTERS, cluster, {"status": {"state": state}}, "kuberay")

    def _scale(self, cluster: Raw, group: Raw, living: list[dict[str, Any]]) -> None:
        taken = {int(label(pod, names.RAY_REPLICA_INDEX_LABEL)) for pod in living}
        for number in range(group["replicas"]):
            if number not in taken:
                self._create_worker(cluster, group, number)
        for pod in living:
            if int(label(pod, names.RAY_REPLICA_INDEX_LABEL)) >= group["replicas"]:
                self.server.delete(resources.PODS, pod, "kuberay")

    def _about(self, cluster: Raw, kind: str) -> tuple[dict[str, Any], dict[str, str]]:
        self._made += 1
        name = meta(cluster)["name"]
        owner = {"apiVersion": names.RAY_API_VERSION, "kind": "RayCluster", "name": name,
                 "uid": meta(cluster)["uid"], "controller": True}  # fmt: skip
        labels = {names.RAY_GCS_CLUSTER_LABEL: name, names.RAY_NODE_TYPE_LABEL: kind}
        about = {"name": f"{name}-{kind}-{self._made:04}", "namespace": NAMESPACE, "ownerReferences": [owner]}
        return about, labels

    def _create_head(self, cluster: Raw) -> None:
        about, labels = self._about(cluster, names.HEAD)
        spec = cluster["spec"]["headGroupSpec"]["template"]["spec"]
        pod = {"metadata": {**about, "labels": labels}, "spec": {**spec, "terminationGracePeriodSeconds": 10},
               "status": {"phase": "Pending"}}  # fmt: skip
        self.server.put(resources.PODS, pod, "kuberay")

    def _create_worker(self, cluster: Raw, group: Raw, number: int) -> None:
        about, labels = self._about(cluster, "worker")
        template, name = group["template"], meta(cluster)["name"]
        known = template.get("metadata") or {}
        labels |= {
            **(known.get("labels") or {}),
            names.RAY_GCS_GROUP_LABEL: group["groupName"],
            names.RAY_REPLICA_INDEX_LABEL: str(number),
            "ray.io/is-ray-node": "yes",
        }
        spec = orjson.loads(_worker_spec().replace(b"plain-head-svc.corpus", f"{name}-head-svc.{NAMESPACE}".encode())
                            .replace(b"plain-head-svc", f"{name}-head-svc".encode()))  # fmt: skip
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**about, "labels": labels, "annotations": dict(known.get("annotations") or {})},
            "spec": {**spec, "nodeSelector": template["spec"].get("nodeSelector") or {}},
            "status": {"phase": "Pending", "conditions": [_GATED]},
        }
        self.server.put(resources.PODS, self.gate(resources.PODS.path(), pod), "kuberay")


_GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "gated"}


def _worker_spec() -> bytes:
    """The golden worker pod's spec, without what only makes it long."""
    spec = {key: value for key, value in fleetpod.golden()["spec"].items()
            if key not in ("initContainers", "volumes", "schedulingGates", "nodeSelector", "tolerations")}  # fmt: skip
    container = {key: value for key, value in spec["containers"][0].items()
                 if key not in ("livenessProbe", "readinessProbe", "volumeMounts", "ports")}  # fmt: skip
    return orjson.dumps({**spec, "containers": [container]})
