"""A running gang that has fewer workers than its minimum: its program may hang, while its shares hold quota.

With `minWorkersTimeout` in its policy, such a gang queues again after that time. A condition of the Placement records
since when workers are missing, so a restart of the controller does not restart the time; but a process observes the
shortage for a minute before it stops anything, because facts may be old when it starts. A gang that has not reached its
minimum yet has `workerStartTimeout` at least, from when its head is ready: its nodes and images may take that long. The
same holds for each new attempt and each new RayCluster of a RayJob.

A worker in an unreachable cluster may run until it counts as lost. A worker that has a slot and starts does not count:
one that crashes again and again would start for ever. While an init container of one loads data, the gang goes on.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from adapter import names
from adapter.actions import Action, RequeueAfter
from adapter.gang import carry_over, messages, start_timeout, unused_quota
from adapter.gang.drain_order import GangWorkers
from adapter.gang.gang_facts import Gang, WorkerCounts
from adapter.gang.timeouts import end_of_wait
from adapter.objects.placement import Placement
from adapter.objects.reason import clause
from adapter.objects.unstructured import Raw, condition, format_time, meta, parse_time, updated_condition
from adapter.objects.worker_pod import has_working_ray_node, is_dispatched, slot_cluster
from adapter.objects.workload import Workload

# How long a process observes a shortage at least, if `minWorkersTimeout` is longer.
OBSERVED_FOR = timedelta(seconds=60)


def minimum_workers(gang: Gang, placement: Placement, counts: WorkerCounts) -> int:
    """How many workers must run: all, or those of an elastic job's minReplicas; for BestEffort minWorkers if fewer."""
    # An elastic job that was scaled up has no quota yet for workers beyond those of its Placement.
    required = min(counts.fewest, placement.wanted_workers) if placement.job else counts.desired
    return min(gang.policy.min_workers or required, required)


def record_shortage(gang: Gang, placement: Placement, now: datetime) -> list[Action]:
    """Record on the Placement whether the minimum runs; empty once that is done."""
    if not gang.policy.clusters or not unused_quota.are_checks_ready(gang):
        return []
    counts, is_recorded = gang.pods.worker_counts, bool(_condition_of(placement))
    others = messages.other_conditions(placement, names.MIN_WORKERS_RUNNING)
    if gang.policy.min_workers_timeout is None or counts is None:
        return messages.update_status(placement, {"conditions": others}) if is_recorded else []
    before, minimum = _recorded(gang, placement), minimum_workers(gang, placement, counts)
    if counts.running < minimum <= counts.running + counts.unknown:
        return []
    after = updated_condition(before, _describe(before, counts.running, minimum), format_time(now))
    return messages.update_status(placement, {"conditions": [*others, after]})


def _condition_of(placement: Placement) -> Raw:
    return condition({"status": placement.status}, names.MIN_WORKERS_RUNNING)


def _recorded(gang: Gang, placement: Placement) -> Raw:
    """The condition; empty if it is of an earlier attempt, or of an earlier RayCluster of a RayJob."""
    entry, counts = _condition_of(placement), gang.pods.worker_counts
    since = parse_time(entry.get("lastTransitionTime"))
    starts = [gang.workload.reserved_at if gang.workload else None, counts.created if counts else None]
    return entry if since and all(start is None or since >= start for start in starts) else {}


def is_below_minimum(gang: Gang, placement: Placement) -> bool:
    """Whether fewer workers run, for certain; not while a missing one still loads data."""
    counts = gang.pods.worker_counts
    if counts is None or gang.policy.min_workers_timeout is None or not unused_quota.are_checks_ready(gang):
        return False
    if counts.running + counts.unknown >= minimum_workers(gang, placement, counts):
        return False
    return not any(map(start_timeout.loads_data, gang.pods.workers.remote_pods.values() if gang.pods.workers else ()))


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
    timeout, entry, observed_since = (
        gang.policy.min_workers_timeout,
        _recorded(gang, placement),
        gang.pods.below_minimum_since,
    )
    since = parse_time(entry.get("lastTransitionTime"))
    if timeout is None or since is None or observed_since is None or not is_below_minimum(gang, placement):
        return None
    if entry.get("status") == "True":
        return None
    observed_until = observed_since + min(timeout, OBSERVED_FOR)
    if entry.get("reason") == names.ConditionReason.BELOW_MIN_WORKERS:
        return max(end_of_wait(since, timeout, now), observed_until)
    head_since = gang.pods.workers.head_ready_since if gang.pods.workers else None
    if head_since is None:
        return None
    timeout = max(timeout, gang.policy.start_timeout)
    return max(end_of_wait(max(since, head_since), timeout, now), observed_until)


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
    return "; ".join(_shortage_parts(gang, workers)) or clause(unused_quota.unused_reason(gang))


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
    stopped = (
        pod
        for pod in workers.pods_with_slot
        if is_dispatched(pod) and not has_working_ray_node(pod) and _is_older(pod, before)
    )
    return [cluster for pod in stopped if (cluster := slot_cluster(pod)) not in gang.clusters.closed]


def _is_older(pod: Raw, before: datetime) -> bool:
    created = parse_time(meta(pod).get("creationTimestamp"))
    return created is not None and created <= before
