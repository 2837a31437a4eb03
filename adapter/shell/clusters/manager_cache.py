"""The cache of the manager cluster.

Nothing may be decided until every store is synced, and while the cluster is unreachable. An empty or outdated cache
means "do nothing", never "nothing is wanted".
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime

from adapter import membership, names
from adapter.objects import kuberay_events, trim
from adapter.objects.admissioncheck import AdmissionCheck, read_check
from adapter.objects.placement import Placement, parse_placement
from adapter.objects.queues import NO_CLUSTER_QUEUE, ClusterQueue, read_cluster_queue, read_local_queue
from adapter.objects.rayjob import UNKNOWN_JOB, UNKNOWN_JOBS, JobObject, read_ray_cluster, read_ray_job
from adapter.objects.unstructured import Key, Raw, controller_uid, key_of, label, uid_of
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import Job, Workload, active_slice, is_elastic, is_elastic_gang, parse_workload
from adapter.shell.clusters.cluster_cache import ClusterCache, WatchedKind, always, never
from adapter.shell.clusters.crd_check import CrdCheck
from adapter.shell.clusters.indexes import (
    by_gang,
    by_involved_object,
    by_own_gang,
    by_placement,
    by_ray_cluster,
    by_selected_ray_cluster,
    by_service,
    by_slot,
)
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.memo import IdentityMemo
from adapter.shell.kube.memory_budget import MANAGER_BYTES, MANAGER_NAMESPACE_BYTES
from adapter.shell.kube.namespace_shares import NamespaceHandler
from adapter.shell.kube.namespace_shares import ignore as ignore_namespace
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store

log = logging.getLogger(__name__)

# The pause before the identity is requested again. If the process ended instead, the kubelet would delay its restart by
# up to five minutes.
_RETRY_SECONDS = 2.0
_SERVING_KINDS = (resources.SERVICES, resources.ENDPOINT_SLICES)
_NO_SELECTORS: Mapping[str, str] = {}


def ignore() -> None:
    """Default for `on_reachable`: do nothing."""


class ManagerCache(ClusterCache):
    def __init__(self, client: Client) -> None:
        super().__init__(client, MANAGER_BYTES, MANAGER_NAMESPACE_BYTES)
        self.stores_filled = asyncio.Event()  # all required stores are listed
        self.on_reachable: Callable[[], None] = ignore
        self.workloads = Store(index=by_own_gang, owner=controller_uid, trim_object=trim.manager_workload, metered=True)
        # Not metered, since only we write Placements: an incomplete namespace keeps them.
        self.placements = Store(index=by_gang)
        self.pods = Store(
            index=by_placement, counted_value=slot_of, search_words=by_slot, trim_object=trim.manager_pod, metered=True
        )
        self.crds = CrdCheck(client)
        # Status patches that are being written to manager pods: such a change alone needs no reconcile.
        self.pending_status_patches: dict[Key, Raw] = {}
        self.heads = Store(index=by_ray_cluster, trim_object=trim.head_pod, metered=True)
        self.ray_clusters = Store(trim_object=trim.ray_cluster, metered=True)
        self.ray_jobs = Store(trim_object=trim.ray_job, metered=True)
        self.kuberay_events = Store(index=by_involved_object, trim_object=kuberay_events.trim_event, metered=True)
        self.worker_clusters = Store()
        self.policies = Store()
        self.checks = Store()
        self.cluster_queues = Store()
        self.local_queues = Store()
        self.flavors = Store()
        self.secrets = Store()
        self.gate_policies = Store(trim_object=trim.untrimmed)
        self.gate_bindings = Store(trim_object=trim.untrimmed)
        self.gate_webhooks = Store(trim_object=trim.untrimmed)
        self.multikueue_clusters = Store()
        self.multikueue_configs = Store()
        self.services = Store(index=by_selected_ray_cluster, metered=True)  # for Serve
        self.slices = Store(index=by_service, metered=True)  # our own
        self._serving_reported = False
        self._watch_kinds(self._kinds_to_watch())
        self.on_namespace: NamespaceHandler = ignore_namespace  # it became incomplete, or complete
        self.namespace_shares.on_change = self._on_namespace

    def _kinds_to_watch(self) -> list[WatchedKind]:
        gate = {"fieldSelector": f"metadata.name={names.GATE_POLICY}"}
        heads = {"labelSelector": f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"}
        ours = {"labelSelector": f"{names.SLICE_MANAGED_BY_LABEL}={names.SERVING_SLICES_MANAGER}"}
        return [
            _required_kind(resources.WORKLOADS, self.workloads),
            _required_kind(resources.PLACEMENTS, self.placements),
            _required_kind(
                resources.PODS, self.pods, selectors={"labelSelector": names.PLACEMENT_LABEL}, deferred=True
            ),
            _required_kind(resources.PODS, self.heads, selectors=heads),
            _required_kind(resources.RAY_CLUSTERS, self.ray_clusters),
            _required_kind(resources.RAY_JOBS, self.ray_jobs),
            _required_kind(resources.WORKER_CLUSTERS, self.worker_clusters),
            _required_kind(resources.DISPATCH_POLICIES, self.policies),
            _required_kind(resources.ADMISSION_CHECKS, self.checks),
            _required_kind(resources.CLUSTER_QUEUES, self.cluster_queues),
            _required_kind(resources.LOCAL_QUEUES, self.local_queues),
            _required_kind(resources.FLAVORS, self.flavors),
            _required_kind(resources.SECRETS, self.secrets, namespace=names.SYSTEM_NAMESPACE),
            _advisory_kind(resources.EVENTS, self.kuberay_events, {"fieldSelector": kuberay_events.SELECTOR}),
            _granted_kind(resources.GATE_POLICIES, self.gate_policies, gate),  # not served before Kubernetes 1.36
            _granted_kind(resources.GATE_BINDINGS, self.gate_bindings, gate),
            _granted_kind(resources.GATE_WEBHOOKS, self.gate_webhooks, gate),
            _optional_kind(resources.MULTIKUEUE_CLUSTERS, self.multikueue_clusters),
            _optional_kind(resources.MULTIKUEUE_CONFIGS, self.multikueue_configs),
            _granted_kind(resources.SERVICES, self.services, {"labelSelector": names.RAY_SERVE_LABEL}),
            _granted_kind(resources.ENDPOINT_SLICES, self.slices, ours),
        ]

    def _on_namespace(self, namespace: str) -> None:
        log.info("manager cluster: %s", self.namespace_shares.describe(namespace))
        self.on_namespace(namespace)

    async def read_identity(self) -> str:
        """The manager's identity: short, stable, and not configurable, so it cannot be wrong.

        Retries until answered.
        """
        last_message = ""
        while True:
            try:
                namespace = await self.client.get(resources.NAMESPACES.path(name="kube-system"))
            except (ApiError, Unreachable) as trouble:
                if str(trouble) != last_message:
                    last_message = str(trouble)
                    log.warning("manager cluster: %s; asked every %.0f s", last_message, _RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return membership.cluster_identity_of(namespace)

    def follow_deferred(self) -> None:
        super().follow_deferred()
        if not self.synced:
            self.stores_filled.clear()

    def _on_follow_result(self, kind: WatchedKind, error: Exception | None) -> None:
        before, was_readable = self.unreadable_kinds.get(kind.resource), self.endpoints_readable
        super()._on_follow_result(kind, error)
        error_now = self.unreadable_kinds.get(kind.resource)
        if kind.resource in _SERVING_KINDS:
            self._report_serving(kind, was_readable, error_now)
        elif str(before or "") != str(error_now or ""):
            log.info("manager cluster: %s %s", kind.resource.plural, error_now or "are read")
            kind.store.notify()
        elif error and kind.unreachable_if is not never:
            log.warning("manager cluster: following %s: %s", kind.resource.plural, error)
        if self.synced and (error is None or kind.unreachable_if is never):
            self.stores_filled.set()

    def _report_serving(self, kind: WatchedKind, straight: bool, unread: Exception | None) -> None:
        """Log the path of requests once, however many kinds are unreadable."""
        way = "go straight to their workers" if self.endpoints_readable else f"pass their heads ({unread})"
        if self.endpoints_readable != straight or (unread and not self._serving_reported):
            self._serving_reported = True
            log.info("manager cluster: requests of RayServices %s", way)
        if self.endpoints_readable and not straight:
            kind.store.notify()

    def _note_error(self, source: WatchedKind | str, error: Exception | None) -> None:
        before = self.unreachable_reason
        super()._note_error(source, error)
        if before and not self.unreachable_reason:
            self.on_reachable()

    @property
    def endpoints_readable(self) -> bool:
        """Whether Services and our slices can be read; an account that may not read them may not write them either."""
        return all(
            row.store.synced and row.resource not in self.unreadable_kinds
            for row in self._watched_kinds
            if row.resource in _SERVING_KINDS
        )

    @property
    def not_ready_reason(self) -> str:
        """Why a process with this cache cannot decide now, or empty."""
        return self.unreachable_reason or ("" if self.synced else "the manager cluster is not read yet")

    @property
    def unreachable_reason(self) -> str:
        return f"the manager cluster is unreachable: {self.first_error}" if self.first_error else ""

    def cluster_queue_of(self, key: Key) -> ClusterQueue:
        """The ClusterQueue of a LocalQueue; without a name when there is none."""
        raw = self.local_queues.get(key)
        queue = self.local_queues.read_cached(raw, read_local_queue) if raw else None
        cluster_queue = self.cluster_queues.by_name(queue.cluster_queue) if queue else None
        return self.cluster_queues.read_cached(cluster_queue, read_cluster_queue) if cluster_queue else NO_CLUSTER_QUEUE

    def check(self, name: str) -> AdmissionCheck:
        """The AdmissionCheck of that name; without a controller when there is none."""
        raw = self.checks.by_name(name)
        return self.checks.read_cached(raw, read_check) if raw else AdmissionCheck(name)

    def token_expiry(self, cluster: Raw) -> datetime | None:
        """When the token expires; None where no Secret of ours shows it."""
        return membership.token_expires_at(
            self.secrets.get((names.SYSTEM_NAMESPACE, membership.kubeconfig_secret_name(cluster)))
        )

    def read_workload(self, raw: Raw) -> Workload:
        return self.workloads.read_cached(raw, parse_workload)

    def read_placement(self, raw: Raw) -> Placement:
        return self.placements.read_cached(raw, parse_placement)

    def read_placements(self) -> Collection[Placement]:
        return self.placements.read_all_cached(parse_placement).values()

    def memo_of(self, workload: Workload) -> IdentityMemo:
        """The memo of a Workload's version; a new one each time if it is not stored."""
        raw = self._stored(workload)
        return self.workloads.read_cached(raw, IdentityMemo) if raw is not None else IdentityMemo()

    def is_stored(self, workload: Workload) -> bool:
        """Whether the Workload is the stored version: neither an older one nor a preview's."""
        return self._stored(workload) is not None

    def _stored(self, workload: Workload) -> Raw | None:
        raw = self.workloads.get((workload.namespace, workload.name))
        if raw is None:
            return None
        stored = self.read_workload(raw)
        return raw if (stored.uid, stored.resource_version) == (workload.uid, workload.resource_version) else None

    def gang_workload(self, key: Key) -> Raw | None:
        """The Workload of a gang; None for a slice's own name, because a slice of an elastic job is no gang."""
        if is_elastic_gang(key[1]):
            return active_slice(self.workloads.by_index("/".join(key)))
        workload = self.workloads.get(key)
        return None if workload is None or is_elastic(workload) else workload

    def ray_cluster_of(self, pod: Raw) -> Raw | None:
        """The RayCluster of a pod's label. Users write labels: see `raycluster.belongs_to_job`."""
        return self.ray_clusters.get((key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL)))

    def kuberay_events_of(self, ray_cluster: Raw) -> list[Raw]:
        return self.kuberay_events.by_index(f"{key_of(ray_cluster)[0]}/{uid_of(ray_cluster)}")

    def job_object(self, job: Job) -> JobObject:
        """The job's RayJob or RayCluster; an unknown job while it is unobserved."""
        store, _ = self._job_store(job)
        raw = store.get((job.namespace, job.name))
        if raw is None:
            return UNKNOWN_JOBS.get(job.kind, UNKNOWN_JOB)
        return store.read_cached(raw, read_ray_job if job.kind == "RayJob" else read_ray_cluster)

    async def refresh_job(self, job: Job | None) -> None:
        """Read a job into its store, by list: there is no right to `get`."""
        if job is None:
            return
        store, resource = self._job_store(job)
        answer = await self.client.get(resource.path(job.namespace), fieldSelector=f"metadata.name={job.name}")
        for raw in answer.get("items") or ():
            store.put(raw)

    def _job_store(self, job: Job) -> tuple[Store, Resource]:
        if job.kind == "RayJob":
            return self.ray_jobs, resources.RAY_JOBS
        return self.ray_clusters, resources.RAY_CLUSTERS

    def with_ray_service(self, workload: Workload) -> Workload:
        """The Workload, with its job's RayService, if any."""
        if workload.job is None or workload.job.kind != "RayCluster":
            return workload
        job = self.job_object(workload.job)
        if job.uid != workload.job.uid or not job.service:
            return workload
        of_service = replace(workload.job, service=job.service)
        return self.memo_of(workload).get_or_find(
            ManagerCache.with_ray_service, (workload, job), lambda: replace(workload, job=of_service)
        )


