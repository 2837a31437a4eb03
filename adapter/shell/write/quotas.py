"""Who keeps the manager's quota equal to that of the worker queues, where its admin asked for it?

The one write that we make to an object of Kueue's that is not a status. It is opt-in twice: by an annotation on the
ClusterQueue, and by the right, which is not in the base. Everything is told as an event on the ClusterQueue.
"""

import logging

from adapter import names
from adapter.objects import api_messages, specs
from adapter.objects.queues import read_local_queue
from adapter.objects.unstructured import Key, Raw, key_of, uid_of
from adapter.objects.workload import Job
from adapter.quota import aggregate
from adapter.quota.aggregate import QuotaChange, WorkerQueues
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.kube import resources
from adapter.shell.kube.client import ApiError
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.write.events import EventRecorder

log = logging.getLogger(__name__)


class QuotaAggregator:
    """Writes what `aggregate` says about the manager's ClusterQueues."""

    def __init__(self, manager: ManagerCache, fleet: Fleet, policies: PolicyObserver, recorder: EventRecorder) -> None:
        self._manager, self._fleet, self._policies, self._recorder = manager, fleet, policies, recorder

    async def reconcile_queue(self, name: str) -> None:
        """Bring one ClusterQueue up to date; raises ApiError or Unreachable when that has to be tried again."""
        raw = self._manager.cluster_queues.by_name(name)
        if raw is None:
            return
        try:
            found = self._quota_changes(raw)
        except specs.InvalidSpec as error:
            await self._record_event(raw, names.EventReason.FAILED_QUOTA_AGGREGATION, str(error), warning=True)
            return
        if found:
            await self._write_changes(raw, found)

    def _quota_changes(self, raw: Raw) -> list[QuotaChange]:
        if not aggregate.is_opted_in(raw):
            return []
        check, flavor = aggregate.check_and_flavor(raw, self._policies.our_checks())
        chosen, _ = self._policies.policy_of(check)
        if chosen is None:
            return []  # the check's own condition says why; what was written last stays
        workers = {cluster: self._worker_queues(cluster) for cluster in chosen.clusters}
        return aggregate.quota_changes(raw, flavor, self._local_queues_of(key_of(raw)[1]), workers)

    def _local_queues_of(self, name: str) -> list[Key]:
        queues = self._manager.local_queues.read_all_cached(read_local_queue)
        return [key for key, queue in queues.items() if queue.cluster_queue == name]

    def _worker_queues(self, cluster: str) -> WorkerQueues | None:
        """The cluster's queues as they were seen last, silent or not; None if they never were."""
        member = self._fleet.caches().get(cluster)
        if member is None or not (member.local_queues.synced and member.cluster_queues.synced):
            return None
        return WorkerQueues(list(member.local_queues), {key_of(raw)[1]: raw for raw in member.cluster_queues})

    async def _write_changes(self, raw: Raw, changes: list[QuotaChange]) -> None:
        name, said = key_of(raw)[1], "; ".join(map(str, changes))
        path = resources.CLUSTER_QUEUES.path(name=name)
        try:
            fresh = await self._manager.client.json_patch(
                path, aggregate.patch_operations(raw, changes), names.FIELD_MANAGER
            )
        except ApiError as error:
            if error.status == 403:
                await self._record_event(
                    raw, names.EventReason.FAILED_QUOTA_AGGREGATION, _forbidden_message(said, error), warning=True
                )
                return  # the resync tries again
            raise
        self._manager.cluster_queues.put(fresh)
        log.info("ClusterQueue %s: nominal quota of %s", name, said)
        await self._record_event(raw, names.EventReason.QUOTA_AGGREGATED, f"Changed the nominal quota of {said}.")

    async def _record_event(self, raw: Raw, reason: str, text: str, *, warning: bool = False) -> None:
        about = Job(names.KUEUE_API_VERSION, "ClusterQueue", "", key_of(raw)[1], uid_of(raw))
        await self._recorder.record_event(about, reason, text, warning=warning)


def _forbidden_message(changes_text: str, error: ApiError) -> str:
    """Forbidden is what RBAC says, and also a webhook, such as Kueue's of a lendingLimit above the new quota."""
    lacks_right = api_messages.lacks_right(error.message)
    way = "apply kustomize/components/quota-aggregator" if lacks_right else "change the ClusterQueue"
    return f"The nominal quota of {changes_text} cannot be written ({error.message}); {way}."
