"""Did two copies of one worker ever run at the same time? Pure: when each copy was certainly alive, from many looks.

A copy lives from the second after its creationTimestamp (which has no fractions) to the last look at which it was there, by
the time at which that look was asked for. Both are proofs, so what is called doubled was: clocks are one machine's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from adapter import names
from adapter.objects.raw import Raw, label, meta, moment, uid_of

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Life:
    """A copy of the worker `owner` (uid), certainly alive from `born` to `seen`: seconds since the epoch."""

    cluster: str
    name: str
    owner: str
    born: float
    seen: float

    def __str__(self) -> str:
        return f"{self.name} in {self.cluster} (at least {max(0.0, self.seen - self.born):.1f} s)"


class Lives:
    """All copies that were ever seen, by their uids."""

    def __init__(self) -> None:
        self._known: dict[str, Life] = {}

    def saw(self, cluster: str, pods: Iterable[Raw], asked: float) -> None:
        """Note one list of a cluster's copies, which was asked for at that time."""
        for pod in pods:
            born = moment(meta(pod).get("creationTimestamp"))
            if born is None or (pod.get("status") or {}).get("phase") in _OVER:
                continue
            uid, owner = uid_of(pod), label(pod, names.POD_UID_LABEL)
            fresh = Life(cluster, meta(pod)["name"], owner, born.timestamp() + 1, asked)
            self._known[uid] = replace(self._known.get(uid, fresh), seen=asked)

    def doubled(self) -> list[str]:
        """A sentence for each worker of which two copies lived at the same time."""
        owners: dict[str, list[Life]] = {}
        for life in list(self._known.values()):  # another thread may add to it
            owners.setdefault(life.owner, []).append(life)
        return [
            f"worker {owner} lived twice: {one} and {other}"
            for owner, lives in owners.items()
            for one, other in combinations(lives, 2)
            if max(one.born, other.born) < min(one.seen, other.seen)
        ]