def _required_kind(
    resource: Resource,
    store: Store,
    *,
    namespace: str = "",
    selectors: Mapping[str, str] = _NO_SELECTORS,
    deferred: bool = False,
) -> WatchedKind:
    """A kind without which nothing is decided; while it is unreachable, everything stops.

    If a later read is denied, the last state stays valid.
    """
    return WatchedKind(resource, store, namespace, selectors, unreachable_if=_is_unreachable, deferred=deferred)


def _optional_kind(resource: Resource, store: Store) -> WatchedKind:
    """A kind that the manager cluster may lack or deny, reported only where it is used.

    Once read, the store stays valid even if a later read is denied.
    """

    def lacks(error: Exception) -> bool:
        return isinstance(error, ApiError) and error.status in (403, 404) and not store.synced

    return WatchedKind(resource, store, optional_if=lacks, unreachable_if=never)


def _granted_kind(resource: Resource, store: Store, selectors: Mapping[str, str]) -> WatchedKind:
    """A kind that an admin may grant or install; valid only while it can be read."""

    def lacks(error: Exception) -> bool:
        return isinstance(error, ApiError) and error.status in (403, 404)

    return WatchedKind(resource, store, selectors=selectors, optional_if=lacks, unreachable_if=never)


def _advisory_kind(resource: Resource, store: Store, selectors: Mapping[str, str]) -> WatchedKind:
    """A kind without which everything is decided, if less well: nothing waits for it, whatever the error.

    The last state stays valid.
    """
    return WatchedKind(resource, store, selectors=selectors, optional_if=always, unreachable_if=never)


def _is_unreachable(error: Exception) -> bool:
    return isinstance(error, Unreachable)
