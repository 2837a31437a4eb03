"""Predicates: which difference between two versions of an object matters to a decision.

Counters and times that change all the time do not matter. event_handlers.py decides which keys a change enqueues.
"""

from collections.abc import Callable
from dataclasses import replace

from adapter import names
from adapter.objects import trim
from adapter.objects.kuberay_events import (
    VALIDATION_FAILED,
    involved_uid,
    is_rejection,
    read_revision,
)
from adapter.objects.move_from import read_move_from
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
    mapping_field,
    meta,
    text_field,
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
from adapter.worker.manager_pod_status import without_nulls


def changed(before: Raw | None, after: Raw | None, facts: Callable[[Raw], object]) -> bool:
    """Whether the object was created, deleted, or differs in `facts`."""
    return before is None or after is None or facts(before) != facts(after)


def share_for_pods(cluster: str, raw: Raw) -> object:
    """The facts that decide whether a share's pods may be created."""
    reservation = parse_reservation(cluster, raw)
    return reservation.admitted, reservation.round, reservation.anchor_uid


def share_for_gang(cluster: str, raw: Raw) -> object:
    """The facts of a share that decide on its gang; not its version, because Kueue writes about its pods one by one."""
    return replace(parse_reservation(cluster, raw), version=0)


def quota_reserved_since(raw: Raw) -> object:
    return condition_true_since(raw, names.QUOTA_RESERVED)


def workload_priority(raw: Raw) -> object:
    return (raw.get("spec") or {}).get("priority")


def planning_position(raw: Raw) -> object:
    """Whether a gang is in the scheduling order, and its priority."""
    workload = parse_workload(raw)
    return workload.holds_quota and not (workload.finished or workload.deleting), workload.priority


def job_deletion(job: Raw) -> object:
    return uid_of(job), meta(job).get("deletionTimestamp")


def job_state(raw: Raw) -> object:
    """Identity, deletion time, `spec.suspend`, and whether KubeRay rejects a RayJob."""
    deployment = text_field(mapping_field(raw, "status"), "jobDeploymentStatus")
    return job_deletion(raw), (raw.get("spec") or {}).get("suspend"), deployment == VALIDATION_FAILED


def move_from(job: Raw) -> object:
    """The worker clusters that a job's workers are to leave."""
    return frozenset(read_move_from(job).clusters)


def kuberay_validation(ray_cluster: Raw) -> object:
    """The generations that were written and accepted."""
    revision = read_revision(ray_cluster)
    return revision.generation, revision.accepted_generation


def kuberay_rejection(event: Raw) -> object:
    """The version, because each repetition counts."""
    return (text_field(meta(event), "resourceVersion"), involved_uid(event)) if is_rejection(event) else None


def placement_quota(raw: Raw) -> object:
    """The shares with quota, and whether the Placement has ended."""
    placement = parse_placement(raw)
    return placement.active_shares, placement.status.get("state") == PlacementState.ENDED


def placed_round(raw: Raw) -> object:
    """The last round whose shares may have workers."""
    return parse_placement(raw).implied_placed_round


def frees_capacity(before: Raw | None, after: Raw | None) -> bool:
    """Whether a change of a Placement frees capacity.

    It does if the shares changed, the Placement withdraws them, none of its workers waits any more, or an elastic job
    wants fewer workers.
    """
    if before is None or not (previous := parse_placement(before)).shares:
        return False
    current = parse_placement(after or {})
    if current.shares != previous.shares or (current.withdrawing and not previous.withdrawing):
        return True
    if previous.waiting_since and not current.waiting_since:
        return True
    has_too_few = previous.wanted_workers > sum(share.workers for share in previous.shares)
    # The shares may suffice in sum, and one of the worker groups may still wait.
    wanted_more = has_too_few or previous.waiting_since is not None
    return wanted_more and current.wanted_workers < previous.wanted_workers


def worker_pod_state(pod: Raw) -> object:
    """The facts of a manager pod that decide on its share."""
    deletion = bool(meta(pod).get("deletionTimestamp")), (pod.get("status") or {}).get("phase")
    return deletion, slot_of(pod), has_working_ray_node(pod)


def is_own_patch(before: Raw | None, after: Raw | None, patch: Raw | None) -> bool:
    """Whether a living worker pod differs only by our own pending `patch`, whose writer knows that state."""
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
    """The facts that decide whether requests go straight to a worker pod, or its remote pod."""
    status = pod.get("status") or {}
    identity = uid_of(pod), is_deleting(pod), status.get("phase"), status.get("podIP"), status.get("podIPs")
    return identity, meta(pod).get("labels"), is_condition_true(pod, "Ready"), is_dispatched(pod), slot_of(pod)


def backend_state(pod: Raw) -> object:
    """`endpoint_state`, the controller, and whether the pod is kept from the manager's nodes."""
    return endpoint_state(pod), controller_uid(pod), unlocked_reason(pod)


def service_target(service: Raw) -> object:
    """The RayCluster that a Service selects, and the Service's controller."""
    return by_selected_ray_cluster(service), controller_uid(service)


def head_address(raw: Raw) -> object:
    return (raw.get("status") or {}).get("podIP"), meta(raw).get("deletionTimestamp"), uid_of(raw)


def quota_settings(raw: Raw) -> object:
    """The facts that decide on aggregated quota."""
    return raw.get("spec"), annotation(raw, names.QUOTA_ANNOTATION)


def pending_counts(raw: Raw) -> object:
    """The pending Workloads, and whether the queue borrows: then the pending Workloads of its cohort count, too."""
    queue = read_cluster_queue(raw)
    return queue.pending, queue.borrows


def became_helpable(before: Raw | None, after: Raw | None) -> bool:
    """Whether freed quota helps a pending Workload now, but did not help it before; no counter shows that."""
    return bool(
        before and after and quota_would_not_help(before) and is_pending(after) and not quota_would_not_help(after)
    )


def capacity_rules(raw: Raw) -> object:
    """The facts that decide on capacity, without usage and counters."""
    status = raw.get("status") or {}
    active = [(c.get("type"), c.get("status")) for c in status.get("conditions") or ()]
    ready = [state for kind, state in active if kind in (names.ACTIVE, "Ready")]
    return raw.get("spec"), status.get("effectiveQuotas"), status.get("allocatable"), ready, meta(raw).get("labels")


def quota_usage(raw: Raw) -> object:
    """The usage of a ClusterQueue; None for a LocalQueue, whose usage is part of its ClusterQueue's."""
    return None if key_of(raw)[0] else (raw.get("status") or {}).get("flavorsReservation")
