"""Which fleet does its bench look at? A manager with gangs that run, or are about to, over worker clusters that hold their copies.

The pods are golden ones as KubeRay makes them (tests/unit/rewrite/golden), with what API servers and kubelets write beside: 10 KB each.
Shares, copies and statuses are what the product's own pure functions make of them, so a fleet that runs has nothing left to be done.
"""

import base64
import functools
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
import yaml

from adapter import names
from adapter.membership import identity
from adapter.objects import specs, workerpod
from adapter.objects.placement import GroupShare, Placement, Share, manifest, placement, placement_name, share_name
from adapter.objects.raw import Raw, timestamp
from adapter.objects.workload import Job, Workload, workload
from adapter.rewrite import groupworkload, rewriter
from adapter.rewrite.headaddress import HeadAddress
from adapter.rewrite.target import Target
from adapter.shell.kube import resources
from adapter.worker import mirror
from hack.bench import plannerinput
from hack.bench.fleetapi import Cluster
from hack.bench.memoryapi import merged

MANAGER, NAMESPACE, QUEUE, CHECK, GROUP = "manager", "demo", "team", "rayspan", "Workers"
HEAD_IP = "127.0.0.1"
_GOLDEN = Path(__file__).parents[2] / "tests/unit/rewrite/golden/kuberay-1.6.2/plain.in.yaml"
_GATE = {"metadata": {"name": names.GATE_POLICY}, "spec": {"policyName": names.GATE_POLICY}}
_SINCE = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
_POD, _UID, _SLOT, _INDEX = "POD-TO-BE-NAMED", "UID-TO-BE-GIVEN", "SLOT-TO-BE-TAKEN", "4711471147"


@dataclass(frozen=True, slots=True)
class Size:
    """How many worker pods, in gangs of how many, over how many worker clusters."""

    pods: int
    clusters: int
    gang: int
    across: int = 0  # over how many of them each gang is; 0: over all
    # Whether templates list the slots of their pods; of a gang in more shares than are listed, none does.
    listed: bool = True
    selector: bool = False  # whether its policy chooses clusters by a label

    @property
    def gangs(self) -> list[int]:
        """The workers of each gang."""
        whole, rest = divmod(self.pods, self.gang)
        return [self.gang] * whole + ([rest] if rest else [])

    @property
    def names(self) -> list[str]:
        """What the worker clusters are called."""
        return [f"cluster-{number:03}" for number in range(self.clusters)]

    def over(self, gang: int) -> list[str]:
        """The worker clusters that a gang is over: each gang begins behind the one before it."""
        many = min(self.across or self.clusters, self.clusters)
        return [self.names[(gang * many + place) % self.clusters] for place in range(many)]


