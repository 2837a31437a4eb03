"""Which keys want a look when something changes: the only use we make of an event.

What a key's decision reads must wake it here; what is missed is caught by the resync. Nothing here reads a body for
more than finding those keys.
"""

from collections.abc import Callable, Iterable

from adapter import names
from adapter.facts import Key, Raw, annotation, condition, controller_uid, is_true, key_of, label, meta, uid_of
from adapter.groupworkload import reservation
from adapter.placement import placement
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home, by_ray_cluster
from adapter.shell.member import by_placement
from adapter.shell.queue import WorkQueue
from adapter.shell.sweeper import BEREFT_SECONDS
from adapter.workload import workload

QueueKey = tuple[str, str, str]  # what, namespace, name
GANG, POD, CLUSTER, CHECK, QUEUE, ANCHOR = "gang", "pod", "cluster", "check", "queue", "anchor"
# A pod that starts changes its status several times within a fraction of a second; one write tells of all of them. Nobody
# waits for less than this: KubeRay and people look at seconds.
BURST_SECONDS = 0.3
# Kueue counts in bursts, too, and every plan reads all queues: one look at a burst is enough.
ROOM_SECONDS = 0.5


class Waker:
    """Turns changes into keys of the work queue."""

    def __init__(self, queue: WorkQueue[QueueKey], home: Home, fleet: Fleet) -> None:
        self._queue, self._home, self._fleet = queue, home, fleet
        self._by_store: dict[str, Callable[[Raw | None, Raw | None], None]] = {
            "workloads": self._workload,
            "placements": self._placement,
            "pods": self._pod,
            "heads": self._head,
            "ray_clusters": self._ray_cluster,
            "ray_jobs": self._job,
            "worker_clusters": self._worker_cluster,
            "secrets": lambda *_: self._all(CLUSTER, self._home.worker_clusters),
            "multikueue_clusters": lambda *_: self._all(CLUSTER, self._home.worker_clusters),
            "multikueue_configs": self._config,
            "checks": self._check,
            "policies": lambda *_: self._policies(),
            "gate_policies": lambda *_: self._checks(self._home.checks),
            "gate_bindings": lambda *_: self._checks(self._home.checks),
            "cluster_queues": self._cluster_queue,
            "local_queues": self._local_queue,
            "flavors": self._layout,
        }

    def heard(self, store: str, before: Raw | None, after: Raw | None) -> None:
        """Something changed in the manager cluster."""
        handle = self._by_store.get(store)
        if handle:
            handle(before, after)

    def reservation(self, cluster: str, before: Raw | None, after: Raw | None) -> None:
        """A share changed in a worker cluster."""
        raw = after or before or {}
        self._owner_of_share(raw)
        if _changed(before, after, lambda share: _share_facts(cluster, share)):
            for place in self._home.placements.group(f"{key_of(raw)[0]}/{annotation(raw, names.WORKLOAD_ANNOTATION)}"):
                self._all(POD, self._home.pods.group("/".join(key_of(place))))
        if after is None:  # its anchor went before it, unless somebody else deleted it
            namespace, name = key_of(raw)
            self._queue.add((ANCHOR, namespace, f"{cluster}/{name}"), BEREFT_SECONDS)

    def remote_pod(self, _: str, before: Raw | None, after: Raw | None) -> None:
        """A copy changed in a worker cluster."""
        if after is None:
            self._pod(before, after)
            place = self._home.placements.get((key_of(before or {})[0], label(before or {}, names.PLACEMENT_LABEL)))
            if place:  # was it the last one of a share that was evicted?
                self._gang_of(place, BURST_SECONDS)
        else:
            namespace, name = key_of(after)
            self._queue.add((POD, namespace, name), BURST_SECONDS)

    def room(self, _: str, before: Raw | None, after: Raw | None) -> None:
        """A queue, cohort, flavor, namespace or node of a worker cluster changed."""
        if _changed(before, after, _room_facts):
            self._room()
        if _changed(before, after, lambda queue: queue.get("spec")):
            self._quotas()

    def turns(self) -> None:
        """A gang that waits for a Secret or ConfigMap of its own takes no room from those behind it, or takes it again."""
        self._room()

    def head_mirror(self, before: Raw | None, after: Raw | None) -> None:
        """A Service or EndpointSlice that mirrors a head changed in a worker cluster: whoever made it that way, it must be right.

        Not at once: somebody over there who undoes what we write would else be answered as fast as both can.
        """
        raw = before or after or {}
        self._of_ray_cluster(f"{key_of(raw)[0]}/{label(raw, names.RAY_CLUSTER_LABEL)}", BURST_SECONDS)

    def unseen(self, pod: Raw) -> None:
        """Ray's head tells something new of a pod whose worker cluster cannot be seen."""
        self._add(POD, pod)

    def refused(self, key: Key) -> None:
        """Something could not be done for a pod: its gang may have to go elsewhere."""
        pod = self._home.pods.get(key) or {}
        place = self._home.placements.get((key[0], label(pod, names.PLACEMENT_LABEL)))
        if place:
            self._gang_of(place, BURST_SECONDS)

    def contact(self, cluster: str) -> None:
        """A worker cluster came into sight or fell silent: all that touches it wants a look."""
        self._fleet.room_version += 1
        self._queue.add((CLUSTER, "", cluster))
        self._all(GANG, self._home.workloads)
        self._all(POD, self._home.pods)
        self._member(cluster)
        self._quotas()

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
        self._quotas()

    def _add(self, what: str, raw: Raw, after: float = 0.0) -> None:
        namespace, name = key_of(raw)
        self._queue.add((what, namespace, name), after)

    def _all(self, what: str, objects: Iterable[Raw], after: float = 0.0) -> None:
        for raw in objects:
            self._add(what, raw, after)

    def _member(self, cluster: str) -> None:
        member = self._fleet.members().get(cluster)
        if member:
            self._all(POD, member.pods)
            for raw in member.workloads:
                self._owner_of_share(raw)

    def _owner_of_share(self, raw: Raw) -> None:
        self._queue.add((GANG, key_of(raw)[0], annotation(raw, names.WORKLOAD_ANNOTATION)))

    def _workload(self, before: Raw | None, after: Raw | None) -> None:
        self._add(GANG, after or before or {})
        if before is not None and self._is_ours(before) and _changed(before, after, _turn_facts):
            self._room()  # those behind it were planned as if it took its share, or kept room free for it

    def _is_ours(self, work: Raw) -> bool:
        listed = (self._home.checks.named(entry.get("name") or "") for entry in _checks_on(work))
        return any((check or {}).get("spec", {}).get("controllerName") == names.CONTROLLER_NAME for check in listed)

    def _placement(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        self._gang_of(raw)
        if _changed(before, after, _held):
            for cluster in {share.cluster for one in (before, after) if one for share in placement(one).shares}:
                self._queue.add((CLUSTER, "", cluster), ROOM_SECONDS)
        if _changed(before, after, lambda place: place.get("spec")):
            self._all(POD, self._home.pods.group("/".join(key_of(raw))))
            if ((before or {}).get("spec") or {}).get("shares"):  # what it was promised is free for others
                self._room()

    def _gang_of(self, place: Raw, after: float = 0.0) -> None:
        owner = (place.get("spec") or {}).get("workload") or {}
        self._queue.add((GANG, key_of(place)[0], owner.get("name") or ""), after)

    def _pod(self, before: Raw | None, after: Raw | None) -> None:
        raw = after or before or {}
        self._add(POD, raw)
        place = self._home.placements.get((key_of(raw)[0], label(raw, names.PLACEMENT_LABEL)))
        if place and _changed(before, after, _stand):  # a share may be lost with its last worker, or be left
            self._gang_of(place, BURST_SECONDS)
        if after is None:  # its slot may be free: those without one look for it
            siblings = self._home.pods.group(by_placement(raw))
            self._all(POD, (pod for pod in siblings if not annotation(pod, names.SLOT_ANNOTATION)))

    def _head(self, before: Raw | None, after: Raw | None) -> None:
        if _changed(before, after, _head_facts):
            self._of_ray_cluster(by_ray_cluster(after or before or {}))

    def _ray_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._job(before, after)
        if _changed(before, after, uid_of):
            self._of_ray_cluster("/".join(key_of(after or before or {})))

    def _job(self, before: Raw | None, after: Raw | None) -> None:
        """A RayJob or RayCluster: it came, or goes, and its gang with it."""
        if _changed(before, after, lambda job: (uid_of(job), meta(job).get("deletionTimestamp"))):
            gone = uid_of(before or {}), uid_of(after or {})
            self._all(GANG, (work for work in self._home.workloads if controller_uid(work) in gone))

    def _of_ray_cluster(self, key: str, after: float = 0.0) -> None:
        self._all(POD, (pod for pod in self._home.pods if by_ray_cluster(pod) == key), after)

    def _worker_cluster(self, before: Raw | None, after: Raw | None) -> None:
        self._add(CLUSTER, after or before or {})
        if _changed(before, after, lambda cluster: (cluster.get("status") or {}).get("lostSince")):
            self._all(POD, self._home.pods)  # when their workers count as lost is reckoned from it
            self._all(GANG, self._home.workloads)
        if _changed(before, after, lambda cluster: condition(cluster, names.REACHABLE).get("status")):
            self._room()  # policies may require it
        if _changed(before, after, lambda cluster: cluster.get("spec")):
            self._policies()  # a selector may choose it now, or not any more

    def _config(self, before: Raw | None, after: Raw | None) -> None:
        if _changed(before, after, lambda config: config.get("spec")):
            self._policies()

    def _check(self, before: Raw | None, after: Raw | None) -> None:
        if _changed(before, after, lambda check: check.get("spec")):
            self._policies()  # it names another policy, or is a rival of another check
        self._checks([after or before or {}])

    def _local_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._layout(before, after)
        self._quotas()

    def _layout(self, before: Raw | None, after: Raw | None) -> None:
        """A queue or a flavor of the manager: its status moves all the time, its layout seldom."""
        if _changed(before, after, lambda raw: (raw.get("spec"), meta(raw).get("labels"))):
            self._policies()

    def _checks(self, checks: Iterable[Raw]) -> None:
        self._all(CHECK, checks)
        self._all(GANG, self._home.workloads)
        self._quotas()

    def _policies(self) -> None:
        """Where gangs may go, in which order and with which of their groups may be another now."""
        self._fleet.room_version += 1
        self._checks(self._home.checks)

    def _cluster_queue(self, before: Raw | None, after: Raw | None) -> None:
        self._layout(before, after)
        self._waiting()
        if _changed(before, after, _quota_facts):
            self._quotas()

    def _quotas(self) -> None:
        """ClusterQueues whose quota is to follow that of the worker clusters."""
        for raw in self._home.cluster_queues:
            if annotation(raw, names.QUOTA_ANNOTATION):
                self._queue.add((QUEUE, "", key_of(raw)[1]), ROOM_SECONDS)

    def _room(self) -> None:
        """What might fit somewhere changed."""
        self._fleet.room_version += 1
        self._waiting()

    def _waiting(self) -> None:
        """Gangs that want a place: room may have come, and is offered by priority, then age."""
        places = [place for place in self._home.placements if self._wants(place)]
        for place in sorted(places, key=self._turn):
            self._gang_of(place, ROOM_SECONDS)

    def _wants(self, place: Raw) -> bool:
        """Whether a gang holds no share, or too few, or must leave a cluster that is drained."""
        spec, draining = place.get("spec") or {}, self._fleet.draining()
        stays = (share for share in spec.get("shares") or () if share.get("cluster") not in draining)
        held = sum(int(group.get("count") or 0) for share in stays for group in share.get("groups") or ())
        return held < int(spec.get("wanted") or 0)

    def _turn(self, place: Raw) -> tuple[int, str]:
        name = ((place.get("spec") or {}).get("workload") or {}).get("name") or ""
        work = self._home.workloads.get((key_of(place)[0], name)) or {}
        # The Workload's age, not the Placement's: one that yielded has a new Placement, and is as old as before.
        return -int((work.get("spec") or {}).get("priority") or 0), str(meta(work).get("creationTimestamp"))


def _changed(before: Raw | None, after: Raw | None, facts: Callable[[Raw], object]) -> bool:
    """Whether the object came, went, or differs in what matters."""
    return before is None or after is None or facts(before) != facts(after)


def _share_facts(cluster: str, raw: Raw) -> object:
    share = reservation(cluster, raw)
    return share.admitted, share.round, share.anchor_uid


def _checks_on(work: Raw) -> Iterable[Raw]:
    return (work.get("status") or {}).get("admissionChecks") or ()


def _turn_facts(raw: Raw) -> object:
    """Whether a gang stands in the order of planning, and where."""
    work = workload(raw)
    return work.holds_quota and not (work.finished or work.deleted), work.priority


def _held(place: Raw) -> object:
    """Where a Placement holds quota, and whether it still does."""
    found = placement(place)
    return found.live, found.status.get("state") == names.ENDED


def _stand(pod: Raw) -> object:
    """What of a manager's pod decides on the fate of its share, and on whose turn it is to move."""
    gone = bool(meta(pod).get("deletionTimestamp")), (pod.get("status") or {}).get("phase")
    return gone, annotation(pod, names.SLOT_ANNOTATION), is_true(pod, "Ready")


def _head_facts(raw: Raw) -> object:
    return (raw.get("status") or {}).get("podIP"), meta(raw).get("deletionTimestamp"), uid_of(raw)


def _quota_facts(raw: Raw) -> object:
    return raw.get("spec"), annotation(raw, names.QUOTA_ANNOTATION)


def _room_facts(raw: Raw) -> object:
    """What of a queue, cohort, flavor, namespace or node decides on room: not the counters that move all the time."""
    status = raw.get("status") or {}
    active = [(c.get("type"), c.get("status")) for c in status.get("conditions") or ()]
    ready = [state for kind, state in active if kind in (names.ACTIVE, "Ready")]
    return raw.get("spec"), status.get("flavorsReservation"), status.get("allocatable"), ready, meta(raw).get("labels")
