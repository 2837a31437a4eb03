"""Would a plan of a gang find anything else than its last one did?

One that found no room is made again when something has changed that it read: the figures of its own queues' trees, or anything that is
news for all. What others are promised, and who of them comes first, is news only where a plan rests on it. Which changes there were
is noted elsewhere (shell/clusters/capacity_versions.py), and so is what the last plans saw (shell/observe/transient_state.py).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from adapter.admission.policy import Chosen
from adapter.objects.placement import Share
from adapter.objects.unstructured import UNREADABLE, Raw, uid_of
from adapter.objects.workload import Workload
from adapter.planning.plan_request import Request
from adapter.shell.clusters.capacity_versions import Tree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.observe.dispatch_policies import Policies
from adapter.shell.observe.transient_state import Memory


class Seen:
    """Compares what was seen with what has changed since."""

    def __init__(self, manager: Manager, fleet: Fleet, policies: Policies, memory: Memory) -> None:
        self._manager, self._fleet, self._policies, self._memory = manager, fleet, policies, memory
        self._as_of: object = None  # the version of room, and of policies, for which the following was found
        # By namespace, LocalQueue and policy as it was read, which is held, so that no other one has its id: as many as queues, and not
        # as many as gangs. To go by the names of a hundred clusters would take longer than all else that a plan asks of one that waits.
        self._since: dict[object, tuple[Chosen | None, int]] = {}

    def changed(self, placements: Iterable[str], work: Workload | None, chosen: Chosen | None, now: datetime) -> bool:
        """Whether the last plan of a gang, by the uids of its Placements, would not be the same now; or was made so long ago that it
        is made sure of."""
        version, since = self._fleet.room.version, self._last(work, chosen)
        return any(
            self._memory.outdated(uid, version, since) or self._memory.overdue(uid, version, now) for uid in placements
        )

    def looked(self, placement: str, work: Workload, chosen: Chosen | None, now: datetime) -> bool:
        """Whether a gang that waits was planned on all that there is: else it is about to be."""
        return self._memory.looked(placement, self._fleet.room.version, self._last(work, chosen), now)

    def _last(self, work: Workload | None, chosen: Chosen | None) -> int:
        """The version of the last change that a plan of a gang would read, were there nobody else. What trees its queue stands in
        changes with the version, too: that is news for all."""
        as_of = self._fleet.room.version, self._policies.read_at
        if as_of != self._as_of:
            self._as_of, self._since = as_of, {}
        about = (work.namespace, work.queue, id(chosen)) if work and chosen else ("", "", 0)
        if about not in self._since:
            trees = self._trees(work.namespace, work.queue, chosen.clusters) if work and chosen else []
            self._since[about] = chosen, self._fleet.room.since(trees)
        return self._since[about][1]

    def news(self, place: Raw) -> bool:
        """Whether something has changed for the gang of a Placement since it was planned."""
        uid, version = uid_of(place), self._fleet.room.version
        if uid not in self._memory.alone:
            return self._memory.outdated(uid, version, version)
        known = self._manager.place(place)
        raw = self._manager.gang((known.namespace, known.gang))
        work = self._manager.work(raw) if raw else None
        chosen, _ = self._policies.policy(self._policies.check_of(work)) if work else (None, "")
        return self._memory.outdated(uid, version, self._last(work, chosen))

    def touches(
        self, work: Workload, chosen: Chosen | None, promised: Sequence[tuple[Request, Sequence[Share]]]
    ) -> bool:
        """Whether something of what is promised to others, or to itself, is in a tree of which a gang is planned."""
        if not promised:
            return False
        mine = set(self._trees(work.namespace, work.queue, chosen.clusters)) if chosen else set()
        theirs = (
            self._trees(one.namespace, one.queue, [share.cluster for share in shares]) for one, shares in promised
        )
        return any(not mine.isdisjoint(trees) for trees in theirs)

    def _trees(self, namespace: str, queue: str, clusters: Iterable[str]) -> list[Tree]:
        """The trees in which a LocalQueue's ClusterQueues stand; one that is not there, or cannot be read, has no figures: when that
        changes, it is news for all."""
        members = self._fleet.members()
        found = (members[name] for name in clusters if name in members)
        trees = (tree_of(member, member.queues.get((namespace, queue), ("", ""))[0]) for member in found)
        return [tree for tree in trees if tree]


def tree_of(member: Member, cluster_queue: str) -> Tree | None:
    """The tree in which a ClusterQueue of a worker cluster stands, None where that cannot be told."""
    try:
        raw = member.cluster_queues.named(cluster_queue)
        return (member.name, member.root(raw)) if raw else None
    except UNREADABLE:
        return None
