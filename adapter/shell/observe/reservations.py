"""What stands for gangs: which Placement and which live Workload, and which shares in the clusters that can be seen?

Clusters that cannot be seen show no shares. Whether a share is to stay is for gang/lifecycle.py.
"""

import functools
from dataclasses import replace
from typing import Literal

from adapter import names
from adapter.objects.placement import Placement, share_name
from adapter.objects.rayjob import job_presence
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Key, Raw, key_of, label
from adapter.objects.worker_pod import Slot, slot_share
from adapter.objects.workload import Workload
from adapter.shell.clusters.fleet import Fleet
from adapter.shell.clusters.manager_cache import ManagerCache
from adapter.shell.clusters.worker_cache import WorkerClusterCache
from adapter.shell.supervise import read_each


class ReservationObserver:
    """Reads Placements, and the group Workloads that stand for them."""

    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet

    def workers_in(self, cluster: str) -> int:
        """For how many workers quota is held or asked for in a cluster: by the Placements of Workloads that are not over, or by
        what stands there, whichever is more."""
        places = (place for _, place in read_each("cluster", self._manager.placements, self._manager.read_placement))
        live = (place for place in places if self.workload_of(place))
        wanted = sum(share.workers for place in live for share in place.active_shares if share.cluster == cluster)
        member = self._fleet.caches().get(cluster)
        standing = read_each("cluster", member.workloads if member else (), _worker_count)
        return max(wanted, sum(workers for _, workers in standing))

    def placement_of(self, pod: Raw) -> Placement | None:
        """The Placement that a pod is labelled with."""
        found = self._manager.placements.get((key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)))
        return self._manager.read_placement(found) if found else None

    def workload_of(self, placement: Placement) -> Workload | None:
        """The Workload that a Placement stands for, while it holds quota and is not over."""
        raw = self._manager.gang_workload((placement.namespace, placement.gang_name))
        work = self._manager.with_ray_service(self._manager.read_workload(raw)) if raw else None
        return work if work and placement.belongs_to(work) else None

    def is_leaving(self, workload: Workload) -> bool:
        """Whether a Workload or its job is being deleted, which a finalizer may keep up for hours."""
        return workload.deleting or self.job_presence(workload) == "Leaving"

    def job_presence(self, workload: Workload) -> Literal["There", "Leaving", "Gone"]:
        """Whether a Workload's job is there; none is missed where there is none."""
        return job_presence(workload.job, self._manager.job_object(workload.job)) if workload.job else "There"

    def reservations_of_slot(self, placement: Placement, slot: Slot | None) -> list[Reservation]:
        """What stands for the share that a slot is on, none where it cannot be seen or read: asked for each worker, and an elastic job
        has a share for almost every one."""
        if slot is None:
            return []
        cluster, number = slot.share
        member = self._fleet.reachable().get(cluster)
        raw = member.workloads.get((placement.namespace, share_name(placement.name, number))) if member else None
        if member is None or raw is None:
            return []
        readable = (one for _, one in read_each("share", [raw], functools.partial(_read_reservation, member)))
        return [one for one in readable if (one.placement, one.round) == (placement.name, number)]

    def reservations_of_gang(self, key: Key) -> tuple[list[Reservation], list[str]]:
        """What stands for a gang in the clusters that can be seen, as far as it can be read; and the clusters that show something for it
        that cannot be: no API server gives that in its right mind, so such a cluster is not to be believed about this gang."""
        found, odd, of = list[Reservation](), list[str](), "/".join(key)
        for name, member in self._fleet.reachable().items():
            shown = member.workloads.by_index(of)
            if not shown:
                continue  # as in most of a hundred clusters
            readable = [one for _, one in read_each("share", shown, functools.partial(_read_reservation, member))]
            found += readable
            odd += [name] * (len(readable) < len(shown))
        return found, odd


def _read_reservation(cache: WorkerClusterCache, raw: Raw) -> Reservation:
    return _mark_stranded(cache, cache.read_reservation(raw))


def _worker_count(share: Raw) -> int:
    return sum(int(podset.get("count") or 0) for podset in share["spec"].get("podSets") or ())


def _mark_stranded(cache: WorkerClusterCache, reservation: Reservation) -> Reservation:
    """Whether an evicted share has lost its last pod before Kueue took note of it."""
    if not reservation.eviction_message or reservation.reserved_at is None:
        return reservation
    pods = cache.pods.by_index(f"{reservation.namespace}/{reservation.placement}")
    on_it = (slot_share(pod) == reservation.key for pod in pods)
    return replace(reservation, stranded=not any(on_it))
