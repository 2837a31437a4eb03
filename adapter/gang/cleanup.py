"""Which shares of a gang are not wanted any more, and what becomes of them while their workers still end?

A share holds its cluster's quota until the last of its pods is gone there: its pods are deleted first, each with its own grace, and
the share itself, with the anchor that owns what the pods use, when none is left. Kueue counts a pod that ends in the same way. Nothing
is done here of shares that are wanted (lifecycle.py, reserve.py, running.py).
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
    """The shares that are to go: all of what is over or holds no quota, else those that its Placement does not name."""
    work, current = gang.workload, gang.current_placement
    if work is None or work.deleting or gang.job.deleted or work.finished or not work.holds_quota:
        return gang.shares.reservations
    if not gang.check:  # Kueue lets run what it admitted, whatever becomes of its queue's checks, and so do we
        return () if current and current.placed_round else gang.shares.reservations
    wanted = {current.share_key(share): share for share in current.active_shares} if current else {}
    shares = ((found, wanted.get(found.key)) for found in gang.shares.reservations)
    return tuple(found for found, share in shares if not _is_wanted(found, share, current, gang.is_running))


def delete_shares(gang: Gang, shares: Iterable[Reservation]) -> list[Action]:
    """Take the next step to have these shares gone: their pods first, and each share when it has none."""
    actions: list[Action] = []
    for share in shares:
        pods = gang.shares.ending_pods.get(share.uid, ())
        if staying := tuple(pod for pod in pods if not is_deleting(pod)):
            actions.append(DeleteSharePods(share, staying))
        elif not pods and not share.deleting:
            actions.append(DeleteShare(share))
    return actions


def leftover_wait(gang: Gang, workload: Workload, shares: Iterable[Reservation], now: datetime) -> timedelta:
    """For how long these shares are waited for before anything new is planned; none is where a cluster will not have it removed,
    and no longer than ENDS_IN for workers that still end."""
    awaited = [share for share in shares if share.uid not in gang.shares.deletion_denials]
    if not awaited or any(not gang.shares.ending_pods.get(share.uid) for share in awaited):
        return RESYNC if awaited else timedelta(0)
    left = (workload.reserved_at or now) + ENDING_TIMEOUT - now
    return min(max(left, timedelta(0)), RESYNC)


def ending_workers_message(gang: Gang, shares: Iterable[Reservation]) -> str:
    """Where workers of these shares still end: a sentence, or empty where none does. It is the same until the last one is gone."""
    parts = sorted(
        _share_text(share) for share in shares if gang.shares.ending_pods.get(share.uid)
    )  # stores tell of them in any order
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
        # Kueue clears the reservation of an evicted group when it sees its pods inactive, and does not look again when the
        # last one is gone (kueue:pkg/controller/jobframework/reconciler.go): who preempted it would wait for ever. A new
        # share waits behind. One that ran is given up with its reason, by the next plan.
        and (not reservation.stranded or (runs and (share.single_worker or reservation.round <= current.placed_round)))
        and _is_as_planned(reservation, share, current, runs)
    )


def _is_as_planned(reservation: Reservation, share: Share, current: Placement, runs: bool) -> bool:
    """Whether what stands for a share has its counts, as long as no worker can be on it.

    Who led before may have made it by another plan, which this one has overwritten: taken as it is, workers would lack quota, or
    hold some for nothing.
    """
    placed = runs and reservation.round <= (current.placed_round or current.round)
    return placed or not reservation.counts or reservation.counts == {group.role: group.count for group in share.groups}
