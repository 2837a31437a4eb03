"""Decides whether KubeRay's event still counts: whether KubeRay rejects a RayCluster as it is now.

KubeRay validates a RayCluster after every change of its spec, and repeats the event if it is still invalid. No event
says which generation it is about, so an event beside an edit is in doubt for DOUBT_SECONDS. Then a waiting job is
tried, because KubeRay records another event once Kueue resumes an invalid job. A resumed job has the same time to be
accepted. So neither error lasts: a corrected job waits for DOUBT_SECONDS at most, and an invalid one is tried once.
Source: docs/upstream.md, "KubeRay's rejections".
"""

from dataclasses import dataclass
from typing import Final

from adapter.objects.kuberay_events import RayClusterRevision, RejectionEvent

# Far more than KubeRay takes from an edit to its event, some tens of milliseconds, also where the API server is busy.
DOUBT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class KubeRayRejection:
    """KubeRay's reason and message."""

    reason: str
    message: str
    is_final: bool  # an edit of the spec does not help


@dataclass(frozen=True, slots=True)
class ValidationNote:
    """When a process first observed a RayCluster's spec and its newest event, by the monotonic clock."""

    generation: int
    suspended: bool
    edited_at: float
    event_version: str
    event_at: float


def update_note(
    note: ValidationNote | None, revision: RayClusterRevision, event: RejectionEvent, now: float
) -> ValidationNote:
    edited_at = now if note is None or _is_edit(note, revision) else note.edited_at
    event_at = note.event_at if note and note.event_version == event.version else now
    return ValidationNote(revision.generation, revision.suspended, edited_at, event.version, event_at)


def _is_edit(note: ValidationNote, revision: RayClusterRevision) -> bool:
    """Whether more changed than Kueue's suspend, which makes no RayCluster valid or invalid."""
    is_flip = revision.generation == note.generation + 1 and revision.suspended != note.suspended
    return revision.generation != note.generation and not is_flip


def is_rejected(
    revision: RayClusterRevision, event: RejectionEvent, note: ValidationNote, now: float, *, is_placed: bool
) -> bool:
    """Whether KubeRay rejects the RayCluster as it is; `is_placed`: Kueue may resume it, or has done so."""
    if event.object_version == revision.version:
        return True
    if revision.accepted_generation == revision.generation:
        return False
    if not revision.accepted_generation:
        return True  # KubeRay would have written its first status
    if note.event_at < note.edited_at:
        return False
    doubt_ends = note.edited_at + DOUBT_SECONDS
    if note.event_at >= doubt_ends:
        return True
    if is_placed:
        return now >= doubt_ends and not revision.suspended
    return now < doubt_ends
