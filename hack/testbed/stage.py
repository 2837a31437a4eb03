"""The stage of one test: a namespace of its own with its own queues, policy and check in every cluster.

Tests share the worker clusters and the controller, never a queue. Everything on a stage runs on fake nodes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import yaml

from adapter import names
from adapter.objects.placement import PlacementState
from adapter.objects.workload import active_slice
from hack.lab.base.paths import REPO
from hack.lab.base.progress import LabError
from hack.testbed.clusters import Cluster, Clusters, condition, wait
from hack.testbed.reader import Raw
from hack.testbed.workerclusters import meant

QUEUE = "ray"
FAKE_NODE = {"type": "kwok"}
TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}
# As for Ray's autoscaler, which the test plays: KubeRay then deletes only the named workers. Its container would
# request memory, which Kueue adds to the head's requests, and no queue of a stage covers memory.
AUTOSCALED: Raw = {
    "enableInTreeAutoscaling": True,
    "autoscalerOptions": {"resources": {"requests": {"cpu": "100m"}}},
}


@dataclass
class Stage:
    """One test's namespace over all clusters; as a context, it is cleared in the end."""

    fleet: Clusters
    name: str
    clusters: tuple[str, ...] = ("east", "west")
    made: list[tuple[Cluster, str, str]] = field(default_factory=list)  # cluster-scoped objects, to be deleted

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    @property
    def manager(self) -> Cluster:
        return self.fleet.manager

    def build(
        self,
        cpu: Mapping[str, int],
        *,
        timeout: str = "30s",
        manager_cpu: int = 100,
        strict: bool = False,
        policy: Raw | None = None,
        resource: str = "cpu",
        node_labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Make queues: `cpu` is the quota (whole CPUs) of each worker cluster; a worker of `ray_cluster` requests one.

        `strict`: the manager's queue is StrictFIFO. `policy`: more of the DispatchPolicy's spec. `resource`: covered
        beside cpu everywhere, with the quota of `cpu`. `node_labels`: those that a worker cluster's flavor requires.
        """
        policy = {"clusters": {"names": list(self.clusters)}, "reservationTimeout": timeout, **(policy or {})}
        parameters = {"apiGroup": names.DOMAIN, "kind": names.DISPATCH_POLICY_KIND, "name": self.name}
        check = {"controllerName": names.CONTROLLER_NAME, "parameters": parameters}
        strategy = "StrictFIFO" if strict else "BestEffortFIFO"
        objects = {
            self.manager: [
                self._object(names.API_VERSION, names.DISPATCH_POLICY_KIND, policy),
                self._object(names.KUEUE_API_VERSION, "AdmissionCheck", check),
                *self._queues(manager_cpu, resource, check=self.name, strategy=strategy),
            ]
        }
        for name, amount in cpu.items():
            labels = (node_labels or {}).get(name)
            objects[self.fleet.workers[name]] = [tenancy(self.name), *self._queues(amount, resource, labels=labels)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._apply, objects, objects.values()))
        # A job that is submitted before its queues are active waits first, and says so.
        wait(lambda: all(self._open_to_jobs(name) for name in cpu), 30, "the worker clusters' queues are active")

    def own(self, name: str) -> str:
        """Make a WorkerCluster of this stage alone, for a worker cluster, so that a test may change it; returns its
        name.

        A stage that is built afterwards names it in `clusters`, in place of the shared one.
        """
        own = f"{self.name}-{name}"
        metadata = {"name": own, "annotations": meant(self.fleet.workers[name])}
        made = {"apiVersion": names.API_VERSION, "kind": names.WORKER_CLUSTER_KIND, "metadata": metadata}
        self.manager.delete("workercluster", own)  # one of an earlier, interrupted run
        self.manager.apply(yaml.safe_dump({**made, "spec": {"source": {"kubeConfig": {"secretRef": {"name": name}}}}}))
        self.made.append((self.manager, f"workercluster.{names.DOMAIN}", own))
        wait(lambda: self.connected([own]), 30, f"{own} is connected")
        return own

    def connected(self, worker_clusters: Iterable[str]) -> bool:
        """Whether the controller sees the clusters of all these WorkerClusters."""
        found = [self.manager.get("workerclusters", name) for name in worker_clusters]
        return all(condition(one, names.CONNECTED).get("status") == "True" for one in found)

    def _open_to_jobs(self, name: str) -> bool:
        queue = self.fleet.workers[name].get("clusterqueues", self.name)
        return condition(queue, names.ACTIVE).get("status") == "True"

    def add(self, cluster: Cluster, kind: str, spec: Raw, name: str = "") -> str:
        """Make one more cluster-scoped object of Kueue's, which is deleted with the stage; returns its name.

        `kind`: such as ResourceFlavor. `spec`: what is beside its metadata, as the object has it. `name`: the stage's
        if empty.
        """
        name = name or self.name
        made = {"apiVersion": names.KUEUE_API_VERSION, "kind": kind, "metadata": {"name": name}, **spec}
        cluster.apply(yaml.safe_dump(made))
        self.made.append((cluster, _kind(made), name))
        return name

    def set_quota(self, cluster: Cluster, cpu: int) -> None:
        """Change a ClusterQueue's quota."""
        path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
        patch = json.dumps([{"op": "replace", "path": path, "value": str(cpu)}])
        cluster.kubectl("patch", "clusterqueue", self.name, "--type=json", "-p", patch)

    def uncheck(self) -> None:
        """Take our check from the manager's queue: jobs run in the manager alone, as they do without us."""
        patch = json.dumps([{"op": "remove", "path": "/spec/admissionChecksStrategy"}])
        self.manager.kubectl("patch", "clusterqueue", self.name, "--type=json", "-p", patch)

    def hold_admission(self, name: str) -> None:
        """Give a worker cluster's queue an admission check without a controller, so that it reserves and never
        admits."""
        self._hold_admission(self.fleet.workers[name], [])

    def hold_manager_admission(self) -> None:
        """Give the manager's queue such a check beside ours: a job is placed, and Kueue never starts it."""
        self._hold_admission(self.manager, [{"name": self.name}])

    def _hold_admission(self, cluster: Cluster, other_checks: list[Raw]) -> None:
        kind = f"admissionchecks.{names.KUEUE_DOMAIN}"
        spec = {"controllerName": "example.com/never"}
        check = self.add(cluster, "AdmissionCheck", {"spec": spec}, f"{self.name}-never")
        since = "2026-01-01T00:00:00Z"
        active = {"type": names.ACTIVE, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": since}
        patch = json.dumps({"status": {"conditions": [active]}})
        cluster.kubectl("patch", kind, check, "--subresource=status", "--type=merge", "-p", patch)
        checks = {"admissionChecksStrategy": {"admissionChecks": [*other_checks, {"name": check}]}}
        cluster.kubectl("patch", "clusterqueue", self.name, "--type=merge", "-p", json.dumps({"spec": checks}))

    def ray_cluster(
        self,
        name: str,
        *,
        workers: int,
        cpu: str = "1",
        groups: Mapping[str, int] | None = None,
        more: Mapping[str, str] | None = None,
        head_on: Mapping[str, str] = FAKE_NODE,
        priority: str = "",
        annotations: Mapping[str, str] | None = None,
        elastic: int = 0,
        least: int = 0,
        autoscaled: bool = False,
        hosts: int = 1,
    ) -> None:
        """Submit a RayCluster to the queue, whose pods go to fake nodes.

        `more`: a worker's requests beside cpu; `head_on`: the head's node selector; `priority`: a
        WorkloadPriorityClass; `annotations`: of its worker pods; `elastic`: the most workers that each group may be
        scaled to; `least`: the fewest; `autoscaled`: by Ray's autoscaler and not by hand; `hosts`: of each replica, of
        which there are `workers`.
        """
        made = ray_cluster(name, self.name, groups or {"workers": workers}, cpu, more or {})
        made["spec"]["headGroupSpec"]["template"]["spec"]["nodeSelector"] = dict(head_on)
        for group in made["spec"]["workerGroupSpecs"] if hosts > 1 else ():
            group["numOfHosts"] = hosts
        if priority:
            made["metadata"]["labels"][names.PRIORITY_CLASS_LABEL] = priority
        for group in made["spec"]["workerGroupSpecs"] if annotations else ():
            group["template"]["metadata"] = {"annotations": dict(annotations or {})}
        if elastic:
            made["metadata"]["annotations"] = {names.ELASTIC_ANNOTATION: "true"}
            made["spec"] |= AUTOSCALED if autoscaled else {}
            for group in made["spec"]["workerGroupSpecs"]:
                group |= {"minReplicas": least, "maxReplicas": elastic}
        self.manager.apply(yaml.safe_dump(made))

    def scale(self, name: str, group: int, workers: int, without: Iterable[str] | None = None) -> None:
        """Give a worker group of an elastic RayCluster, by its index, another number of workers.

        `without` names the pods to delete, as Ray's autoscaler does in each write, so that earlier names are dropped.
        """
        at = f"/spec/workerGroupSpecs/{group}"
        patch: list[Raw] = [{"op": "replace", "path": f"{at}/replicas", "value": workers}]
        if without is not None:
            patch.append({"op": "add", "path": f"{at}/scaleStrategy", "value": {"workersToDelete": list(without)}})
        self.manager.kubectl("-n", self.name, "patch", "raycluster", name, "--type=json", "-p", json.dumps(patch))

    def priority(self, name: str, value: int) -> str:
        """Make a WorkloadPriorityClass in the manager, named after the stage; returns its name."""
        return self.add(self.manager, "WorkloadPriorityClass", {"value": value}, f"{self.name}-{name}")

    def where(self, job: str) -> str:
        """Where a job's workers are, as its Placement says once they are placed; empty before."""
        status = self.placement(job).get("status") or {}
        return str(status.get("where")) if status.get("state") == PlacementState.PLACED else ""

    def placement(self, job: str) -> Raw:
        """The Placement of a job, {} while there is none."""
        found = self.manager.items("placements", self.name)
        mine = [p for p in found if p["spec"]["job"]["name"] == job]
        return max(mine, key=lambda p: p["metadata"]["creationTimestamp"], default={})

    def state(self, job: str) -> str:
        return str((self.placement(job).get("status") or {}).get("state") or "")

    def reason(self, job: str) -> str:
        """The Placement's status, empty while there is none."""
        return str((self.placement(job).get("status") or {}).get("reason") or "")

    def workload(self, job: str) -> Raw:
        """The manager's Workload of a job, the current slice of an elastic one; {} while there is none."""
        found = self.manager.items("workloads", self.name)
        owned = (w for w in found if any(o["name"] == job for o in w["metadata"].get("ownerReferences", ())))
        return dict(active_slice(owned) or {})

    def check(self, job: str) -> Raw:
        """Our entry in the admission checks of a job's Workload."""
        entries = (self.workload(job).get("status") or {}).get("admissionChecks") or ()
        return next((entry for entry in entries if entry["name"] == self.name), {})

    def workers(self) -> list[Raw]:
        """The manager's worker pods."""
        return self.manager.items("pods", self.name, f"{names.RAY_NODE_TYPE_LABEL}=worker")

    def remote(self, kind: str = "pods") -> dict[str, list[Raw]]:
        """Our objects in each worker cluster."""
        return {name: c.items(kind, self.name, names.MANAGER_LABEL) for name, c in self.fleet.workers.items()}

    def told(self, job: str, reason: str) -> str:
        """The event about a job with a reason, which may come a moment later than its cause."""
        return (
            wait(lambda: self.events(job).get(reason), 10, f"{job} is told {reason}", lambda: str(self.events(job)))
            or ""
        )

    def events(self, job: str) -> dict[str, str]:
        """Events about a job: reason -> message."""
        found = self.manager.items("events", self.name)
        ours = (
            e
            for e in found
            if e["involvedObject"]["name"] == job and e["source"].get("component") == names.EVENT_SOURCE
        )
        return {event["reason"]: event["message"] for event in ours}

    def running(self, count: int) -> bool:
        """Whether so many of the manager's workers are mirrored as ready."""
        ready = [pod for pod in self.workers() if condition(pod, "Ready").get("status") == "True"]
        return len(ready) == count

    def reserving(self) -> int:
        """How many Workloads hold quota of this stage in the worker clusters."""
        queues = (worker.get("clusterqueues", self.name) for worker in self.fleet.workers.values())
        return sum(int((queue.get("status") or {}).get("reservingWorkloads") or 0) for queue in queues)

    def leftovers(self) -> list[str]:
        """Our remaining objects in the worker clusters."""
        kinds = ("pods", "workloads", "configmaps", "secrets", "services", "endpointslices")
        return [
            f"{c} {kind} {o['metadata']['name']}"
            for kind in kinds
            for c, found in self.remote(kind).items()
            for o in found
        ]

    def clear(self) -> None:
        """Remove everything that was made."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._clear, self.fleet.all))

    def _clear(self, cluster: Cluster) -> None:
        mine = [(kind, name) for where, kind, name in reversed(self.made) if where is cluster]
        for where, kind, name in self.made:  # jobs that still run in one are deleted with it
            if where is cluster and kind.lower().startswith("workercluster") and cluster.get("workerclusters", name):
                cluster.kubectl("annotate", f"{kind}/{name}", f"{names.FORCE_DELETE_ANNOTATION}=true", "--overwrite")
        failed = []
        for kind, name in [("namespaces", self.name), *mine]:
            try:
                cluster.writer.delete(kind, name)
            except LabError as failure:  # the others are deleted all the same
                failed.append(str(failure))
        if failed:
            raise LabError(" ".join(failed))

    def _apply(self, cluster: Cluster, objects: list[Raw]) -> None:
        """Make the namespace and what belongs to it; that of an earlier, interrupted run of the test goes first."""
        if cluster.get("namespaces", self.name):
            mine = [f"{_kind(made)}/{self.name}" for made in objects if "namespace" not in made["metadata"]]
            cluster.kubectl("delete", f"namespace/{self.name}", *mine, "--ignore-not-found")
        for made in [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}, *objects]:
            cluster.writer.apply(made)
        self.made += [(cluster, _kind(made), self.name) for made in objects if "namespace" not in made["metadata"]]

    def _object(self, api_version: str, kind: str, spec: Raw) -> Raw:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"name": self.name}, "spec": spec}

    def _queues(
        self,
        cpu: int,
        resource: str,
        *,
        check: str = "",
        strategy: str = "BestEffortFIFO",
        labels: Mapping[str, str] | None = None,
    ) -> list[Raw]:
        covered = list(dict.fromkeys(["cpu", resource]))
        resources = [{"name": each, "nominalQuota": str(cpu)} for each in covered]
        group = {"coveredResources": covered, "flavors": [{"name": self.name, "resources": resources}]}
        checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}} if check else {}
        flavor = {"nodeLabels": dict(labels)} if labels else {}
        queue = {"namespaceSelector": {}, "queueingStrategy": strategy, "resourceGroups": [group], **checks}
        return [
            self._object(names.KUEUE_API_VERSION, "ResourceFlavor", flavor),
            self._object(names.KUEUE_API_VERSION, "ClusterQueue", queue),
            local_queue(QUEUE, self.name, self.name),
        ]


def tenancy(namespace: str) -> Raw:
    """Let the manager's account write in a namespace, as the worker's admin would."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "rayspan-worker", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "rayspan-worker-tenant"},
        "subjects": [{"kind": "ServiceAccount", "name": "rayspan-worker", "namespace": "rayspan-system"}],
    }


def local_queue(name: str, namespace: str, cluster_queue: str) -> Raw:
    """A LocalQueue that leads to a ClusterQueue."""
    metadata, spec = {"name": name, "namespace": namespace}, {"clusterQueue": cluster_queue}
    return {"apiVersion": names.KUEUE_API_VERSION, "kind": "LocalQueue", "metadata": metadata, "spec": spec}


def _kind(made: Raw) -> str:
    """The object's kind as kubectl takes it for one of many."""
    return f"{made['kind']}.{made['apiVersion'].split('/')[0]}"


def ray_cluster(
    name: str, namespace: str, groups: Mapping[str, int], cpu: str = "1", more: Mapping[str, str] | None = None
) -> Raw:
    """A stock RayCluster on fake nodes; `groups` is worker group -> replicas, `more` a worker's requests beside cpu."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.QUEUE_LABEL: QUEUE}},
        "spec": {
            "rayVersion": "2.60.0",
            "headGroupSpec": {"rayStartParams": {}, "template": _template("ray-head", "100m")},
            "workerGroupSpecs": [
                {
                    "groupName": group,
                    "replicas": count,
                    "minReplicas": count,
                    "maxReplicas": count,
                    "rayStartParams": {},
                    "template": _template("ray-worker", cpu, more or {}),
                }
                for group, count in groups.items()
            ],
        },
    }


def _template(container: str, cpu: str, more: Mapping[str, str] | None = None) -> Raw:
    resources = {"requests": {"cpu": cpu, **(more or {})}, **({"limits": dict(more)} if more else {})}
    return {
        "spec": {
            "nodeSelector": FAKE_NODE,
            "tolerations": [TOLERATION],
            "containers": [{"name": container, "image": "rayproject/ray:2.60.0", "resources": resources}],
        }
    }


def told(cluster: Cluster, kind: str, name: str) -> dict[str, str]:
    """Events about a cluster-scoped object: reason -> message; those of an earlier object of that name are left out."""
    uid = (cluster.get(kind, name).get("metadata") or {}).get("uid")
    found = cluster.items("events", "default")
    return {event["reason"]: event["message"] for event in found if event["involvedObject"].get("uid") == uid}


def plain_pod(name: str, namespace: str, queue: str, cpu: str = "1") -> Raw:
    """Somebody's pod in a LocalQueue, on fake nodes."""
    container = {"name": "c", "image": "rayproject/ray:2.60.0", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {names.QUEUE_LABEL: queue}},
        "spec": {"nodeSelector": FAKE_NODE, "tolerations": [TOLERATION], "containers": [container]},
    }


@contextmanager
def added(manager: Cluster, component: str) -> Iterator[None]:
    """A component of ours, applied for a while."""
    folder = REPO / "kustomize/components" / component
    manager.kubectl("apply", "-k", folder)
    try:
        yield
    finally:
        manager.kubectl("delete", "-k", folder, "--ignore-not-found")


def pods_by_cluster(pods: Iterable[Raw]) -> dict[str, int]:
    """How many of the manager's pods are labelled with each worker cluster."""
    counts: dict[str, int] = {}
    for pod in pods:
        cluster = pod["metadata"]["labels"].get(names.CLUSTER_LABEL, "")
        counts[cluster] = counts.get(cluster, 0) + 1
    return counts
