"""Gives back the quota of ended gangs in an incomplete namespace.

The namespace's stores are empty, so the manager's API server is asked for the owner of each share: by name, a few in
each turn, one gang after the other. Turns follow each other until the namespace is complete again. All namespaces
together have a bounded number of turns, in the order in which they ask for one.
"""

import asyncio
import functools
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from adapter import names
from adapter.actions import describe
from adapter.gang import cleanup, ended_gang
from adapter.objects import trim, well_formed
from adapter.objects.rayjob import JobObject, read_job
from adapter.objects.reservation import Reservation, parse_reservation
from adapter.objects.unstructured import UNREADABLE, Raw, annotation, key_of, label, uid_of
from adapter.objects.workload import Job, is_elastic_gang, parse_workload
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError, Unreachable
from adapter.shell.kube.pagination import list_all
from adapter.shell.observe.slots import SlotObserver
from adapter.shell.observe.transient_state import TransientState
from adapter.shell.supervise import read_each
from adapter.shell.write.events import EventRecorder
from adapter.shell.write.execute import Executor
from adapter.shell.write.namespace_turns import NamespaceTurns
from adapter.worker.template_slots import must_check_slot

log = logging.getLogger(__name__)

# The pause between two turns of a namespace, and the gangs asked about in a turn: 240 gangs in a minute.
TURN_SECONDS = 10.0
GANGS_PER_TURN = 40
# The pause between two turns of any namespaces: 20 gangs in a second, and one list of shares in each cluster.
SHORTEST_PAUSE = 2.0
# The memory for the metadata of one namespace's shares, or of its elastic jobs.
LISTED_BYTES = 16 * 2**20
_JOB_KINDS: Final = {
    "RayJob": (resources.RAY_JOBS, trim.ray_job),
    "RayCluster": (resources.RAY_CLUSTERS, trim.ray_cluster),
}

_Owner = tuple[str, str]  # the name of a gang, and the uid of its Workload or elastic job


