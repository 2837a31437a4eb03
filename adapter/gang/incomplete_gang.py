"""A gang that needs all of its workers and never ran with all of them: it computes nothing, and holds quota.

After `workerStartTimeout` without capacity elsewhere it queues again. uncreated_workers.py counts the time of workers
without a remote pod, start_timeout.py of the others.
"""

from datetime import datetime

from adapter import names
from adapter.actions import Action
from adapter.gang import carry_over, messages, start_timeout, unused_quota
from adapter.gang.gang_facts import Gang
from adapter.objects.placement import Placement
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw
from adapter.objects.worker_pod import slot_cluster
from adapter.objects.workload import Workload


def is_incomplete(gang: Gang, workload: Workload, placement: Placement) -> bool:
    """Whether all workers must start, and never have.

    An elastic job and a RayService may compute with a part of them. A worker in an unreachable cluster may run.
    """
    workers = gang.pods.workers
    if workers is None or workers.was_complete or not gang.policy.all_or_nothing or placement.job is not None:
        return False
    if workload.job and workload.job.service:
        return False
    return not any(share.cluster in gang.clusters.unreachable for share in placement.active_shares)


def must_queue_again(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> bool:
    """Whether workers did not start in time, or had no slot for as long, and no other cluster has capacity for them."""
    return is_incomplete(gang, workload, placement) and bool(
        start_timeout.stuck_pods(gang, placement, now) or _unplaced_pods(gang, placement, now)
    )


def _unplaced_pods(gang: Gang, placement: Placement, now: datetime) -> list[Raw]:
    return start_timeout.unplaced_pods(gang, placement, now) if unused_quota.are_checks_ready(gang) else []


def queue_again(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    stuck = start_timeout.stuck_pods(gang, placement, now)
    pods = stuck or _unplaced_pods(gang, placement, now)
    noun = "worker of the job" if len(pods) == 1 else "workers of the job"
    reason = clause(start_timeout.reason_of(gang, stuck[0])) if stuck else "their quota was lost before they started"
    text = (
        f"{len(pods)} {noun} did not start {messages.timeout_text(gang.policy.start_timeout)} "
        f"({messages.describe_placement(placement)}): {reason}. The job needs "
        "all of its workers, and no other cluster has capacity, so it gives its capacity back and queues again."
    )
    record = carry_over.record_late_clusters(gang, workload, placement, map(slot_cluster, stuck), now)
    return messages.queue_again(gang, workload, names.EventReason.START_TIMEOUT, text, past_exclusions=record)
