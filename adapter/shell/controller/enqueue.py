"""Which keys belong together, and how soon are they due: those of a gang, of a RayCluster, of whoever waits for room?

It puts them into the work queue and reads no event: which of them a change wakes is for event_handlers.py.
"""

from collections.abc import Callable, Iterable, Iterator

from adapter import names
from adapter.objects.placement import gang_name_of
from adapter.objects.unstructured import Key, Raw, annotation, key_of, label, uid_of
from adapter.objects.workload import gang_key
from adapter.planning import ordering
from adapter.shell.clusters.capacity_versions import CohortTree
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_ray_cluster
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.controller.workqueue import WorkQueue
from adapter.shell.observe.planning_order import aged_workload, order_key
from adapter.shell.observe.replan import ReplanCheck
from adapter.shell.supervise import read_each

QueueKey = tuple[str, str, str]  # what, namespace, name
GANG, POD, CLUSTER, CHECK, POLICY, QUEUE, ANCHOR = "gang", "pod", "cluster", "check", "policy", "queue", "anchor"
SERVICE = "service"
# A pod that starts changes its status several times within a fraction of a second; one write tells of all of them. Nobody
# waits for less than this: KubeRay and people look at seconds.
BURST_SECONDS = 0.3
# Kueue counts in bursts, too, and every plan reads all queues: one look at a burst is enough.
CAPACITY_SECONDS = 0.5


