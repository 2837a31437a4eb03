"""Which slots of a Placement are held, and by whom?

A slot is a worker's place on a share. It is held by the manager's pod that carries it, by that pod's copy (also in a
cluster that is silent now), and by whoever is just being given it: between a decision and the answer to its write, no store
shows it.

A slot that a pod came with counts as held by it, whether or not it is its own: who cannot have it is one without a slot to those who
decide, and gets another one.

A label and an annotation are easily forged: a pod that is known not to be of the job's RayCluster keeps no share. It may keep a slot,
and then another one is taken: a gang has thousands of pods, and whose each of them is, is not asked for every slot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from adapter import names
from adapter.actions import Action, AssignSlot
from adapter.gang import drain_order
from adapter.gang.drain_order import Gathered
from adapter.objects import raycluster
from adapter.objects.placement import Placement, ShareKey
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Key, Raw, key_of, label, true_since, uid_of
from adapter.objects.worker_pod import (
    Slot,
    dispatched,
    ended,
    gone,
    in_place,
    leaving,
    slot_cluster,
    slot_of,
    slot_share,
    waits_for_quota,
    without_slot,
)  # fmt: skip
from adapter.objects.workload import Job, job_of
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_placement, by_ray_cluster
from adapter.shell.clusters.manager_cache import Manager
from adapter.shell.clusters.worker_cache import Member
from adapter.shell.observe.transient_state import Memory
from adapter.worker import template_slots
from adapter.worker.template_slots import Ground


@dataclass(frozen=True, slots=True)
class _Stands:
    """What a gang asks of each of its pods."""

    pod: Raw
    share: ShareKey | None  # None: it has no slot
    living: bool  # it neither ended nor is it being deleted
    dispatched: bool
    waits: bool  # for the manager's quota
    in_place: bool


def _stands(pod: Raw) -> _Stands:
    living = not (leaving(pod) or ended(pod))
    return _Stands(pod, slot_share(pod), living, dispatched(pod), waits_for_quota(pod), in_place(pod))


class Claims:
    """Slots by the pod that is about to hold them."""

    def __init__(self) -> None:
        self.changes = 0
        self._held: dict[str, tuple[str, Slot]] = {}  # pod uid -> Placement's key, slot

    def take(self, actions: list[Action]) -> list[Action]:
        """Claim what these actions assign; call it with no await since the facts were read."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self.changes += 1
                self._held[uid_of(action.pod)] = (by_placement(action.pod), action.slot)
        return actions

    def release(self, actions: list[Action]) -> None:
        """The writes are done, or failed: the stores tell the truth again."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self.changes += 1
                self._held.pop(uid_of(action.pod), None)

    def slots(self, place: str, *, but: str | None) -> frozenset[Slot]:
        """The slots of a Placement (by its key) that other pods than `but` (a uid, or None) are about to hold."""
        return frozenset(slot for uid, (where, slot) in self._held.items() if where == place and uid != but)


class Slots:
    """Reads the manager's and the members' pods."""

    def __init__(self, manager: Manager, fleet: Fleet, claims: Claims, memory: Memory) -> None:
        self._manager, self._fleet, self._claims, self._memory = manager, fleet, claims, memory
        # The pods of a Placement, and as of which changes.
        self._read: tuple[Placement | None, object, list[Raw]] = None, None, []
        self._stood: tuple[list[Raw], list[_Stands]] = [], []  # the same pods, and how they stand

    def standing(self, place: Placement, pod: Raw) -> Raw:
        """A pod as it counts: without the slot that it came with, where that is not its own."""
        return self._standing(place, [pod])[0]

    def _standing(self, place: Placement, pods: Iterable[Raw]) -> list[Raw]:
        """The same of some pods of a Placement, of which there may be thousands."""
        seen, draining = self._fleet.seen(), self._fleet.draining()
        counts, about = self._counts(_group(place)), self._claims.slots(_group(place), but=None)

        def is_own(pod: Raw) -> bool:
            if not template_slots.in_doubt(pod):
                return True
            slot = slot_of(pod)
            alone = slot is None or (slot not in about and _holders(counts, slot) <= 1)  # which it is mostly
            shared = not alone and self.shared(pod)
            return template_slots.is_own(place, pod, self._ground(pod, seen.get(slot_cluster(pod)), shared, draining))

        return [pod if is_own(pod) else without_slot(pod) for pod in pods]

    def _ground(self, pod: Raw, member: Member | None, shared: bool, draining: Collection[str]) -> Ground:
        uid, memory = uid_of(pod), self._memory
        copy = member.pods.get(key_of(pod)) if member else None
        return Ground(
            copied=bool(copy and label(copy, names.POD_UID_LABEL) == uid) or uid in memory.made,
            seen=member is not None,
            sent=member is None and self.may_be_sent(pod),
            unanswered=uid in memory.unanswered,
            shared=shared,
            draining=draining,
        )

    def may_be_sent(self, pod: Raw) -> bool:
        """Whether somebody, this process or one that led before, may have sent a pod's copy anywhere."""
        memory = self._memory
        return template_slots.may_be_sent(pod, sent=uid_of(pod) in memory.sent, leads_since=memory.leads_since)

    def _counts(self, group: str) -> list[Mapping[Slot, int]]:
        members = self._fleet.members().values()
        return [self._manager.pods.count(group), *(member.pods.count(group) for member in members)]

    def shared(self, pod: Raw) -> bool:
        """Whether somebody else holds a pod's slot, too, or is about to."""
        group, slot = by_placement(pod), slot_of(pod)
        if slot is None:
            return False
        held = _holders(self._counts(group), slot)
        return held > self._own(pod)[slot] or slot in self._claims.slots(group, but=uid_of(pod))

    def taken(self, pod: Raw) -> frozenset[Slot]:
        """The slots of a pod's Placement that others hold: asked for each pod of a large gang, so all are not read each time."""
        group, uid = by_placement(pod), uid_of(pod)
        counts = self._counts(group)
        alone = {slot for slot, held in self._own(pod).items() if _holders(counts, slot) <= held}
        return frozenset[Slot]().union(*counts) - alone | self._claims.slots(group, but=uid)

    def yielded(self, place: Placement, pod: Raw) -> bool:
        """Whether all others that have a pod's slot only came with it, and are to have another one: one that was written goes before.
        Else each would wait for the other one, where no slot is free but this."""
        group, slot, uid = by_placement(pod), slot_of(pod), uid_of(pod)
        if slot is None or template_slots.in_doubt(pod) or slot in self._claims.slots(group, but=uid):
            return False
        held = _holders(self._counts(group), slot)
        others = [one for one in self._manager.pods.having(group, str(slot)) if uid_of(one) != uid]
        if held > self._own(pod)[slot] + len(others):  # a copy that is none of its own
            return False
        return not any(map(slot_of, self._standing(place, others)))

    def _own(self, pod: Raw) -> Counter[Slot]:
        """The slots of its Placement that a pod and its copies carry, and how many of them each."""
        group, uid = by_placement(pod), uid_of(pod)
        stores = [self._manager.pods, *(member.pods for member in self._fleet.members().values())]
        mine = (one for store in stores if (one := store.get(key_of(pod))) and uid in _uids(one))
        return Counter(slot for one in mine if by_placement(one) == group and (slot := slot_of(one)))

    def held(self, place: Placement) -> frozenset[Slot]:
        """The slots of a Placement that are held."""
        members = self._fleet.members().values()
        here, there = self._manager.pods.count(_group(place)), (member.pods.count(_group(place)) for member in members)
        return frozenset(here).union(*there, self._claims.slots(_group(place), but=None))

    def occupied(self, place: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement of which a slot is held, though not by a pod that only says so."""
        about = (slot.share for slot in self._claims.slots(_group(place), but=None))
        return self.here(place).union(self.there(place), about)

    def here(self, place: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that a pod of the manager is on, also one that has ended."""
        return self._on(place, self._seen(place))

    def there(self, place: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that a copy is on, in clusters that can be seen or were."""
        group = _group(place)
        counts = (one.pods.count(group) for one in self._fleet.members().values())
        return frozenset(slot.share for count in counts for slot in count)

    def ending(self, share: Reservation, now: datetime) -> tuple[Raw, ...]:
        """The copies on a share of a cluster that can be seen, but for those that have ended, or count as gone: they hold its
        quota. Of a large gang they are gathered for a share that is to go, and not at each look."""
        pods = self._fleet.members()[share.cluster].pods.group(f"{share.namespace}/{share.placement}")
        on_it = (pod for pod in pods if slot_share(pod) == share.key)
        return tuple(pod for pod in on_it if not ended(pod) and not gone(pod, now))

    def alive(self, place: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that its living pods are on."""
        return self._on(place, (one for one in self._seen(place) if one.living))

    def dispatched(self, place: Placement) -> frozenset[ShareKey]:
        """The shares of a Placement that a copy of a living pod was seen on: also where this process has not seen the cluster."""
        return self._on(place, (one for one in self._seen(place) if one.living and one.dispatched))

    def unplaced(self, place: Placement) -> bool:
        """Whether a living pod has no slot, and the manager's quota for one."""
        return any(one.living and not (one.share or one.waits) for one in self._seen(place))

    def living(self, place: Placement) -> list[Raw]:
        """The pods of a Placement in the manager cluster that neither ended nor are being deleted."""
        return [one.pod for one in self._seen(place) if one.living]

    def _pods(self, place: Placement) -> list[Raw]:
        """The pods of a Placement in the manager cluster, as they count: a look at a gang asks for them again and again."""
        if not (there := self._manager.pods.group(_group(place))):
            return []  # as of each gang that waits: what else could change need not be asked of a hundred clusters
        known, as_of, pods = self._read
        now = self._as_of()
        if known is not place or as_of != now:
            pods = self._standing(place, there)
            self._read = place, now, pods
        return pods

    def _as_of(self) -> object:
        stores = (self._manager.pods, *(member.pods for member in self._fleet.members().values()))
        changes = self._claims.changes, frozenset(self._memory.unanswered), *(store.changes for store in stores)
        return changes, frozenset(self._fleet.seen()), self._fleet.draining()

    def movers(self, place: Placement, standing: Iterable[Reservation]) -> tuple[tuple[str, Raw], ...]:
        """The copies that are to leave clusters which are drained, now, by cluster and copy; `standing` is what stands for its
        Workload."""
        members = self._fleet.members()
        draining = {name: members[name].spec.max_unavailable for name in self._fleet.draining()}
        if not draining:  # most of the time, and then a large gang is not gathered
            return ()
        return drain_order.movers(self._gather(place, standing), draining)

    def unready(self, place: Placement, standing: Iterable[Reservation]) -> Gathered | None:
        """The workers of a Placement; None while all that its RayCluster is to have are ready, and then they are not gathered."""
        seen = self._seen(place)
        pods, ready = [one.pod for one in seen], sum(one.in_place for one in seen)
        settled = ready == len(pods) and ready >= self._desired(pods, place)
        return None if settled else self._gather(place, standing)

    def _gather(self, place: Placement, standing: Iterable[Reservation]) -> Gathered:
        pods = self._pods(place)
        admitted = {one.key for one in standing if one.placement == place.name and one.admitted}
        desired, head = self._desired(pods, place), self._head(pods)
        since = true_since(head, "Ready") if head else None
        return Gathered(place, pods, self._copies(pods), self.held(place), admitted, desired, since)

    def _seen(self, place: Placement) -> list[_Stands]:
        """How the pods of a Placement stand, as they count: a gang's look asks several times, and each was read once for each of its
        versions."""
        pods = self._pods(place)
        known, stands = self._stood
        if known is not pods:
            stands = [self._manager.pods.reading(pod, _stands) for pod in pods]
            self._stood = pods, stands
        return stands

    def _on(self, place: Placement, pods: Iterable[_Stands]) -> frozenset[ShareKey]:
        """The shares that these pods of a Placement are on, but for those that only say so; while its job is not known, nobody does."""
        job, found = place.job or self._job(place), set[ShareKey]()
        for one in pods:
            if one.share and one.share not in found and self._is_of(job, one.pod):  # once for each share, mostly
                found.add(one.share)
        return frozenset(found)

    def _is_of(self, job: Job | None, pod: Raw) -> bool:
        return job is None or raycluster.belongs(pod, self._manager.ray_cluster(pod), job) is not False

    def _job(self, place: Placement) -> Job | None:
        work = self._manager.workloads.get((place.namespace, place.workload))
        return job_of(work) if work else None

    def _head(self, pods: Iterable[Raw]) -> Raw | None:
        """The head that these pods join."""
        first = next((pod for pod in pods if not leaving(pod)), None)
        return raycluster.head(first, self._manager.heads.group(by_ray_cluster(first))) if first else None

    def _copies(self, pods: Iterable[Raw]) -> dict[Key, Raw]:
        """What stands for each of these pods in the cluster of its slot, by the pod's key."""
        members = self._fleet.members()
        there = ((key_of(pod), members.get(slot_cluster(pod))) for pod in pods)
        return {key: copy for key, member in there if member and (copy := member.pods.get(key))}

    def _desired(self, pods: Iterable[Raw], place: Placement) -> int:
        """How many workers of the Placement's groups their RayCluster is to have."""
        first = min(pods, key=key_of, default={})
        raw = self._manager.ray_cluster(first) or {}
        return raycluster.workers(raw, {group.name for share in place.shares for group in share.groups})


def _group(place: Placement) -> str:
    return f"{place.namespace}/{place.name}"


def _holders(counts: Iterable[Mapping[Slot, int]], slot: Slot) -> int:
    return sum(count.get(slot, 0) for count in counts)


def _uids(pod: Raw) -> tuple[str, str]:
    """A pod's own, and whose copy it is."""
    return uid_of(pod), label(pod, names.POD_UID_LABEL)
