"""Decides whether a waiting gang must be planned again.

It must if something has changed that its last plan may have read. For most plans that is any change: of the usage in a
cluster, of what other gangs are promised, or of the gangs' order. `independent_since` notes a plan that found no
capacity in the gang's own clusters, whatever other gangs are promised or take. Only two kinds of changes matter to
such a plan: changes of the usage in its queues' cohort trees, and changes that concern every gang.

shell/clusters/capacity_versions.py counts changes. shell/observe/transient_state.py keeps the version of each last
plan.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from adapter.admission.policy import ResolvedPolicy
from adapter.objects.placement import Share
from adapter.objects.unstructured import UNREADABLE, Raw, uid_of
from adapter.objects.workload import Workload
from adapter.planning.plan_request import GangRequest
from adapter.shell.clusters.capacity_versions import CohortTree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.observe.dispatch_policies import PolicyObserver
from adapter.shell.observe.transient_state import TransientState


class ReplanCheck:
    def __init__(
        self, manager: ManagerCache, fleet: Fleet, policies: PolicyObserver, transient: TransientState
    ) -> None:
        self._manager, self._fleet, self._policies, self._transient = manager, fleet, policies, transient
        self._read_versions: object = None
        # The last relevant changes, by namespace, LocalQueue and id of the policy: one for each queue, not each gang.
        # The value holds the policy, so that no other policy gets its id. The id stands for the names of the policy's
        # clusters: to hash a hundred names takes longer than all other checks of a waiting gang.
        self._last_changes: dict[object, tuple[ResolvedPolicy | None, int]] = {}

    def is_needed(
        self, placements: Iterable[str], workload: Workload | None, chosen: ResolvedPolicy | None, now: datetime
    ) -> bool:
        """Whether a gang's last plan is outdated or overdue; `placements`: uids of its Placements."""
        version, since = self._fleet.capacity_versions.version, self._last_relevant_change(workload, chosen)
        return any(
            self._transient.is_outdated(uid, version, since) or self._transient.is_overdue(uid, version, now)
            for uid in placements
        )

    def is_up_to_date(self, placement: str, workload: Workload, chosen: ResolvedPolicy | None, now: datetime) -> bool:
        """Whether a gang's last plan is neither outdated nor due by its `replan_at`; if not, the gang is planned soon.

        `is_needed` disregards `replan_at`, but also asks for a plan that is overdue.
        """
        return self._transient.is_plan_current(
            placement, self._fleet.capacity_versions.version, self._last_relevant_change(workload, chosen), now
        )

    def _last_relevant_change(self, workload: Workload | None, chosen: ResolvedPolicy | None) -> int:
        """The version of the last change in the cohort trees of a gang's queues, or of one that concerns every gang.

        Changes of other gangs' promises and order are left out. If a queue moves to another tree, that change concerns
        every gang, so it is not missed.
        """
        versions = self._fleet.capacity_versions.version, self._policies.read_versions
        if versions != self._read_versions:
            self._read_versions, self._last_changes = versions, {}
        key = (workload.namespace, workload.queue, id(chosen)) if workload and chosen else ("", "", 0)
        if key not in self._last_changes:
            trees = self._trees_of(workload.namespace, workload.queue, chosen.clusters) if workload and chosen else []
            self._last_changes[key] = chosen, self._fleet.capacity_versions.latest_change(trees)
        return self._last_changes[key][1]

    def is_affected(self, placement: Raw) -> bool:
        """Whether a change has outdated the last plan of this Placement's gang."""
        uid, version = uid_of(placement), self._fleet.capacity_versions.version
        if uid not in self._transient.independent_since:
            return self._transient.is_outdated(uid, version, version)
        parsed = self._manager.read_placement(placement)
        raw = self._manager.gang_workload((parsed.namespace, parsed.gang_name))
        workload = self._manager.read_workload(raw) if raw else None
        policy, _ = self._policies.policy_of(self._policies.check_of(workload)) if workload else (None, "")
        return self._transient.is_outdated(uid, version, self._last_relevant_change(workload, policy))

    def forget_plan(self, placement: Raw) -> None:
        """Let a Placement's gang be planned again, after a change of its own request."""
        self._transient.forget_plan(uid_of(placement))

    def seeks_other_slots(self, placement: Raw) -> bool:
        """Whether a gang needs other slots for workers that did not start in time."""
        return uid_of(placement) in self._transient.unusable_slots

    def depends_on_promised(
        self, workload: Workload, chosen: ResolvedPolicy | None, promised: Sequence[tuple[GangRequest, Sequence[Share]]]
    ) -> bool:
        """Whether a promised share, even the gang's own, is in a tree that its plan reads."""
        if not promised:
            return False
        own_trees = set(self._trees_of(workload.namespace, workload.queue, chosen.clusters)) if chosen else set()
        promised_trees = (
            self._trees_of(request.namespace, request.queue, [share.cluster for share in shares])
            for request, shares in promised
        )
        return any(not own_trees.isdisjoint(trees) for trees in promised_trees)

    def _trees_of(self, namespace: str, queue: str, clusters: Iterable[str]) -> list[CohortTree]:
        """The cohort trees of a LocalQueue in these clusters.

        A missing or unreadable ClusterQueue has none; if it becomes readable, that change concerns every gang.
        """
        caches = self._fleet.caches()
        members = (caches[name] for name in clusters if name in caches)
        trees = (cohort_tree_of(member, member.queues.get((namespace, queue), ("", ""))[0]) for member in members)
        return [tree for tree in trees if tree]


def cohort_tree_of(cache: WorkerClusterCache, cluster_queue: str) -> CohortTree | None:
    try:
        raw = cache.cluster_queues.by_name(cluster_queue)
        return (cache.name, cache.cohort_root(raw)) if raw else None
    except UNREADABLE:
        return None
