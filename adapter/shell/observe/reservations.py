"""Reads gangs' Placements, live Workloads and reservations in reachable clusters.

gang/lifecycle.py decides whether a share stays.
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
    def __init__(self, manager: ManagerCache, fleet: Fleet) -> None:
        self._manager, self._fleet = manager, fleet

    def workers_in(self, cluster: str) -> int:
        """The workers for which quota is held or requested in a cluster.

        The larger of two counts: by Placements of unfinished Workloads, and by the cluster's group Workloads. An
        incomplete namespace may have any number, and counts as one.
        """
        placements = (
            placement for _, placement in read_each("cluster", self._manager.placements, self._manager.read_placement)
        )
        live = (placement for placement in placements if self.workload_of(placement))
        wanted = sum(
            share.workers for placement in live for share in placement.active_shares if share.cluster == cluster
        )
        member = self._fleet.caches().get(cluster)
        counts = read_each("cluster", member.workloads if member else (), _worker_count)
        unknown_workers = len(member.namespace_shares.incomplete()) if member else 0
        return max(wanted, sum(workers for _, workers in counts) + unknown_workers)

    def placement_of(self, pod: Raw) -> Placement | None:
        raw = self._manager.placements.get((key_of(pod)[0], label(pod, names.PLACEMENT_LABEL)))
        return self._manager.read_placement(raw) if raw else None

    def workload_of(self, placement: Placement) -> Workload | None:
        """A Placement's Workload, while it holds quota and is not finished."""
        raw = self._manager.gang_workload((placement.namespace, placement.gang_name))
        workload = self._manager.with_ray_service(self._manager.read_workload(raw)) if raw else None
        return workload if workload and placement.belongs_to(workload) else None

    def finished_workload_of(self, placement: Placement) -> Workload | None:
        """The Workload of a Placement, once it is finished."""
        raw = self._manager.gang_workload((placement.namespace, placement.gang_name))
        workload = self._manager.read_workload(raw) if raw else None
        is_same = workload and (placement.job is not None or workload.uid == placement.workload_uid)
        return workload if workload and is_same and workload.finished else None

    def is_leaving(self, workload: Workload) -> bool:
        """Whether a Workload or its job is being deleted, which a finalizer may delay for hours."""
        return workload.deleting or self.job_presence(workload) == "Leaving"

    def job_presence(self, workload: Workload) -> Literal["There", "Leaving", "Gone"]:
        """Whether a Workload's job exists; "There" for one without a job."""
        return job_presence(workload.job, self._manager.job_object(workload.job)) if workload.job else "There"

    def reservations_of_slot(self, placement: Placement, slot: Slot | None) -> list[Reservation]:
        """The reservation of a slot's share; none if it is unreachable or unreadable.

        Only one object is read: an elastic job has a share for almost every worker.
        """
        if slot is None:
            return []
        cluster, number = slot.share
        member = self._fleet.reachable(placement.namespace).get(cluster)
        raw = member.workloads.get((placement.namespace, share_name(placement.name, number))) if member else None
        if member is None or raw is None:
            return []
        readable = (
            reservation for _, reservation in read_each("share", [raw], functools.partial(_read_reservation, member))
        )
        return [
            reservation
            for reservation in readable
            if (reservation.placement, reservation.round) == (placement.name, number)
        ]

    def reservations_of_gang(self, key: Key) -> tuple[list[Reservation], list[str]]:
        """A gang's reservations in reachable clusters, and the clusters with unreadable ones.

        No sound API server returns an unreadable object, so such a cluster is not trusted about this gang.
        """
        reservations, odd, gang = list[Reservation](), list[str](), "/".join(key)
        for name, member in self._fleet.reachable(key[0]).items():
            group_workloads = member.workloads.by_index(gang)
            if not group_workloads:
                continue  # most of a hundred clusters
            readable = [
                reservation
                for _, reservation in read_each("share", group_workloads, functools.partial(_read_reservation, member))
            ]
            reservations += readable
            odd += [name] * (len(readable) < len(group_workloads))
        return reservations, odd


def _read_reservation(cache: WorkerClusterCache, raw: Raw) -> Reservation:
    reservation = replace(cache.read_reservation(raw), pods_ready_timeout=cache.spec.pods_ready_timeout)
    return _mark_stranded(cache, reservation)


def _worker_count(share: Raw) -> int:
    return sum(int(podset.get("count") or 0) for podset in share["spec"].get("podSets") or ())


def _mark_stranded(cache: WorkerClusterCache, reservation: Reservation) -> Reservation:
    """Mark an evicted share as stranded if its last pod is gone before Kueue has noticed."""
    if not reservation.eviction_message or reservation.reserved_at is None:
        return reservation
    pods = cache.pods.by_index(f"{reservation.namespace}/{reservation.placement}")
    on_share = (slot_share(pod) == reservation.key for pod in pods)
    return replace(reservation, stranded=not any(on_share))
