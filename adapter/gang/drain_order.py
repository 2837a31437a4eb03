"""The order in which workers leave a cluster that is being drained, and the jobs that still have workers there.

Remaining jobs are read from the manager cluster, so observers need no right in the worker cluster. The planner decides
where workers go.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from adapter.objects import replica
from adapter.objects.placement import Placement, PlacementState, ShareKey, parse_placement
from adapter.objects.unstructured import Key, Raw, key_of
from adapter.objects.worker_pod import (
    Slot,
    has_ended,
    has_working_ray_node,
    is_deleting,
    is_dispatched,
    is_planned_slot,
    placement_key,
    slot_cluster,
    slot_of,
    worker_cluster_of,
    worker_group_of,
)


@dataclass(frozen=True, slots=True)
class RemainingJob:
    """A job with worker pods in the clusters, or with quota there that waits for its workers."""

    job: str  # such as "RayJob default/train"
    workers: int
    reserved: int
    reason: str  # of the Placement

    def __str__(self) -> str:
        rest = _workers_text(self.workers) if self.workers else f"the quota of {_workers_text(self.reserved)}"
        return f"{self.job}: {rest} left" + (f"; {self.reason}" if self.reason else "")


def remaining_jobs(
    clusters: AbstractSet[str], pods: Iterable[Raw], placements: Iterable[Raw]
) -> dict[Key, RemainingJob]:
    """The jobs that remain in the clusters, by Placement key.

    `pods`: the manager's worker pods, at least those of these clusters and those without a cluster. Pods being deleted
    count, since their remote pods have a grace period; ended pods do not.
    """
    objects = {key_of(raw): raw for raw in placements}
    parsed = {key: parse_placement(raw) for key, raw in objects.items()}
    cluster_pods = (pod for pod in pods if worker_cluster_of(pod, parsed.get(placement_key(pod))) in clusters)
    running = Counter(placement_key(pod) for pod in cluster_pods if not has_ended(pod))
    reserved = {key: _reserved_workers(placement, clusters) for key, placement in parsed.items()}
    keys = running.keys() | {key for key, count in reserved.items() if count}
    return {key: _remaining_job(key, objects.get(key, {}), running[key], reserved.get(key, 0)) for key in sorted(keys)}


def change_lines(before: Mapping[Key, RemainingJob], now: Mapping[Key, RemainingJob]) -> Iterator[str]:
    for key, job in now.items():
        if before.get(key) != job:
            yield str(job)
    for key, job in before.items():
        if key not in now:
            yield f"{job.job}: no worker left"


def drain_document(cluster: str, remaining: Mapping[Key, RemainingJob]) -> dict[str, Any]:
    """The remaining jobs, for programs. The field names are API."""
    return {"workerCluster": cluster, **_remaining_fields(remaining)}


def move_document(job: str, clusters: Sequence[str], remaining: Mapping[Key, RemainingJob]) -> dict[str, Any]:
    """The workers of one job that remain in the clusters that it leaves, for programs. The field names are API.

    A RayService has an entry for each of its RayClusters.
    """
    return {"job": job, "from": list(clusters), **_remaining_fields(remaining)}


def _remaining_fields(remaining: Mapping[Key, RemainingJob]) -> dict[str, Any]:
    jobs = [
        {"job": job.job, "workers": job.workers, "reserved": job.reserved, "reason": job.reason or None}
        for job in remaining.values()
    ]
    return {"left": sum(job.workers or job.reserved for job in remaining.values()), "jobs": jobs}


def remaining_workers_text(remaining: Mapping[Key, RemainingJob]) -> str:
    return _workers_text(sum(job.workers or job.reserved for job in remaining.values()))


def _remaining_job(key: Key, raw: Raw, workers: int, reserved: int) -> RemainingJob:
    job = (raw.get("spec") or {}).get("job") or {}
    name = f"{job.get('kind')} {key[0]}/{job.get('name')}" if job else f"Placement {key[0]}/{key[1]}"
    return RemainingJob(name, workers, reserved, (raw.get("status") or {}).get("reason") or "")


def _reserved_workers(placement: Placement, clusters: AbstractSet[str]) -> int:
    if placement.status.get("state") == PlacementState.ENDED:
        return 0
    return sum(share.workers for share in placement.shares if share.cluster in clusters)


def _workers_text(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class GangWorkers:
    """A gang's workers, while some of its clusters are drained or not all workers are ready."""

    placement: Placement
    pods: Sequence[Raw]
    remote_pods: Mapping[Key, Raw]  # manager pod's key -> remote pod in the slot's cluster
    taken_slots: Collection[Slot]  # by a manager pod or a remote pod
    admitted_shares: Collection[ShareKey]  # those that hold quota now
    desired_workers: int  # of the RayCluster
    head_ready_since: datetime | None = None  # None: not ready
    head: Raw | None = None  # the head pod
    was_complete: bool = False  # all workers ran at one time since KubeRay started the RayCluster
    creation_failure: str = ""  # why KubeRay could not create pods, in its words

    @property
    def living_pods(self) -> list[Raw]:
        """The manager pods that have not ended and are not being deleted."""
        return [pod for pod in self.pods if not (is_deleting(pod) or has_ended(pod))]

    @property
    def pods_with_slot(self) -> list[Raw]:
        """The living pods that have a slot."""
        return [pod for pod in self.living_pods if slot_of(pod)]

    @property
    def usable_shares(self) -> set[ShareKey]:
        """The admitted shares on which a worker may be created now; a round that is not placed may be withdrawn."""
        placed = (share for share in self.placement.active_shares if self.placement.is_placed(share))
        return {key for share in placed if (key := self.placement.share_key(share)) in self.admitted_shares}

    def is_created(self, pod: Raw) -> bool:
        """Whether a manager pod has, or had, a remote pod."""
        return key_of(pod) in self.remote_pods or is_dispatched(pod)


