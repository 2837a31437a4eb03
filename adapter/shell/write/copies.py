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
from adapter.objects.reservation import anchor_uid, reservation
from adapter.objects.unstructured import Raw, key_of, label, meta, uid_of
from adapter.rewrite import copied_objects, rewriter
from adapter.rewrite.copied_objects import Source
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.observe.source_objects import Absent, Sources, path
from adapter.shell.observe.worker_observer import Workers
from adapter.shell.supervise import contained, each, failed

log = logging.getLogger(__name__)

# Between two comparisons. A kubelet looks at what it mounted about once a minute (k8s: syncFrequency), so a pod sees a change
# within a minute and a half instead of one. Each costs a read in the manager for each source in use.
PAUSE_SECONDS = 30.0
# After which a copy is written again, whoever changed or deleted it there: we may not look. A pod that waits for one, or shows
# a changed one, does so for a few minutes. A write that changes nothing is not kept (k8s: etcd3 store, GuaranteedUpdate) and
# wakes nobody; it costs a quarter of the reads that go before it.
AGAIN_SECONDS = 120.0
_NOTHING = ""  # the version of a source that is not there, and need not be


class TooMuch(Absent):
    """A share would have more, or larger, copies than its job may have: also what is optional is not left out unsaid."""


@dataclass(slots=True)
class Written:
    """What this process has written for one share."""

    versions: dict[Reference, str] = field(default_factory=dict)  # which version of its source a copy is of
    held: dict[Reference, Source] = field(default_factory=dict)  # what its source was when it was written
    due: dict[Reference, float] = field(default_factory=dict)  # when it is written again, by the monotonic clock
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Copier:
    """Writes copies, and remembers which ones; all of that may be lost: then each is written once more."""

    def __init__(self, manager: Manager, fleet: Fleet, sources: Sources, workers: Workers) -> None:
        self._manager, self._fleet, self._sources, self._workers = manager, fleet, sources, workers
        self._written: dict[tuple[str, str], Written] = {}  # by cluster and anchor
        self._busy: set[str] = set()

    async def ensure(self, member: Member, wanted: Mapping[Reference, str], pod: Raw) -> None:
        """Have the copies stand that a remote pod needs, before it is created.

        `wanted` is as `references.wanted` says it, `pod` the body to be created. Raises Absent for a source that is missing, and
        ApiError or Unreachable.
        """
        if not wanted:
            return
        written = self._of(member, pod)
        async with written.lock:  # its siblings wait for the same objects
            member.must_be_seen()
            if why := copied_objects.too_much({*written.versions, *wanted}, written.held):
                raise TooMuch(why)
            for reference, needed in wanted.items():
                if reference in written.versions:
                    continue
                try:
                    await self._copy(member, written, reference, pod)
                except TooMuch:
                    raise
                except Absent as absent:
                    if needed:
                        raise Absent(f"{needed} is {absent}") from None
                    written.versions[reference] = _NOTHING

    def _of(self, member: Member, pod: Raw) -> Written:
        return self._written.setdefault((member.name, anchor_uid(pod)), Written())

    async def _copy(self, member: Member, written: Written, reference: Reference, pod: Raw) -> None:
        """Write the copy of a source, unless it is the same that was written a moment ago."""
        found = await self._sources.read(key_of(pod)[0], reference)
        version = f"{uid_of(found)}/{meta(found).get('resourceVersion')}"
        before = written.versions.get(reference)
        if before == version and time.monotonic() < written.due[reference]:
            return
        held = {**written.held, reference: copied_objects.source({**found, "kind": reference.kind})}
        if why := copied_objects.too_much(held, held):
            raise TooMuch(why)
        try:
            made = await _write(member, reference, copied_objects.copy(reference, found, pod), stands=bool(before))
        except ApiError as error:
            if before == version:  # one that somebody made immutable there, say: not at every look
                written.due[reference] = time.monotonic() + AGAIN_SECONDS
            raise ApiError(error.status, error.reason, f"the copy of {reference}: {error.message}") from None
        written.versions[reference], written.held = version, held
        written.due[reference] = time.monotonic() + AGAIN_SECONDS
        if made or before != version:
            log.info("cluster=%s copied %s of %s/%s", member.name, reference, *key_of(pod))

    async def run(self) -> None:
        """Keep all copies equal to their sources until cancelled; a slow cluster is left to its own pace."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(PAUSE_SECONDS)
                self._sources.forget_old()
                there = self._fleet.members()
                self._written = {key: kept for key, kept in self._written.items() if key[0] in there}
                if self._manager.lost:
                    continue
                for name, member in self._fleet.seen().items():
                    if name not in self._busy:
                        self._busy.add(name)
                        tasks.create_task(self._look_after(member))

    async def _look_after(self, member: Member) -> None:
        try:
            await self.refresh(member)
        except Exception as error:  # what a cluster says of its pods may be anything, and must not end those of others
            failed("copies", error, member.name)
        finally:
            self._busy.discard(member.name)

    async def refresh(self, member: Member) -> None:
        """Compare the copies of a cluster's shares with their sources, one after the other: one of each share, then another one
        of each, so that nobody waits for a share that has many."""
        read = each("copies", member.workloads, lambda raw: reservation(member.name, raw).anchor_uid)
        stands = {uid for _, uid in read}
        gone = [key for key in self._written if key[0] == member.name and key[1] not in stands]
        for key in gone:
            del self._written[key]
        for reference, pod in in_turn(await self._wanted(member, stands)):
            written = self._of(member, pod)
            async with written.lock:
                if not await self._renewed(member, written, reference, pod):
                    return

    async def _wanted(self, member: Member, stands: set[str]) -> dict[str, dict[Reference, Raw]]:
        """What the pods of each share refer to, each with one remote pod that does; by anchor, and of each as many as may be copied."""
        found: dict[str, dict[Reference, Raw]] = {}
        for remote in list(member.pods):
            await asyncio.sleep(0)  # five thousand take half a second, which shall hold up nothing else
            with contained("copies", key_of(remote)):
                self._refers(remote, stands, found)
        return found

    def _refers(self, remote: Raw, stands: set[str], found: dict[str, dict[Reference, Raw]]) -> None:
        """Add what a remote pod refers to; nothing when it stands for no pod of ours on a share that stands."""
        pod = self._manager.pods.get(key_of(remote))
        if pod is None or label(remote, POD_UID_LABEL) != uid_of(pod) or anchor_uid(remote) not in stands:
            return
        share = found.setdefault(anchor_uid(remote), {})
        for reference in rewriter.referred(pod, self._workers.pull_secrets(pod)):
            if len(share) < copied_objects.MOST_OBJECTS:
                share.setdefault(reference, remote)

    async def _renewed(self, member: Member, written: Written, reference: Reference, pod: Raw) -> bool:
        """Renew a copy if need be; False when there is no use in going on now."""
        try:
            await self._copy(member, written, reference, pod)
        except Absent as absent:  # the running pods keep what they have
            log.debug("cluster=%s copy of %s is kept as it is: %s", member.name, reference, absent)
        except ApiError as error:
            log.warning("cluster=%s %s/%s is not up to date: %s", member.name, *key_of(pod), error)
        except Unreachable:
            return False
        return True


def in_turn(shares: Mapping[str, Mapping[Reference, Raw]]) -> Iterator[tuple[Reference, Raw]]:
    """The first reference of each share, then the second of each, and so on."""
    for turn in zip_longest(*(share.items() for share in shares.values())):
        yield from (one for one in turn if one)


async def _write(member: Member, reference: Reference, body: dict[str, Any], *, stands: bool) -> bool:
    """Create a copy, or replace the one that stands; what is most likely is tried first. Returns whether there was none.

    An answer is not kept, since it holds what was copied.
    """
    if stands and await _replaced(member, reference, body):
        return False
    namespace, name = key_of(body)
    try:
        await member.client.create(path(namespace, reference), body)
    except ApiError as error:
        if not error.exists:
            raise
        await member.client.replace(path(namespace, reference, name), body)
        return False
    return True


async def _replaced(member: Member, reference: Reference, body: dict[str, Any]) -> bool:
    """Replace a copy; False where there is none."""
    try:
        await member.client.replace(path(key_of(body)[0], reference, key_of(body)[1]), body)
    except ApiError as error:
        if not error.missing:
            raise
        return False
    return True