class Enqueuer:
    """Adds keys to the work queue, by what they have in common."""

    def __init__(
        self, queue: WorkQueue[QueueKey], manager: ManagerCache, fleet: Fleet, replan_check: ReplanCheck
    ) -> None:
        self._queue, self._manager, self._fleet, self._replan_check = queue, manager, fleet, replan_check

    def single_key(self, kind: str, namespace: str, name: str, delay: float = 0.0) -> None:
        """One key, due after so many seconds."""
        self._queue.add((kind, namespace, name), delay)

    def failed_keys(self, delay: float = 0.0) -> None:
        """Whatever could not be done when it was looked at last."""
        self._queue.retry_failed(delay)

    def object_key(self, kind: str, raw: Raw, delay: float = 0.0) -> None:
        """The key of an object; of a Workload that of its gang."""
        namespace, name = gang_key(raw) if kind == GANG else key_of(raw)
        self._queue.add((kind, namespace, name), delay)

    def object_keys(self, kind: str, objects: Iterable[Raw], delay: float = 0.0) -> None:
        """The keys of objects."""
        for raw in objects:
            self.object_key(kind, raw, delay)

    def spread_objects(self, kind: str, objects: Iterable[Raw], over: float) -> None:
        """The keys of objects, one after the other within so many seconds."""
        for raw, after in _spread_over(objects, over):
            self.object_key(kind, raw, after)

    def spread_services(self, slices: Iterable[Raw], over: float) -> None:
        """The Services that EndpointSlices are of, in the same way."""
        for raw, after in _spread_over(slices, over):
            self.service_of_slice(raw, after)

    def spread_share_gangs(self, shares: Iterable[Raw], over: float) -> None:
        """The gangs that shares were made for, in the same way."""
        for raw, after in _spread_over(shares, over):
            self.gang_of_share(raw, after)

    def gang_of_placement(self, placement: Raw, delay: float = 0.0) -> None:
        """The gang that a Placement stands for."""
        self.single_key(GANG, *_gang_of(placement), delay)

    def gang_of_share(self, raw: Raw, delay: float = 0.0) -> None:
        """The gang that a share, or a copy on it, was made for."""
        self.single_key(GANG, key_of(raw)[0], annotation(raw, names.WORKLOAD_ANNOTATION), delay)

    def service_of_slice(self, endpoint_slice: Raw, delay: float = 0.0) -> None:
        """The Service that an EndpointSlice is of."""
        self.single_key(SERVICE, key_of(endpoint_slice)[0], label(endpoint_slice, names.SERVICE_NAME_LABEL), delay)

    def workers_of_ray_cluster(self, key: str, delay: float = 0.0) -> None:
        """The worker pods of a RayCluster, by namespace and name."""
        self.object_keys(POD, (pod for pod in self._manager.pods if by_ray_cluster(pod) == key), delay)

    def services_of_pod(self, pod: Raw) -> None:
        """The Services that lead to a worker pod, or to others of its RayCluster; in a moment, for one write tells of all of them."""
        self.object_keys(SERVICE, self._manager.services.by_index(by_ray_cluster(pod)), BURST_SECONDS)

    def objects_in_cluster(self, cluster: str, delay: float = 0.0) -> None:
        """What stands in a worker cluster."""
        member = self._fleet.caches().get(cluster)
        if member:
            self.object_keys(POD, member.pods, delay)
            for raw in member.workloads:
                self.gang_of_share(raw, delay)

    def checks_and_dependents(self, checks: Iterable[Raw]) -> None:
        """These AdmissionChecks, and all that depends on any."""
        self.object_keys(CHECK, checks)
        self.object_keys(GANG, self._manager.workloads)
        self.aggregated_queues()

    def policies_and_dependents(self) -> None:
        """Where gangs may go, in which order and with which of their groups may be another now."""
        self._fleet.capacity_versions.mark_all_changed()
        self.object_keys(POLICY, self._manager.policies)
        self.checks_and_dependents(self._manager.checks)

    def aggregated_queues(self, delay: float = CAPACITY_SECONDS) -> None:
        """ClusterQueues whose quota is to follow that of the worker clusters."""
        for raw in self._manager.cluster_queues:
            if annotation(raw, names.QUOTA_ANNOTATION):
                self._queue.add((QUEUE, "", key_of(raw)[1]), max(delay, CAPACITY_SECONDS))

    def gangs_after_capacity_change(self) -> None:
        """What might fit somewhere changed, in a way that any plan may read."""
        self._fleet.capacity_versions.mark_all_changed()
        self._concerned_gangs(self._replan_check.is_affected)

    def gangs_after_usage_change(self, tree: CohortTree) -> None:
        """More or less is in use in a tree of queues in a worker cluster."""
        self._fleet.capacity_versions.mark_tree_changed(tree)
        self._concerned_gangs(self._replan_check.is_affected)

    def gangs_after_promise_change(self) -> None:
        """Gangs are promised something else than before, or come in another order."""
        self._fleet.capacity_versions.mark_promises_changed()
        self._concerned_gangs(self._replan_check.is_affected)

    def waiting_gangs(self) -> None:
        """Gangs that want a place, whatever they wait for."""
        self._concerned_gangs(lambda _: True)

    def _concerned_gangs(self, concerned: Callable[[Raw], bool]) -> None:
        """Those of the gangs that want a place whom it concerns: room may have come, and is offered in their turn, so that whoever is
        planned finds that those before it were."""
        draining = self._fleet.draining()
        wants = read_each(
            "wake",
            self._manager.placements,
            lambda place: ordering.wants_capacity(place, draining) and concerned(place),
        )
        gangs = [_gang_of(place) for place, wanted in wants if wanted]
        works = [raw for key in gangs if (raw := self._manager.gang_workload(key))]
        turns = {uid_of(raw): its for raw, its in read_each("wake", works, self._order_key)}
        known = (raw for raw in works if uid_of(raw) in turns)
        in_turn = map(gang_key, sorted(known, key=lambda raw: turns[uid_of(raw)]))
        for namespace, name in dict.fromkeys([*in_turn, *gangs]):  # of the others nothing is known
            self.single_key(GANG, namespace, name, CAPACITY_SECONDS)

    def _order_key(self, raw: Raw) -> ordering.OrderKey:
        return order_key(self._manager, aged_workload(self._manager, self._manager.read_workload(raw)))


def _spread_over(objects: Iterable[Raw], over: float) -> Iterator[tuple[Raw, float]]:
    """Objects one after the other, each with when it is due within so many seconds."""
    found = list(objects)
    return ((raw, over * number / len(found)) for number, raw in enumerate(found))


def _gang_of(placement: Raw) -> Key:
    """The gang that a Placement was made for."""
    return key_of(placement)[0], gang_name_of(placement)