class Gang:
    """A gang that is placed, evenly over the clusters; its pods run, or are gated and have nothing yet."""

    def __init__(self, number: int, workers: int, clusters: list[str], manager_id: str, *, listed: bool = True) -> None:
        self.number, self.workers, self._manager_id, self._listed = number, workers, manager_id, listed
        each, more = divmod(workers, len(clusters))
        counts = {name: each + (place < more) for place, name in enumerate(clusters)}
        self.counts = {name: count for name, count in counts.items() if count}
        self.job = Job(names.RAY_API_VERSION, "RayJob", NAMESPACE, f"job-{number}", f"job-uid-{number}")
        self.role = groupworkload.role(GROUP)

    @cached_property
    def work(self) -> Workload:
        return workload(self.workload)

    @cached_property
    def name(self) -> str:
        """What its Placement is called."""
        return placement_name(self.work)

    @cached_property
    def workload(self) -> Raw:
        """As it is when its job runs."""
        template = {"metadata": {"labels": {"app": "ray"}}, "spec": _template(_golden()["spec"])}
        kinds = names.QUOTA_RESERVED, names.ADMITTED
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": timestamp(_SINCE)} for kind in kinds]
        check = {"name": CHECK, "state": names.CHECK_READY, "message": "", "lastTransitionTime": timestamp(_SINCE)}
        podsets = [("head", 1), (GROUP.lower(), self.workers)]
        return {
            "apiVersion": names.KUEUE_API_VERSION,
            "kind": "Workload",
            "metadata": {**_about(f"gang-{self.number}"), "ownerReferences": [_owner(self.job)]},
            "spec": {
                "active": True,
                "queueName": QUEUE,
                "podSets": [{"name": name, "count": count, "template": template} for name, count in podsets],
            },
            "status": {
                "conditions": conditions,
                "admission": {
                    "clusterQueue": "all",
                    "podSetAssignments": [{"name": name, "count": count, "flavors": {}} for name, count in podsets],
                },
                "admissionChecks": [check],
            },
        }

    @cached_property
    def placement(self) -> Raw:
        groups = {name: (GroupShare(GROUP.lower(), self.role, count),) for name, count in self.counts.items()}
        place = Placement(
            namespace=NAMESPACE, name=self.name, uid="", workload_uid=self.work.uid, workload=self.work.name,
            attempt=self.work.attempt, round=1, given_up=0, planned_at=_SINCE,
            shares=tuple(Share(name, group) for name, group in groups.items()),
            wanted=self.workers, excluded=(), explanation="", lost="", withdrawn_round=0, placed_round=1, blocked=(), status={},
        )  # fmt: skip
        made = manifest(place, self.job, CHECK, ())
        status = {"state": names.PLACED, "placedRound": 1}
        return {**made, "metadata": {**made["metadata"], **_about(self.name)}, "status": status}

    def of_manager(self) -> Iterator[tuple[resources.Resource, Raw]]:
        """What stands in the manager, but for its workers."""
        yield resources.WORKLOADS, self.workload
        yield resources.PLACEMENTS, self.placement
        owner = Job(names.RAY_API_VERSION, "RayCluster", NAMESPACE, f"ray-{self.number}", f"ray-uid-{self.number}")
        job, ray = _about(self.job.name), _about(owner.name)
        cluster = {
            "workerGroupSpecs": [
                {"groupName": GROUP, "replicas": self.workers, "minReplicas": 0, "maxReplicas": 99_999}
            ]
        }
        yield resources.RAY_JOBS, {"metadata": {**job, "uid": self.job.uid}, "spec": {"rayClusterSpec": cluster}}
        yield (
            resources.RAY_CLUSTERS,
            {"metadata": {**ray, "uid": owner.uid, "ownerReferences": [_owner(self.job)]}, "spec": cluster},
        )
        labels = {names.RAY_NODE_TYPE_LABEL: names.HEAD, names.RAY_GCS_CLUSTER_LABEL: owner.name}
        about = {**_about(f"ray-{self.number}-head"), "labels": labels, "ownerReferences": [_owner(owner)]}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": timestamp(_SINCE)}]
        status = {"phase": "Running", "podIP": HEAD_IP, "conditions": ready}
        yield resources.PODS, {"metadata": about, "spec": {"containers": [{"name": "head"}]}, "status": status}

    def share(self, cluster: str) -> Raw:
        """Its group Workload in a cluster, which has quota."""
        target = self._target(cluster)
        template = self.workload["spec"]["podSets"][1]["template"]
        groups = [(GROUP, self.counts[cluster], template)]
        made = groupworkload.group_workload(target, NAMESPACE, groups, self._anchor(cluster))
        about = {**_about(target.share), "uid": f"share-{cluster}-{self.number}"}
        status = {
            "conditions": self.workload["status"]["conditions"],
            "admission": {"clusterQueue": "all", "podSetAssignments": [{"name": self.role, "flavors": {}}]},
        }
        return {**made, "metadata": {**made["metadata"], **about}, "status": status}

    def _anchor(self, cluster: str) -> str:
        return f"anchor-{cluster}-{self.number}"

    def _target(self, cluster: str) -> Target:
        target = Target.of(
            cluster, specs.worker_cluster(_worker_cluster(cluster, "")), queue=QUEUE, manager=self._manager_id,
            workload=self.work.gang, workload_uid=self.work.gang_uid, placement=self.name, round_=1,
        )  # fmt: skip
        assert target.share == share_name(self.name, 1)
        return target

    def gated(self) -> Iterator[Raw]:
        """Its pods as KubeRay makes them."""
        text = json.dumps(self._pod())
        for number in range(self.workers):
            yield _named(text, self._pod_name(number), "", number)

    def running(self) -> Iterator[tuple[str, Raw, Raw]]:
        """Of each pod its cluster, the pod and its copy, as they are when all has been done."""
        number = 0
        for cluster, count in self.counts.items():
            ours, copy = map(json.dumps, self._pair(cluster))
            for index in range(count):
                slot = f"{cluster}/1/{self.role}/{index}"
                name = self._pod_name(number)
                yield cluster, _named(ours, name, slot, number), _named(copy, name, slot, number)
                number += 1

    def _pod_name(self, number: int) -> str:
        return f"ray-{self.number}-workers-worker-{number:05}"

    @cached_property
    def slots(self) -> Raw:
        """The annotation of its template by which its pods come with their slots."""
        listed = workerpod.listed(placement(self.placement), GROUP.lower()) if self._listed else ""
        return {names.SLOTS_ANNOTATION: listed} if listed else {}

    def _pod(self) -> Raw:
        golden = _golden()
        labels = {
            **golden["metadata"]["labels"],
            names.RAY_GCS_CLUSTER_LABEL: f"ray-{self.number}",
            names.PLACEMENT_LABEL: self.name,
            "ray.io/worker-group-replica-index": _INDEX,
        }
        owner = Job(names.RAY_API_VERSION, "RayCluster", NAMESPACE, f"ray-{self.number}", f"ray-uid-{self.number}")
        about = {
            **golden["metadata"],
            **_about(_POD),
            "uid": _UID,
            "labels": labels,
            "annotations": {**golden["metadata"].get("annotations", {}), **self.slots},
            "ownerReferences": [_owner(owner)],
        }
        return _written({**golden, "metadata": about})

    def _pair(self, cluster: str) -> tuple[Raw, Raw]:
        pod = self._pod()
        notes = {
            "labels": {**pod["metadata"]["labels"], names.CLUSTER_LABEL: cluster},
            "annotations": {**pod["metadata"]["annotations"], names.SLOT_ANNOTATION: _SLOT},
        }
        pod = {**pod, "metadata": {**pod["metadata"], **notes}}
        body = rewriter.remote_pod(
            pod, head=HeadAddress.of(pod, HEAD_IP), target=self._target(cluster), role=self.role,
            total=self.counts[cluster], slot=_SLOT, anchor_uid=self._anchor(cluster),
        )  # fmt: skip
        about = {"uid": f"copy-{_UID}", "creationTimestamp": timestamp(_SINCE)}
        copy = ran({**body, "metadata": {**body["metadata"], **about}})
        patch = mirror.status_patch(pod, copy, cluster, "", self.job)
        assert patch is not None
        return merged(pod, patch), copy


