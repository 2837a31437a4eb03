"""A running gang that has fewer workers than its minimum: its program may hang, while its shares hold quota.

With `minWorkersTimeout` in its policy, such a gang queues again after that time. A condition of the Placement records
since when workers are missing, so a restart of the controller does not restart the time. A gang that has not reached
its minimum yet has `workerStartTimeout` at least, from when its head is ready: its nodes and images may take that long.

A worker in an unreachable cluster counts as running until it counts as lost. A worker that has a slot and starts does
not: one that crashes again and again would start for ever.
"""

from collections.abc import Iterator
from datetime import datetime

from adapter import names
from adapter.actions import Action, RequeueAfter
from adapter.gang import carry_over, messages, start_timeout, unused_quota
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang, WorkerCounts
from adapter.gang.timeouts import end_of_wait
from adapter.objects.placement import Placement
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw, condition, format_time, meta, parse_time, updated_condition
from adapter.objects.worker_pod import has_working_ray_node, slot_cluster
from adapter.objects.workload import Workload


def minimum_workers(gang: Gang, placement: Placement, counts: WorkerCounts) -> int:
    """How many workers must run: all, or those of an elastic job's minReplicas; for BestEffort minWorkers if fewer."""
    required = counts.fewest if placement.job else counts.desired
    return min(gang.policy.min_workers or required, required)


def record_shortage(gang: Gang, placement: Placement, now: datetime) -> list[Action]:
    """Record on the Placement whether the minimum runs; empty once that is done."""
    if not gang.policy.clusters or not unused_quota.are_checks_ready(gang):
        return []
    before, counts = _recorded(placement), gang.pods.worker_counts
    if gang.policy.min_workers_timeout is None and not before:
        return []
    others = messages.other_conditions(placement, names.MIN_WORKERS_RUNNING)
    if gang.policy.min_workers_timeout is None:
        return messages.update_status(placement, {"conditions": others})
    if counts is None:
        return []
    minimum = minimum_workers(gang, placement, counts)
    after = updated_condition(before, _describe(before, counts.running, minimum), format_time(now))
    return messages.update_status(placement, {"conditions": [*others, after]})


def _recorded(placement: Placement) -> Raw:
    return condition({"status": placement.status}, names.MIN_WORKERS_RUNNING)


def _describe(before: Raw, running: int, minimum: int) -> Raw:
    """The condition; its message has no count of workers, so a large gang that starts costs no write per worker."""
    reasons = names.ConditionReason
    if running >= minimum:
        status, reason, text = "True", reasons.MIN_WORKERS_RUNNING, f"At least {minimum} workers run."
    elif before.get("status") == "True" or before.get("reason") == reasons.BELOW_MIN_WORKERS:
        status, reason, text = "False", reasons.BELOW_MIN_WORKERS, f"Fewer than {minimum} workers run."
    else:
        status, reason, text = "False", reasons.MIN_WORKERS_STARTING, f"Fewer than {minimum} workers have run so far."
    return {"type": names.MIN_WORKERS_RUNNING, "status": status, "reason": str(reason), "message": text}


def is_overdue(gang: Gang, placement: Placement, now: datetime) -> bool:
    due = _due_at(gang, placement, now)
    return due is not None and now >= due


def recheck(gang: Gang, placement: Placement, now: datetime) -> list[Action]:
    due = _due_at(gang, placement, now)
    return [RequeueAfter(due - now)] if due else []


def _due_at(gang: Gang, placement: Placement, now: datetime) -> datetime | None:
    """When a gang below its minimum queues again; None while it is not, or its time has not begun."""
    counts, timeout, entry = gang.pods.worker_counts, gang.policy.min_workers_timeout, _recorded(placement)
    since = parse_time(entry.get("lastTransitionTime"))
    if counts is None or timeout is None or since is None or not unused_quota.are_checks_ready(gang):
        return None
    if entry.get("status") == "True" or counts.running >= minimum_workers(gang, placement, counts):
        return None
    if entry.get("reason") == names.ConditionReason.BELOW_MIN_WORKERS:
        return end_of_wait(since, timeout, now)
    head_since = gang.pods.workers.head_ready_since if gang.pods.workers else None
    return end_of_wait(max(since, head_since), max(timeout, gang.policy.start_timeout), now) if head_since else None


def queue_again(gang: Gang, workload: Workload, placement: Placement, now: datetime) -> list[Action]:
    counts, timeout = gang.pods.worker_counts, gang.policy.min_workers_timeout
    assert counts is not None and timeout is not None
    minimum, verb = minimum_workers(gang, placement, counts), "runs" if counts.running == 1 else "run"
    text = (
        f"Fewer than {minimum} workers of the job ran for {timeout.total_seconds():.0f}s, and {counts.running} {verb} "
        f"now ({messages.describe_placement(placement)}): {_shortage_reason(gang)}. The job gives its capacity back "
        "and queues again, because its DispatchPolicy has spec.minWorkersTimeout. It starts again when there is "
        "capacity for the workers that it needs."
    )
    record = carry_over.record_late_clusters(gang, workload, placement, _failing_clusters(gang, now - timeout / 2), now)
    return messages.queue_again(gang, workload, names.EventReason.MIN_WORKERS_TIMEOUT, text, past_exclusions=record)


def _shortage_reason(gang: Gang) -> str:
    workers = gang.pods.workers
    if workers is None or not workers.living_pods or workers.head_ready_since is None:
        return clause(unused_quota.unused_reason(gang))
    return "; ".join(_shortage_parts(gang, workers))


def _shortage_parts(gang: Gang, workers: GangWorkers) -> Iterator[str]:
    if unplaced := len(start_timeout.pods_awaiting_slot(workers)):
        yield f"{unplaced} without a slot, because no cluster has capacity"
    stopped = [pod for pod in workers.pods_with_slot if not has_working_ray_node(pod)]
    for cluster in dict.fromkeys(map(slot_cluster, stopped)):
        pods = [pod for pod in stopped if slot_cluster(pod) == cluster]
        yield f"{len(pods)} not ready in {cluster}, {clause(start_timeout.reason_of(gang, pods[0]))}"
    if uncreated := start_timeout.uncreated_pods(workers):
        yield f"{uncreated} without a manager pod"


def _failing_clusters(gang: Gang, before: datetime) -> list[str]:
    """The clusters of workers that do not run, although head and worker had the time; fresh workers blame none."""
    workers = gang.pods.workers
    if workers is None or workers.head_ready_since is None or workers.head_ready_since > before:
        return []
    stopped = (pod for pod in workers.pods_with_slot if not has_working_ray_node(pod) and _is_older(pod, before))
    return [cluster for pod in stopped if (cluster := slot_cluster(pod)) not in gang.clusters.closed]


def _is_older(pod: Raw, before: datetime) -> bool:
    created = parse_time(meta(pod).get("creationTimestamp"))
    return created is not None and created <= before
