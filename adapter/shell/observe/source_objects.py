"""Which Secrets and ConfigMaps has the manager cluster, of those that worker pods refer to?

Read one by one, by name: we may neither list nor watch them. What is remembered for the admission check is whether they are
there, their type and their size, never what they hold.
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

# For how long an answer counts at the check. What is there will most likely stay, and is read again before any pod is made;
# who waits for what is missing looks again after deadlines.ABSENT_AGAIN.
FOUND_SECONDS, ABSENT_SECONDS = 30.0, 3.0
# For how long it is known to those who plan others, whatever holds up the look of the gang itself.
KEPT_SECONDS = 120.0
_RESOURCES = {references.SECRET: resources.SECRETS, references.CONFIG_MAP: resources.CONFIG_MAPS}
_SourceKey = tuple[str, Reference]  # namespace first


class SourceUnavailable(Exception):
    """A reference's object cannot be copied now; the text is a fragment: which one, what is wrong, what to do."""


def reference_path(namespace: str, reference: Reference, name: str = "") -> str:
    """Where an object of a reference's kind lives; without a name, where it is created."""
    return _RESOURCES[reference.kind].path(namespace, name)


class SourceObjects:
    """Reads what pods of the manager refer to."""

    def __init__(self, manager: ManagerCache) -> None:
        self._manager = manager
        self._sources: dict[_SourceKey, tuple[SourceObject, float]] = {}  # until when it counts

    async def read_object(self, namespace: str, reference: Reference) -> Raw:
        """Read an object as it is now; raises Absent or Unreachable."""
        if why := copied_objects.invalid_name_reason(reference):
            raise SourceUnavailable(why)
        key = namespace, reference
        known, until = self._sources.get(key, (None, 0.0))
        if time.monotonic() < until:  # each pod of a large gang asks
            _raise_if_lacking(namespace, reference, known)
        try:
            raw = await self._manager.client.get(reference_path(namespace, reference, reference.name))
        except ApiError as error:
            if error.is_transient and known and known.state == "Found" and time.monotonic() - until < KEPT_SECONDS:
                raise Unreachable(str(error)) from None  # it says nothing of what was there a moment ago
            refused = _source_of_error(error)
            self._remember_source(key, refused)
            _raise_if_lacking(namespace, reference, refused)
            raise
        found = copied_objects.describe_source({**raw, "kind": reference.kind})
        self._remember_source(key, found)
        if why := copied_objects.rejection_reason({reference: ""}, {reference: found}):
            raise SourceUnavailable(why)
        return raw

    def _remember_source(self, key: _SourceKey, source: SourceObject) -> None:
        lasts = FOUND_SECONDS if source.state == "Found" else ABSENT_SECONDS
        self._sources[key] = source, time.monotonic() + lasts

    async def refresh_objects(self, namespace: str, wanted: Collection[Reference], *, fresh: bool = False) -> None:
        """Read what is not known, or not any more; `fresh`: all of it. Raises Unreachable."""
        if fresh:
            known = {(namespace, one): (found, 0.0) for one, found in self._read_sources(namespace, wanted).items()}
            self._sources.update(known)
        now = time.monotonic()
        old = [one for one in wanted if self._sources.get((namespace, one), (None, 0.0))[1] <= now]
        done = await asyncio.gather(*(self.read_object(namespace, one) for one in old), return_exceptions=True)
        for trouble in done:
            if isinstance(trouble, BaseException) and not isinstance(trouble, SourceUnavailable):
                raise trouble

    def forget_old(self) -> None:
        """Drop what nobody has asked for in a while."""
        kept = time.monotonic() - KEPT_SECONDS
        self._sources = {key: note for key, note in self._sources.items() if note[1] > kept}

    def uncopyable_reason(self, workload: Workload, podsets: Sequence[PodSet]) -> str:
        """Why what these worker groups refer to can never be copied, as far as it was read; a fragment, empty when it can."""
        known, kept = self._known_sources(workload, podsets), self._manager.memo_of(workload)
        found = {one: source for one, source in known.items() if source}
        return kept.get_or_find(
            (SourceObjects, "refusal"),
            (*podsets, *known.values()),
            lambda: copied_objects.rejection_of_podsets(podsets, found),
        )

    def missing_objects(self, workload: Workload, podsets: Sequence[PodSet]) -> str:
        """Which object these worker groups need and the manager does not have, in the same form."""
        known, kept = self._known_sources(workload, podsets), self._manager.memo_of(workload)
        found = {one: source for one, source in known.items() if source}
        return kept.get_or_find(
            (SourceObjects, "absent"),
            (*podsets, *known.values()),
            lambda: copied_objects.missing_for_podsets(workload.namespace, podsets, found),
        )

    def references_of(self, workload: Workload, podsets: Sequence[PodSet]) -> Mapping[Reference, str]:
        """What these worker groups of a gang refer to, as `copies.wanted_by` says it, found once for each version of its Workload."""
        return self._manager.memo_of(workload).get_or_find(
            (SourceObjects, "wanted"), podsets, lambda: copied_objects.podset_references(podsets)
        )

    def _known_sources(self, workload: Workload, podsets: Sequence[PodSet]) -> Mapping[Reference, SourceObject | None]:
        """The same, with what was read of each, None where nothing was."""
        return {
            one: self._sources.get((workload.namespace, one), (None, 0.0))[0]
            for one in self.references_of(workload, podsets)
        }

    def _read_sources(self, namespace: str, wanted: Iterable[Reference]) -> Mapping[Reference, SourceObject]:
        return {one: self._sources[namespace, one][0] for one in wanted if (namespace, one) in self._sources}


def _source_of_error(error: ApiError) -> SourceObject:
    """What an answer says of the object; one that cannot be decrypted, say, must not hold up all that its gang is looked at for."""
    if error.not_found:
        return copied_objects.MISSING
    return copied_objects.FORBIDDEN if error.status == 403 else SourceObject("Unreadable", error=str(error))


def _raise_if_lacking(namespace: str, reference: Reference, known: SourceObject | None) -> None:
    if why := copied_objects.unavailable_reason(namespace, known):
        raise SourceUnavailable(f"{reference}, {why}") from None