def pods_to_move(workers: GangWorkers, draining: Mapping[str, int]) -> tuple[tuple[str, Raw], ...]:
    """The remote pods that must leave drained clusters now, each with its cluster.

    `draining`: cluster -> how many workers may be unavailable at once, counting pods that KubeRay has yet to create. A
    pod moves only if its group has a free slot elsewhere. The hosts of a replica move together, even if they are more
    than may be unavailable, because KubeRay replaces them together: also those of a replica that lacks a host, which
    needs slots for all. Pods that are not ready move first and do not add to the unavailable workers.
    """
    serving = _serving_pods(workers)
    free, moving = free_slots(workers, draining), []
    unavailable = (
        min(workers.placement.wanted_workers, workers.desired_workers) - len(serving) - _never_placed(workers, free)
    )
    placed = _pods_by_replica(workers.pods_with_slot)
    for hosts in _replicas_to_move(workers, draining, serving):
        group, placed_hosts = worker_group_of(hosts[0]), placed.get(replica.replica_key(hosts[0]), [])
        count = max(len(hosts), len(placed_hosts), replica.hosts_needed(workers.placement, hosts[0]))
        own = _own_free_slots(workers, draining, placed_hosts)
        is_serving = key_of(hosts[0]) in serving
        if free[group] + own < count or (is_serving and unavailable >= draining[slot_cluster(hosts[0])]):
            continue
        if is_serving:
            unavailable = max(unavailable, 0) + count
        free[group] -= max(count - own, 0)
        moving += [(slot_cluster(pod), workers.remote_pods[key_of(pod)]) for pod in hosts]
    return tuple(moving)


def _serving_pods(workers: GangWorkers) -> set[Key]:
    """The pods that take part in the job and are not ending; a replica without one of its hosts takes no part."""
    serving = set[Key]()
    for hosts in _pods_by_replica(workers.pods).values():
        is_whole = len(hosts) >= replica.hosts_needed(workers.placement, hosts[0])
        if is_whole and all(_is_serving(pod, workers.remote_pods.get(key_of(pod))) for pod in hosts):
            serving.update(map(key_of, hosts))
    return serving


def _pods_by_replica(pods: Iterable[Raw]) -> dict[tuple[str, str, str], list[Raw]]:
    replicas = dict[tuple[str, str, str], list[Raw]]()
    for pod in pods:
        replicas.setdefault(replica.replica_key(pod), []).append(pod)
    return replicas


def _replicas_to_move(workers: GangWorkers, draining: Collection[str], serving: Collection[Key]) -> list[list[Raw]]:
    """The pods in drained clusters by replica, those that do not serve first."""
    to_move = list[Raw]()
    for pod in sorted(workers.pods, key=lambda pod: (key_of(pod) in serving, key_of(pod))):
        remote_pod = workers.remote_pods.get(key_of(pod))
        if slot_cluster(pod) in draining and remote_pod is not None and not is_deleting(remote_pod):
            to_move.append(pod)
    return list(_pods_by_replica(to_move).values())


def _own_free_slots(workers: GangWorkers, draining: Collection[str], hosts: Sequence[Raw]) -> int:
    """How many slots outside of drained clusters are free for a replica that its own hosts keep from others.

    Two writers may have divided a replica between two clusters.
    """
    own = {slot: pod for pod in hosts if (slot := slot_of(pod)) and slot.cluster not in draining}
    free, usable = set[Slot](), workers.usable_shares
    for slot, pod in own.items():
        if slot not in free and slot.share in usable and is_planned_slot(workers.placement, pod, slot):
            block = replica.block_slots(workers.placement, pod, slot)
            free.update(block if all(each in own or each not in workers.taken_slots for each in block) else ())
    return len(free)


def _never_placed(workers: GangWorkers, free: Mapping[str, int]) -> int:
    """Count the workers of an elastic job that wait for their first slot and find none free."""
    waiting = (
        Counter(worker_group_of(pod) for pod in workers.pods if not slot_of(pod))
        if workers.placement.job
        else Counter[str]()
    )
    return sum(max(count - free[group], 0) for group, count in waiting.items())


def _is_serving(pod: Raw, remote_pod: Raw | None) -> bool:
    """Whether a worker takes part in the job and is not ending. The manager pod's status lags behind its remote pod."""
    return remote_pod is not None and has_working_ray_node(pod) and not (is_deleting(pod) or is_deleting(remote_pod))


def free_slots(workers: GangWorkers, closed_clusters: Collection[str]) -> Counter[str]:
    """Count each worker group's free slots on usable shares outside of these clusters, in whole replicas."""
    free, usable = Counter[str](), workers.usable_shares
    for share in workers.placement.active_shares:
        if workers.placement.share_key(share) in usable and share.cluster not in closed_clusters:
            for group in share.groups:
                free[group.name] += replica.count_free_slots(workers.placement, share, group, workers.taken_slots)
    return free
