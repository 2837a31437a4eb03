"""Deletes the shares of a gang that are not wanted any more, after their workers have ended.

A share holds its cluster's quota until its last pod there has ended. So its pods are deleted first, each with its own
grace period. When none is left, the share is deleted, with the anchor that owns what the pods use. Kueue counts an
ending pod in the same way. Wanted shares belong to lifecycle.py, reserve.py and running.py.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from adapter.actions import Action, DeleteShare, DeleteSharePods
from adapter.gang.gang_facts import Gang
from adapter.gang.timeouts import ENDING_TIMEOUT, RESYNC
from adapter.objects.placement import Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Workload


def unwanted_shares(gang: Gang) -> tuple[Reservation, ...]:
    """The shares that must be deleted.

    All of them if the gang has ended or holds no quota; otherwise those that its Placement does not name.
    """
    workload, current = gang.workload, gang.current_placement
    if workload is None or workload.deleting or gang.job.deleted or workload.finished or not workload.holds_quota:
        return gang.shares.reservations
    # Kueue does not stop what it admitted when a queue loses its checks, and neither do we.
    if not gang.check:
        return () if current and current.placed_round else gang.shares.reservations
    wanted = {current.share_key(share): share for share in current.active_shares} if current else {}
    shares = ((reservation, wanted.get(reservation.key)) for reservation in gang.shares.reservations)
    return tuple(
        reservation for reservation, share in shares if not _is_wanted(reservation, share, current, gang.is_running)
    )


def delete_shares(gang: Gang, shares: Iterable[Reservation]) -> list[Action]:
    """The next step to delete these shares: their pods first, and each share when its pods have ended."""
    actions: list[Action] = []
    for share in shares:
        pods = gang.shares.ending_pods.get(share.uid, ())
        if running_pods := tuple(pod for pod in pods if not is_deleting(pod)):
            actions.append(DeleteSharePods(share, running_pods))
        elif not pods and not share.deleting:
            actions.append(DeleteShare(share))
    return actions


def leftover_wait(gang: Gang, workload: Workload, shares: Iterable[Reservation], now: datetime) -> timedelta:
    """For how long these shares delay a new plan.

    Shares whose deletion is denied delay nothing. Ending workers delay it until ENDING_TIMEOUT after the reservation.
    """
    awaited = [share for share in shares if share.uid not in gang.shares.deletion_denials]
    if not awaited or any(not gang.shares.ending_pods.get(share.uid) for share in awaited):
        return RESYNC if awaited else timedelta(0)
    remaining = (workload.reserved_at or now) + ENDING_TIMEOUT - now
    return min(max(remaining, timedelta(0)), RESYNC)


def ending_workers_message(gang: Gang, shares: Iterable[Reservation]) -> str:
    """A sentence on where workers of these shares still end; empty if none does. It does not change until the last has
    ended."""
    # Stores have them in any order.
    parts = sorted(_share_text(share) for share in shares if gang.shares.ending_pods.get(share.uid))
    return (
        f"Workers are still ending: quota {', '.join(parts)} is held until the last of them is gone." if parts else ""
    )


def _share_text(share: Reservation) -> str:
    return f"for {share.workers} in {share.cluster}" if share.workers else f"in {share.cluster}"


def _is_wanted(reservation: Reservation, share: Share | None, current: Placement | None, runs: bool) -> bool:
    return (
        current is not None
        and share is not None
        and reservation.placement == current.name
        and not reservation.ended
        # Kueue clears the reservation of an evicted group when its pods are inactive, and does not check again when the
        # last pod is gone (kueue:pkg/controller/jobframework/reconciler.go). A preemptor would wait for ever, so the
        # share is replaced by a new one behind it. A share that ran is given up by the next plan, with a reason.
        and (not reservation.stranded or (runs and (share.single_worker or reservation.round <= current.placed_round)))
        and _is_as_planned(reservation, share, current, runs)
    )


def _is_as_planned(reservation: Reservation, share: Share, current: Placement, runs: bool) -> bool:
    """Whether a reservation has the planned counts, while no worker can be on it.

    An earlier leader may have created it by another plan that was overwritten since. Then workers would lack quota, or
    hold some for nothing.
    """
    was_placed = runs and reservation.round <= (current.placed_round or current.round)
    return (
        was_placed
        or not reservation.counts
        or reservation.counts == {group.role: group.count for group in share.groups}
    )