class EndedGangs:
    def __init__(
        self,
        manager: ManagerCache,
        fleet: Fleet,
        slots: SlotObserver,
        transient: TransientState,
        executor: Executor,
        recorder: EventRecorder,
    ) -> None:
        self._manager, self._fleet, self._slots, self._executor, self._recorder = (
            manager,
            fleet,
            slots,
            executor,
            recorder,
        )
        self._transient = transient
        self._last_asked: dict[str, _Owner] = {}  # by namespace
        self._turns = NamespaceTurns(SHORTEST_PAUSE)
        self._reported: set[str] = set()  # the namespaces that an Event calls incomplete

    async def reconcile_namespace(self, namespace: str) -> float | None:
        """Report an incomplete namespace, and delete shares of its ended gangs; the delay of the next turn, if any."""
        reasons = self._incompleteness(namespace)
        if not reasons:
            self._last_asked.pop(namespace, None)
            self._turns.forget(namespace)
            await self._report_complete(namespace)
            self._note_sent_pods(namespace)
            return TURN_SECONDS if namespace in self._reported else None
        await self._report(namespace, reasons)
        if delay := self._turns.take_or_delay(namespace, asyncio.get_running_loop().time()):
            return delay
        try:
            await self._release_shares(namespace)
        except (ApiError, Unreachable) as trouble:
            log.info("namespace %s: %s", namespace, trouble)
        return TURN_SECONDS

    def _note_sent_pods(self, namespace: str) -> None:
        """Remote pods may have been created before the notes on a namespace's pods were dropped with them."""
        pods = (pod for pod in self._manager.pods if key_of(pod)[0] == namespace and must_check_slot(pod))
        self._transient.sent_pods |= set(map(uid_of, pods))

    def _incompleteness(self, namespace: str) -> list[str]:
        """Where and why the namespace is incomplete, as parts of a sentence."""
        caches = {"the manager cluster": self._manager.namespace_shares} | {
            f"worker cluster {name}": member.namespace_shares for name, member in self._fleet.caches().items()
        }
        reasons = ((place, shares.reason(namespace)) for place, shares in caches.items())
        return [f"in {place}, it {reason.text}" for place, reason in reasons if reason]

    async def _report(self, namespace: str, reasons: list[str]) -> None:
        self._reported.add(namespace)
        sentence = (
            f"Namespace {namespace} is incomplete: {'; '.join(reasons)}. Until then its jobs are left as they are "
            "there: none is placed, and what runs goes on."
        )
        await self._record_event(namespace, sentence, warning=True)

    async def _report_complete(self, namespace: str) -> None:
        """Replace the Event that calls the namespace incomplete."""
        if namespace not in self._reported:
            return
        if await self._record_event(namespace, f"Namespace {namespace} is complete again.", warning=False):
            self._reported.remove(namespace)

    async def _record_event(self, namespace: str, sentence: str, *, warning: bool) -> bool:
        """Write an Event; whether it was written."""
        about, reason = Job("v1", "Namespace", namespace, namespace, namespace), names.EventReason.NAMESPACE_INCOMPLETE
        try:
            await self._recorder.record_event(about, reason, sentence, warning=warning)
        except (ApiError, Unreachable) as trouble:
            log.warning("event on namespace %s: %s", namespace, trouble)
            return False
        return True

    async def _release_shares(self, namespace: str) -> None:
        shares = await self._shares_by_owner(namespace)
        owners = self._next_owners(namespace, sorted(shares))
        jobs = await self._list_jobs(namespace, {gang.partition("/")[0] for gang, _ in owners if is_elastic_gang(gang)})
        for owner in owners:
            self._last_asked[namespace] = owner
            try:
                if await self._has_ended(namespace, *owner, jobs):
                    await self._delete_shares(shares[owner])
            except (ApiError, Unreachable, *UNREADABLE) as trouble:
                log.info("namespace %s, gang %s: %s", namespace, owner[0], trouble)

    def _next_owners(self, namespace: str, owners: list[_Owner]) -> list[_Owner]:
        """The owners to ask for in this turn, after those of the last one."""
        last = self._last_asked.get(namespace, ("", ""))
        following = [owner for owner in owners if owner > last] + [owner for owner in owners if owner <= last]
        return following[:GANGS_PER_TURN]

    async def _shares_by_owner(self, namespace: str) -> dict[_Owner, list[Reservation]]:
        shares = defaultdict[_Owner, list[Reservation]](list)
        for name, member in self._fleet.reachable().items():
            try:
                raws = await _shares_in(member, namespace)
            except (ApiError, Unreachable) as trouble:  # must not hold up the shares in other clusters
                log.info("namespace %s in %s: %s", namespace, name, trouble)
                continue
            for raw, share in read_each("shares", raws, functools.partial(parse_reservation, name)):
                owner = annotation(raw, names.WORKLOAD_ANNOTATION), label(raw, names.WORKLOAD_UID_LABEL)
                if all(owner):
                    shares[owner].append(share)
        return shares

    async def _has_ended(self, namespace: str, gang: str, uid: str, jobs: Mapping[str, list[JobObject]]) -> bool:
        """Ask the manager's API server for the Workload of a gang; `jobs`, by kind, are those just listed."""
        if is_elastic_gang(gang):
            kind = gang.partition("/")[0]
            return kind in jobs and ended_gang.has_job_ended(Job("", kind, namespace, "", uid), jobs[kind])
        path = resources.WORKLOADS.path(namespace)
        answer = await self._manager.client.get(path, fieldSelector=f"metadata.name={gang}")
        workload = next((parse_workload(raw) for raw in answer["items"] or () if key_of(raw)[1] == gang), None)
        return ended_gang.has_workload_ended(uid, workload)

    async def _list_jobs(self, namespace: str, kinds: Iterable[str]) -> dict[str, list[JobObject]]:
        """The elastic jobs of each kind, without the kinds that are unknown or cannot be listed now."""
        jobs = dict[str, list[JobObject]]()
        for kind in _JOB_KINDS.keys() & kinds:
            resource, trim_job = _JOB_KINDS[kind]
            quota = self._manager.extra_budget(LISTED_BYTES).new_quota(resource.plural)
            try:
                raws, _ = await list_all(self._manager.client, resource.path(namespace), trim_job, quota)
                jobs[kind] = [read_job(kind, raw) for raw in raws]
            except (ApiError, Unreachable, *UNREADABLE) as trouble:
                log.info("namespace %s: its %s: %s", namespace, resource.plural, trouble)
        return jobs

    async def _delete_shares(self, shares: Iterable[Reservation]) -> None:
        """Delete the pods of ended shares, and each share whose pods have ended."""
        for action in cleanup.delete_ended_shares(shares, self._ending_pods):
            await self._executor.execute(action)
            log.info("%s", describe(action))

    def _ending_pods(self, share: Reservation) -> tuple[Raw, ...]:
        """The pods that hold the share's quota; none where they are not known, and end with the share's anchor."""
        return self._slots.running_remote_pods(share, self._manager.clock.now())


async def _shares_in(member: WorkerClusterCache, namespace: str) -> list[Raw]:
    """The metadata of the shares in a cluster, from its API server where the namespace is incomplete."""
    if member.namespace_shares.is_complete(namespace):
        return [raw for raw in member.workloads if key_of(raw)[0] == namespace]
    selectors = next(kind.selectors for kind in member.metered_kinds() if kind.store is member.workloads)
    quota = member.extra_budget(LISTED_BYTES).new_quota(resources.WORKLOADS.plural)
    path = resources.WORKLOADS.path(namespace)
    shares, _ = await list_all(member.client, path, trim.metadata_only, quota, **selectors)
    return [raw for raw in shares if not well_formed.malformed_reason(raw)]
