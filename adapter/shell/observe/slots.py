"""Which slots of a Placement are held, by whom, and whose turn is it to leave a cluster that is drained?

A slot is a worker's place on a share. It is held by the manager's pod that carries it, by that pod's copy (also in a
cluster that is silent now), and by whoever is just being given it: between a decision and the answer to its write, no store
shows it.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from adapter import names
from adapter.actions import Action, AssignSlot
from adapter.objects.placement import Placement
from adapter.objects.raw import Raw, is_true, key_of, label, uid_of
from adapter.objects.workerpod import ended, group_of, leaving, share_key, slot_of, slots_on
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.indexes import by_placement
from adapter.shell.clusters.manager import Home

Shares = frozenset[tuple[str, int]]  # by cluster and round


class Claims:
    """Slots by the pod that is about to hold them."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, str]] = {}  # pod uid -> Placement's key, slot

    def take(self, actions: list[Action]) -> list[Action]:
        """Claim what these actions assign; call it with no await since the facts were read."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self._held[uid_of(action.pod)] = (by_placement(action.pod), action.slot)
        return actions

    def release(self, actions: list[Action]) -> None:
        """The writes are done, or failed: the stores tell the truth again."""
        for action in actions:
            if isinstance(action, AssignSlot):
                self._held.pop(uid_of(action.pod), None)

    def slots(self, place: str, *, but: str | None) -> frozenset[str]:
        """The slots of a Placement (by its key) that other pods than `but` (a uid, or None) are about to hold."""
        return frozenset(slot for uid, (where, slot) in self._held.items() if where == place and uid != but)


class Slots:
    """Reads the manager's and the members' pods."""

    def __init__(self, home: Home, fleet: Fleet, claims: Claims) -> None:
        self._home, self._fleet, self._claims = home, fleet, claims

    def taken(self, pod: Raw) -> frozenset[str]:
        """The slots of a pod's Placement that others hold: asked for each pod of a large gang, so all are not read each time."""
        group, uid = by_placement(pod), uid_of(pod)
        stores = [self._home.pods, *(member.pods for member in self._fleet.members().values())]
        mine = (one for store in stores if (one := store.get(key_of(pod))) and uid in _uids(one))
        own = Counter(slot_of(one) for one in mine if by_placement(one) == group)
        counts = [store.count(group) for store in stores]
        alone = {slot for slot, held in own.items() if sum(count.get(slot, 0) for count in counts) <= held}
        return frozenset[str]().union(*counts) - alone | self._claims.slots(group, but=uid)

    def held(self, place: Placement) -> frozenset[str]:
        """The slots of a Placement that are held."""
        members = self._fleet.members().values()
        here, there = self._home.pods.count(_group(place)), (member.pods.count(_group(place)) for member in members)
        return frozenset(here).union(*there, self._claims.slots(_group(place), but=None))

    def there(self, place: Placement) -> frozenset[str]:
        """The slots of a Placement that a copy is on, in clusters that can be seen or were."""
        return frozenset[str]().union(*(one.pods.count(_group(place)) for one in self._fleet.members().values()))

    def alive(self, place: Placement) -> frozenset[str]:
        """The slots of a Placement that its living pods hold."""
        return frozenset(slot for one in self.living(place) if (slot := slot_of(one)))

    def unplaced(self, place: Placement) -> bool:
        """Whether a living pod has no slot."""
        return any(not slot_of(one) for one in self.living(place))

    def living(self, place: Placement) -> list[Raw]:
        """The pods of a Placement in the manager cluster that neither ended nor are being deleted."""
        pods = self._home.pods.group(_group(place))
        return [one for one in pods if not (leaving(one) or ended(one))]

    def movers(self, place: Placement, admitted: Shares) -> tuple[tuple[str, Raw], ...]:
        """The copies that are to leave clusters which are drained, now, by cluster and copy.

        Only where a worker of the group has a place to go to; and no more at once than may be away, counting those that
        KubeRay has yet to make. One that is not ready is away already: it goes first, and costs nobody a turn.
        """
        members = self._fleet.members()
        draining = {name: members[name] for name in self._fleet.draining()}
        if not draining:
            return ()
        pods = sorted(self._home.pods.group(_group(place)), key=key_of)
        free, found = self._free(place, admitted, draining), []
        away = min(place.wanted, self._desired(pods, place)) - sum(self._serves(pod) for pod in pods)
        for pod in sorted(pods, key=self._serves):
            cluster, group = share_key(slot_of(pod))[0], group_of(pod)
            copy = draining[cluster].pods.get(key_of(pod)) if cluster in draining else None
            if copy is None or leaving(copy) or not free[group]:
                continue
            if self._serves(pod):
                if away >= draining[cluster].spec.max_unavailable:
                    continue
                away = max(away, 0) + 1
            free[group] -= 1
            found.append((cluster, copy))
        return tuple(found)

    def _serves(self, pod: Raw) -> bool:
        """Whether a worker is ready, and not about to go; what it says of itself is older than what becomes of its copy."""
        member = self._fleet.members().get(label(pod, names.CLUSTER_LABEL))
        copy = member and member.pods.get(key_of(pod))
        return bool(copy) and is_true(pod, "Ready") and not (leaving(pod) or leaving(copy or {}))

    def _free(self, place: Placement, admitted: Shares, draining: Collection[str]) -> Counter[str]:
        """How many workers of each group have a place to go to."""
        held, free = self.held(place), Counter[str]()
        for share in place.live:
            key = share.cluster, place.round_of(share)
            if key in admitted and share.cluster not in draining:
                for group in share.groups:
                    free[group.name] += sum(slot not in held for slot in slots_on(place, share, group))
        return free

    def _desired(self, pods: Sequence[Raw], place: Placement) -> int:
        """How many workers of the Placement's groups their RayCluster is to have, as KubeRay reckons."""
        name = label(pods[0], names.RAY_GCS_CLUSTER_LABEL) if pods else ""
        raw = self._home.ray_clusters.get((place.namespace, name)) or {}
        ours = {group.name for share in place.shares for group in share.groups}
        groups = (raw.get("spec") or {}).get("workerGroupSpecs") or ()
        return sum(_replicas(group) for group in groups if str(group.get("groupName")).lower() in ours)


def _group(place: Placement) -> str:
    return f"{place.namespace}/{place.name}"


def _uids(pod: Raw) -> tuple[str, str]:
    """A pod's own, and whose copy it is."""
    return uid_of(pod), label(pod, names.POD_UID_LABEL)


def _replicas(group: Raw) -> int:
    """Follows kuberay:controllers/ray/utils/util.go, GetWorkerGroupDesiredReplicas."""
    if group.get("suspend"):
        return 0
    replicas = max(int(group.get("replicas") or 0), int(group.get("minReplicas") or 0))
    return replicas * int(group.get("numOfHosts") or 1)
