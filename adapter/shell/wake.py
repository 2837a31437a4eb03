"""Which keys want a look when something changes: the only use we make of an event.

What a key's decision reads must wake it here; what is missed is caught by the resync. Nothing here reads a body for
more than finding those keys.
"""

from collections.abc import Callable, Iterable

from adapter import names
from adapter.facts import Raw, annotation, key_of, meta
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home, by_ray_cluster
from adapter.shell.member import by_placement
from adapter.shell.queue import WorkQueue

QueueKey = tuple[str, str, str]  # what, namespace, name
GANG, POD, CLUSTER, CHECK = "gang", "pod", "cluster", "check"
# A pod that starts changes its status several times within a fraction of a second; one write tells of all of them. Nobody
# waits for less than this: KubeRay and people look at seconds.
BURST_SECONDS = 0.3


class Waker:
    """Turns changes into keys of the work queue."""

    def __init__(self, queue: WorkQueue[QueueKey], home: Home, fleet: Fleet) -> None:
        self._queue, self._home, self._fleet = queue, home, fleet
        self._by_store: dict[str, Callable[[Raw, bool], None]] = {
            "workloads": lambda raw, _: self._add(GANG, raw),
            "placements": lambda raw, _: self._placement(raw),
            "pods": self._pod,
            "heads": lambda raw, _: self._ray_cluster(by_ray_cluster(raw)),
            "ray_clusters": lambda raw, _: self._ray_cluster("/".join(key_of(raw))),
            "worker_clusters": lambda raw, _: self._configuration(CLUSTER, [raw]),
            "secrets": lambda *_: self._configuration(CLUSTER, self._home.worker_clusters),
            "checks": lambda raw, _: self._configuration(CHECK, [raw]),
            "policies": lambda *_: self._configuration(CHECK, self._home.checks),
            "gate_policies": lambda *_: self._configuration(CHECK, self._home.checks),
            "gate_bindings": lambda *_: self._configuration(CHECK, self._home.checks),
            "cluster_queues": lambda *_: self._waiting(),
        }

    def heard(self, store: str, before: Raw | None, after: Raw | None) -> None:
        """Something changed in the manager cluster."""
        handle = self._by_store.get(store)
        if handle:
            handle(after or before or {}, after is None)

    def reservation(self, _: str, before: Raw | None, after: Raw | None) -> None:
        """A share changed in a worker cluster."""
        raw = after or before or {}
        self._owner_of_share(raw)
        for place in self._home.placements.group(f"{key_of(raw)[0]}/{annotation(raw, names.WORKLOAD_ANNOTATION)}"):
            self._pods(self._home.pods.group("/".join(key_of(place))))

    def remote_pod(self, _: str, before: Raw | None, after: Raw | None) -> None:
        """A copy changed in a worker cluster."""
        if after is None:
            self._pod(before or {}, gone=True)
        else:
            namespace, name = key_of(after)
            self._queue.add((POD, namespace, name), BURST_SECONDS)

    def room(self, _: str, before: Raw | None, after: Raw | None) -> None:
        """A queue, cohort, flavor or namespace of a worker cluster changed."""
        if before is None or after is None or _room_facts(before) != _room_facts(after):
            self._fleet.room_version += 1
            self._waiting()

    def contact(self, cluster: str) -> None:
        """A worker cluster came into sight or fell silent: all that touches it wants a look."""
        self._fleet.room_version += 1
        self._queue.add((CLUSTER, "", cluster))
        self._all(GANG, self._home.workloads)
        self._pods(self._home.pods)
        self._member(cluster)

    def everything(self) -> None:
        """Every key there is."""
        for what, store in (
            (CLUSTER, self._home.worker_clusters),
            (CHECK, self._home.checks),
            (GANG, self._home.workloads),
            (POD, self._home.pods),
        ):
            self._all(what, store)
        for cluster in self._fleet.members():
            self._member(cluster)

    def _add(self, what: str, raw: Raw) -> None:
        namespace, name = key_of(raw)
        self._queue.add((what, namespace, name))

    def _all(self, what: str, objects: Iterable[Raw]) -> None:
        for raw in objects:
            self._add(what, raw)

    def _pods(self, pods: Iterable[Raw]) -> None:
        self._all(POD, pods)

    def _member(self, cluster: str) -> None:
        member = self._fleet.members().get(cluster)
        if member:
            self._pods(member.pods)
            for raw in member.workloads:
                self._owner_of_share(raw)

    def _owner_of_share(self, raw: Raw) -> None:
        self._queue.add((GANG, key_of(raw)[0], annotation(raw, names.WORKLOAD_ANNOTATION)))

    def _placement(self, raw: Raw) -> None:
        owner = (raw.get("spec") or {}).get("workload") or {}
        self._queue.add((GANG, key_of(raw)[0], owner.get("name") or ""))
        self._pods(self._home.pods.group("/".join(key_of(raw))))

    def _pod(self, raw: Raw, gone: bool) -> None:
        self._add(POD, raw)
        if gone:  # its slot may be free: those without one look for it
            siblings = self._home.pods.group(by_placement(raw))
            self._pods(pod for pod in siblings if not annotation(pod, names.SLOT_ANNOTATION))

    def _ray_cluster(self, key: str) -> None:
        self._pods(pod for pod in self._home.pods if by_ray_cluster(pod) == key)

    def _configuration(self, what: str, objects: Iterable[Raw]) -> None:
        self._all(what, objects)
        self._all(GANG, self._home.workloads)

    def _waiting(self) -> None:
        """Gangs that hold no share: room may have come."""
        for place in self._home.placements:
            if not (place.get("spec") or {}).get("shares"):
                self._placement(place)


def _room_facts(raw: Raw) -> object:
    """What of a queue, cohort, flavor or namespace decides on room: not the counters that move all the time."""
    status = raw.get("status") or {}
    active = [(c.get("type"), c.get("status")) for c in status.get("conditions") or ()]
    return raw.get("spec"), status.get("flavorsReservation"), active, meta(raw).get("labels")
