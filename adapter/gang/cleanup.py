"""Deletes the shares of a gang that are not wanted any more, after their workers have ended.

A share holds its cluster's quota until its last pod has ended. So its pods are deleted first, each with its grace
period, and then the share with its anchor.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from adapter.actions import Action, DeleteShare, DeleteSharePods
from adapter.gang.gang_facts import Gang
from adapter.gang.share_priority import must_renew_priority
from adapter.gang.timeouts import ENDING_TIMEOUT, RESYNC, end_of_wait
from adapter.objects.placement import Placement, Share
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import Raw
from adapter.objects.worker_pod import is_deleting
from adapter.objects.workload import Workload


def unwanted_shares(gang: Gang) -> tuple[Reservation, ...]:
    """The shares to delete.

    These are all if the gang has ended or holds no quota, else those that its Placement lacks or creates again.
    """
    workload, current = gang.workload, gang.current_placement
    if workload is None or workload.deleting or gang.job.deleted or workload.finished or not workload.holds_quota:
        return gang.shares.reservations
    # Kueue does not stop admitted work when a queue loses its checks; neither do we.
    if not gang.check:
        return () if current and current.placed_round else gang.shares.reservations
    wanted = {current.share_key(share): share for share in current.active_shares} if current else {}
    shares = ((reservation, wanted.get(reservation.key)) for reservation in gang.shares.reservations)
    return tuple(
        reservation
        for reservation, share in shares
        if not _is_wanted(reservation, share, current, gang.is_running) or must_renew_priority(gang, reservation)
    )


def delete_shares(gang: Gang, shares: Iterable[Reservation]) -> list[Action]:
    """Delete the pods of these shares, and each share whose pods have ended."""
    return delete_ended_shares(shares, lambda share: gang.shares.ending_pods.get(share.uid, ()))


def delete_ended_shares(
    shares: Iterable[Reservation], ending_pods: Callable[[Reservation], Sequence[Raw]]
) -> list[Action]:
    """The same, with the pods that still hold the quota of a share."""
    actions: list[Action] = []
    for share in shares:
        pods = ending_pods(share)
        if running_pods := tuple(pod for pod in pods if not is_deleting(pod)):
            actions.append(DeleteSharePods(share, running_pods))
        elif not pods and not share.deleting:
            actions.append(DeleteShare(share))
    return actions


def leftover_wait(gang: Gang, workload: Workload, shares: Iterable[Reservation], now: datetime) -> timedelta:
    """How long these shares delay a new plan.

    A share whose deletion is denied does not delay the plan. Workers that still end delay it until ENDING_TIMEOUT after
    the manager reserved quota.
    """
    awaited = [share for share in shares if share.uid not in gang.shares.deletion_denials]
    if not awaited or any(not gang.shares.ending_pods.get(share.uid) for share in awaited):
        return RESYNC if awaited else timedelta(0)
    remaining = end_of_wait(workload.reserved_at or now, ENDING_TIMEOUT, now) - now
    return min(max(remaining, timedelta(0)), RESYNC)


def ending_workers_message(gang: Gang, shares: Iterable[Reservation]) -> str:
    """A message on where workers of these shares still end; empty if all have ended.

    The text changes only when a share's last worker has ended, so it is not rewritten at each worker's end.
    """
    # Sorted, because stores are unordered.
    parts = sorted(_share_text(share) for share in shares if gang.shares.ending_pods.get(share.uid))
    return (
        f"Workers are still terminating: quota {', '.join(parts)} is held until the last one has ended."
        if parts
        else ""
    )


def _share_text(share: Reservation) -> str:
    return f"for {share.workers} in {share.cluster}" if share.workers else f"in {share.cluster}"


def _is_wanted(reservation: Reservation, share: Share | None, current: Placement | None, runs: bool) -> bool:
    return (
        current is not None
        and share is not None
        and reservation.placement == current.name
        # A share that an admission check refused is kept until its round is withdrawn, which excludes its cluster.
        # Another share there would be refused, too.
        and (not reservation.ended or bool(reservation.refusal))
        # Kueue frees an evicted group's quota when it sees that no pod is active, but the end of the last pod does not
        # trigger it (kueue:pkg/controller/jobframework/reconciler.go). If the quota stays, a preemptor waits for ever.
        # So the share is deleted, and a new one queues behind the preemptor. A share that ran stays wanted: the next
        # plan gives it up, with a reason.
        and (
            not reservation.stranded
            or bool(reservation.refusal)
            or (runs and (share.single_worker or reservation.round <= current.placed_round))
        )
        and _is_as_planned(reservation, share, current, runs)
    )


def _is_as_planned(reservation: Reservation, share: Share, current: Placement, runs: bool) -> bool:
    """Whether the share has the planned counts; always True once workers of this Placement may be on it.

    An earlier leader may have created the share by a plan that was overwritten, or for a Placement that was deleted.
    Its quota is then too small or too large for the workers.
    """
    was_placed = runs and reservation.round <= current.implied_placed_round
    return (
        was_placed
        or not reservation.counts
        or reservation.counts == {group.role: group.count for group in share.groups}
    )
