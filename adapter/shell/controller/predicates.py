"""Predicates: which difference between two versions of an object matters to a decision.

Counters and times that change all the time do not. Which keys a change enqueues is in event_handlers.py.
"""

from collections.abc import Callable
from dataclasses import replace

from adapter import names
from adapter.objects import trim
from adapter.objects.pending_workload import is_pending, quota_would_not_help
from adapter.objects.placement import PlacementState, parse_placement
from adapter.objects.queues import read_cluster_queue
from adapter.objects.reservation import parse_reservation
from adapter.objects.unstructured import (
    Raw,
    annotation,
    condition_true_since,
    controller_uid,
    is_condition_true,
    key_of,
    meta,
    uid_of,
)
from adapter.objects.worker_pod import (
    has_ended,
    has_working_ray_node,
    is_deleting,
    is_dispatched,
    slot_of,
    unlocked_reason,
)
from adapter.objects.workload import parse_workload
from adapter.shell.clusters.indexes import by_selected_ray_cluster
from adapter.worker.status_mirror import without_nulls


def changed(before: Raw | None, after: Raw | None, facts: Callable[[Raw], object]) -> bool:
    """Whether the object was created, deleted, or differs in `facts`."""
    return before is None or after is None or facts(before) != facts(after)


def share_for_pods(cluster: str, raw: Raw) -> object:
    """The facts of a share that decide whether its pods may be created."""
    reservation = parse_reservation(cluster, raw)
    return reservation.admitted, reservation.round, reservation.anchor_uid


def share_for_gang(cluster: str, raw: Raw) -> object:
    """The facts of a share that its gang reads. The pods on it, which Kueue writes one by one, are not among them."""
    return replace(parse_reservation(cluster, raw), version=0)


def quota_reserved_since(raw: Raw) -> object:
    """Since when a Workload holds quota, None while it holds none."""
    return condition_true_since(raw, names.QUOTA_RESERVED)


def workload_priority(raw: Raw) -> object:
    """The priority by which a Workload may preempt others."""
    return (raw.get("spec") or {}).get("priority")


def planning_position(raw: Raw) -> object:
    """Whether a gang is in the scheduling order, and its priority."""
    workload = parse_workload(raw)
    return workload.holds_quota and not (workload.finished or workload.deleting), workload.priority


def job_deletion(job: Raw) -> object:
    """Identity and deletion time of a RayJob or RayCluster."""
    return uid_of(job), meta(job).get("deletionTimestamp")


def job_state(raw: Raw) -> object:
    """Identity, deletion time and `spec.suspend` of a job."""
    return job_deletion(raw), (raw.get("spec") or {}).get("suspend")


def placement_quota(raw: Raw) -> object:
    """The shares for which a Placement holds quota, and whether it has ended."""
    placement = parse_placement(raw)
    return placement.active_shares, placement.status.get("state") == PlacementState.ENDED


def frees_capacity(before: Raw | None, after: Raw | None) -> bool:
    """Whether a Placement frees capacity: its shares changed, it withdraws them, or an elastic job wants fewer
    additional workers."""
    if before is None or not (previous := parse_placement(before)).shares:
        return False
    current = parse_placement(after or {})
    if current.shares != previous.shares or (current.withdrawing and not previous.withdrawing):
        return True
    wanted_more = previous.wanted_workers > sum(share.workers for share in previous.shares)
    return wanted_more and current.wanted_workers < previous.wanted_workers


def worker_pod_state(pod: Raw) -> object:
    """The facts of a manager pod that decide on its share, and on what happens next."""
    deletion = bool(meta(pod).get("deletionTimestamp")), (pod.get("status") or {}).get("phase")
    return deletion, slot_of(pod), has_working_ray_node(pod)


def is_own_patch(before: Raw | None, after: Raw | None, patch: Raw | None) -> bool:
    """Whether a living worker pod differs only by our own pending `patch` (None: there is none).

    Its writer knows that state already. It is False when the API server applies the patch in its own way.
    """
    if patch is None or before is None or after is None or has_ended(after):
        return False
    old, patched = meta(before), meta(patch)
    notes = {
        field: {**(old.get(field) or {}), **patched[field]} for field in ("labels", "annotations") if field in patched
    }
    metadata = {**old, **notes, "resourceVersion": meta(after).get("resourceVersion")}
    status = {**(before.get("status") or {}), **patch["status"]}
    expected = trim.manager_pod({**before, "metadata": metadata, "status": status})
    return bool(without_nulls(expected) == without_nulls(after))


def endpoint_state(pod: Raw) -> object:
    """The facts of a worker pod, or of its remote pod, that decide whether requests go straight to it."""
    status = pod.get("status") or {}
    identity = uid_of(pod), is_deleting(pod), status.get("phase"), status.get("podIP"), status.get("podIPs")
    return identity, meta(pod).get("labels"), is_condition_true(pod, "Ready"), is_dispatched(pod), slot_of(pod)


def backend_state(pod: Raw) -> object:
    """`endpoint_state`, the pod's controller, and whether the scheduling gate and the lock keep it from the manager's
    nodes."""
    return endpoint_state(pod), controller_uid(pod), unlocked_reason(pod)


def service_target(service: Raw) -> object:
    """The RayCluster that a Service routes to, and the Service's controller."""
    return by_selected_ray_cluster(service), controller_uid(service)


def head_address(raw: Raw) -> object:
    """The identity of a RayCluster's head pod, and its address."""
    return (raw.get("status") or {}).get("podIP"), meta(raw).get("deletionTimestamp"), uid_of(raw)


def quota_settings(raw: Raw) -> object:
    """The facts of a ClusterQueue of the manager that decide on its aggregated quota."""
    return raw.get("spec"), annotation(raw, names.QUOTA_ANNOTATION)


def pending_counts(raw: Raw) -> object:
    """The counts of pending Workloads of a ClusterQueue of the manager, and whether it borrows.

    Where it borrows, the pending Workloads of other queues in its cohort count, too.
    """
    queue = read_cluster_queue(raw)
    return queue.pending, queue.borrows


def became_helpable(before: Raw | None, after: Raw | None) -> bool:
    """Whether a Workload that no freed quota would have helped now waits for quota; no counter shows that."""
    return bool(
        before and after and quota_would_not_help(before) and is_pending(after) and not quota_would_not_help(after)
    )


def capacity_rules(raw: Raw) -> object:
    """The facts of a queue, cohort, flavor, namespace or node that decide on capacity, without usage and counters."""
    status = raw.get("status") or {}
    active = [(c.get("type"), c.get("status")) for c in status.get("conditions") or ()]
    ready = [state for kind, state in active if kind in (names.ACTIVE, "Ready")]
    return raw.get("spec"), status.get("allocatable"), ready, meta(raw).get("labels")


def quota_usage(raw: Raw) -> object:
    """The usage of a ClusterQueue. It is None for a LocalQueue, whose usage is a part of that and read by no plan."""
    return None if key_of(raw)[0] else (raw.get("status") or {}).get("flavorsReservation")
