"""Keeps the label `rayspan.dev/clusters` of jobs, where the component job-labels grants the right.

It is on a RayJob and its RayCluster, or on a RayCluster and the RayService that controls it. No decision reads it. A
job that queues again loses it; one that has ended keeps it.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest

from adapter import names
from adapter.gang import cluster_label
from adapter.objects import raycluster
from adapter.objects.rayjob import read_ray_job
from adapter.objects.unstructured import Raw, controller_uid, key_of, label, uid_of
from adapter.objects.workload import Job
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.access_review import has_right
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.resources import Resource
from adapter.shell.supervise import contain_errors

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
RIGHT_SECONDS = 60.0  # how often the right is asked for, and a label tried again that the API server denied
LABELS_IN_ROUND = 50  # the most requests of a look; namespaces take turns
_NO_CLUSTERS: frozenset[str] = frozenset()
_LABELLED_KINDS = (resources.RAY_JOBS, resources.RAY_CLUSTERS, resources.RAY_SERVICES)


@dataclass(frozen=True, slots=True)
class _JobLabel:
    """The value that an object's label should have; empty: no label."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    value: str


class JobLabels:
    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self._stores = {resources.RAY_JOBS: manager.ray_jobs, resources.RAY_CLUSTERS: manager.ray_clusters}
        self._is_allowed, self._asked_at = False, float("-inf")
        self._looked_at: tuple[int, ...] = ()  # the versions of the stores at the last look that left nothing to do
        self._services: dict[str, str] = {}  # by uid: the label last written; RayServices are not read
        self._denied: dict[str, str] = {}  # by uid: the label that the API server denied

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            with contain_errors("job labels"):
                await self.look()

    async def look(self) -> None:
        """Write the labels that are outdated, as far as the right is granted."""
        if self._manager.not_ready_reason:
            return
        try:
            if await self._may_write():
                await self._write_labels()
        except Unreachable as trouble:
            log.debug("labels of jobs: %s", trouble)

    async def _may_write(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now >= self._asked_at + RIGHT_SECONDS:
            self._is_allowed, self._asked_at = await self._ask_right(), now
            self._denied.clear()
            self._looked_at = ()
        return self._is_allowed

    async def _ask_right(self) -> bool:
        try:
            for resource in _LABELLED_KINDS:
                if not await has_right(self._manager.client, "patch", names.RAY_DOMAIN, resource.plural):
                    return False
        except ApiError as refusal:
            log.debug("labels of jobs: %s", refusal)
            return False
        return True

    async def _write_labels(self) -> None:
        manager = self._manager
        versions = tuple(
            store.change_count
            for store in (manager.placements, manager.workloads, manager.ray_jobs, manager.ray_clusters)
        )
        if versions == self._looked_at:
            return
        outdated = [change for change in self._outdated_labels() if self._denied.get(change.uid) != change.value]
        if not outdated:
            self._looked_at = versions
        for change in _in_turns(outdated)[:LABELS_IN_ROUND]:
            await self._write_label(change)

    def _outdated_labels(self) -> Iterator[_JobLabel]:
        """Those of a RayService come before those of its RayCluster, whose label shows whether both are written."""
        manager, clusters = self._manager, self._clusters_by_job()
        for raw in manager.ray_jobs:
            if not manager.ray_jobs.read_cached(raw, read_ray_job).status.is_finished:
                yield from self._outdated_label(resources.RAY_JOBS, raw, clusters.get(uid_of(raw), _NO_CLUSTERS))
        labels = [
            (raw, clusters.get(uid_of(raw)) or clusters.get(controller_uid(raw), _NO_CLUSTERS))
            for raw in manager.ray_clusters
        ]
        yield from self._service_labels(labels)
        for raw, own in labels:
            yield from self._outdated_label(resources.RAY_CLUSTERS, raw, own)

    def _clusters_by_job(self) -> dict[str, frozenset[str]]:
        """By the uid of a Workload's RayJob or RayCluster, the clusters that have its workers."""
        manager, clusters = self._manager, dict[str, frozenset[str]]()
        for placement in manager.read_placements():
            raw = manager.workloads.get((placement.namespace, placement.workload))
            workload = manager.read_workload(raw) if raw else None
            if workload and workload.job and workload.uid == placement.workload_uid:
                clusters[workload.job.uid] = cluster_label.placed_clusters(placement)
        return clusters

    def _outdated_label(self, resource: Resource, raw: Raw, clusters: frozenset[str]) -> Iterator[_JobLabel]:
        value, (namespace, name) = cluster_label.label_value(clusters), key_of(raw)
        if label(raw, names.CLUSTERS_LABEL) != value and self._manager.namespace_shares.is_complete(namespace):
            yield _JobLabel(resource, namespace, name, uid_of(raw), value)

    def _service_labels(self, labels: Iterable[tuple[Raw, frozenset[str]]]) -> Iterator[_JobLabel]:
        """A RayService has the clusters of all its RayClusters, of which an upgrade makes a second one."""
        clusters, outdated = defaultdict[Job, set[str]](set), set[Job]()
        for raw, own in labels:
            if service := raycluster.owning_service(raw):
                clusters[service] |= own
                outdated |= {service} if any(self._outdated_label(resources.RAY_CLUSTERS, raw, own)) else set()
        self._services = {
            service.uid: self._services[service.uid] for service in clusters if service.uid in self._services
        }
        for service, all_own in clusters.items():
            value = cluster_label.label_value(all_own)
            if service in outdated or value != self._services.get(service.uid, ""):
                yield _JobLabel(resources.RAY_SERVICES, service.namespace, service.name, service.uid, value)

    async def _write_label(self, change: _JobLabel) -> None:
        """Write one label; a deleted object, or another one of its name, is left alone."""
        labels = {names.CLUSTERS_LABEL: change.value or None}
        try:
            raw = await self._manager.client.merge_patch(
                change.resource.path(change.namespace, change.name),
                {"metadata": {"uid": change.uid, "labels": labels}},
            )
        except ApiError as refusal:
            self._denied[change.uid] = change.value
            if not (refusal.not_found or refusal.is_conflict):
                log.info(
                    "%s %s/%s: its label is not written: %s",
                    change.resource.plural,
                    change.namespace,
                    change.name,
                    refusal,
                )
            return
        if change.resource == resources.RAY_SERVICES:
            self._services[change.uid] = change.value
        elif store := self._stores.get(change.resource):
            store.put(raw)


def _in_turns(changes: Iterable[_JobLabel]) -> list[_JobLabel]:
    """The changes by namespace in turns: the first of each, then the second of each."""
    by_namespace: dict[str, list[_JobLabel]] = defaultdict(list)
    for change in changes:
        by_namespace[change.namespace].append(change)
    turns = chain.from_iterable(zip_longest(*by_namespace.values()))
    return [change for change in turns if change is not None]
