"""Would a plan of a gang find anything else than its last one did?

One that found no room is made again when something has changed that it read: the figures of its own queues' trees, or anything that is
news for all. What others are promised, and who of them comes first, is news only where a plan rests on it. Which changes there were
is noted elsewhere (shell/clusters/capacity_versions.py), and so is what the last plans saw (shell/observe/transient_state.py).
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
    """Compares what was seen with what has changed since."""

    def __init__(
        self, manager: ManagerCache, fleet: Fleet, policies: PolicyObserver, transient: TransientState
    ) -> None:
        self._manager, self._fleet, self._policies, self._transient = manager, fleet, policies, transient
        self._read_versions: object = None  # the version of room, and of policies, for which the following was found
        # By namespace, LocalQueue and policy as it was read, which is held, so that no other one has its id: as many as queues, and not
        # as many as gangs. To go by the names of a hundred clusters would take longer than all else that a plan asks of one that waits.
        self._last_changes: dict[object, tuple[ResolvedPolicy | None, int]] = {}

    def is_needed(
        self, placements: Iterable[str], workload: Workload | None, chosen: ResolvedPolicy | None, now: datetime
    ) -> bool:
        """Whether the last plan of a gang, by the uids of its Placements, would not be the same now; or was made so long ago that it
        is made sure of."""
        version, since = self._fleet.capacity_versions.version, self._last_relevant_change(workload, chosen)
        return any(
            self._transient.is_outdated(uid, version, since) or self._transient.is_overdue(uid, version, now)
            for uid in placements
        )

    def is_up_to_date(self, placement: str, workload: Workload, chosen: ResolvedPolicy | None, now: datetime) -> bool:
        """Whether a gang that waits was planned on all that there is: else it is about to be."""
        return self._transient.is_plan_current(
            placement, self._fleet.capacity_versions.version, self._last_relevant_change(workload, chosen), now
        )

    def _last_relevant_change(self, workload: Workload | None, chosen: ResolvedPolicy | None) -> int:
        """The version of the last change that a plan of a gang would read, were there nobody else. What trees its queue stands in
        changes with the version, too: that is news for all."""
        as_of = self._fleet.capacity_versions.version, self._policies.read_versions
        if as_of != self._read_versions:
            self._read_versions, self._last_changes = as_of, {}
        about = (workload.namespace, workload.queue, id(chosen)) if workload and chosen else ("", "", 0)
        if about not in self._last_changes:
            trees = self._trees_of(workload.namespace, workload.queue, chosen.clusters) if workload and chosen else []
            self._last_changes[about] = chosen, self._fleet.capacity_versions.latest_change(trees)
        return self._last_changes[about][1]

    def is_affected(self, placement: Raw) -> bool:
        """Whether something has changed for the gang of a Placement since it was planned."""
        uid, version = uid_of(placement), self._fleet.capacity_versions.version
        if uid not in self._transient.independent_since:
            return self._transient.is_outdated(uid, version, version)
        known = self._manager.read_placement(placement)
        raw = self._manager.gang_workload((known.namespace, known.gang_name))
        work = self._manager.read_workload(raw) if raw else None
        chosen, _ = self._policies.policy_of(self._policies.check_of(work)) if work else (None, "")
        return self._transient.is_outdated(uid, version, self._last_relevant_change(work, chosen))

    def depends_on_promised(
        self, workload: Workload, chosen: ResolvedPolicy | None, promised: Sequence[tuple[GangRequest, Sequence[Share]]]
    ) -> bool:
        """Whether something of what is promised to others, or to itself, is in a tree of which a gang is planned."""
        if not promised:
            return False
        mine = set(self._trees_of(workload.namespace, workload.queue, chosen.clusters)) if chosen else set()
        theirs = (
            self._trees_of(one.namespace, one.queue, [share.cluster for share in shares]) for one, shares in promised
        )
        return any(not mine.isdisjoint(trees) for trees in theirs)

    def _trees_of(self, namespace: str, queue: str, clusters: Iterable[str]) -> list[CohortTree]:
        """The trees in which a LocalQueue's ClusterQueues stand; one that is not there, or cannot be read, has no figures: when that
        changes, it is news for all."""
        members = self._fleet.caches()
        found = (members[name] for name in clusters if name in members)
        trees = (cohort_tree_of(member, member.queues.get((namespace, queue), ("", ""))[0]) for member in found)
        return [tree for tree in trees if tree]


def cohort_tree_of(cache: WorkerClusterCache, cluster_queue: str) -> CohortTree | None:
    """The tree in which a ClusterQueue of a worker cluster stands, None where that cannot be told."""
    try:
        raw = cache.cluster_queues.by_name(cluster_queue)
        return (cache.name, cache.cohort_root(raw)) if raw else None
    except UNREADABLE:
        return None
