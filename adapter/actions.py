"""What may be done: the closed vocabulary between the decisions and the shell.

Each action is safe to do twice: it names the uid it is meant for, or creates under a name that only its own attempt can
have. And each is closed: it carries all that its doer needs, so what was decided is done as it was decided, and nobody looks
at the stores again in between; but for a Plan, which is decided on once more when its turn has come. `shell/write/execute.py` says who does each.
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
    """Ask the planner for a new round, and write its answer to the attempt's Placement."""

    workload: Workload
    placement: Placement | None
    exclusions: tuple[Exclusion, ...]  # clusters not asked now
    kept_shares: tuple[Share, ...] | None = (
        None  # of a gang that runs: what stays as it is, and only the rest is planned
    )
    lost_reason: str = ""  # why the rest has to be, for people; empty: as it was said before
    failures: int = (
        0  # how often clusters failed it: refused the pods of a share, or did not admit single workers in time
    )
    # by worker group: how many slots of what is kept are no place, because workers do not start there
    unusable_slots: Mapping[str, int] = field(default_factory=dict)
    start_timed_out: bool = False  # a cluster is left out because workers did not start there in time


@dataclass(frozen=True, slots=True)
class RetargetPlacement:
    """Let the Placement of an elastic job stand for the Workload that is its slice now and wants so many workers; its shares stay,
    or all of them are given up with the quota of the manager, where `drops_shares` says so."""

    placement: Placement
    workload: Workload
    wanted_workers: int
    drops_shares: bool = False


@dataclass(frozen=True, slots=True)
class DryRunPod:
    """Ask a worker cluster by a dry run what it would make of a copy; nothing is kept there."""

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
    groups: tuple[
        tuple[str, int, Mapping[str, Any]], ...
    ]  # worker group, its workers on this share, its podset's template
    priority: int | None
    starts_gang: bool  # the gang does not run yet, so all of its workers start together
    dry_run_templates: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # by group: the template to hold instead, where its cluster said what it makes of the podset's


@dataclass(frozen=True, slots=True)
class DeleteSharePods:
    """Delete these pods of a share, with their grace: its quota stays held until they are gone."""

    reservation: Reservation
    pods: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DeleteShare:
    """Delete a share in its worker cluster, with all that hangs on its anchor."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class SetCheck:
    """Write our entry of the Workload's admission checks."""

    workload: Workload
    check: str
    state: str
    message: str
    podset_updates: tuple[Mapping[str, Any], ...] = ()
    reservations_to_verify: tuple[
        Reservation, ...
    ] = ()  # must still be admitted when read just before, not from a cache


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Take a Workload that cannot be placed out of the queue for a moment, so that those behind it get its quota."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Reactivate:
    """Put it back into the queue."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class UpdatePlacementStatus:
    """Write the Placement's status."""

    placement: Placement
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePlacement:
    """Delete the Placement of an attempt that is over."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """Tell the user, as an event on the object that the user looks at."""

    regarding: Job
    reason: EventReason
    message: str
    warning: bool = False
    names_job: bool = False  # the message begins with the kind and name of the job


@dataclass(frozen=True, slots=True)
class AssignSlot:
    """Bind a manager's pod to a free slot of its Placement."""

    pod: Mapping[str, Any]
    cluster: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class MirrorHead:
    """Make or mend an object of those by which the head's name resolves in a worker cluster, for this pod of the manager;
    `about` hears of it when the cluster refuses. A body with a resourceVersion is a merge patch of the object that has it.
    """

    cluster: str
    regarding: Job | None
    placement: Placement
    share_key: ShareKey  # the pod's
    pod: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create the remote copy of a manager's pod, and before it those of what it refers to; `about` hears of it when that
    cannot be done."""

    cluster: str
    regarding: Job | None
    placement: Placement
    share_key: ShareKey  # the one that it is on
    pod: Mapping[str, Any]
    body: Mapping[str, Any]
    references: Mapping[Reference, str] = field(default_factory=dict)  # as `references.wanted` says it


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a remote pod."""

    cluster: str
    pod: Mapping[str, Any]
    reason: str
    orphan: OrphanReason | None = None  # set where no manager pod stands for it


@dataclass(frozen=True, slots=True)
class PatchPodStatus:
    """Write the status of a manager's gated pod."""

    pod: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutEndpointSlice:
    """Make or change an EndpointSlice of the manager, which leads requests to workers elsewhere; `about` hears of it when that is
    refused. A body with a resourceVersion is a merge patch of the slice that has it."""

    regarding: Job
    body: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteEndpointSlice:
    """Delete an EndpointSlice of ours in the manager."""

    regarding: Job
    endpoint_slice: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Nothing to do before this much time has passed, unless something changes."""

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
    """An event on the job, where it is known."""
    return [EmitEvent(job, reason, message, warning, names_job)] if job else []


def target_cluster(action: Action) -> str:
    """The worker cluster that an action waits for, empty for the manager."""
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
    """One log line for an action: what, where, why; never a body, which may hold a user's secrets."""
    words = [type(action).__name__]
    if cluster := target_cluster(action):
        words.append(f"cluster={cluster}")
    if isinstance(action, SetCheck):
        words.append(f"state={action.state} {action.message}")
    words += [f"{field}={value}" for field in ("slot", "reason") if (value := getattr(action, field, ""))]
    return " ".join(words)
