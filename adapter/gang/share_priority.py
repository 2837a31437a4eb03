"""Shares whose priority in the worker cluster is not the job's any more.

Kueue changes the priority of the manager's Workload when a user gives the job another WorkloadPriorityClass, or when
the class is edited. A share keeps the priority that it was created with. A share that waits for quota is deleted and
created again (cleanup.py). A share that holds quota stays, because its quota might not come back, and an event says so.
The priority that the share requested is compared, because admission in the worker cluster may have replaced it.
"""

from adapter import names
from adapter.actions import Action, emit_event
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Placement
from adapter.objects.reservation import Reservation
from adapter.objects.workload import Workload
from adapter.rewrite.target import capped_priority


def must_renew_priority(gang: Gang, reservation: Reservation) -> bool:
    """Whether a share waits for quota with an outdated priority."""
    return reservation.waits_for_quota and _has_outdated_priority(gang, reservation)


def warn_of_outdated_priority(gang: Gang, workload: Workload, placement: Placement) -> list[Action]:
    reservations = gang.reservations_of(placement, placement.active_shares).values()
    outdated = [r for r in reservations if r and not r.waits_for_quota and _has_outdated_priority(gang, r)]
    if not outdated:
        return []
    parts = sorted({f"{reservation.requested_priority} in {reservation.cluster}" for reservation in outdated})
    text = (
        f"The job's priority is {workload.priority or 0} now, and workers that have quota keep the one that they were "
        f"placed with: {', '.join(parts)}. Kueue there preempts by that number. To start all workers with the new "
        "priority, set spec.active of the job's Workload to false, and then to true."
    )
    return emit_event(workload.job, names.EventReason.PRIORITY_OUTDATED, text, warning=True)


def _has_outdated_priority(gang: Gang, reservation: Reservation) -> bool:
    workload, target = gang.workload, gang.clusters.targets.get(reservation.cluster)
    if workload is None or target is None or reservation.requested_priority is None:
        return False
    return reservation.requested_priority != (capped_priority(workload.priority, target.max_priority) or 0)
