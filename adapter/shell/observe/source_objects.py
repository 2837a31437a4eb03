"""Reads the manager's Secrets and ConfigMaps that worker pods refer to, by name: our rights allow neither list nor
watch.

For the admission check only existence, type and size are kept, never data.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from adapter.objects import references
from adapter.objects.references import Reference
from adapter.objects.unstructured import Raw
from adapter.objects.workload import PodSet, Workload
from adapter.rewrite import copied_objects
from adapter.rewrite.copied_objects import SourceObject
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable

# How long a result counts at the check. Before a pod is created an object is read again; a gang with a missing object
# is requeued after `MISSING_OBJECTS_RETRY` (gang/timeouts.py).
FOUND_SECONDS, ABSENT_SECONDS = 30.0, 3.0
# How long other gangs' plans may use a result, if the gang's own reconcile is delayed.
KEPT_SECONDS = 120.0
_RESOURCES = {references.SECRET: resources.SECRETS, references.CONFIG_MAP: resources.CONFIG_MAPS}
_SourceKey = tuple[str, Reference]  # namespace first


class SourceUnavailable(Exception):
    """An object cannot be copied now; a fragment: the object, the problem, the remedy."""


def reference_path(namespace: str, reference: Reference, name: str = "") -> str:
    """The API path of a referred object; without a name, the path for its creation."""
    return _RESOURCES[reference.kind].path(namespace, name)


class SourceObjects:
    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self._sources: dict[_SourceKey, tuple[SourceObject, float]] = {}  # the monotonic time until which it counts

    async def read_object(self, namespace: str, reference: Reference) -> Raw:
        """Read the current object; raises SourceUnavailable or Unreachable."""
        if reason := copied_objects.invalid_name_reason(reference):
            raise SourceUnavailable(reason)
        key = namespace, reference
        source, until = self._sources.get(key, (None, 0.0))
        if time.monotonic() < until:  # each pod of a large gang calls this
            _raise_if_lacking(namespace, reference, source)
        try:
            raw = await self._manager.client.get(reference_path(namespace, reference, reference.name))
        except ApiError as error:
            if error.is_transient and source and source.state == "Found" and time.monotonic() - until < KEPT_SECONDS:
                raise Unreachable(str(error)) from None  # it existed a moment ago, and most likely still does
            failed_source = _source_of_error(error)
            self._remember_source(key, failed_source)
            _raise_if_lacking(namespace, reference, failed_source)
            raise
        current = copied_objects.describe_source({**raw, "kind": reference.kind})
        self._remember_source(key, current)
        if reason := copied_objects.rejection_reason({reference: ""}, {reference: current}):
            raise SourceUnavailable(reason)
        return raw

    def _remember_source(self, key: _SourceKey, source: SourceObject) -> None:
        valid_for = FOUND_SECONDS if source.state == "Found" else ABSENT_SECONDS
        self._sources[key] = source, time.monotonic() + valid_for

    async def refresh_objects(self, namespace: str, wanted: Collection[Reference], *, fresh: bool = False) -> None:
        """Read the objects whose results are missing or expired, or all with `fresh`; raises Unreachable."""
        if fresh:
            expired = {
                (namespace, reference): (source, 0.0)
                for reference, source in self._read_sources(namespace, wanted).items()
            }
            self._sources.update(expired)
        now = time.monotonic()
        stale = [reference for reference in wanted if self._sources.get((namespace, reference), (None, 0.0))[1] <= now]
        results = await asyncio.gather(
            *(self.read_object(namespace, reference) for reference in stale), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, SourceUnavailable):
                raise result

    def forget_old(self) -> None:
        oldest = time.monotonic() - KEPT_SECONDS
        self._sources = {key: entry for key, entry in self._sources.items() if entry[1] > oldest}

    def uncopyable_reason(self, workload: Workload, podsets: Sequence[PodSet]) -> str:
        """Why objects can never be copied, a fragment or empty; unread objects do not count."""
        sources, memo = self._known_sources(workload, podsets), self._manager.memo_of(workload)
        read_sources = {reference: source for reference, source in sources.items() if source}
        return memo.get_or_find(
            (SourceObjects, "refusal"),
            (*podsets, *sources.values()),
            lambda: copied_objects.rejection_of_podsets(podsets, read_sources),
        )

    def missing_objects(self, workload: Workload, podsets: Sequence[PodSet]) -> str:
        """The objects that the manager lacks, a fragment or empty."""
        sources, memo = self._known_sources(workload, podsets), self._manager.memo_of(workload)
        read_sources = {reference: source for reference, source in sources.items() if source}
        return memo.get_or_find(
            (SourceObjects, "absent"),
            (*podsets, *sources.values()),
            lambda: copied_objects.missing_for_podsets(workload.namespace, podsets, read_sources),
        )

    def references_of(self, workload: Workload, podsets: Sequence[PodSet]) -> Mapping[Reference, str]:
        """`copied_objects.podset_references`, computed once for each version of the Workload."""
        return self._manager.memo_of(workload).get_or_find(
            (SourceObjects, "wanted"), podsets, lambda: copied_objects.podset_references(podsets)
        )

    def _known_sources(self, workload: Workload, podsets: Sequence[PodSet]) -> Mapping[Reference, SourceObject | None]:
        return {
            reference: self._sources.get((workload.namespace, reference), (None, 0.0))[0]
            for reference in self.references_of(workload, podsets)
        }

    def _read_sources(self, namespace: str, wanted: Iterable[Reference]) -> Mapping[Reference, SourceObject]:
        return {
            reference: self._sources[namespace, reference][0]
            for reference in wanted
            if (namespace, reference) in self._sources
        }


def _source_of_error(error: ApiError) -> SourceObject:
    """The error as the state of a source: an object that cannot be decrypted, say, must not block the reconcile."""
    if error.not_found:
        return copied_objects.MISSING
    return copied_objects.FORBIDDEN if error.status == 403 else SourceObject("Unreadable", error=str(error))


def _raise_if_lacking(namespace: str, reference: Reference, known: SourceObject | None) -> None:
    if reason := copied_objects.unavailable_reason(namespace, known):
        raise SourceUnavailable(f"{reference}, {reason}") from None
