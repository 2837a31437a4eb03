"""The objects of a gang of the fleet's bench, in the manager and in its worker clusters.

Shares, remote pods and statuses come from the product's own pure functions, so a running gang leaves nothing to do.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from adapter import names
from adapter.objects import specs, worker_pod
from adapter.objects.placement import (
    GroupShare,
    Placement,
    PlacementState,
    Share,
    parse_placement,
    placement_manifest,
    placement_name,
    share_name,
)
from adapter.objects.unstructured import Raw, format_time
from adapter.objects.workload import Job, Workload, parse_workload
from adapter.rewrite import group_workload, rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target
from adapter.shell.kube import resources
from adapter.worker import manager_pod_status
from hack.bench.fleetpod import INDEX, POD, SINCE, SLOT, UID, golden, named, ran, written
from hack.bench.memoryapi import merged

NAMESPACE, QUEUE, CHECK, GROUP = "demo", "team", "rayspan", "Workers"
HEAD_IP = "127.0.0.1"


class Gang:
    """A gang that is placed, evenly over the clusters; its pods run, or are gated and have nothing yet."""

    def __init__(self, number: int, workers: int, clusters: list[str], manager_id: str, *, listed: bool = True) -> None:
        self.number, self.workers, self._manager_id, self._listed = number, workers, manager_id, listed
        each, more = divmod(workers, len(clusters))
        counts = {name: each + (place < more) for place, name in enumerate(clusters)}
        self.counts = {name: count for name, count in counts.items() if count}
        self.job = Job(names.RAY_API_VERSION, "RayJob", NAMESPACE, f"job-{number}", f"job-uid-{number}")
        self.role = group_workload.role_of_group(GROUP)

    @cached_property
    def work(self) -> Workload:
        return parse_workload(self.workload)

    @cached_property
    def name(self) -> str:
        """The name of its Placement."""
        return placement_name(self.work)

    @cached_property
    def workload(self) -> Raw:
        """As it is when its job runs."""
        template = {"metadata": {"labels": {"app": "ray"}}, "spec": _template(golden()["spec"])}
        kinds = names.QUOTA_RESERVED, names.ADMITTED
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": format_time(SINCE)} for kind in kinds]
        check = {"name": CHECK, "state": names.CHECK_READY, "message": "", "lastTransitionTime": format_time(SINCE)}
        podsets = [("head", 1), (GROUP.lower(), self.workers)]
        return {
            "apiVersion": names.KUEUE_API_VERSION,
            "kind": "Workload",
            "metadata": {**about(f"gang-{self.number:05}"), "ownerReferences": [_owner(self.job)]},
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

    def waiting(self, created: datetime) -> Iterator[tuple[resources.Resource, Raw]]:
        """The manager's objects of a gang that arrived then and waits for a placement: quota is reserved, our check is
        pending.
        """
        whole = self.workload
        check = {**whole["status"]["admissionChecks"][0], "state": names.CHECK_PENDING}
        held = [one for one in whole["status"]["conditions"] if one["type"] != names.ADMITTED]
        status = {**whole["status"], "conditions": held, "admissionChecks": [check]}
        metadata = {**whole["metadata"], "creationTimestamp": format_time(created)}
        yield resources.WORKLOADS, {**whole, "metadata": metadata, "status": status}
        job = {**about(self.job.name), "uid": self.job.uid}
        yield resources.RAY_JOBS, {"metadata": job, "spec": {"suspend": True, "rayClusterSpec": self._cluster()}}

    def _cluster(self) -> Raw:
        group = {"groupName": GROUP, "replicas": self.workers, "minReplicas": 0, "maxReplicas": 99_999}
        return {"workerGroupSpecs": [group]}

    @cached_property
    def placement(self) -> Raw:
        groups = {name: (GroupShare(GROUP.lower(), self.role, count),) for name, count in self.counts.items()}
        place = Placement(
            namespace=NAMESPACE, name=self.name, uid="", workload_uid=self.work.uid, workload=self.work.name,
            attempt=self.work.attempt, round=1, failed_rounds=0, planned_at=SINCE,
            shares=tuple(Share(name, group) for name, group in groups.items()),
            wanted_workers=self.workers, exclusions=(), explanation="", lost_reason="",
            withdrawn_round=0, placed_round=1, blocked=(), status={},
        )  # fmt: skip
        made = placement_manifest(place, self.job, CHECK, ())
        status = {"state": PlacementState.PLACED, "placedRound": 1}
        return {**made, "metadata": {**made["metadata"], **about(self.name)}, "status": status}

    def of_manager(self) -> Iterator[tuple[resources.Resource, Raw]]:
        """Its objects in the manager, without its workers."""
        yield resources.WORKLOADS, self.workload
        yield resources.PLACEMENTS, self.placement
        owner = Job(names.RAY_API_VERSION, "RayCluster", NAMESPACE, f"ray-{self.number}", f"ray-uid-{self.number}")
        job, ray = about(self.job.name), about(owner.name)
        cluster = self._cluster()
        yield resources.RAY_JOBS, {"metadata": {**job, "uid": self.job.uid}, "spec": {"rayClusterSpec": cluster}}
        yield (
            resources.RAY_CLUSTERS,
            {"metadata": {**ray, "uid": owner.uid, "ownerReferences": [_owner(self.job)]}, "spec": cluster},
        )
        labels = {names.RAY_NODE_TYPE_LABEL: names.HEAD, names.RAY_GCS_CLUSTER_LABEL: owner.name}
        told = {**about(f"ray-{self.number}-head"), "labels": labels, "ownerReferences": [_owner(owner)]}
        ready = [{"type": "Ready", "status": "True", "lastTransitionTime": format_time(SINCE)}]
        status = {"phase": "Running", "podIP": HEAD_IP, "conditions": ready}
        yield resources.PODS, {"metadata": told, "spec": {"containers": [{"name": "head"}]}, "status": status}

    def share(self, cluster: str) -> Raw:
        """Its group Workload in a cluster, which has quota."""
        target = self._target(cluster)
        template = self.workload["spec"]["podSets"][1]["template"]
        groups = [(GROUP, self.counts[cluster], template)]
        made = group_workload.build_workload(target, NAMESPACE, groups, self._anchor(cluster))
        told = {**about(target.share), "uid": f"share-{cluster}-{self.number}"}
        status = {
            "conditions": self.workload["status"]["conditions"],
            "admission": {"clusterQueue": "all", "podSetAssignments": [{"name": self.role, "flavors": {}}]},
        }
        return {**made, "metadata": {**made["metadata"], **told}, "status": status}

    def _anchor(self, cluster: str) -> str:
        return f"anchor-{cluster}-{self.number}"

    def _target(self, cluster: str) -> Target:
        target = Target.for_share(
            cluster, specs.parse_worker_cluster(worker_cluster(cluster, "")), queue=QUEUE, manager=self._manager_id,
            workload=self.work.gang_name, workload_uid=self.work.gang_uid, placement=self.name, round_=1,
        )  # fmt: skip
        assert target.share == share_name(self.name, 1)
        return target

    def gated(self, number: int, again: int = 0) -> Raw:
        """One of its pods as KubeRay makes it just now, and `again` in the place of one that failed."""
        name = self._pod_name(number) + (f"-{again}" if again else "")
        pod = named(self._fresh, name, "", number)
        return {**pod, "metadata": {**pod["metadata"], "creationTimestamp": format_time(datetime.now(UTC))}}

    @cached_property
    def _fresh(self) -> str:
        return json.dumps(self._pod())

    def running(self) -> Iterator[tuple[str, Raw, Raw]]:
        """For each pod its cluster, the pod and its remote pod in their final state."""
        number = 0
        for cluster, count in self.counts.items():
            ours, copy = map(json.dumps, self._pair(cluster))
            for index in range(count):
                slot = f"{cluster}/1/{self.role}/{index}"
                name = self._pod_name(number)
                yield cluster, named(ours, name, slot, number), named(copy, name, slot, number)
                number += 1

    def _pod_name(self, number: int) -> str:
        return f"ray-{self.number}-workers-worker-{number:05}"

    @cached_property
    def slots(self) -> Raw:
        """The annotation of its template by which its pods come with their slots."""
        listed = worker_pod.list_slots(parse_placement(self.placement), GROUP.lower()) if self._listed else ""
        return {names.SLOTS_ANNOTATION: listed} if listed else {}

    def _pod(self) -> Raw:
        plain = golden()
        labels = {
            **plain["metadata"]["labels"],
            names.RAY_GCS_CLUSTER_LABEL: f"ray-{self.number}",
            names.PLACEMENT_LABEL: self.name,
            "ray.io/worker-group-replica-index": INDEX,
        }
        owner = Job(names.RAY_API_VERSION, "RayCluster", NAMESPACE, f"ray-{self.number}", f"ray-uid-{self.number}")
        told = {
            **plain["metadata"],
            **about(POD),
            "uid": UID,
            "labels": labels,
            "annotations": {**plain["metadata"].get("annotations", {}), **self.slots},
            "ownerReferences": [_owner(owner)],
        }
        return written({**plain, "metadata": told})

    def _pair(self, cluster: str) -> tuple[Raw, Raw]:
        pod = self._pod()
        notes = {
            "labels": {**pod["metadata"]["labels"], names.CLUSTER_LABEL: cluster},
            "annotations": {**pod["metadata"]["annotations"], names.SLOT_ANNOTATION: SLOT},
        }
        pod = {**pod, "metadata": {**pod["metadata"], **notes}}
        body = rewriter.remote_pod(
            pod, head=HeadAddress.from_pod(pod, HEAD_IP), target=self._target(cluster), role=self.role,
            slot=SLOT, anchor_uid=self._anchor(cluster),
        )  # fmt: skip
        told = {"uid": f"copy-{UID}", "creationTimestamp": format_time(SINCE)}
        copy = ran({**body, "metadata": {**body["metadata"], **told}})
        patch = manager_pod_status.status_patch(pod, copy, cluster)
        assert patch is not None
        return merged(pod, patch), copy


def worker_cluster(name: str, uid: str) -> Raw:
    told = {
        "name": name,
        "uid": f"registered-{name}",
        "labels": {"kind": "worker"},
        "creationTimestamp": format_time(SINCE),
    }
    source = {"kubeConfig": {"secretRef": {"name": name}}}
    return {"metadata": told, "spec": {"source": source}, "status": {"clusterUID": uid}}


def about(name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-of-{name}", "creationTimestamp": format_time(SINCE)}


def _template(spec: Raw) -> Raw:
    """The part of a pod that its user wrote."""
    one = spec["containers"][0]
    kept = {key: one[key] for key in ("name", "image", "resources")}
    return {"containers": [kept], "nodeSelector": {}}


def _owner(job: Job) -> Raw:
    return {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid, "controller": True}
