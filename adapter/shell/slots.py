"""Which slots of a Placement are held, by whom, and whose turn is it to leave a cluster that is drained?

A slot is a worker's place on a share. It is held by the manager's pod that carries it, by that pod's copy (also in a
cluster that is silent now), and by whoever is just being given it.
"""

from adapter import dispatch, names
from adapter.facts import Placement, Raw, annotation, is_true, key_of, label, meta, share_key, uid_of
from adapter.shell.claims import Claims
from adapter.shell.fleet import Fleet
from adapter.shell.home import Home
from adapter.shell.member import by_placement

Shares = frozenset[tuple[str, int]]  # by cluster and round


class Slots:
    """Reads the manager's and the members' pods."""

    def __init__(self, home: Home, fleet: Fleet, claims: Claims) -> None:
        self._home, self._fleet, self._claims = home, fleet, claims

    def taken(self, pod: Raw) -> frozenset[str]:
        """The slots of a pod's Placement that others hold."""
        return self._of(by_placement(pod), but=uid_of(pod))

    def held(self, place: Placement) -> frozenset[str]:
        """The slots of a Placement that are held."""
        return self._of(_group(place), but=None)

    def there(self, place: Placement) -> frozenset[str]:
        """The slots of a Placement that a copy is on, in clusters that can be seen or were."""
        members = self._fleet.members().values()
        return frozenset[str]().union(*(dispatch.slots_taken(one.pods.group(_group(place))) for one in members))

    def alive(self, place: Placement) -> frozenset[str]:
        """The slots of a Placement whose pods in the manager cluster neither ended nor are being deleted."""
        return dispatch.slots_taken(
            one for one in self._home.pods.group(_group(place)) if not (dispatch.leaving(one) or dispatch.ended(one))
        )

    def unplaced(self, place: Placement) -> bool:
        """Whether a pod in the manager cluster, which neither ended nor is being deleted, has no slot."""
        pods = (
            one for one in self._home.pods.group(_group(place)) if not (dispatch.leaving(one) or dispatch.ended(one))
        )
        return any(not annotation(one, names.SLOT_ANNOTATION) for one in pods)

    def moves(self, pod: Raw, place: Placement, admitted: Shares) -> bool:
        """Whether a pod's copy is to leave its cluster now, which is drained: in the order of names, no more at once than
        may be away, and only where a worker of its group has a place to go to."""
        cluster, _ = share_key(annotation(pod, names.SLOT_ANNOTATION))
        member = self._fleet.members().get(cluster)
        if member is None or not member.spec.draining:
            return False
        siblings = list(self._home.pods.group(_group(place)))
        stay = sum(is_true(one, "Ready") and not self._copy_leaves(one) for one in siblings)
        away = min(place.wanted, self._desired(pod)) - stay  # one that KubeRay has yet to make is away, too
        turns = min(member.spec.max_unavailable - away, len(self._free(pod, place, admitted)))
        there = sorted(
            key_of(one) for one in siblings if share_key(annotation(one, names.SLOT_ANNOTATION))[0] == cluster
        )
        return key_of(pod) in there[: max(turns, 0)]

    def _desired(self, pod: Raw) -> int:
        """How many workers the pod's RayCluster is to have."""
        raw = self._home.ray_clusters.get((key_of(pod)[0], label(pod, names.RAY_GCS_CLUSTER_LABEL))) or {}
        groups = (raw.get("spec") or {}).get("workerGroupSpecs") or ()
        return sum(int(group.get("replicas") or 0) * int(group.get("numOfHosts") or 1) for group in groups)

    def _free(self, pod: Raw, place: Placement, admitted: Shares) -> list[str]:
        held = self.held(place)
        return [
            slot
            for slot in dispatch.slots(place, pod)
            if slot not in held and share_key(slot) in admitted and not self._drains(share_key(slot)[0])
        ]

    def _drains(self, cluster: str) -> bool:
        member = self._fleet.members().get(cluster)
        return member is not None and member.spec.draining

    def _copy_leaves(self, pod: Raw) -> bool:
        copies = (member.pods.get(key_of(pod)) for member in self._fleet.members().values())
        return any(meta(copy).get("deletionTimestamp") for copy in copies if copy)

    def _of(self, group: str, *, but: str | None) -> frozenset[str]:
        here = dispatch.slots_taken(self._home.pods.group(group), but=but)
        members = self._fleet.members().values()
        there = (dispatch.slots_taken(member.pods.group(group), but=but) for member in members)
        return here.union(*there, self._claims.slots(group, but=but))


def _group(place: Placement) -> str:
    return f"{place.namespace}/{place.name}"