def ran(copy: Raw) -> Raw:
    """A copy as its cluster shows it when it runs: a node has it, and its kubelet says so."""
    spec, since = copy["spec"], timestamp(datetime.now(UTC))
    kinds = "PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"
    inits = [_container(one, "terminated", since) for one in spec.get("initContainers") or ()]
    status = {
        "phase": "Running",
        "conditions": [{"lastProbeTime": None, "lastTransitionTime": since, "status": "True", "type": kind} for kind in kinds],
        "containerStatuses": [_container(one, "running", since) for one in spec["containers"]],
        "initContainerStatuses": inits,
        "hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}], "podIP": "10.1.0.7", "podIPs": [{"ip": "10.1.0.7"}],
        "qosClass": "Guaranteed", "startTime": since,
    }  # fmt: skip
    return _written({**copy, "spec": {**spec, "schedulingGates": [], "nodeName": "node-0"}, "status": status})


def fill(size: Size, clusters: dict[str, Cluster], url: str, fresh: int = 0) -> list[Gang]:
    """Have in all API servers what stands there before there is a worker; returns the gangs that are placed, and last one of so many
    workers that comes on top, if any."""
    manager = clusters[MANAGER]
    of_manager = {"metadata": {"name": "kube-system", "uid": MANAGER}}
    manager.put(resources.NAMESPACES, of_manager)
    workers = [*size.gangs, *([fresh] if fresh else [])]
    gangs = [
        Gang(number, many, size.over(number), identity(of_manager), listed=size.listed)
        for number, many in enumerate(workers)
    ]
    for resource, raw in _rules(size, url):
        manager.put(resource, raw)
    for gang in gangs:
        for resource, raw in gang.of_manager():
            manager.put(resource, raw)
    for name in size.names:
        _fill_worker(clusters[name], [gang for gang in gangs if name in gang.counts])
    return gangs


