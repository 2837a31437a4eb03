"""Which keys belong together, and how soon are they due: those of a gang, of a RayCluster, of whoever waits for room?

It puts them into the work queue and reads no event: which of them a change wakes is for handlers.py.
"""

from collections.abc import Iterable

from adapter import names
from adapter.objects.placement import gang_of
from adapter.objects.raw import Key, Raw, annotation, key_of, meta, uid_of
from adapter.objects.workload import gang_key, workload
from adapter.planning import gangorder
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager import Manager
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.guard import each

QueueKey = tuple[str, str, str]  # what, namespace, name
GANG, POD, CLUSTER, CHECK, QUEUE, ANCHOR = "gang", "pod", "cluster", "check", "queue", "anchor"
# A pod that starts changes its status several times within a fraction of a second; one write tells of all of them. Nobody
# waits for less than this: KubeRay and people look at seconds.
BURST_SECONDS = 0.3
# Kueue counts in bursts, too, and every plan reads all queues: one look at a burst is enough.
ROOM_SECONDS = 0.5


class Keys:
    """Adds keys to the work queue, by what they have in common."""

    def __init__(self, queue: WorkQueue[QueueKey], manager: Manager, fleet: Fleet) -> None:
        self._queue, self._manager, self._fleet = queue, manager, fleet
        self._turns: dict[str, tuple[object, gangorder.Turn]] = {}  # of Workloads that wait, by uid

    def named(self, what: str, namespace: str, name: str, after: float = 0.0) -> None:
        """One key, due after so many seconds."""
        self._queue.add((what, namespace, name), after)

    def failed(self, after: float = 0.0) -> None:
        """Whatever could not be done when it was looked at last."""
        self._queue.retry(after)

    def add(self, what: str, raw: Raw, after: float = 0.0) -> None:
        """The key of an object; of a Workload that of its gang."""
        namespace, name = gang_key(raw) if what == GANG else key_of(raw)
        self._queue.add((what, namespace, name), after)

    def all(self, what: str, objects: Iterable[Raw], after: float = 0.0) -> None:
        """The keys of objects."""
        for raw in objects:
            self.add(what, raw, after)

    def gang_of(self, place: Raw, after: float = 0.0) -> None:
        """The gang that a Placement stands for."""
        self.named(GANG, *_gang(place), after)

    def owner_of_share(self, raw: Raw, after: float = 0.0) -> None:
        """The gang that a share, or a copy on it, was made for."""
        self.named(GANG, key_of(raw)[0], annotation(raw, names.WORKLOAD_ANNOTATION), after)

    def of_ray_cluster(self, key: str, after: float = 0.0) -> None:
        """The worker pods of a RayCluster, by namespace and name."""
        self.all(POD, (pod for pod in self._manager.pods if by_ray_cluster(pod) == key), after)

    def member(self, cluster: str, after: float = 0.0) -> None:
        """What stands in a worker cluster."""
        member = self._fleet.members().get(cluster)
        if member:
            self.all(POD, member.pods, after)
            for raw in member.workloads:
                self.owner_of_share(raw, after)

    def checks(self, checks: Iterable[Raw]) -> None:
        """These AdmissionChecks, and all that depends on any."""
        self.all(CHECK, checks)
        self.all(GANG, self._manager.workloads)
        self.quotas()

    def policies(self) -> None:
        """Where gangs may go, in which order and with which of their groups may be another now."""
        self._fleet.room_version += 1
        self.checks(self._manager.checks)

    def quotas(self, after: float = ROOM_SECONDS) -> None:
        """ClusterQueues whose quota is to follow that of the worker clusters."""
        for raw in self._manager.cluster_queues:
            if annotation(raw, names.QUOTA_ANNOTATION):
                self._queue.add((QUEUE, "", key_of(raw)[1]), max(after, ROOM_SECONDS))

    def room(self) -> None:
        """What might fit somewhere changed."""
        self._fleet.room_version += 1
        self.waiting()

    def waiting(self) -> None:
        """Gangs that want a place: room may have come, and is offered in their turn, so that whoever is planned finds that
        those before it were."""
        draining = self._fleet.draining()
        short = each("wake", self._manager.placements, lambda place: gangorder.short(place, draining))
        gangs = [_gang(place) for place, is_short in short if is_short]
        works = [raw for key in gangs if (raw := self._manager.gang(key))]
        self._turns = {uid_of(raw): turn for raw, turn in each("wake", works, self._turn)}
        known = (raw for raw in works if uid_of(raw) in self._turns)
        in_turn = map(gang_key, sorted(known, key=lambda raw: self._turns[uid_of(raw)][1]))
        for namespace, name in dict.fromkeys([*in_turn, *gangs]):  # of the others nothing is known
            self.named(GANG, namespace, name, ROOM_SECONDS)

    def _turn(self, raw: Raw) -> tuple[object, gangorder.Turn]:
        """A Workload's version, and its turn as of that: reckoned once, for queues tell of themselves every second, and to read a
        thousand Workloads whole would hold up the loop for a fifth of it."""
        version, known = meta(raw).get("resourceVersion"), self._turns.get(uid_of(raw))
        return known if known and version and known[0] == version else (version, gangorder.turn(workload(raw)))


def _gang(place: Raw) -> Key:
    """The gang that a Placement was made for."""
    return key_of(place)[0], gang_of(place)
