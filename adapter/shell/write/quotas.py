"""Keeps the manager's quota equal to the worker queues', where the admin opted in.

This is our only write to a Kueue object that is not a status. It needs an annotation on the ClusterQueue, and a right
that the base manifests do not grant. An event on the ClusterQueue reports each result.
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
    def __init__(self, manager: ManagerCache, fleet: Fleet, policies: PolicyObserver, recorder: EventRecorder) -> None:
        self._manager, self._fleet, self._policies, self._recorder = manager, fleet, policies, recorder

    async def reconcile_queue(self, name: str) -> None:
        """Update one ClusterQueue; raises ApiError or Unreachable when it must be retried."""
        raw = self._manager.cluster_queues.by_name(name)
        if raw is None:
            return
        try:
            changes = self._quota_changes(raw)
        except specs.InvalidSpec as error:
            await self._record_event(raw, names.EventReason.FAILED_QUOTA_AGGREGATION, str(error), warning=True)
            return
        if changes:
            await self._write_changes(raw, changes)

    def _quota_changes(self, raw: Raw) -> list[QuotaChange]:
        if not aggregate.is_opted_in(raw):
            return []
        check, flavor = aggregate.check_and_flavor(raw, self._policies.our_checks())
        policy, _ = self._policies.policy_of(check)
        if policy is None:
            return []  # reported by the check's condition; the last quota stays
        workers = {cluster: self._worker_queues(cluster) for cluster in policy.clusters}
        return aggregate.quota_changes(raw, flavor, self._local_queues_of(key_of(raw)[1]), workers)

    def _local_queues_of(self, name: str) -> list[Key]:
        queues = self._manager.local_queues.read_all_cached(read_local_queue)
        return [key for key, queue in queues.items() if queue.cluster_queue == name]

    def _worker_queues(self, cluster: str) -> WorkerQueues | None:
        """The cluster's queues as last known, also if unreachable; None if never synced."""
        member = self._fleet.caches().get(cluster)
        if member is None or not (member.local_queues.synced and member.cluster_queues.synced):
            return None
        queues = {key_of(raw)[1]: raw for raw in member.cluster_queues}
        return WorkerQueues(list(member.local_queues), queues, member.spec.pods.extended_resources)

    async def _write_changes(self, raw: Raw, changes: list[QuotaChange]) -> None:
        name, changes_text = key_of(raw)[1], "; ".join(map(str, changes))
        path = resources.CLUSTER_QUEUES.path(name=name)
        try:
            updated = await self._manager.client.json_patch(
                path, aggregate.patch_operations(raw, changes), names.FIELD_MANAGER
            )
        except ApiError as error:
            if error.status == 403:
                await self._record_event(
                    raw,
                    names.EventReason.FAILED_QUOTA_AGGREGATION,
                    _forbidden_message(changes_text, error),
                    warning=True,
                )
                return  # the resync retries
            raise
        self._manager.cluster_queues.put(updated)
        log.info("ClusterQueue %s: nominal quota of %s", name, changes_text)
        await self._record_event(
            raw, names.EventReason.QUOTA_AGGREGATED, f"Changed the nominal quota of {changes_text}."
        )

    async def _record_event(self, raw: Raw, reason: str, text: str, *, warning: bool = False) -> None:
        about = Job(names.KUEUE_API_VERSION, "ClusterQueue", "", key_of(raw)[1], uid_of(raw))
        await self._recorder.record_event(about, reason, text, warning=warning)


def _forbidden_message(changes_text: str, error: ApiError) -> str:
    """A sentence with the remedy for a 403.

    It comes from RBAC, or from a webhook, such as Kueue's for a lendingLimit above the new quota.
    """
    lacks_right = api_messages.lacks_right(error.message, "patch")
    remedy = "apply kustomize/components/quota-aggregator" if lacks_right else "change the ClusterQueue"
    return f"The nominal quota of {changes_text} cannot be written ({error.message}); {remedy}."