def kubeconfig(url: str, cluster: str) -> str:
    """How an API server is reached."""
    named = {"name": cluster, "cluster": {"server": f"{url}/{cluster}", "certificate-authority-data": _authority()}}
    context = {"name": cluster, "context": {"cluster": cluster, "user": cluster}}
    user = {"name": cluster, "user": {"token": "nobody-asks-for-it"}}
    whole = {"clusters": [named], "contexts": [context], "users": [user], "current-context": cluster}
    return json.dumps({"apiVersion": "v1", "kind": "Config", **whole})


@functools.cache
def _authority() -> str:
    """One that the machine trusts: a kubeconfig has its own, which nobody asks for here, and else each would be given all of them."""
    first, *_ = ssl.create_default_context().get_ca_certs(binary_form=True)
    return base64.b64encode(ssl.DER_cert_to_PEM_cert(first).encode()).decode()


def _rules(size: Size, url: str) -> Iterator[tuple[resources.Resource, Raw]]:
    """What admins write in the manager."""
    parameters = {"apiGroup": names.DOMAIN, "kind": names.DISPATCH_POLICY_KIND, "name": "default"}
    check = {"controllerName": names.CONTROLLER_NAME, "parameters": parameters}
    chosen: Raw = {"selector": {"matchLabels": {"kind": "worker"}}} if size.selector else {"names": size.names}
    yield resources.ADMISSION_CHECKS, {"metadata": {"name": CHECK, "uid": CHECK}, "spec": check}
    yield resources.DISPATCH_POLICIES, {"metadata": {"name": "default", "uid": "policy"}, "spec": {"clusters": chosen}}
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}
    yield resources.CLUSTER_QUEUES, {"metadata": {"name": "all", "uid": "queue"}, "spec": checks}
    yield resources.LOCAL_QUEUES, {"metadata": _about(QUEUE), "spec": {"clusterQueue": "all"}}
    yield resources.GATE_POLICIES, _GATE
    yield resources.GATE_BINDINGS, _GATE
    for name in size.names:
        login = base64.b64encode(kubeconfig(url, name).encode()).decode()
        about = {"name": name, "namespace": names.SYSTEM_NAMESPACE, "uid": f"secret-{name}"}
        yield resources.SECRETS, {"metadata": about, "data": {names.KUBECONFIG_KEY: login}}
        yield resources.WORKER_CLUSTERS, _worker_cluster(name, name)


def _worker_cluster(name: str, uid: str) -> Raw:
    about = {
        "name": name,
        "uid": f"registered-{name}",
        "labels": {"kind": "worker"},
        "creationTimestamp": timestamp(_SINCE),
    }
    source = {"kubeConfig": {"secretRef": {"name": name}}}
    return {"metadata": about, "spec": {"source": source}, "status": {"clusterUID": uid}}


