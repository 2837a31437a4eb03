"""What does the manager cluster look like: one store for each kind we read there.

Until every store is synced, and whenever the cluster gives no sign of life, nothing may be decided: an empty or an old
cache means "do nothing", never "nothing is wanted".
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime

from adapter import membership, names
from adapter.objects import trim
from adapter.objects.admissioncheck import AdmissionCheck, read_check
from adapter.objects.placement import Placement, placement
from adapter.objects.queues import NO_CLUSTER_QUEUE, ClusterQueue, read_cluster_queue, read_local_queue
from adapter.objects.rayjob import UNKNOWN_JOB, UNKNOWN_JOBS, JobObject, read_ray_cluster, read_ray_job
from adapter.objects.unstructured import Key, Raw, key_of, label
from adapter.objects.worker_pod import slot_of
from adapter.objects.workload import Job, Workload, active_slice, is_chain, is_elastic, workload
from adapter.shell.clusters.cluster_cache import Cluster, Row, never
from adapter.shell.clusters.indexes import (
    by_gang,
    by_own_gang,
    by_placement,
    by_ray_cluster,
    by_selected_ray_cluster,
    by_service,
    by_slot,
)
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Client, Unreachable
from adapter.shell.kube.memo import Same
from adapter.shell.kube.memory_budget import OF_MANAGER
from adapter.shell.kube.resources import Resource
from adapter.shell.kube.store import Store

log = logging.getLogger(__name__)

# One read each time. An end instead would be answered by the kubelet with breaks of up to five minutes.
_ASK_AGAIN_SECONDS = 2.0
_OF_SERVING = (resources.SERVICES, resources.ENDPOINT_SLICES)
_ALL: Mapping[str, str] = {}  # selectors that leave nothing out


def _nobody() -> None:
    """Nothing was put off yet."""


class Manager(Cluster):
    """The manager cluster."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, OF_MANAGER)
        self.filled = asyncio.Event()  # every store that is to be filled has had its first list
        self.back: Callable[[], None] = _nobody  # told when it can be seen after it could not
        self.workloads = Store(index=by_own_gang, slims=trim.workload)
        self.placements = Store(index=by_gang)
        self.pods = Store(index=by_placement, counted=slot_of, finds=by_slot, slims=trim.worker)
        # What a worker pod is just being told of its copy: that alone is no news of it.
        self.telling: dict[Key, Raw] = {}
        self.heads = Store(index=by_ray_cluster)
        self.ray_clusters = Store(slims=trim.ray_cluster)
        self.ray_jobs = Store(slims=trim.ray_job)
        self.worker_clusters = Store()
        self.policies = Store()
        self.checks = Store()
        self.cluster_queues = Store()
        self.local_queues = Store()
        self.flavors = Store()
        self.secrets = Store()
        self.gate_policies = Store()
        self.gate_bindings = Store()
        self.gate_webhooks = Store()
        self.multikueue_clusters = Store()
        self.multikueue_configs = Store()
        self.services = Store(index=by_selected_ray_cluster)  # those for Serve
        self.slices = Store(index=by_service)  # those of ours
        self._told_way = False  # whether it was said that requests pass heads
        self._rows = self._table()

    def _table(self) -> list[Row]:
        gate = {"fieldSelector": f"metadata.name={names.GATE_POLICY}"}
        heads = {"labelSelector": f"{names.RAY_NODE_TYPE_LABEL}={names.HEAD}"}
        ours = {"labelSelector": f"{names.SLICE_MANAGED_BY_LABEL}={names.SERVING_SLICES}"}
        return [
            _needed(resources.WORKLOADS, self.workloads),
            _needed(resources.PLACEMENTS, self.placements),
            _needed(resources.PODS, self.pods, selectors={"labelSelector": names.PLACEMENT_LABEL}, late=True),
            _needed(resources.PODS, self.heads, selectors=heads),
            _needed(resources.RAY_CLUSTERS, self.ray_clusters),
            _needed(resources.RAY_JOBS, self.ray_jobs),
            _needed(resources.WORKER_CLUSTERS, self.worker_clusters),
            _needed(resources.DISPATCH_POLICIES, self.policies),
            _needed(resources.ADMISSION_CHECKS, self.checks),
            _needed(resources.CLUSTER_QUEUES, self.cluster_queues),
            _needed(resources.LOCAL_QUEUES, self.local_queues),
            _needed(resources.FLAVORS, self.flavors),
            _needed(resources.SECRETS, self.secrets, namespace=names.SYSTEM_NAMESPACE),
            _granted(resources.GATE_POLICIES, self.gate_policies, gate),  # not served before Kubernetes 1.36
            _granted(resources.GATE_BINDINGS, self.gate_bindings, gate),
            _granted(resources.GATE_WEBHOOKS, self.gate_webhooks, gate),
            _optional(resources.MULTIKUEUE_CLUSTERS, self.multikueue_clusters),
            _optional(resources.MULTIKUEUE_CONFIGS, self.multikueue_configs),
            _granted(resources.SERVICES, self.services, {"labelSelector": names.RAY_SERVE_LABEL}),
            _granted(resources.ENDPOINT_SLICES, self.slices, ours),
        ]

    async def identity(self) -> str:
        """Tell this manager cluster from every other one: short, stable, and not to be configured wrongly.

        Asked until it is answered: a controller that is started while its manager is cut off waits for it.
        """
        told = ""
        while True:
            try:
                found = await self.client.get(resources.NAMESPACES.path(name="kube-system"))
            except (ApiError, Unreachable) as trouble:
                if str(trouble) != told:
                    told = str(trouble)
                    log.warning("manager cluster: %s; asked every %.0f s", told, _ASK_AGAIN_SECONDS)
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
            else:
                return membership.identity(found)

    def complete(self) -> None:
        super().complete()
        if not self.synced:
            self.filled.clear()

    def _followed(self, row: Row, error: Exception | None) -> None:
        before, straight = self.unread.get(row.resource), self.serves
        super()._followed(row, error)
        now = self.unread.get(row.resource)
        if row.resource in _OF_SERVING:
            self._tell_serving(row, straight, now)
        elif str(before or "") != str(now or ""):
            log.info("manager cluster: %s %s", row.resource.plural, now or "are read")
            row.store.tell()
        elif error and row.silences is not never:
            log.warning("manager cluster: following %s: %s", row.resource.plural, error)
        if self.synced and (error is None or row.silences is never):
            self.filled.set()

    def _tell_serving(self, row: Row, straight: bool, unread: Exception | None) -> None:
        """Say once which way requests go, however many kinds cannot be read for it."""
        way = "go straight to their workers" if self.serves else f"pass their heads ({unread})"
        if self.serves != straight or (unread and not self._told_way):
            self._told_way = True
            log.info("manager cluster: requests of RayServices %s", way)
        if self.serves and not straight:
            row.store.tell()

    def _note(self, source: Row | str, error: Exception | None) -> None:
        before = self.lost
        super()._note(source, error)
        if before and not self.lost:
            self.back()

    @property
    def serves(self) -> bool:
        """Whether Services and our slices of them can be read: whoever may write them may read them, too."""
        return all(
            row.store.synced and row.resource not in self.unread for row in self._rows if row.resource in _OF_SERVING
        )

    @property
    def unready(self) -> str:
        """Why a process that reads this could decide nothing now, empty when it could."""
        return self.lost or ("" if self.synced else "the manager cluster is not read yet")

    @property
    def lost(self) -> str:
        """Why the manager cluster cannot be seen now, empty when it can: what a cut link hides must not be taken for true."""
        return f"the manager cluster cannot be seen: {self.trouble}" if self.trouble else ""

    def cluster_queue(self, key: Key) -> ClusterQueue:
        """The ClusterQueue behind a LocalQueue, read once for each of its versions; one without a name when there is none."""
        raw = self.local_queues.get(key)
        queue = self.local_queues.reading(raw, read_local_queue) if raw else None
        found = self.cluster_queues.named(queue.cluster_queue) if queue else None
        return self.cluster_queues.reading(found, read_cluster_queue) if found else NO_CLUSTER_QUEUE

    def check(self, name: str) -> AdmissionCheck:
        """An AdmissionCheck, read once for each of its versions; one without a controller when there is none."""
        raw = self.checks.named(name)
        return self.checks.reading(raw, read_check) if raw else AdmissionCheck(name)

    def token_end(self, cluster: Raw) -> datetime | None:
        """When the token of a WorkerCluster's kubeconfig ends, None where no Secret of ours says it."""
        return membership.ends(self.secrets.get((names.SYSTEM_NAMESPACE, membership.secret_of(cluster))))

    def work(self, raw: Raw) -> Workload:
        """Read a Workload of its store, once for each of its versions."""
        return self.workloads.reading(raw, workload)

    def place(self, raw: Raw) -> Placement:
        """Read a Placement of its store, once for each of its versions."""
        return self.placements.reading(raw, placement)

    def placed(self) -> Collection[Placement]:
        """All Placements, read once for each of their versions."""
        return self.placements.readings(placement).values()

    def beside(self, work: Workload) -> Same:
        """Where answers about this version of a Workload are kept. Of one that is not in its store, nothing is."""
        raw = self._held(work)
        return self.workloads.reading(raw, Same) if raw is not None else Same()

    def holds(self, work: Workload) -> bool:
        """Whether it is a Workload of its store, as it stands there: not one before, nor one that somebody only asks about."""
        return self._held(work) is not None

    def _held(self, work: Workload) -> Raw | None:
        raw = self.workloads.get((work.namespace, work.name))
        return raw if raw is not None and self.work(raw).podsets is work.podsets else None

    def gang(self, key: Key) -> Raw | None:
        """The Workload that stands for a gang now, None when there is none; a slice of an elastic job is no gang of its own."""
        if is_chain(key[1]):
            return active_slice(self.workloads.group("/".join(key)))
        found = self.workloads.get(key)
        return None if found is None or is_elastic(found) else found

    def ray_cluster(self, pod: Raw) -> Raw | None:
        """The RayCluster of the name that a pod's label says, which may be anybody's: see `raycluster.belongs`."""
        return self.ray_clusters.get((key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL)))

    def job(self, job: Job) -> JobObject:
        """The RayJob or RayCluster of that name, read once for each of its versions; an unknown one while it is not observed."""
        store, _ = self._jobs(job)
        raw = store.get((job.namespace, job.name))
        if raw is None:
            return UNKNOWN_JOBS.get(job.kind, UNKNOWN_JOB)
        return store.reading(raw, read_ray_job if job.kind == "RayJob" else read_ray_cluster)

    async def read(self, job: Job | None) -> None:
        """Have a RayJob or RayCluster in its store as its API server shows it now. By a list: there is no right to get one."""
        if job is None:
            return
        store, resource = self._jobs(job)
        found = await self.client.get(resource.path(job.namespace), fieldSelector=f"metadata.name={job.name}")
        for raw in found.get("items") or ():
            store.put(raw)

    def _jobs(self, job: Job) -> tuple[Store, Resource]:
        if job.kind == "RayJob":
            return self.ray_jobs, resources.RAY_JOBS
        return self.ray_clusters, resources.RAY_CLUSTERS

    def known(self, work: Workload) -> Workload:
        """A Workload whose job says which RayService it is of, if it is of one."""
        if work.job is None or work.job.kind != "RayCluster":
            return work
        found = self.job(work.job)
        if found.uid != work.job.uid or not found.service:
            return work
        of_service = replace(work.job, service=found.service)
        return self.beside(work).of(Manager.known, (work, found), lambda: replace(work, job=of_service))


def _needed(
    resource: Resource, store: Store, *, namespace: str = "", selectors: Mapping[str, str] = _ALL, late: bool = False
) -> Row:
    """A kind that is refused is one that this cluster does not have; one that is silent stops everything."""
    return Row(resource, store, namespace, selectors, silences=_is_silence, late=late)


def _optional(resource: Resource, store: Store) -> Row:
    """What a manager cluster may lack, or not let us read, which is told only to those who use it. What was read once counts on,
    whatever is refused later."""

    def lacks(error: Exception) -> bool:
        return isinstance(error, ApiError) and error.status in (403, 404) and not store.synced

    return Row(resource, store, spared=lacks, silences=never)


def _granted(resource: Resource, store: Store, selectors: Mapping[str, str]) -> Row:
    """What is read only where an admin gave the right, or installed the kind, and counts only for as long as it can be read."""

    def lacks(error: Exception) -> bool:
        return isinstance(error, ApiError) and error.status in (403, 404)

    return Row(resource, store, selectors=selectors, spared=lacks, silences=never)


def _is_silence(error: Exception) -> bool:
    return isinstance(error, Unreachable)
