"""Copies Secrets and ConfigMaps into the worker clusters and keeps them equal to their sources.

They are copied before a share's first pod is created; while the share exists, they are compared and rewritten
periodically. The limits of the admission check apply to each share again, because the template may be edited after the
check. The anchor owns copied objects; no copied object is deleted here. Nothing is read in a worker cluster: our
account may not read Secrets there, and an object under a copied object's name is ours.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from adapter.names import POD_UID_LABEL
from adapter.objects.references import Reference
from adapter.objects.reservation import anchor_uid, parse_reservation
from adapter.objects.unstructured import Raw, key_of, label, meta, uid_of
from adapter.rewrite import copied_objects, rewriter
from adapter.rewrite.copied_objects import SourceObject
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.source_objects import SourceObjects, SourceUnavailable, reference_path
from adapter.shell.observe.worker_observer import WorkerObserver
from adapter.shell.supervise import contain_errors, read_each, report_failure

log = logging.getLogger(__name__)

# Between two comparisons. A kubelet refreshes mounted objects about once a minute (k8s: syncFrequency), so a pod sees a
# change within a minute and a half. A comparison costs one read in the manager per source in use.
PAUSE_SECONDS = 30.0
# Until a copied object is written again, in case it was changed or deleted there. A pod waits for a deleted object, or
# uses a changed one, for a few minutes at most. A write that changes nothing is not stored (k8s: etcd3 store,
# GuaranteedUpdate) and causes no watch event; there is one such write for four reads.
REWRITE_SECONDS = 120.0
_NO_VERSION = ""  # of an optional source that does not exist


class CopyLimitExceeded(SourceUnavailable):
    """A share would have more copied objects or bytes than its job may have; raised for optional objects too."""


@dataclass(slots=True)
class ShareCopies:
    versions: dict[Reference, str] = field(default_factory=dict)
    sources: dict[Reference, SourceObject] = field(default_factory=dict)
    due_times: dict[Reference, float] = field(default_factory=dict)  # monotonic time of the next write
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ObjectCopier:
    """Writes copied objects. If its record of them is lost, each is written once more."""

    def __init__(self, manager: ManagerCache, fleet: Fleet, sources: SourceObjects, workers: WorkerObserver) -> None:
        self._manager, self._fleet, self._sources, self._workers = manager, fleet, sources, workers
        self._share_copies: dict[tuple[str, str], ShareCopies] = {}  # by cluster and anchor
        self._refreshing: set[str] = set()

    async def ensure_copies(self, cache: WorkerClusterCache, wanted: Mapping[Reference, str], pod: Raw) -> None:
        """Write the copied objects that a remote pod needs.

        `wanted`: reference -> the field that requires it, empty if optional; `pod`: the body to create. Raises
        SourceUnavailable, ApiError or Unreachable.
        """
        if not wanted:
            return
        copies = self._copies_of(cache, pod)
        async with copies.lock:  # other pods of the share wait for the same objects
            cache.require_reachable()
            if reason := copied_objects.over_limit_reason({*copies.versions, *wanted}, copies.sources):
                raise CopyLimitExceeded(reason)
            for reference, requirement in wanted.items():
                if reference in copies.versions:
                    continue
                try:
                    await self._write_copy(cache, copies, reference, pod)
                except CopyLimitExceeded:
                    raise
                except SourceUnavailable as error:
                    if requirement:
                        raise SourceUnavailable(f"{requirement} is {error}") from None
                    copies.versions[reference] = _NO_VERSION

    def _copies_of(self, cache: WorkerClusterCache, pod: Raw) -> ShareCopies:
        return self._share_copies.setdefault((cache.name, anchor_uid(pod)), ShareCopies())

    async def _write_copy(self, cache: WorkerClusterCache, copies: ShareCopies, reference: Reference, pod: Raw) -> None:
        source = await self._sources.read_object(key_of(pod)[0], reference)
        version = f"{uid_of(source)}/{meta(source).get('resourceVersion')}"
        last_version = copies.versions.get(reference)
        if last_version == version and time.monotonic() < copies.due_times[reference]:
            return
        sources = {**copies.sources, reference: copied_objects.describe_source({**source, "kind": reference.kind})}
        if reason := copied_objects.over_limit_reason(sources, sources):
            raise CopyLimitExceeded(reason)
        try:
            is_new = await _write_object(
                cache, reference, copied_objects.build_copy(reference, source, pod), stands=bool(last_version)
            )
        except ApiError as error:
            if last_version == version:  # made immutable there, for example: do not retry at every comparison
                copies.due_times[reference] = time.monotonic() + REWRITE_SECONDS
            raise ApiError(error.status, error.reason, f"the copy of {reference}: {error.message}") from None
        copies.versions[reference], copies.sources = version, sources
        copies.due_times[reference] = time.monotonic() + REWRITE_SECONDS
        if is_new or last_version != version:
            log.info("cluster=%s copied %s of %s/%s", cache.name, reference, *key_of(pod))

    async def run(self) -> None:
        """Keep copied objects equal to their sources; a slow cluster delays no other."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(PAUSE_SECONDS)
                self._sources.forget_old()
                members = self._fleet.caches()
                self._share_copies = {key: copies for key, copies in self._share_copies.items() if key[0] in members}
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
        """Compare one copied object of each share with its source, then the next object of each share.

        So no share waits for a share with many objects.
        """
        anchor_uids = read_each("copies", cache.workloads, lambda raw: parse_reservation(cache.name, raw).anchor_uid)
        existing = {uid for _, uid in anchor_uids}
        deleted = [key for key in self._share_copies if key[0] == cache.name and key[1] not in existing]
        for key in deleted:
            del self._share_copies[key]
        for reference, pod in interleave_shares(await self._wanted_references(cache, existing)):
            copies = self._copies_of(cache, pod)
            async with copies.lock:
                if not await self._renew_copy(cache, copies, reference, pod):
                    return

    async def _wanted_references(self, cache: WorkerClusterCache, stands: set[str]) -> dict[str, dict[Reference, Raw]]:
        references: dict[str, dict[Reference, Raw]] = {}
        for remote in list(cache.pods):
            await asyncio.sleep(0)  # five thousand pods take half a second, and must not block the event loop
            with contain_errors("copies", key_of(remote)):
                self._add_references(remote, stands, references)
        return references

    def _add_references(self, remote: Raw, stands: set[str], references: dict[str, dict[Reference, Raw]]) -> None:
        pod = self._manager.pods.get(key_of(remote))
        if pod is None or label(remote, POD_UID_LABEL) != uid_of(pod) or anchor_uid(remote) not in stands:
            return
        share = references.setdefault(anchor_uid(remote), {})
        for reference in rewriter.referenced_objects(pod, self._workers.pull_secrets_of(pod)):
            if len(share) < copied_objects.MAX_OBJECTS:
                share.setdefault(reference, remote)

    async def _renew_copy(self, cache: WorkerClusterCache, copies: ShareCopies, reference: Reference, pod: Raw) -> bool:
        try:
            await self._write_copy(cache, copies, reference, pod)
        except SourceUnavailable as unavailable:  # running pods keep their objects
            log.debug("cluster=%s copy of %s is left unchanged: %s", cache.name, reference, unavailable)
        except ApiError as error:
            log.warning("cluster=%s %s/%s is not up to date: %s", cache.name, *key_of(pod), error)
        except Unreachable:
            return False
        return True


def interleave_shares(shares: Mapping[str, Mapping[Reference, Raw]]) -> Iterator[tuple[Reference, Raw]]:
    for turn in zip_longest(*(share.items() for share in shares.values())):
        yield from (entry for entry in turn if entry)


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
