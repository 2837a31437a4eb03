"""Who is still in a worker cluster that is being drained, what does each of them wait for, and whose turn is it to leave?

The first two are told from the manager alone, so whoever watches a drain needs no right in the worker cluster. Where those who
leave go to is decided by a plan.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from adapter.objects.placement import Placement, PlacementState, ShareKey, parse_placement
from adapter.objects.unstructured import Key, Raw, key_of
from adapter.objects.worker_pod import (
    Slot,
    has_working_ray_node,
    is_deleting,
    placement_key,
    share_slots,
    slot_cluster,
    slot_of,
    worker_cluster_of,
    worker_group_of,
)


@dataclass(frozen=True, slots=True)
class RemainingJob:
    """What one job still has in the cluster: worker pods, or quota that waits for their pods."""

    job: str  # such as "RayJob default/train"
    workers: int
    reserved: int
    reason: str  # the Placement's own sentence, empty while it has none

    def __str__(self) -> str:
        what = _workers_text(self.workers) if self.workers else f"the quota of {_workers_text(self.reserved)}"
        return f"{self.job}: {what} left" + (f"; {self.reason}" if self.reason else "")


def remaining_jobs(cluster: str, pods: Iterable[Raw], placements: Iterable[Raw]) -> dict[Key, RemainingJob]:
    """What is left in the cluster, by namespace and name of the Placement; empty when it is drained.

    `pods` are the manager's worker pods, at least those of that cluster and those of none. One that has ended counts no more; one that is
    being deleted still does, because its copy has its grace period.
    """
    known = {key_of(raw): raw for raw in placements}
    plans = {key: parse_placement(raw) for key, raw in known.items()}
    here = (pod for pod in pods if worker_cluster_of(pod, plans.get(placement_key(pod))) == cluster)
    running = Counter(placement_key(pod) for pod in here if not _has_ended(pod))
    reserved = {key: _reserved_workers(plan, cluster) for key, plan in plans.items()}
    wanted = running.keys() | {key for key, count in reserved.items() if count}
    return {key: _remaining_job(key, known.get(key, {}), running[key], reserved.get(key, 0)) for key in sorted(wanted)}


def change_lines(before: Mapping[Key, RemainingJob], now: Mapping[Key, RemainingJob]) -> Iterator[str]:
    """One line for each job of which something else is to be said than before."""
    for key, stay in now.items():
        if before.get(key) != stay:
            yield str(stay)
    for key, stay in before.items():
        if key not in now:
            yield f"{stay.job}: no worker left"


def drain_document(cluster: str, remaining: Mapping[Key, RemainingJob]) -> dict[str, Any]:
    """All that is left, for programs; names are camelCase and stay."""
    jobs = [
        {"job": one.job, "workers": one.workers, "reserved": one.reserved, "reason": one.reason or None}
        for one in remaining.values()
    ]
    return {
        "workerCluster": cluster,
        "left": sum(one.workers or one.reserved for one in remaining.values()),
        "jobs": jobs,
    }


def remaining_workers_text(remaining: Mapping[Key, RemainingJob]) -> str:
    """How many workers are left, counting those whose quota waits for them."""
    return _workers_text(sum(stay.workers or stay.reserved for stay in remaining.values()))


def _remaining_job(key: Key, raw: Raw, workers: int, reserved: int) -> RemainingJob:
    job = (raw.get("spec") or {}).get("job") or {}
    name = f"{job.get('kind')} {key[0]}/{job.get('name')}" if job else f"Placement {key[0]}/{key[1]}"
    return RemainingJob(name, workers, reserved, (raw.get("status") or {}).get("reason") or "")


def _reserved_workers(placement: Placement, cluster: str) -> int:
    if placement.status.get("state") == PlacementState.ENDED:
        return 0
    return sum(share.workers for share in placement.shares if share.cluster == cluster)


def _has_ended(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _workers_text(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class GangWorkers:
    """A gang's workers, as they stand while some of its clusters are drained, or not all of them are ready."""

    placement: Placement
    pods: Sequence[Raw]  # of the manager
    remote_pods: Mapping[Key, Raw]  # of these pods, each in the cluster of its pod's slot, by the pod's key
    taken_slots: Collection[Slot]  # slots that a pod or a copy is on
    admitted_shares: Collection[ShareKey]  # shares that hold quota now
    desired_workers: int  # how many workers the RayCluster is to have
    head_ready_since: datetime | None = None  # since when its head is ready, None while it is not


def pods_to_move(workers: GangWorkers, draining: Mapping[str, int]) -> tuple[tuple[str, Raw], ...]:
    """The copies that are to leave clusters which are drained, now, by cluster and copy; `draining` says of each such cluster how
    many workers may be away at once.

    Only where a worker of the group has a place to go to; and no more at once than may be away, counting those that
    KubeRay has yet to make. One that is not ready is away already: it goes first, and costs nobody a turn.
    """
    serving = {key_of(pod): _is_serving(pod, workers.remote_pods.get(key_of(pod))) for pod in workers.pods}
    free, found = free_slots(workers, draining), []
    away = (
        min(workers.placement.wanted_workers, workers.desired_workers)
        - sum(serving.values())
        - _never_placed(workers, free)
    )
    for pod in sorted(workers.pods, key=lambda pod: (serving[key_of(pod)], key_of(pod))):
        cluster, group, copy = slot_cluster(pod), worker_group_of(pod), workers.remote_pods.get(key_of(pod))
        if cluster not in draining or copy is None or is_deleting(copy) or not free[group]:
            continue
        if serving[key_of(pod)]:
            if away >= draining[cluster]:
                continue
            away = max(away, 0) + 1
        free[group] -= 1
        found.append((cluster, copy))
    return tuple(found)


def _never_placed(workers: GangWorkers, free: Mapping[str, int]) -> int:
    """How many workers of an elastic job never had a place, and wait for one: they are not away from any."""
    waiting = (
        Counter(worker_group_of(pod) for pod in workers.pods if not slot_of(pod))
        if workers.placement.job
        else Counter[str]()
    )
    return sum(max(count - free[group], 0) for group, count in waiting.items())


def _is_serving(pod: Raw, remote_pod: Raw | None) -> bool:
    """Whether a worker does its part, and is not about to go; what it says of itself is older than what becomes of its copy."""
    return remote_pod is not None and has_working_ray_node(pod) and not (is_deleting(pod) or is_deleting(remote_pod))


def free_slots(workers: GangWorkers, closed_clusters: Collection[str]) -> Counter[str]:
    """How many workers of each group have a place to go to, which is in none of these clusters."""
    free = Counter[str]()
    for share in workers.placement.active_shares:
        if workers.placement.share_key(share) in workers.admitted_shares and share.cluster not in closed_clusters:
            for group in share.groups:
                free[group.name] += sum(
                    slot not in workers.taken_slots for slot in share_slots(workers.placement, share, group)
                )
    return free
