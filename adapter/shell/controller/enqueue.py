"""Which keys belong together, and how soon are they due: those of a gang, of a RayCluster, of whoever waits for room?

It puts them into the work queue and reads no event: which of them a change wakes is for event_handlers.py.
"""

from collections.abc import Callable, Iterable, Iterator

from adapter import names
from adapter.objects.placement import gang_of
from adapter.objects.unstructured import Key, Raw, annotation, key_of, label, uid_of
from adapter.objects.workload import gang_key
from adapter.planning import ordering
from adapter.shell.clusters.capacity_versions import Tree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.planning_order import aged, turn
from adapter.shell.observe.replan import Seen
from adapter.shell.supervise import each

QueueKey = tuple[str, str, str]  # what, namespace, name
GANG, POD, CLUSTER, CHECK, POLICY, QUEUE, ANCHOR = "gang", "pod", "cluster", "check", "policy", "queue", "anchor"
SERVICE = "service"
# A pod that starts changes its status several times within a fraction of a second; one write tells of all of them. Nobody
# waits for less than this: KubeRay and people look at seconds.
BURST_SECONDS = 0.3
# Kueue counts in bursts, too, and every plan reads all queues: one look at a burst is enough.
ROOM_SECONDS = 0.5


class Keys:
    """Adds keys to the work queue, by what they have in common."""

    def __init__(self, queue: WorkQueue[QueueKey], manager: Manager, fleet: Fleet, seen: Seen) -> None:
        self._queue, self._manager, self._fleet, self._seen = queue, manager, fleet, seen

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

    def spread(self, what: str, objects: Iterable[Raw], over: float) -> None:
        """The keys of objects, one after the other within so many seconds."""
        for raw, after in _spread(objects, over):
            self.add(what, raw, after)

    def spread_services(self, slices: Iterable[Raw], over: float) -> None:
        """The Services that EndpointSlices are of, in the same way."""
        for raw, after in _spread(slices, over):
            self.service_of(raw, after)

    def spread_owners(self, shares: Iterable[Raw], over: float) -> None:
        """The gangs that shares were made for, in the same way."""
        for raw, after in _spread(shares, over):
            self.owner_of_share(raw, after)

    def gang_of(self, place: Raw, after: float = 0.0) -> None:
        """The gang that a Placement stands for."""
        self.named(GANG, *_gang(place), after)

    def owner_of_share(self, raw: Raw, after: float = 0.0) -> None:
        """The gang that a share, or a copy on it, was made for."""
        self.named(GANG, key_of(raw)[0], annotation(raw, names.WORKLOAD_ANNOTATION), after)

    def service_of(self, endpoint_slice: Raw, after: float = 0.0) -> None:
        """The Service that an EndpointSlice is of."""
        self.named(SERVICE, key_of(endpoint_slice)[0], label(endpoint_slice, names.SERVICE_NAME_LABEL), after)

    def of_ray_cluster(self, key: str, after: float = 0.0) -> None:
        """The worker pods of a RayCluster, by namespace and name."""
        self.all(POD, (pod for pod in self._manager.pods if by_ray_cluster(pod) == key), after)

    def services_of(self, pod: Raw) -> None:
        """The Services that lead to a worker pod, or to others of its RayCluster; in a moment, for one write tells of all of them."""
        self.all(SERVICE, self._manager.services.group(by_ray_cluster(pod)), BURST_SECONDS)

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
        self._fleet.room.changed()
        self.all(POLICY, self._manager.policies)
        self.checks(self._manager.checks)

    def quotas(self, after: float = ROOM_SECONDS) -> None:
        """ClusterQueues whose quota is to follow that of the worker clusters."""
        for raw in self._manager.cluster_queues:
            if annotation(raw, names.QUOTA_ANNOTATION):
                self._queue.add((QUEUE, "", key_of(raw)[1]), max(after, ROOM_SECONDS))

    def room(self) -> None:
        """What might fit somewhere changed, in a way that any plan may read."""
        self._fleet.room.changed()
        self._wake(self._seen.news)

    def used(self, tree: Tree) -> None:
        """More or less is in use in a tree of queues in a worker cluster."""
        self._fleet.room.used(tree)
        self._wake(self._seen.news)

    def promised(self) -> None:
        """Gangs are promised something else than before, or come in another order."""
        self._fleet.room.promised()
        self._wake(self._seen.news)

    def waiting(self) -> None:
        """Gangs that want a place, whatever they wait for."""
        self._wake(lambda _: True)

    def _wake(self, concerned: Callable[[Raw], bool]) -> None:
        """Those of the gangs that want a place whom it concerns: room may have come, and is offered in their turn, so that whoever is
        planned finds that those before it were."""
        draining = self._fleet.draining()
        wants = each(
            "wake", self._manager.placements, lambda place: ordering.short(place, draining) and concerned(place)
        )
        gangs = [_gang(place) for place, wanted in wants if wanted]
        works = [raw for key in gangs if (raw := self._manager.gang(key))]
        turns = {uid_of(raw): its for raw, its in each("wake", works, self._turn)}
        known = (raw for raw in works if uid_of(raw) in turns)
        in_turn = map(gang_key, sorted(known, key=lambda raw: turns[uid_of(raw)]))
        for namespace, name in dict.fromkeys([*in_turn, *gangs]):  # of the others nothing is known
            self.named(GANG, namespace, name, ROOM_SECONDS)

    def _turn(self, raw: Raw) -> ordering.Turn:
        return turn(self._manager, aged(self._manager, self._manager.work(raw)))


def _spread(objects: Iterable[Raw], over: float) -> Iterator[tuple[Raw, float]]:
    """Objects one after the other, each with when it is due within so many seconds."""
    found = list(objects)
    return ((raw, over * number / len(found)) for number, raw in enumerate(found))


def _gang(place: Raw) -> Key:
    """The gang that a Placement was made for."""
    return key_of(place)[0], gang_of(place)
