"""The actions: the closed vocabulary between the decisions and the shell.

An action is safe to repeat: it names the uid of the object that it is meant for, or creates under a name that only its
own attempt can have. It carries all that its execution needs, so no store is read after the decision. Only a Plan is
decided on once more, when the planner reaches it. shell/write/execute.py executes the actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from adapter.names import EventReason, OrphanReason
from adapter.objects.past_exclusions import PastExclusions
from adapter.objects.placement import Exclusion, GroupShare, Placement, Share, ShareKey
from adapter.objects.references import Reference
from adapter.objects.reservation import Reservation
from adapter.objects.unstructured import MAX_ITEM_LENGTH, Raw, truncate, uid_of
from adapter.objects.worker_pod import Slot
from adapter.objects.workload import Job, PodSet, Workload
from adapter.relay.relayed_worker import RelayedWorker
from adapter.rewrite.target import Target


@dataclass(frozen=True, slots=True)
class WithheldWorkers:
    """The workers of shares that were given back, because none of them was created (gang/withheld_workers.py)."""

    pods: frozenset[str] = frozenset()  # manager pods, by uid
    missing: tuple[GroupShare, ...] = ()  # workers without a manager pod


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan a new round into the attempt's Placement."""

    workload: Workload
    placement: Placement | None
    exclusions: tuple[Exclusion, ...]
    # The shares that a running gang keeps: only workers that need another slot are planned. None: the gang does not
    # run.
    kept_shares: tuple[Share, ...] | None = None
    lost_reason: str = ""  # why workers need another slot; empty: the previous reason stands
    # What counts as failed rounds: denials of a share's pods, and single-worker shares not admitted in time.
    failures: int = 0
    # Worker group -> slots on `kept_shares` where workers do not start.
    unusable_slots: Mapping[str, int] = field(default_factory=dict)
    start_timed_out: bool = False  # so a cluster is excluded
    start_timeouts_before: int = 0  # in earlier attempts
    last_round: int = 0  # the last one that a deleted Placement's shares and pods still use; new rounds follow it
    withheld_workers: Mapping[str, int] = field(default_factory=dict)  # worker group -> workers that get no slot now
    newly_withheld: WithheldWorkers | None = None  # from this plan on
    withheld_for: timedelta = timedelta(0)  # the newly withheld


@dataclass(frozen=True, slots=True)
class RetargetPlacement:
    """Point an elastic job's Placement to the job's present slice."""

    placement: Placement
    workload: Workload
    wanted_workers: int
    drops_shares: bool = False  # the manager's quota was lost


@dataclass(frozen=True, slots=True)
class DryRunPod:
    """Dry-run a remote pod in a worker cluster, to see how that cluster changes the pod."""

    workload: Workload
    podset: PodSet
    target: Target
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the anchor and the group Workload of one share."""

    placement: Placement
    share: Share
    target: Target
    groups: tuple[tuple[str, int, Mapping[str, Any]], ...]  # worker group, its workers, its template
    priority: int | None
    starts_gang: bool  # all workers of the share start together
    # Worker group -> the template that quota is requested for, where a dry run gave one.
    dry_run_templates: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeleteSharePods:
    """Delete pods of a share, which holds its quota until they have ended."""

    reservation: Reservation
    pods: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class DeleteShare:
    """Delete a share, with all objects that its anchor owns."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class SetCheck:
    """Write our entry in the Workload's admission checks."""

    workload: Workload
    check: str
    state: str
    message: str
    podset_updates: tuple[Mapping[str, Any], ...] = ()
    # The shares that must still be admitted when they are read just before the write.
    reservations_to_verify: tuple[Reservation, ...] = ()
    # What the next attempt must know; it is recorded on the Workload before.
    past_exclusions: PastExclusions | None = None


@dataclass(frozen=True, slots=True)
class RecordExclusions:
    """Record on a Workload what its next attempt must know of worker clusters."""

    workload: Workload
    past_exclusions: PastExclusions


@dataclass(frozen=True, slots=True)
class Deactivate:
    """Deactivate a Workload, so that Workloads behind it get its quota."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Reactivate:
    workload: Workload


@dataclass(frozen=True, slots=True)
class UpdatePlacementStatus:
    placement: Placement
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletePlacement:
    """Delete the Placement of an attempt that has ended."""

    placement: Placement


@dataclass(frozen=True, slots=True)
class EmitEvent:
    regarding: Job
    reason: EventReason
    message: str
    warning: bool = False
    names_job: bool = False  # the message begins with the job's kind and name


@dataclass(frozen=True, slots=True)
class AssignSlot:
    """Write a free slot to a manager pod."""

    pod: Mapping[str, Any]
    cluster: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class MirrorHead:
    """Create or patch one object of the head's mirror in a worker cluster.

    A body with a resourceVersion is a merge patch of that version. A denied write is reported on `regarding`.
    """

    cluster: str
    regarding: Job | None
    placement: Placement
    share_key: ShareKey  # of the pod
    pod: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a remote pod after the copied objects that it refers to; report failures on `regarding`."""

    cluster: str
    regarding: Job | None
    placement: Placement
    share_key: ShareKey  # of the pod
    pod: Mapping[str, Any]
    body: Mapping[str, Any]
    # Copied object -> the first field that requires it; empty if the pod starts without the object.
    references: Mapping[Reference, str] = field(default_factory=dict)
    relay: RelayedWorker | None = None  # what it needs to join through the relay


@dataclass(frozen=True, slots=True)
class DeletePod:
    cluster: str
    pod: Mapping[str, Any]
    reason: str
    orphan: OrphanReason | None = None  # set if no manager pod wants the remote pod


@dataclass(frozen=True, slots=True)
class PatchPodStatus:
    """Write the status of a manager pod."""

    pod: Mapping[str, Any]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutEndpointSlice:
    """Create or patch an EndpointSlice in the manager cluster; `body` and `regarding` are as in MirrorHead."""

    regarding: Job
    body: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class DeleteEndpointSlice:
    regarding: Job
    endpoint_slice: Mapping[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    delay: timedelta


Action = (
    Plan
    | RetargetPlacement
    | DryRunPod
    | Reserve
    | DeleteSharePods
    | DeleteShare
    | SetCheck
    | RecordExclusions
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


def fail_pod(pod: Raw, reason: str, text: str) -> PatchPodStatus:
    """Fail a manager pod, so that KubeRay creates another one; its uid is a precondition."""
    status = {"phase": "Failed", "reason": reason, "message": truncate(text, MAX_ITEM_LENGTH)}
    return PatchPodStatus(pod, {"metadata": {"uid": uid_of(pod)}, "status": status})


def emit_event(
    job: Job | None, reason: EventReason, message: str, *, warning: bool = False, names_job: bool = False
) -> list[Action]:
    """Record an event, if the job is known."""
    return [EmitEvent(job, reason, message, warning, names_job)] if job else []


def target_cluster(action: Action) -> str:
    """The worker cluster of an action; empty for the manager cluster."""
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
    """The action as one log line, without the body, which may hold a user's secrets."""
    words = [type(action).__name__]
    if cluster := target_cluster(action):
        words.append(f"cluster={cluster}")
    if isinstance(action, SetCheck):
        words.append(f"state={action.state} {action.message}")
    words += [f"{field}={value}" for field in ("slot", "reason") if (value := getattr(action, field, ""))]
    return " ".join(words)
