"""A controller's caches without a controller: stores filled by hand, with everything that decides behind them."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

from adapter import names
from adapter.objects import specs
from adapter.objects.cluster_clock import ClockOffsets, ClockReading, ClusterClock
from adapter.objects.reason import Reason
from adapter.objects.unstructured import RawDict as Raw
from adapter.shell.clusters.capacity_versions import CapacityVersions
from adapter.shell.clusters.cluster_cache import CONNECTION, PROBE
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache, WorkerClusterListeners
from adapter.shell.controller import wiring
from adapter.shell.kube.client import Client
from adapter.shell.kube.server_clock import ServerClock
from adapter.shell.kube.store import Store
from adapter.shell.observe.cluster_losses import ClusterLosses
from adapter.shell.observe.proxy_health import ProxyHealth
from adapter.shell.observe.slots import PendingAssignments
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.planning.preview import Preview
from adapter.shell.shipped_policies import gate_policy
from adapter.shell.write.copies import ObjectCopier
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.execute import Executor
from adapter.shell.write.relay_writer import RelayWriter
from tests.unit import builders

_NOBODY = cast(Client, None)  # any request to a cluster fails at once


class Members:
    """Stands in for the Fleet, which connects to clusters: these are connected."""

    def __init__(self, members: Iterable[WorkerClusterCache]) -> None:
        self.capacity_versions = CapacityVersions()
        self._caches = {member.name: member for member in members}

    def caches(self) -> dict[str, WorkerClusterCache]:
        return self._caches

    def connected_cache(self, name: str) -> WorkerClusterCache:
        return self._caches[name]

    def clock_offsets(self, clusters: Iterable[str], manager_clock: ServerClock) -> ClockOffsets:
        return Fleet.clock_offsets(cast(Fleet, self), clusters, manager_clock)

    def draining(self) -> frozenset[str]:
        return Fleet.draining(cast(Fleet, self))

    def growing(self) -> frozenset[str]:
        return Fleet.growing(cast(Fleet, self))

    def reachable(self, namespace: str = "") -> dict[str, WorkerClusterCache]:
        return Fleet.reachable(cast(Fleet, self), namespace)

    def unreachable(self, namespace: str = "") -> dict[str, str]:
        return Fleet.unreachable(cast(Fleet, self), namespace)

    def unreachable_reasons(self) -> dict[str, Reason]:
        reasons = {name: cache.unreachable for name, cache in self._caches.items()}
        return {name: reason for name, reason in reasons.items() if reason}


class Sight:
    """A manager cluster with a queue `team-a` in namespace `demo`, and worker clusters with so many cores each."""

    def __init__(self, cores: Mapping[str, int], **policy: Any) -> None:
        manager = self.manager = ManagerCache(_NOBODY)
        checks: Raw = {"admissionChecksStrategy": {"admissionChecks": [{"name": builders.CHECK}]}}
        manager.cluster_queues.replace([builders.make_cluster_queue(99, name="all", **checks)])
        manager.local_queues.replace([make_local_queue("all")])
        manager.checks.replace([builders.make_check()])
        manager.policies.replace([builders.make_policy(clusters=cores, **policy)])
        gate = gate_policy()
        manager.gate_policies.replace([{"metadata": {"name": names.GATE_POLICY}, "spec": gate.policy}])
        manager.gate_bindings.replace([{"metadata": {"name": names.GATE_POLICY}, "spec": gate.binding}])
        self.members = {name: make_member(name, amount) for name, amount in cores.items()}
        fleet = self.fleet = cast(Fleet, Members(self.members.values()))
        self.memory = TransientState()
        facts = self.facts = wiring.build_observers(
            manager,
            fleet,
            PendingAssignments(),
            ClusterLosses(manager, fleet),
            ProxyHealth(manager, fleet),
            self.memory,
            "mgr",
        )
        self.planning = wiring.build_planner(manager, fleet, facts, self.memory)
        self.preview = Preview(manager, facts.policies, facts.job_problems, self.planning)

    def executor(self, client: Client) -> Executor:
        """The executor of actions, whose writes and events go through this client."""
        copier = ObjectCopier(self.manager, self.fleet, self.facts.sources, self.facts.worker_observer)
        recorder, relay = EventRecorder(client), RelayWriter(self.manager, self.facts.policies)
        return wiring.build_executor(
            self.manager, self.fleet, self.facts, self.planning, recorder, self.memory, copier, relay
        )


def fill(store: Store, *objects: Raw) -> None:
    """Fill a store with exactly these objects; they have no versions by which it could tell them apart."""
    store.replace([])
    store.replace(objects)


def make_member(name: str, cores: int, *, used: int = 0, **spec: Any) -> WorkerClusterCache:
    """A reachable worker cluster with one large node."""
    found = specs.parse_worker_cluster(builders.make_worker_cluster(name, **spec))
    member = WorkerClusterCache(name, found, _NOBODY, "mgr", WorkerClusterListeners())
    member.cluster_queues.replace([builders.make_cluster_queue(cores, used=used)])
    member.local_queues.replace([make_local_queue("team-a")])
    member.flavors.replace([builders.make_flavor()])
    member.namespaces.replace([{"metadata": {"name": builders.NAMESPACE}}])
    node = {
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "999", "pods": "999"}}
    }
    for row in member._watched_kinds:
        if not row.store.synced:
            row.store.replace([{"metadata": {"name": "node"}, **node}] if row.store is member._node_objects else [])
    for source in (CONNECTION, PROBE):
        member._note_error(source, None)
    assert not member.unreachable_reason
    return member


def put_clock_ahead(member: WorkerClusterCache, seconds: float) -> None:
    """Put a worker cluster's clock ahead of the manager cluster's, or behind it."""
    put_ahead(member.clock, seconds)


def put_ahead(clock: ServerClock, seconds: float) -> None:
    """Put a cluster's clock ahead of this machine's, or behind it. One answer does not move it."""
    offset, monotonic = clock._clock.offset + seconds, time.monotonic()
    clock._clock = ClusterClock(offset, (ClockReading(offset, monotonic, monotonic),))


def make_local_queue(cluster_queue: str) -> Raw:
    return {
        "metadata": {"name": builders.QUEUE, "namespace": builders.NAMESPACE},
        "spec": {"clusterQueue": cluster_queue},
    }


def make_ray_job(*groups: Raw, kind: str = "RayJob", queue: str | None = builders.QUEUE, **spec: Any) -> Raw:
    """A stock RayJob or RayCluster as its user writes it; by default with one group of four workers of one core."""
    cluster = {
        "headGroupSpec": {"rayStartParams": {}, "template": make_template("1")},
        "workerGroupSpecs": list(groups) or [make_group(4)],
    }
    own = {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster} if kind == "RayJob" else cluster
    labels = {names.QUEUE_LABEL: queue} if queue else {}
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": {"name": builders.JOB, "namespace": builders.NAMESPACE, "labels": labels},
        "spec": {**own, **spec},
    }


def make_group(replicas: int | None, *, name: str = "workers", cpu: str = "1", **more: Any) -> Raw:
    wanted = {} if replicas is None else {"replicas": replicas, "minReplicas": replicas, "maxReplicas": replicas}
    return {"groupName": name, **wanted, "rayStartParams": {}, "template": make_template(cpu)} | more


def make_template(cpu: str, **spec: Any) -> Raw:
    container = {"name": "ray", "image": "ray", "resources": {"requests": {"cpu": cpu} if cpu else {}}}
    return {"spec": {"containers": [container], **spec}}
