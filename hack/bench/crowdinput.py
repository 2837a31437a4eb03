"""The gangs that the crowd's bench plans: they wait in one queue, over worker clusters with a queue tree each.

Beside them stands a queue that is in no tree. The stores, their readers and their writers are the controller's own; the
clusters behind are in memory. Each gang is a little too large for what is free, so it is planned to the end and waits
on.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from adapter import names
from adapter.objects import specs
from adapter.objects.unstructured import Raw, format_time
from adapter.shell.clusters.cluster_cache import CONNECTION, PROBE
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.kube import resources
from adapter.shell.kube.client import Client
from adapter.shell.kube.resources import Resource
from adapter.shell.shipped_policies import gate_policy
from hack.bench import plannerinput
from hack.bench.memoryapi import MemoryApi, versioned

NAMESPACE, QUEUE, CHECK, APART = plannerinput.NAMESPACE, "team-0", "rayspan", "apart"
_GATE, _GATE_BINDING = (
    {"metadata": {"name": names.GATE_POLICY}, "spec": spec} for spec in (gate_policy().policy, gate_policy().binding)
)
_ENV = [{"name": f"SETTING_{number}", "value": "on"} for number in range(30)]  # as many as a Ray container has


@dataclass(frozen=True, slots=True)
class Size:
    """How many gangs wait over how many clusters, with how many queues each."""

    gangs: int = 1000
    clusters: int = 100
    queues: int = 1000


@dataclass(frozen=True, slots=True)
class Crowd:
    """The stores of it."""

    size: Size
    manager: ManagerCache
    fleet: Fleet
    api: MemoryApi


class _Manager(ManagerCache):
    """A manager cluster of which these objects were read."""

    def show(self, shown: Mapping[Resource, Iterable[Raw]]) -> None:
        for row in self._watched_kinds:
            row.store.replace(shown.get(row.resource, ()))


class _Member(WorkerClusterCache):
    """A worker cluster of which these objects were read, and that is seen."""

    def show(self, shown: Mapping[Resource, Iterable[Raw]]) -> None:
        for row in self._watched_kinds:
            row.store.replace(shown.get(row.resource, ()))
        for source in (CONNECTION, PROBE):
            self._note_error(source, None)


class _Fleet(Fleet):
    """Worker clusters that are connected."""

    def show(self, members: Iterable[WorkerClusterCache]) -> None:
        self._caches = {member.name: member for member in members}


def make(size: Size) -> Crowd:
    """Build it; call it where a loop runs."""
    api = MemoryApi()
    clusters = [f"cluster-{number:03}" for number in range(size.clusters)]
    manager = _Manager(cast(Client, api))
    works = [gang(size, number) for number in range(size.gangs)]
    for raw in works:
        hold(api, raw)
    waiting: dict[Resource, Iterable[Raw]] = {
        resources.WORKLOADS: works,
        resources.RAY_JOBS: [job(number) for number in range(size.gangs)],
    }
    manager.show({**_of_manager(clusters), **waiting})
    fleet = _Fleet(asyncio.TaskGroup(), "mgr", lambda: True)
    fleet.show(_member(name, size) for name in clusters)
    return Crowd(size, manager, fleet, api)


def hold(api: MemoryApi, work: Raw) -> None:
    """Have a Workload's object where its writers look for it."""
    api.hold(resources.WORKLOADS.path(NAMESPACE, work["metadata"]["name"]), work)


