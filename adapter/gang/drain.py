"""Who is still in a worker cluster that is being drained, and what does each of them wait for?

Told from the manager alone, so whoever watches a drain needs no right in the worker cluster. Who goes next, and where to,
is decided elsewhere.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from adapter import names
from adapter.objects.placement import Placement, placement
from adapter.objects.raw import Key, Raw, key_of, label


@dataclass(frozen=True, slots=True)
class Stay:
    """What one job still has in the cluster: worker pods, or quota that waits for their pods."""

    job: str  # such as "RayJob default/train"
    workers: int
    reserved: int
    reason: str  # the Placement's own sentence, empty while it has none

    def __str__(self) -> str:
        what = _workers(self.workers) if self.workers else f"the quota of {_workers(self.reserved)}"
        return f"{self.job}: {what} left" + (f"; {self.reason}" if self.reason else "")


def stays(cluster: str, pods: Iterable[Raw], placements: Iterable[Raw]) -> dict[Key, Stay]:
    """What is left in the cluster, by namespace and name of the Placement; empty when it is drained.

    `pods` are the manager's worker pods of that cluster. One that has ended counts no more; one that is being deleted still
    does, because its copy has its grace period.
    """
    known = {key_of(raw): raw for raw in placements}
    running = Counter((key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)) for pod in pods if not _over(pod))
    reserved = {key: _reserved(placement(raw), cluster) for key, raw in known.items()}
    wanted = running.keys() | {key for key, count in reserved.items() if count}
    return {key: _stay(key, known.get(key, {}), running[key], reserved.get(key, 0)) for key in sorted(wanted)}


def news(before: Mapping[Key, Stay], now: Mapping[Key, Stay]) -> Iterator[str]:
    """One line for each job of which something else is to be said than before."""
    for key, stay in now.items():
        if before.get(key) != stay:
            yield str(stay)
    for key, stay in before.items():
        if key not in now:
            yield f"{stay.job}: no worker left"


def total(found: Mapping[Key, Stay]) -> str:
    """How many workers are left, counting those whose quota waits for them."""
    return _workers(sum(stay.workers or stay.reserved for stay in found.values()))


def _stay(key: Key, raw: Raw, workers: int, reserved: int) -> Stay:
    job = (raw.get("spec") or {}).get("job") or {}
    name = f"{job.get('kind')} {key[0]}/{job.get('name')}" if job else f"Placement {key[0]}/{key[1]}"
    return Stay(name, workers, reserved, (raw.get("status") or {}).get("reason") or "")


def _reserved(place: Placement, cluster: str) -> int:
    if place.status.get("state") == names.ENDED:
        return 0
    return sum(share.workers for share in place.shares if share.cluster == cluster)


def _over(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"
