"""The actions: the closed vocabulary between the decisions and the shell.

An action can be repeated safely: it names the uid it is meant for, or creates under a name that only its own attempt
can have. It carries all that its execution needs, so no store is read between decision and execution. A Plan is the
exception: it is decided on once more when the planner reaches it. shell/write/execute.py executes the actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from adapter.names import EventReason, OrphanReason
from adapter.objects.placement import Exclusion, Placement, Share, ShareKey
from adapter.objects.references import Reference
from adapter.objects.reservation import Reservation
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import Job, PodSet, Workload
from adapter.rewrite.target import Target


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan a new round, and write it to the attempt's Placement."""

    workload: Workload
    placement: Placement | None
    exclusions: tuple[Exclusion, ...]
    # Shares of a running gang that stay as they are: only the other workers are planned. None: the gang does not run.
    kept_shares: tuple[Share, ...] | None = None
    lost_reason: str = ""  # why other workers must be planned, for people; empty: the previous plan's reason stands
    # How often clusters denied the pods of a share, or did not admit single workers in time.
    failures: int = 0
    # Worker group -> slots on `kept_shares` that do not count, because workers do not start there.
    unusable_slots: Mapping[str, int] = field(default_factory=dict)
    start_timed_out: bool = False  # a cluster is excluded because workers did not start there in time


@dataclass(frozen=True, slots=True)
class RetargetPlacement:
    """Point the Placement of an elastic job to its present workload slice and number of workers."""

    placement: Placement
    workload: Workload
    wanted_workers: int
    drops_shares: bool = False  # all shares are deleted, with the manager's quota; otherwise they stay


@dataclass(frozen=True, slots=True)
class DryRunPod:
    """Create a remote pod as a dry run in a worker cluster, which shows how that cluster would change it."""

    workload: Workload
    podset: PodSet  # the worker group
    target: Target
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the anchor and the group Workload of one share, in the cluster of its target."""

    placement: Placement
    share: Share
    target: Target
    groups: tuple[tuple[str, int, Mapping[str, Any]], ...]  # worker group, its workers on the share, its template
    priority: int | None
    starts_gang: bool  # the gang does not run yet, so all of its workers start together
    # Worker group -> template to hold quota for instead of the podset's, where a dry run of this cluster gave one.
    dry_run_templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteSharePods:
    """Delete these pods of a share, with their grace periods; the share holds its quota until they have ended."""

    reservation: Reservation
    pods: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DeleteShare:
    """Delete a share in its worker cluster, with all objects that its anchor owns."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class SetCheck:
    """Write our entry in the Workload's admission checks."""

    workload: Workload
    check: str
    state: str
    message: str
    podset_updates: tuple[Mapping[str, Any], ...] = ()
    # Must still be admitted when read from the API servers just before the write.
    reservations_to_verify: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Deactivate a Workload that cannot be placed, so that Workloads behind it get its quota."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Reactivate:
    """Reactivate a Workload, so that it queues again."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class UpdatePlacementStatus:
    """Write the Placement's status."""

    placement: Placement
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePlacement:
    """Delete the Placement of an attempt that has ended."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Record an event on the job."""

    regarding: Job
    reason: EventReason
    message: str
    warning: bool = False
    names_job: bool = False  # the message begins with the kind and name of the job


@dataclass(frozen=True, slots=True)
class AssignSlot:
    """Write a free slot of the Placement to a manager pod."""

    pod: Mapping[str, Any]
    cluster: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class MirrorHead:
    """Create or patch one object of the head's mirror in a worker cluster.

    A body with a resourceVersion is a merge patch of that version. If the cluster denies the write, an event is
    recorded on `regarding`.
    """

    cluster: str
    regarding: Job | None
    placement: Placement
    share_key: ShareKey  # of the share that the pod is on
    pod: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the remote pod of a manager pod, after the copied objects that it refers to.

    If that fails, an event is recorded on `regarding`.
    """

    cluster: str
    regarding: Job | None
    placement: Placement
    share_key: ShareKey  # of the share that the pod is on
    pod: Mapping[str, Any]
    body: Mapping[str, Any]
    references: Mapping[Reference, str] = field(
        default_factory=dict
    )  # object -> the first field that requires it, or ""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a remote pod."""

    cluster: str
    pod: Mapping[str, Any]
    reason: str
    orphan: OrphanReason | None = None  # set if no manager pod wants it


@dataclass(frozen=True, slots=True)
class PatchPodStatus:
    """Write the status of a manager pod."""

    pod: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutEndpointSlice:
    """Create or patch an EndpointSlice in the manager cluster, which leads requests to remote workers.

    A body with a resourceVersion is a merge patch of that version. If the write is denied, an event is recorded on
    `regarding`.
    """

    regarding: Job
    body: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteEndpointSlice:
    """Delete one of our EndpointSlices in the manager cluster."""

    regarding: Job
    endpoint_slice: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Requeue the key after this delay."""

    delay: timedelta


Action = (
    Plan
    | RetargetPlacement
    | DryRunPod
    | Reserve
    | DeleteSharePods
    | DeleteShare
    | SetCheck
    | Deactivate
    | Reactivate
    | UpdatePlacementStatus
    | DeletePlacement
    | EmitEvent
    | AssignSlot
    | MirrorHead
    | CreatePod
    | DeletePod
    | PatchPodStatus
    | PutEndpointSlice
    | DeleteEndpointSlice
    | RequeueAfter
)


def emit_event(
    job: Job | None, reason: EventReason, message: str, *, warning: bool = False, names_job: bool = False
) -> list[Action]:
    """The action that records an event on the job; none if the job is not known."""
    return [EmitEvent(job, reason, message, warning, names_job)] if job else []


def target_cluster(action: Action) -> str:
    """The worker cluster that an action is executed in; empty for the manager cluster."""
    match action:
        case DeleteSharePods() | DeleteShare():
            return action.reservation.cluster
        case Reserve():
            return action.share.cluster
        case DryRunPod():
            return action.target.cluster
        case MirrorHead() | CreatePod() | DeletePod():
            return action.cluster
        case _:
            return ""


def describe(action: Action) -> str:
    """One log line for an action; never with a body, which may hold a user's secrets."""
    words = [type(action).__name__]
    if cluster := target_cluster(action):
        words.append(f"cluster={cluster}")
    if isinstance(action, SetCheck):
        words.append(f"state={action.state} {action.message}")
    words += [f"{field}={value}" for field in ("slot", "reason") if (value := getattr(action, field, ""))]
    return " ".join(words)