def gang(size: Size, number: int) -> Raw:
    """A Workload that holds the manager's quota and asks for a few workers more than fit; the first is the oldest."""
    created = datetime.now(UTC) - timedelta(minutes=5) + timedelta(seconds=0.1 * number)
    wanted = _cores(size) + 1 + number % 5
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": f"job-{number}", "uid": f"job-uid-{number}"}
    held = {"type": names.QUOTA_RESERVED, "status": "True", "lastTransitionTime": format_time(created)}
    return versioned(
        {
            "metadata": {
                "name": f"gang-{number}",
                "namespace": NAMESPACE,
                "uid": f"gang-uid-{number}",
                "creationTimestamp": format_time(created),
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {
                "queueName": QUEUE,
                "podSets": [
                    {"name": "head", "count": 1, "template": _template()},
                    {"name": "workers", "count": wanted, "template": _template()},
                ],
            },
            "status": {
                "conditions": [held],
                "admission": {"clusterQueue": "all", "podSetAssignments": []},
                "admissionChecks": [{"name": CHECK, "state": names.CHECK_PENDING, "message": ""}],
            },
        }
    )


def job(number: int) -> Raw:
    """Its RayJob, as it is kept."""
    found = {"metadata": {"name": f"job-{number}", "namespace": NAMESPACE, "uid": f"job-uid-{number}"}}
    return versioned({**found, "spec": {"suspend": True, "shutdownAfterJobFinishes": True}})


def used(raw: Raw, cores: int) -> Raw:
    """A ClusterQueue with so much more in use, of what it borrows."""
    row = {"name": "reserved", "resources": [{"name": "cpu", "total": str(cores)}]}
    full, *_ = raw["status"]["flavorsReservation"]
    return versioned({**raw, "status": {"flavorsReservation": [full, row]}})


def _cores(size: Size) -> int:
    return 8 * size.clusters  # eight workers in each


def _template() -> dict[str, Any]:
    asked = {"cpu": "1", "memory": "1", "nvidia.com/gpu": "1"}
    container = {"name": "ray", "image": "ray", "env": _ENV, "resources": {"requests": asked, "limits": asked}}
    waits = {"name": "wait-gcs-ready", "image": "ray", "env": _ENV, "resources": {"requests": {"cpu": "0"}}}
    return {"metadata": {"labels": {"app": "ray"}}, "spec": {"containers": [container], "initContainers": [waits]}}


def _of_manager(clusters: Iterable[str]) -> dict[Resource, Iterable[Raw]]:
    parameters = {"apiGroup": names.DOMAIN, "kind": names.DISPATCH_POLICY_KIND, "name": "default"}
    check = {"controllerName": names.CONTROLLER_NAME, "parameters": parameters}
    lists: Raw = {"admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]}}
    return {
        resources.ADMISSION_CHECKS: [{"metadata": {"name": CHECK}, "spec": check}],
        resources.DISPATCH_POLICIES: [{"metadata": {"name": "default"}, "spec": {"clusters": {"names": [*clusters]}}}],
        resources.CLUSTER_QUEUES: [{"metadata": {"name": "all"}, "spec": lists}],
        resources.LOCAL_QUEUES: [_local_queue("all")],
        resources.GATE_POLICIES: [_GATE],
        resources.GATE_BINDINGS: [_GATE_BINDING],
    }


def _member(name: str, size: Size) -> WorkerClusterCache:
    spec = specs.parse_worker_cluster(
        {"metadata": {"name": name}, "spec": {"source": {"kubeConfig": {"secretRef": {"name": name}}}}}
    )
    shape = replace(
        plannerinput.Size(), pods=_cores(size), clusters=size.clusters, queues=size.queues, depth=3, gangs=0
    )
    queues, cohorts, flavors = plannerinput.objects(shape)
    apart = {**queues[0], "metadata": {"name": APART}, "spec": {**queues[0]["spec"], "cohortName": ""}}
    member = _Member(name, spec, cast(Client, MemoryApi()), "mgr", WorkerClusterListeners())
    member.show(
        {
            resources.CLUSTER_QUEUES: map(versioned, [*queues, apart]),
            resources.COHORTS: cohorts,
            resources.FLAVORS: flavors,
            resources.LOCAL_QUEUES: [_local_queue(QUEUE)],
            resources.NAMESPACES: [{"metadata": {"name": NAMESPACE}}],
            resources.NODES: [plannerinput.node(number) for number in range(4)],
        }
    )
    return member


def _local_queue(target: str) -> Raw:
    return {"metadata": {"name": QUEUE, "namespace": NAMESPACE}, "spec": {"clusterQueue": target}}
