"""Enqueues keys with their delays. event_handlers.py decides which keys.

A change of capacity concerns every gang that waits. Any tenant may cause such changes, as fast as pods come and go. So
the waiting gangs are gone through at a bounded rate, and one key stands for all changes meanwhile: nothing is lost,
because the versions of the capacity are counted at once.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Literal

from adapter import names
from adapter.objects.placement import gang_name_of
from adapter.objects.unstructured import Key, Raw, annotation, key_of, label, uid_of
from adapter.objects.workload import gang_key, job_of
from adapter.planning import ordering
from adapter.shell.clusters.capacity_versions import CohortTree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.drains import DrainObserver
from adapter.shell.observe.planning_order import aged_workload, order_key
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.rate_limit import TokenBucket
from adapter.shell.supervise import read_each

QueueKey = tuple[str, str, str]  # kind, namespace, name
GANG, POD, CLUSTER, CHECK, POLICY, QUEUE, ANCHOR = "gang", "pod", "cluster", "check", "policy", "queue", "anchor"
SERVICE, NAMESPACE = "service", "namespace"  # of an incomplete namespace: its ended gangs
WAKE = "wake"  # of no object: gangs that wait
# The delay after changes that come in bursts: a starting pod changes its status several times within a fraction of a
# second. KubeRay and people act on a scale of seconds.
BURST_SECONDS = 0.3
# The delay after changes of capacity: Kueue updates its counters in bursts, and every plan reads all queues.
CAPACITY_SECONDS = 0.5
# How often the waiting gangs may be gone through: for so many changes in a row, then once in CAPACITY_SECONDS.
WAKE_BURST = 10
# The gangs whose last plan a change has outdated, or all that wait.
WokenGangs = Literal["outdated", "waiting"]


class Enqueuer:
    def __init__(
        self, queue: WorkQueue[QueueKey], manager: ManagerCache, fleet: Fleet, replan_check: ReplanCheck
    ) -> None:
        self._queue, self._manager, self._fleet, self._replan_check = queue, manager, fleet, replan_check
        self._drains = DrainObserver(manager, fleet)
        self._wake_limit = TokenBucket(WAKE_BURST, CAPACITY_SECONDS)

    def single_key(self, kind: str, namespace: str, name: str, delay: float = 0.0) -> None:
        self._queue.add((kind, namespace, name), delay)

    def failed_keys(self, delay: float = 0.0) -> None:
        self._queue.retry_failed(delay)

    def object_key(self, kind: str, raw: Raw, delay: float = 0.0) -> None:
        """Enqueue an object's key; for a Workload, its gang's."""
        namespace, name = gang_key(raw) if kind == GANG else key_of(raw)
        self._queue.add((kind, namespace, name), delay)

    def object_keys(self, kind: str, objects: Iterable[Raw], delay: float = 0.0) -> None:
        for raw in objects:
            self.object_key(kind, raw, delay)

    def spread_objects(self, kind: str, objects: Iterable[Raw], over: float) -> None:
        for raw, after in _spread_over(objects, over):
            self.object_key(kind, raw, after)

    def spread_services(self, slices: Iterable[Raw], over: float) -> None:
        for raw, after in _spread_over(slices, over):
            self.service_of_slice(raw, after)

    def spread_share_gangs(self, shares: Iterable[Raw], over: float) -> None:
        for raw, after in _spread_over(shares, over):
            self.gang_of_share(raw, after)

    def gang_of_placement(self, placement: Raw, delay: float = 0.0) -> None:
        self.single_key(GANG, *_gang_of(placement), delay)

    def gang_of_share(self, raw: Raw, delay: float = 0.0) -> None:
        self.single_key(GANG, key_of(raw)[0], annotation(raw, names.WORKLOAD_ANNOTATION), delay)

    def service_of_slice(self, endpoint_slice: Raw, delay: float = 0.0) -> None:
        self.single_key(SERVICE, key_of(endpoint_slice)[0], label(endpoint_slice, names.SERVICE_NAME_LABEL), delay)

    def workers_of_ray_cluster(self, key: str, delay: float = 0.0) -> None:
        """Enqueue a RayCluster's worker pods; `key`: its namespace and name."""
        self.object_keys(POD, (pod for pod in self._manager.pods if by_ray_cluster(pod) == key), delay)

    def services_of_pod(self, pod: Raw) -> None:
        """Enqueue the Services of a pod's RayCluster, delayed so that one write covers a burst."""
        self.object_keys(SERVICE, self._manager.services.by_index(by_ray_cluster(pod)), BURST_SECONDS)

    def namespace(self, namespace: str) -> None:
        """Enqueue what a namespace has, after it became incomplete in a cluster, or complete."""
        self.single_key(NAMESPACE, namespace, "")
        manager = self._manager
        remote_pods = [(POD, member.pods) for member in self._fleet.caches().values()]
        stores = (GANG, manager.workloads), (POD, manager.pods), (SERVICE, manager.services), *remote_pods
        for kind, store in stores:
            self.object_keys(kind, (raw for raw in store if key_of(raw)[0] == namespace), BURST_SECONDS)

    def incomplete_namespaces(self) -> None:
        caches = self._manager, *self._fleet.caches().values()
        for namespace in {name for cache in caches for name in cache.namespace_shares.incomplete()}:
            self.single_key(NAMESPACE, namespace, "")

    def share_gangs(self, shares: Iterable[Raw], delay: float) -> None:
        for raw in shares:
            self.gang_of_share(raw, delay)

    def objects_in_cluster(self, cluster: str, delay: float = 0.0) -> None:
        member = self._fleet.caches().get(cluster)
        if member:
            self.object_keys(POD, member.pods, delay)
            for raw in member.workloads:
                self.gang_of_share(raw, delay)

    def checks_and_dependents(self, checks: Iterable[Raw]) -> None:
        self.object_keys(CHECK, checks)
        self.object_keys(GANG, self._manager.workloads)
        self.aggregated_queues()

    def policies_and_dependents(self) -> None:
        """Enqueue what a policy may affect: a gang's clusters, their order, and which of its groups are placed."""
        self._fleet.capacity_versions.mark_all_changed()
        self.object_keys(POLICY, self._manager.policies)
        self.checks_and_dependents(self._manager.checks)

    def aggregated_queues(self, delay: float = CAPACITY_SECONDS) -> None:
        """Enqueue the ClusterQueues whose quota follows the worker clusters'."""
        for raw in self._manager.cluster_queues:
            if annotation(raw, names.QUOTA_ANNOTATION):
                self._queue.add((QUEUE, "", key_of(raw)[1]), max(delay, CAPACITY_SECONDS))

    def gangs_after_capacity_change(self) -> None:
        """Enqueue the gangs affected by a change that any plan may read."""
        self._fleet.capacity_versions.mark_all_changed()
        self._wake_soon("outdated")

    def gangs_after_usage_change(self, tree: CohortTree) -> None:
        """Enqueue the gangs affected by a usage change in a worker cluster's cohort tree."""
        self._fleet.capacity_versions.mark_tree_changed(tree)
        self._wake_soon("outdated")

    def gangs_after_promise_change(self) -> None:
        """Enqueue the gangs affected when other gangs are promised different capacity or ordered differently."""
        self._fleet.capacity_versions.mark_promises_changed()
        self._wake_soon("outdated")

    def waiting_gangs(self) -> None:
        self._wake_soon("waiting")

    def _wake_soon(self, which: WokenGangs) -> None:
        if delay := self.wake_gangs(which):
            self.single_key(WAKE, "", which, delay)

    def wake_gangs(self, which: WokenGangs) -> float | None:
        """Enqueue gangs in scheduling order: each plan then sees the plans before it.

        Returns after how many seconds to do so if that is too early now.
        """
        if delay := self._wake_limit.take_or_delay(time.monotonic()):
            return delay
        draining = self._fleet.draining()
        concerned_flags = read_each(
            "wake",
            self._manager.placements,
            lambda placement: (
                self._wants_capacity(placement, draining)
                and (which == "waiting" or self._replan_check.is_affected(placement))
            ),
        )
        gangs = [_gang_of(placement) for placement, is_concerned in concerned_flags if is_concerned]
        workloads = [raw for key in gangs if (raw := self._manager.gang_workload(key))]
        order_keys = {uid_of(raw): sort_key for raw, sort_key in read_each("enqueue", workloads, self._order_key)}
        sortable = (raw for raw in workloads if uid_of(raw) in order_keys)
        ordered = map(gang_key, sorted(sortable, key=lambda raw: order_keys[uid_of(raw)]))
        # Gangs without a readable Workload come last.
        for namespace, name in dict.fromkeys([*ordered, *gangs]):
            self.single_key(GANG, namespace, name, CAPACITY_SECONDS)
        return None

    def _wants_capacity(self, placement: Raw, fleet_draining: frozenset[str]) -> bool:
        workload = self._manager.gang_workload(_gang_of(placement))
        draining = self._drains.clusters_of(job_of(workload) if workload else None, fleet_draining)
        return ordering.wants_capacity(placement, workload, draining) or self._replan_check.seeks_other_slots(placement)

    def _order_key(self, raw: Raw) -> ordering.OrderKey:
        return order_key(self._manager, aged_workload(self._manager, self._manager.read_workload(raw)))


def _spread_over(objects: Iterable[Raw], over: float) -> Iterator[tuple[Raw, float]]:
    items = list(objects)
    return ((raw, over * number / len(items)) for number, raw in enumerate(items))


def _gang_of(placement: Raw) -> Key:
    return key_of(placement)[0], gang_name_of(placement)
