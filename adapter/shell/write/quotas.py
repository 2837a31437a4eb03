"""Who keeps the manager's quota equal to that of the worker queues, where its admin asked for it?

The one write that we make to an object of Kueue's that is not a status. It is opt-in twice: by an annotation on the
ClusterQueue, and by the right, which is not in the base. Everything is told as an event on the ClusterQueue.
"""

import logging

from adapter import names
from adapter.objects import specs
from adapter.objects.queues import read_local_queue
from adapter.objects.unstructured import Key, Raw, key_of, uid_of
from adapter.objects.workload import Job
from adapter.quota import aggregate
from adapter.quota.aggregate import Change, Worker
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.write.events import Announcer

log = logging.getLogger(__name__)

_NO_RIGHT = "cannot patch resource"  # of RBAC's answer, which has no code of its own


class Aggregator:
    """Writes what `aggregate` says about the manager's ClusterQueues."""

    def __init__(self, manager: Manager, fleet: Fleet, policies: Policies, announcer: Announcer) -> None:
        self._manager, self._fleet, self._policies, self._announcer = manager, fleet, policies, announcer

    async def look(self, name: str) -> None:
        """Bring one ClusterQueue up to date; raises ApiError or Unreachable when that has to be tried again."""
        raw = self._manager.cluster_queues.named(name)
        if raw is None:
            return
        try:
            found = self._changes(raw)
        except specs.Invalid as error:
            await self._say(raw, "CannotAggregate", str(error), warning=True)
            return
        if found:
            await self._write(raw, found)

    def _changes(self, raw: Raw) -> list[Change]:
        if not aggregate.wanted(raw):
            return []
        check, flavor = aggregate.covered(raw, self._policies.our_checks())
        chosen, _ = self._policies.policy(check)
        if chosen is None:
            return []  # the check's own condition says why; what was written last stays
        workers = {cluster: self._worker(cluster) for cluster in chosen.clusters}
        return aggregate.changes(raw, flavor, self._served(key_of(raw)[1]), workers)

    def _served(self, name: str) -> list[Key]:
        queues = self._manager.local_queues.readings(read_local_queue)
        return [key for key, queue in queues.items() if queue.cluster_queue == name]

    def _worker(self, cluster: str) -> Worker | None:
        """The cluster's queues as they were seen last, silent or not; None if they never were."""
        member = self._fleet.members().get(cluster)
        if member is None or not (member.local_queues.synced and member.cluster_queues.synced):
            return None
        return Worker(list(member.local_queues), {key_of(raw)[1]: raw for raw in member.cluster_queues})

    async def _write(self, raw: Raw, found: list[Change]) -> None:
        name, said = key_of(raw)[1], "; ".join(map(str, found))
        path = resources.CLUSTER_QUEUES.path(name=name)
        try:
            fresh = await self._manager.client.edit(path, aggregate.operations(raw, found), names.FIELD_MANAGER)
        except ApiError as error:
            if error.status == 403:
                await self._say(raw, "CannotAggregate", _refused(said, error), warning=True)
                return  # the resync tries again
            raise
        self._manager.cluster_queues.put(fresh)
        log.info("ClusterQueue %s: nominal quota of %s", name, said)
        await self._say(raw, "QuotaFromWorkers", f"Changed the nominal quota of {said}.")

    async def _say(self, raw: Raw, reason: str, text: str, *, warning: bool = False) -> None:
        about = Job(names.KUEUE_API_VERSION, "ClusterQueue", "", key_of(raw)[1], uid_of(raw))
        await self._announcer.say(about, reason, text, warning=warning)


def _refused(said: str, error: ApiError) -> str:
    """Forbidden is what RBAC says, and also a webhook, such as Kueue's of a lendingLimit above the new quota."""
    way = "apply kustomize/components/quota-aggregator" if _NO_RIGHT in error.message else "change the ClusterQueue"
    return f"The nominal quota of {said} cannot be written ({error.message}); {way}."
