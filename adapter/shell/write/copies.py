"""Copies Secrets and ConfigMaps into the worker clusters and keeps them equal to their sources.

They are copied before a job's first pod is created in a cluster; while the job has a share there, they are compared and
rewritten periodically. The limits of the admission check apply to each job and cluster again, because the template may
be edited after the check. The anchors of the job's shares own copied objects; no copied object is deleted here. Nothing
is read in a worker cluster: our account may not read Secrets there, and an object under a copied object's name is ours.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from adapter.names import POD_UID_LABEL, WORKLOAD_UID_LABEL
from adapter.objects.references import Reference
from adapter.objects.reservation import anchor_references, anchor_uid, parse_reservation
from adapter.objects.unstructured import Raw, key_of, label, meta, uid_of
from adapter.rewrite import copied_objects, rewriter
from adapter.rewrite.copied_objects import SourceObject
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_placement, by_reserved_workload
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.source_objects import SourceObjects, SourceUnavailable, reference_path
from adapter.shell.observe.worker_observer import WorkerObserver
from adapter.shell.supervise import contain_errors, read_each, report_failure

log = logging.getLogger(__name__)

NamespaceReferences = Mapping[str, Mapping[Reference, Sequence[Raw]]]  # with a remote pod of each job

# Between two comparisons. A kubelet refreshes mounted objects about once a minute (k8s: syncFrequency), so a pod sees a
# change within a minute and a half. A comparison costs one read in the manager per source in use.
PAUSE_SECONDS = 30.0
# Until a copied object is written again, in case it was changed or deleted there. A pod waits for a deleted object, or
# uses a changed one, for a few minutes at most. A write that changes nothing is not stored (k8s: etcd3 store,
# GuaranteedUpdate) and causes no watch event; there is one such write for four reads.
REWRITE_SECONDS = 120.0
# How many jobs' copied objects of one source are compared with one read of it, before another namespace has its turn.
# The source's content is in memory only during a turn.
WRITES_PER_TURN = 16
_NO_VERSION = ""  # of an optional source that does not exist


class CopyLimitExceeded(SourceUnavailable):
    """More objects or bytes than a job or a namespace may have copied; raised for optional objects too."""


@dataclass(slots=True)
class JobCopies:
    versions: dict[Reference, str] = field(default_factory=dict)
    sources: dict[Reference, SourceObject] = field(default_factory=dict)
    owners: dict[Reference, list[Raw]] = field(default_factory=dict)  # as they were written last
    due_times: dict[Reference, float] = field(default_factory=dict)  # monotonic time of the next write
    # What counts for the job's limit, and the monotonic time at which a pod last requested it.
    counted: dict[Reference, float] = field(default_factory=dict)
    recount_at: float = 0.0  # monotonic time
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def drop_unused(self, used: Collection[Reference], since: float) -> None:
        """Count only what pods use, or requested since then. The other copied objects count for the namespace."""
        self.counted = {reference: at for reference, at in self.counted.items() if reference in used or at > since}
        absent = [reference for reference, version in self.versions.items() if version == _NO_VERSION]
        for reference in set(absent) - self.counted.keys():
            del self.versions[reference]


class ObjectCopier:
    """Writes copied objects. If its record of them is lost, each is written once more."""

    def __init__(self, manager: ManagerCache, fleet: Fleet, sources: SourceObjects, workers: WorkerObserver) -> None:
        self._manager, self._fleet, self._sources, self._workers = manager, fleet, sources, workers
        self._job_copies: dict[tuple[str, str], dict[str, JobCopies]] = {}  # cluster and namespace -> uid of the job
        self._refreshing: set[str] = set()

    async def ensure_copies(self, cache: WorkerClusterCache, wanted: Mapping[Reference, str], pod: Raw) -> None:
        """Write the copied objects that a remote pod needs.

        `wanted`: reference -> the field that requires it, empty if optional; `pod`: the body to create. Raises
        SourceUnavailable, ApiError or Unreachable.
        """
        if not wanted:
            return
        copies = self._copies_of(cache, pod)
        async with copies.lock:  # other pods of the job wait for the same objects
            cache.require_reachable()
            if reason := await self._over_limit_reason(cache, copies, wanted, pod):
                raise CopyLimitExceeded(reason)
            anchors = _anchors_of_job(cache, pod)
            for reference, requirement in wanted.items():
                if reference in copies.versions and _is_owned(copies, reference, anchors):
                    continue
                try:
                    source = await self._sources.read_object(key_of(pod)[0], reference)
                    await self._write_copy(cache, copies, reference, source, pod)
                except SourceUnavailable as error:
                    if any(owner in anchors for owner in copies.owners.get(reference, ())):  # it still stands
                        continue
                    if isinstance(error, CopyLimitExceeded):
                        raise
                    if requirement:
                        raise SourceUnavailable(f"{requirement} is {error}") from None
                    copies.versions[reference] = _NO_VERSION

    async def _over_limit_reason(
        self, cache: WorkerClusterCache, copies: JobCopies, wanted: Collection[Reference], pod: Raw
    ) -> str:
        """Why a job may not refer to these objects, too; they count from now on if it may.

        The pods of an elastic job may refer to other objects than those before them. They are read again if they seem
        to refer to too many, and not more often than copied objects are compared: a job has thousands.
        """
        now, limit = time.monotonic(), copied_objects.over_limit_reason
        reason = limit({*copies.counted, *wanted}, copies.sources)
        if reason and now >= copies.recount_at:
            copies.recount_at = now + PAUSE_SECONDS
            copies.drop_unused(await self._references_in_use(cache, pod), now - PAUSE_SECONDS)
            reason = limit({*copies.counted, *wanted}, copies.sources)
        if not reason:
            copies.counted |= dict.fromkeys(wanted, now)
        return reason

    async def _references_in_use(self, cache: WorkerClusterCache, pod: Raw) -> set[Reference]:
        """What the remote pods of a pod's job refer to in a cluster."""
        used, job_uid = set[Reference](), label(pod, WORKLOAD_UID_LABEL)
        for remote in list(cache.pods.by_index(by_placement(pod))):
            await asyncio.sleep(0)
            if label(remote, WORKLOAD_UID_LABEL) == job_uid:
                used.update(self._references_of(remote))
        return used

    def _copies_of(self, cache: WorkerClusterCache, pod: Raw) -> JobCopies:
        jobs = self._job_copies.setdefault((cache.name, key_of(pod)[0]), {})
        return jobs.setdefault(label(pod, WORKLOAD_UID_LABEL), JobCopies())

    async def _write_copy(
        self, cache: WorkerClusterCache, copies: JobCopies, reference: Reference, source: Raw, pod: Raw
    ) -> bool:
        """Write a copied object unless it is as it should be; return whether it was written."""
        version = f"{uid_of(source)}/{meta(source).get('resourceVersion')}"
        last_version, anchors = copies.versions.get(reference), _anchors_of_job(cache, pod)
        is_owned = _is_owned(copies, reference, anchors)
        if last_version == version and is_owned and time.monotonic() < copies.due_times[reference]:
            return False
        last_sources = copies.sources
        copies.sources = self._checked_sources(cache, copies, reference, source, pod)
        owners = copied_objects.choose_owners(copies.owners.get(reference, ()), anchors)
        body = copied_objects.build_copy(reference, source, pod, owners)
        try:
            is_new = await _write_object(cache, reference, body, stands=bool(last_version))
        except ApiError as error:
            copies.sources = last_sources
            if last_version == version and is_owned:  # made immutable there, for example: do not retry each time
                copies.due_times[reference] = time.monotonic() + REWRITE_SECONDS
            raise ApiError(error.status, error.reason, f"the copy of {reference}: {error.message}") from None
        copies.versions[reference], copies.owners[reference] = version, owners
        copies.due_times[reference] = time.monotonic() + REWRITE_SECONDS
        if is_new or last_version != version:
            log.info("cluster=%s copied %s of %s/%s", cache.name, reference, *key_of(pod))
        return True

    def _checked_sources(
        self, cache: WorkerClusterCache, copies: JobCopies, reference: Reference, source: Raw, pod: Raw
    ) -> dict[Reference, SourceObject]:
        """The sources of a job with this one; raises CopyLimitExceeded.

        They count before the write, so that jobs which are copied for at the same time do not exceed the limit.
        """
        described = copied_objects.describe_source({**source, "kind": reference.kind})
        sources = {**copies.sources, reference: described}
        if reason := copied_objects.over_limit_reason({*copies.counted, reference}, sources):
            raise CopyLimitExceeded(reason)
        last = copies.sources.get(reference)
        if last is None or described.size > last.size:
            namespace = key_of(pod)[0]
            jobs = self._job_copies.get((cache.name, namespace), {}).values()
            others = [known for other in jobs if other is not copies for known in other.sources.values()]
            if reason := copied_objects.namespace_excess_reason(namespace, [*others, *sources.values()]):
                raise CopyLimitExceeded(reason)
        return sources

    async def run(self) -> None:
        """Keep copied objects equal to their sources; a slow cluster delays no other."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(PAUSE_SECONDS)
                self._sources.forget_old()
                members = self._fleet.caches()
                self._job_copies = {key: jobs for key, jobs in self._job_copies.items() if key[0] in members}
                if self._manager.unreachable_reason:
                    continue
                for name, member in self._fleet.reachable().items():
                    if name not in self._refreshing:
                        self._refreshing.add(name)
                        tasks.create_task(self._refresh_contained(member))

    async def _refresh_contained(self, cache: WorkerClusterCache) -> None:
        try:
            await self.refresh_cluster(cache)
        except Exception as error:  # must not end the refresh of other clusters
            report_failure("copies", error, cache.name)
        finally:
            self._refreshing.discard(cache.name)

    async def refresh_cluster(self, cache: WorkerClusterCache) -> None:
        """Compare copied objects with their sources, each namespace in turn.

        So no namespace waits for one with many objects.
        """
        reservations = [
            reservation
            for _, reservation in read_each("copies", cache.workloads, lambda raw: parse_reservation(cache.name, raw))
        ]
        self._forget_ended_jobs(cache)
        existing = {reservation.anchor_uid for reservation in reservations if not reservation.deleting}
        for namespace, reference, pods in take_turns(await self._wanted_references(cache, existing)):
            try:
                source = await self._read_source(cache, namespace, reference)
                for pod in pods if source else ():
                    await self._renew_copy(cache, reference, source or {}, pod)
            except Unreachable:
                return

    def _forget_ended_jobs(self, cache: WorkerClusterCache) -> None:
        existing = {(key_of(raw)[0], label(raw, WORKLOAD_UID_LABEL)) for raw in cache.workloads}
        for cluster, namespace in [key for key in self._job_copies if key[0] == cache.name]:
            jobs = self._job_copies.pop((cluster, namespace))
            if remaining := {uid: copies for uid, copies in jobs.items() if (namespace, uid) in existing}:
                self._job_copies[cluster, namespace] = remaining

    async def _wanted_references(self, cache: WorkerClusterCache, existing: set[str]) -> NamespaceReferences:
        """By namespace and reference: a remote pod of each job that has the reference."""
        jobs: dict[tuple[str, str], dict[Reference, Raw]] = {}
        for remote in list(cache.pods):
            await asyncio.sleep(0)  # five thousand pods take half a second, and must not block the event loop
            with contain_errors("copies", key_of(remote)):
                if anchor_uid(remote) in existing:
                    key = key_of(remote)[0], label(remote, WORKLOAD_UID_LABEL)
                    self._add_references(remote, jobs.setdefault(key, {}))
        namespaces: dict[str, dict[Reference, list[Raw]]] = {}
        for (namespace, _), references in jobs.items():
            for reference, remote in references.items():
                namespaces.setdefault(namespace, {}).setdefault(reference, []).append(remote)
        return namespaces

    def _add_references(self, remote: Raw, references: dict[Reference, Raw]) -> None:
        for reference in self._references_of(remote):
            if len(references) < copied_objects.MAX_OBJECTS:
                references.setdefault(reference, remote)

    def _references_of(self, remote: Raw) -> Collection[Reference]:
        pod = self._manager.pods.get(key_of(remote))
        if pod is None or label(remote, POD_UID_LABEL) != uid_of(pod):
            return ()
        return rewriter.referenced_objects(pod, self._workers.pull_secrets_of(pod))

    async def _read_source(self, cache: WorkerClusterCache, namespace: str, reference: Reference) -> Raw | None:
        try:
            return await self._sources.read_object(namespace, reference)
        except SourceUnavailable as unavailable:  # running pods keep their objects
            log.debug("cluster=%s copies of %s are left unchanged: %s", cache.name, reference, unavailable)
            return None

    async def _renew_copy(self, cache: WorkerClusterCache, reference: Reference, source: Raw, pod: Raw) -> None:
        copies = self._copies_of(cache, pod)
        try:
            async with copies.lock:
                await self._write_copy(cache, copies, reference, source, pod)
        except CopyLimitExceeded as excess:
            log.debug("cluster=%s copy of %s is left unchanged: %s", cache.name, reference, excess)
        except ApiError as error:
            log.warning("cluster=%s %s/%s is not up to date: %s", cache.name, *key_of(pod), error)


def take_turns(namespaces: NamespaceReferences) -> Iterator[tuple[str, Reference, Sequence[Raw]]]:
    """One source of each namespace, with pods of jobs that have copies of it; then the next source of each."""
    for turn in zip_longest(*(_turns_of_namespace(name, pods) for name, pods in namespaces.items())):
        yield from (entry for entry in turn if entry)


def _turns_of_namespace(
    namespace: str, references: Mapping[Reference, Sequence[Raw]]
) -> Iterator[tuple[str, Reference, Sequence[Raw]]]:
    remaining = copied_objects.MAX_NAMESPACE_OBJECTS
    for reference, pods in references.items():
        counted = pods[:remaining]
        remaining -= len(counted)
        for start in range(0, len(counted), WRITES_PER_TURN):
            yield namespace, reference, counted[start : start + WRITES_PER_TURN]


def _anchors_of_job(cache: WorkerClusterCache, pod: Raw) -> list[Raw]:
    """The owner references to the anchors of a job's shares in a cluster, first that of the pod."""
    job_uid = label(pod, WORKLOAD_UID_LABEL)
    reservations = [
        raw
        for raw in cache.workloads.by_index(by_reserved_workload(pod))
        if label(raw, WORKLOAD_UID_LABEL) == job_uid and not meta(raw).get("deletionTimestamp")
    ]
    owners = [owner for raw in (pod, *sorted(reservations, key=key_of)) for owner in anchor_references(raw)[:1]]
    fields = ("apiVersion", "kind", "name", "uid")
    return list({owner.get("uid"): {name: owner.get(name) for name in fields} for owner in owners}.values())


def _is_owned(copies: JobCopies, reference: Reference, anchors: Sequence[Raw]) -> bool:
    """Whether a copied object has its owners; one of an optional source that does not exist needs none."""
    if copies.versions.get(reference) == _NO_VERSION:
        return True
    return copied_objects.has_owners(copies.owners.get(reference, ()), anchors)


async def _write_object(cache: WorkerClusterCache, reference: Reference, body: dict[str, Any], *, stands: bool) -> bool:
    """Create or replace a copied object, and try the more likely request first; return whether the object is new.

    The answer contains the copied data and is not kept.
    """
    if stands and await _replace_object(cache, reference, body):
        return False
    namespace, name = key_of(body)
    try:
        await cache.client.create(reference_path(namespace, reference), body)
    except ApiError as error:
        if not error.already_exists:
            raise
        await cache.client.replace(reference_path(namespace, reference, name), body)
        return False
    return True


async def _replace_object(cache: WorkerClusterCache, reference: Reference, body: dict[str, Any]) -> bool:
    try:
        await cache.client.replace(reference_path(key_of(body)[0], reference, key_of(body)[1]), body)
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return True
