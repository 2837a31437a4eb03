"""How do Secrets and ConfigMaps get into the worker clusters, and how do they stay equal to their sources?

Before a share's first pod is created, what the pod refers to is copied; later pods find it done. While the share stands, the
copies are compared with their sources now and then, and written again now and then whether or not they changed. No share has
more of them than its job may have at the check: the template may be edited afterwards. A copy is never
deleted here: its anchor owns it. Nothing is read in a worker cluster, because our account there may not read a Secret, and need
not: what has the copy's name is our own.
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

# Between two comparisons. A kubelet looks at what it mounted about once a minute (k8s: syncFrequency), so a pod sees a change
# within a minute and a half instead of one. Each costs a read in the manager for each source in use.
PAUSE_SECONDS = 30.0
# After which a copy is written again, whoever changed or deleted it there: we may not look. A pod that waits for one, or shows
# a changed one, does so for a few minutes. A write that changes nothing is not kept (k8s: etcd3 store, GuaranteedUpdate) and
# wakes nobody; it costs a quarter of the reads that go before it.
REWRITE_SECONDS = 120.0
_NO_VERSION = ""  # the version of a source that is not there, and need not be


class CopyLimitExceeded(SourceUnavailable):
    """A share would have more, or larger, copies than its job may have: also what is optional is not left out unsaid."""


@dataclass(slots=True)
class ShareCopies:
    """What this process has written for one share."""

    versions: dict[Reference, str] = field(default_factory=dict)  # which version of its source a copy is of
    sources: dict[Reference, SourceObject] = field(default_factory=dict)  # what its source was when it was written
    due_times: dict[Reference, float] = field(default_factory=dict)  # when it is written again, by the monotonic clock
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ObjectCopier:
    """Writes copies, and remembers which ones; all of that may be lost: then each is written once more."""

    def __init__(self, manager: ManagerCache, fleet: Fleet, sources: SourceObjects, workers: WorkerObserver) -> None:
        self._manager, self._fleet, self._sources, self._workers = manager, fleet, sources, workers
        self._share_copies: dict[tuple[str, str], ShareCopies] = {}  # by cluster and anchor
        self._refreshing: set[str] = set()

    async def ensure_copies(self, cache: WorkerClusterCache, wanted: Mapping[Reference, str], pod: Raw) -> None:
        """Have the copies stand that a remote pod needs, before it is created.

        `wanted` is as `references.wanted` says it, `pod` the body to be created. Raises Absent for a source that is missing, and
        ApiError or Unreachable.
        """
        if not wanted:
            return
        written = self._copies_of(cache, pod)
        async with written.lock:  # its siblings wait for the same objects
            cache.require_reachable()
            if why := copied_objects.over_limit_reason({*written.versions, *wanted}, written.sources):
                raise CopyLimitExceeded(why)
            for reference, needed in wanted.items():
                if reference in written.versions:
                    continue
                try:
                    await self._write_copy(cache, written, reference, pod)
                except CopyLimitExceeded:
                    raise
                except SourceUnavailable as absent:
                    if needed:
                        raise SourceUnavailable(f"{needed} is {absent}") from None
                    written.versions[reference] = _NO_VERSION

    def _copies_of(self, cache: WorkerClusterCache, pod: Raw) -> ShareCopies:
        return self._share_copies.setdefault((cache.name, anchor_uid(pod)), ShareCopies())

    async def _write_copy(self, cache: WorkerClusterCache, copies: ShareCopies, reference: Reference, pod: Raw) -> None:
        """Write the copy of a source, unless it is the same that was written a moment ago."""
        found = await self._sources.read_object(key_of(pod)[0], reference)
        version = f"{uid_of(found)}/{meta(found).get('resourceVersion')}"
        before = copies.versions.get(reference)
        if before == version and time.monotonic() < copies.due_times[reference]:
            return
        held = {**copies.sources, reference: copied_objects.describe_source({**found, "kind": reference.kind})}
        if why := copied_objects.over_limit_reason(held, held):
            raise CopyLimitExceeded(why)
        try:
            made = await _write_object(
                cache, reference, copied_objects.build_copy(reference, found, pod), stands=bool(before)
            )
        except ApiError as error:
            if before == version:  # one that somebody made immutable there, say: not at every look
                copies.due_times[reference] = time.monotonic() + REWRITE_SECONDS
            raise ApiError(error.status, error.reason, f"the copy of {reference}: {error.message}") from None
        copies.versions[reference], copies.sources = version, held
        copies.due_times[reference] = time.monotonic() + REWRITE_SECONDS
        if made or before != version:
            log.info("cluster=%s copied %s of %s/%s", cache.name, reference, *key_of(pod))

    async def run(self) -> None:
        """Keep all copies equal to their sources until cancelled; a slow cluster is left to its own pace."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(PAUSE_SECONDS)
                self._sources.forget_old()
                there = self._fleet.caches()
                self._share_copies = {key: kept for key, kept in self._share_copies.items() if key[0] in there}
                if self._manager.unreachable_reason:
                    continue
                for name, member in self._fleet.reachable().items():
                    if name not in self._refreshing:
                        self._refreshing.add(name)
                        tasks.create_task(self._refresh_contained(member))

    async def _refresh_contained(self, cache: WorkerClusterCache) -> None:
        try:
            await self.refresh_cluster(cache)
        except Exception as error:  # what a cluster says of its pods may be anything, and must not end those of others
            report_failure("copies", error, cache.name)
        finally:
            self._refreshing.discard(cache.name)

    async def refresh_cluster(self, cache: WorkerClusterCache) -> None:
        """Compare the copies of a cluster's shares with their sources, one after the other: one of each share, then another one
        of each, so that nobody waits for a share that has many."""
        read = read_each("copies", cache.workloads, lambda raw: parse_reservation(cache.name, raw).anchor_uid)
        stands = {uid for _, uid in read}
        gone = [key for key in self._share_copies if key[0] == cache.name and key[1] not in stands]
        for key in gone:
            del self._share_copies[key]
        for reference, pod in interleave_shares(await self._wanted_references(cache, stands)):
            written = self._copies_of(cache, pod)
            async with written.lock:
                if not await self._renew_copy(cache, written, reference, pod):
                    return

    async def _wanted_references(self, cache: WorkerClusterCache, stands: set[str]) -> dict[str, dict[Reference, Raw]]:
        """What the pods of each share refer to, each with one remote pod that does; by anchor, and of each as many as may be copied."""
        found: dict[str, dict[Reference, Raw]] = {}
        for remote in list(cache.pods):
            await asyncio.sleep(0)  # five thousand take half a second, which shall hold up nothing else
            with contain_errors("copies", key_of(remote)):
                self._add_references(remote, stands, found)
        return found

    def _add_references(self, remote: Raw, stands: set[str], references: dict[str, dict[Reference, Raw]]) -> None:
        """Add what a remote pod refers to; nothing when it stands for no pod of ours on a share that stands."""
        pod = self._manager.pods.get(key_of(remote))
        if pod is None or label(remote, POD_UID_LABEL) != uid_of(pod) or anchor_uid(remote) not in stands:
            return
        share = references.setdefault(anchor_uid(remote), {})
        for reference in rewriter.referenced_objects(pod, self._workers.pull_secrets_of(pod)):
            if len(share) < copied_objects.MAX_OBJECTS:
                share.setdefault(reference, remote)

    async def _renew_copy(self, cache: WorkerClusterCache, copies: ShareCopies, reference: Reference, pod: Raw) -> bool:
        """Renew a copy if need be; False when there is no use in going on now."""
        try:
            await self._write_copy(cache, copies, reference, pod)
        except SourceUnavailable as absent:  # the running pods keep what they have
            log.debug("cluster=%s copy of %s is kept as it is: %s", cache.name, reference, absent)
        except ApiError as error:
            log.warning("cluster=%s %s/%s is not up to date: %s", cache.name, *key_of(pod), error)
        except Unreachable:
            return False
        return True


def interleave_shares(shares: Mapping[str, Mapping[Reference, Raw]]) -> Iterator[tuple[Reference, Raw]]:
    """The first reference of each share, then the second of each, and so on."""
    for turn in zip_longest(*(share.items() for share in shares.values())):
        yield from (one for one in turn if one)


async def _write_object(cache: WorkerClusterCache, reference: Reference, body: dict[str, Any], *, stands: bool) -> bool:
    """Create a copy, or replace the one that stands; what is most likely is tried first. Returns whether there was none.

    An answer is not kept, since it holds what was copied.
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
    """Replace a copy; False where there is none."""
    try:
        await cache.client.replace(reference_path(key_of(body)[0], reference, key_of(body)[1]), body)
    except ApiError as error:
        if not error.not_found:
            raise
        return False
    return True