def _fill_worker(cluster: Cluster, gangs: list[Gang]) -> None:
    cluster.put(resources.NAMESPACES, {"metadata": {"name": "kube-system", "uid": cluster.name}})
    cluster.put(resources.NAMESPACES, {"metadata": {"name": NAMESPACE, "uid": "namespace"}})
    rows = [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "100000"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": rows}]
    queue = {"metadata": {"name": "all", "uid": "queue"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}
    cluster.put(resources.CLUSTER_QUEUES, queue)
    cluster.put(resources.FLAVORS, {"metadata": {"name": "default", "uid": "flavor"}, "spec": {}})
    cluster.put(resources.LOCAL_QUEUES, {"metadata": _about(QUEUE), "spec": {"clusterQueue": "all"}})
    for number in range(4):
        cluster.put(resources.NODES, plannerinput.node(number))
    for gang in gangs:
        share = gang.share(cluster.name)
        cluster.put(resources.WORKLOADS, share)
        owner = share["metadata"]["ownerReferences"][0]
        about = {**share["metadata"], "uid": owner["uid"], "ownerReferences": []}
        cluster.put(resources.CONFIG_MAPS, {"metadata": about})


@functools.cache
def _golden() -> Any:
    return yaml.safe_load(_GOLDEN.read_text())


def _template(spec: Raw) -> Raw:
    """What its user wrote of a pod."""
    one = spec["containers"][0]
    kept = {key: one[key] for key in ("name", "image", "resources")}
    return {"containers": [kept], "nodeSelector": {}}


def _about(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}", "creationTimestamp": timestamp(_SINCE)}


def _owner(job: Job) -> Raw:
    return {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid, "controller": True}


def _named(text: str, name: str, slot: str, number: int) -> Raw:
    """A pod of its own, of a text that has places for what tells it from its siblings."""
    for place, told in ((_POD, name), (_UID, f"uid-of-{name}"), (_SLOT, slot), (_INDEX, str(number))):
        text = text.replace(place, told)
    found: Raw = orjson.loads(text)
    return found


def _container(one: Raw, state: str, since: str) -> Raw:
    ended = {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": since,
        "finishedAt": since,
        "containerID": f"containerd://{'0' * 64}",
    }
    return {
        "name": one["name"], "image": one["image"], "imageID": f"{one['image']}@sha256:{'0' * 64}",
        "containerID": f"containerd://{'0' * 64}", "ready": True, "restartCount": 0, "started": state == "running", "lastState": {},
        "state": {state: {"startedAt": since} if state == "running" else ended},
        "allocatedResources": one["resources"]["requests"], "resources": one["resources"],
        "volumeMounts": one.get("volumeMounts") or [],
    }  # fmt: skip


def _written(raw: Raw) -> Raw:
    """With what an API server notes down of who wrote which field."""
    body = {key: value for key, value in raw.items() if key in ("metadata", "spec", "status")}
    about = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    body["metadata"] = {key: about[key] for key in ("labels", "annotations") if key in about}
    noted = {"manager": "kuberay-operator", "operation": "Update", "apiVersion": "v1", "time": timestamp(_SINCE)}
    fields = {**noted, "fieldsType": "FieldsV1", "fieldsV1": _fields(body)}
    return {**raw, "metadata": {**about, "managedFields": [fields]}}


def _fields(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {f"f:{key}": _fields(value) for key, value in raw.items()}
    if isinstance(raw, list) and raw and isinstance(raw[0], dict):
        key = next((key for key in ("name", "type", "key") if key in raw[0]), "")
        return {f'k:{{"{key}":"{one.get(key)}"}}': {".": {}, **_fields(one)} for one in raw} if key else {}
    return {}
