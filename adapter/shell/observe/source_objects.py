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
from adapter.rewrite.copied_objects import Source
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable

# For how long an answer counts at the check. What is there will most likely stay, and is read again before any pod is made;
# who waits for what is missing looks again after deadlines.ABSENT_AGAIN.
FOUND_SECONDS, ABSENT_SECONDS = 30.0, 3.0
# For how long it is known to those who plan others, whatever holds up the look of the gang itself.
KEPT_SECONDS = 120.0
_RESOURCES = {references.SECRET: resources.SECRETS, references.CONFIG_MAP: resources.CONFIG_MAPS}
_Key = tuple[str, Reference]  # namespace first


class Absent(Exception):
    """A reference's object cannot be copied now; the text is a fragment: which one, what is wrong, what to do."""


def path(namespace: str, reference: Reference, name: str = "") -> str:
    """Where an object of a reference's kind lives; without a name, where it is created."""
    return _RESOURCES[reference.kind].path(namespace, name)


class Sources:
    """Reads what pods of the manager refer to."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._known: dict[_Key, tuple[Source, float]] = {}  # until when it counts

    async def read(self, namespace: str, reference: Reference) -> Raw:
        """Read an object as it is now; raises Absent or Unreachable."""
        if why := copied_objects.nameless(reference):
            raise Absent(why)
        key = namespace, reference
        known, until = self._known.get(key, (None, 0.0))
        if time.monotonic() < until:  # each pod of a large gang asks
            _complain(namespace, reference, known)
        try:
            raw = await self._manager.client.get(path(namespace, reference, reference.name))
        except ApiError as error:
            if error.passing and known and known.state == "Found" and time.monotonic() - until < KEPT_SECONDS:
                raise Unreachable(str(error)) from None  # it says nothing of what was there a moment ago
            refused = _refused(error)
            self._note(key, refused)
            _complain(namespace, reference, refused)
            raise
        found = copied_objects.source({**raw, "kind": reference.kind})
        self._note(key, found)
        if why := copied_objects.refusal({reference: ""}, {reference: found}):
            raise Absent(why)
        return raw

    def _note(self, key: _Key, found: Source) -> None:
        lasts = FOUND_SECONDS if found.state == "Found" else ABSENT_SECONDS
        self._known[key] = found, time.monotonic() + lasts

    async def look(self, namespace: str, wanted: Collection[Reference], *, fresh: bool = False) -> None:
        """Read what is not known, or not any more; `fresh`: all of it. Raises Unreachable."""
        if fresh:
            known = {(namespace, one): (found, 0.0) for one, found in self._of(namespace, wanted).items()}
            self._known.update(known)
        now = time.monotonic()
        old = [one for one in wanted if self._known.get((namespace, one), (None, 0.0))[1] <= now]
        done = await asyncio.gather(*(self.read(namespace, one) for one in old), return_exceptions=True)
        for trouble in done:
            if isinstance(trouble, BaseException) and not isinstance(trouble, Absent):
                raise trouble

    def forget_old(self) -> None:
        """Drop what nobody has asked for in a while."""
        kept = time.monotonic() - KEPT_SECONDS
        self._known = {key: note for key, note in self._known.items() if note[1] > kept}

    def refusal(self, work: Workload, podsets: Sequence[PodSet]) -> str:
        """Why what these worker groups refer to can never be copied, as far as it was read; a fragment, empty when it can."""
        known, kept = self._known_of(work, podsets), self._manager.beside(work)
        found = {one: source for one, source in known.items() if source}
        return kept.of(
            (Sources, "refusal"), (*podsets, *known.values()), lambda: copied_objects.refusal_of_groups(podsets, found)
        )

    def absent(self, work: Workload, podsets: Sequence[PodSet]) -> str:
        """Which object these worker groups need and the manager does not have, in the same form."""
        known, kept = self._known_of(work, podsets), self._manager.beside(work)
        found = {one: source for one, source in known.items() if source}
        return kept.of(
            (Sources, "absent"),
            (*podsets, *known.values()),
            lambda: copied_objects.absent_of_groups(work.namespace, podsets, found),
        )

    def wanted(self, work: Workload, podsets: Sequence[PodSet]) -> Mapping[Reference, str]:
        """What these worker groups of a gang refer to, as `copies.wanted_by` says it, found once for each version of its Workload."""
        return self._manager.beside(work).of((Sources, "wanted"), podsets, lambda: copied_objects.wanted_by(podsets))

    def _known_of(self, work: Workload, podsets: Sequence[PodSet]) -> Mapping[Reference, Source | None]:
        """The same, with what was read of each, None where nothing was."""
        return {one: self._known.get((work.namespace, one), (None, 0.0))[0] for one in self.wanted(work, podsets)}

    def _of(self, namespace: str, wanted: Iterable[Reference]) -> Mapping[Reference, Source]:
        return {one: self._known[namespace, one][0] for one in wanted if (namespace, one) in self._known}


def _refused(error: ApiError) -> Source:
    """What an answer says of the object; one that cannot be decrypted, say, must not hold up all that its gang is looked at for."""
    if error.missing:
        return copied_objects.MISSING
    return copied_objects.FORBIDDEN if error.status == 403 else Source("Unreadable", why=str(error))


def _complain(namespace: str, reference: Reference, known: Source | None) -> None:
    if why := copied_objects.lack(namespace, known):
        raise Absent(f"{reference}, {why}") from None
