"""What of an object does any decision read: which difference between two of its versions is news?

The counters and times that move all the time are not. Whom the news wakes is for event_handlers.py.
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
    """Whether the object came, went, or differs in what matters."""
    return before is None or after is None or facts(before) != facts(after)


def share_for_pods(cluster: str, raw: Raw) -> object:
    """What of a share decides whether its pods may be made."""
    found = parse_reservation(cluster, raw)
    return found.admitted, found.round, found.anchor_uid


def share_for_gang(cluster: str, raw: Raw) -> object:
    """What of a share its gang looks at: not which pods are on it, which Kueue writes down one after the other."""
    return replace(parse_reservation(cluster, raw), version=0)


def quota_reserved_since(raw: Raw) -> object:
    """Since when a Workload holds quota, None while it holds none."""
    return condition_true_since(raw, names.QUOTA_RESERVED)


def workload_priority(raw: Raw) -> object:
    """What a Workload may preempt others by."""
    return (raw.get("spec") or {}).get("priority")


def planning_position(raw: Raw) -> object:
    """Whether a gang stands in the order of planning, and where."""
    work = parse_workload(raw)
    return work.holds_quota and not (work.finished or work.deleting), work.priority


def job_deletion(job: Raw) -> object:
    """Which RayJob or RayCluster it is, and whether it goes."""
    return uid_of(job), meta(job).get("deletionTimestamp")


def job_state(raw: Raw) -> object:
    """The same, and whether it is let run."""
    return job_deletion(raw), (raw.get("spec") or {}).get("suspend")


def placement_quota(raw: Raw) -> object:
    """Where a Placement holds quota, and whether it still does."""
    found = parse_placement(raw)
    return found.active_shares, found.status.get("state") == PlacementState.ENDED


def frees_capacity(before: Raw | None, after: Raw | None) -> bool:
    """Whether a Placement that had shares has others now, or gives them back, or an elastic job asks for less beside its own than it
    did."""
    if before is None or not (was := parse_placement(before)).shares:
        return False
    now = parse_placement(after or {})
    if now.shares != was.shares or (now.withdrawing and not was.withdrawing):
        return True
    more = was.wanted_workers > sum(share.workers for share in was.shares)
    return more and now.wanted_workers < was.wanted_workers


def worker_pod_state(pod: Raw) -> object:
    """What of a manager's pod decides on the fate of its share, and on whose turn it is to move."""
    gone = bool(meta(pod).get("deletionTimestamp")), (pod.get("status") or {}).get("phase")
    return gone, slot_of(pod), has_working_ray_node(pod)


def is_own_patch(before: Raw | None, after: Raw | None, patch: Raw | None) -> bool:
    """Whether a worker pod that goes on became what a patch of ours made of it (`told`, None: there is none), and nothing beside: then whoever
    told it so knows all of it. What an API server makes of a patch in its own way is not that."""
    if patch is None or before is None or after is None or has_ended(after):
        return False
    had, said = meta(before), meta(patch)
    notes = {field: {**(had.get(field) or {}), **said[field]} for field in ("labels", "annotations") if field in said}
    metadata = {**had, **notes, "resourceVersion": meta(after).get("resourceVersion")}
    status = {**(before.get("status") or {}), **patch["status"]}
    wanted = trim.manager_pod({**before, "metadata": metadata, "status": status})
    return bool(without_nulls(wanted) == without_nulls(after))


def endpoint_state(pod: Raw) -> object:
    """What of a worker pod, or of its copy, decides whether requests go straight there."""
    status = pod.get("status") or {}
    there = uid_of(pod), is_deleting(pod), status.get("phase"), status.get("podIP"), status.get("podIPs")
    return there, meta(pod).get("labels"), is_condition_true(pod, "Ready"), is_dispatched(pod), slot_of(pod)


def backend_state(pod: Raw) -> object:
    """What of a worker pod alone decides that, too: whose it is, and whether the manager's nodes are kept from it."""
    return endpoint_state(pod), controller_uid(pod), unlocked_reason(pod)


def service_target(service: Raw) -> object:
    """To which RayCluster a Service leads, and whose it is."""
    return by_selected_ray_cluster(service), controller_uid(service)


def head_address(raw: Raw) -> object:
    """Which pod is the head of a RayCluster, and where it is reached."""
    return (raw.get("status") or {}).get("podIP"), meta(raw).get("deletionTimestamp"), uid_of(raw)


def quota_settings(raw: Raw) -> object:
    """What of a ClusterQueue of the manager decides on the quota that it is to have."""
    return raw.get("spec"), annotation(raw, names.QUOTA_ANNOTATION)


def pending_counts(raw: Raw) -> object:
    """What of a ClusterQueue of the manager says that somebody has come who waits for its quota, or has gone, or that those count who
    wait in another queue of its cohort."""
    queue = read_cluster_queue(raw)
    return queue.pending, queue.borrows


def became_helpable(before: Raw | None, after: Raw | None) -> bool:
    """Whether a Workload of the manager that nothing would have helped waits for quota now: no counter tells of that."""
    return bool(
        before and after and quota_would_not_help(before) and is_pending(after) and not quota_would_not_help(after)
    )


def capacity_rules(raw: Raw) -> object:
    """What of a queue, cohort, flavor, namespace or node decides on room, but for what is in use: not the counters that move all the
    time."""
    status = raw.get("status") or {}
    active = [(c.get("type"), c.get("status")) for c in status.get("conditions") or ()]
    ready = [state for kind, state in active if kind in (names.ACTIVE, "Ready")]
    return raw.get("spec"), status.get("allocatable"), ready, meta(raw).get("labels")


def quota_usage(raw: Raw) -> object:
    """What is in use of a ClusterQueue: nothing to those whose queues are in other trees. A LocalQueue repeats a part of it, which no
    plan reads."""
    return None if key_of(raw)[0] else (raw.get("status") or {}).get("flavorsReservation")
