"""KubeRay's warning events about a RayCluster that it rejects: its status says nothing of it.

admission/kuberay_validation.py decides how long such an event counts (docs/upstream.md, "KubeRay's rejections").
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from adapter.objects.unstructured import (
    Raw,
    mapping_field,
    meta,
    printable,
    text_field,
    uid_of,
    version_of,
    whole_field,
)

VALIDATION_FAILED: Final = "ValidationFailed"  # of a RayJob's status.jobDeploymentStatus; KubeRay never leaves it
SELECTOR: Final = "involvedObject.kind=RayCluster,source=raycluster-controller,type=Warning"
MAX_MESSAGE: Final = 1_024
_MAX_EVENTS: Final = 64  # of one object; KubeRay's rate limit is 25
_REASONS: Final = frozenset({"InvalidRayClusterMetadata", "InvalidRayClusterSpec", "InvalidRayClusterStatus"})


@dataclass(frozen=True, slots=True)
class RejectionEvent:
    version: str  # every repetition of the event is a new version of it
    object_version: str  # of the RayCluster that KubeRay read first with this result
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class RayClusterRevision:
    version: str
    generation: int
    accepted_generation: int  # status.observedGeneration: KubeRay writes no status of a RayCluster that it rejects
    suspended: bool


def newest_rejection(events: Iterable[Raw]) -> RejectionEvent | None:
    """The rejection that was recorded or repeated last, among the events of one RayCluster."""
    newest = max(filter(is_rejection, islice(events, _MAX_EVENTS)), key=version_of, default=None)
    if newest is None:
        return None
    return RejectionEvent(
        version=text_field(meta(newest), "resourceVersion"),
        object_version=text_field(mapping_field(newest, "involvedObject"), "resourceVersion"),
        reason=text_field(newest, "reason"),
        message=printable(text_field(newest, "message"), MAX_MESSAGE),
    )


def certain_rejection(ray_cluster: Raw, events: Iterable[Raw]) -> RejectionEvent | None:
    """The rejection of a RayCluster as it is now; None if its status and events leave a doubt.

    KubeRay writes no status of a RayCluster that it rejects, so one without a status was never accepted.
    """
    uid, revision = uid_of(ray_cluster), read_revision(ray_cluster)
    event = newest_rejection(event for event in events if uid and involved_uid(event) == uid)
    if event is None:
        return None
    is_current = event.object_version == revision.version or not revision.accepted_generation
    return event if is_current else None


def read_revision(ray_cluster: Raw) -> RayClusterRevision:
    metadata, status = meta(ray_cluster), mapping_field(ray_cluster, "status")
    return RayClusterRevision(
        version=text_field(metadata, "resourceVersion"),
        generation=whole_field(metadata, "generation") or 0,
        accepted_generation=whole_field(status, "observedGeneration") or 0,
        suspended=bool(mapping_field(ray_cluster, "spec").get("suspend")),
    )


def is_rejection(event: Raw) -> bool:
    return text_field(event, "reason") in _REASONS


def involved_uid(event: Raw) -> str:
    return text_field(mapping_field(event, "involvedObject"), "uid")


def trim_event(event: Raw) -> Raw:
    """An event with the fields that a rejection has; another event without content."""
    metadata = {key: value for key, value in meta(event).items() if key in ("namespace", "name", "uid")}
    metadata["resourceVersion"] = text_field(meta(event), "resourceVersion")
    if not is_rejection(event):
        return {"metadata": metadata}
    involved: dict[str, Any] = {
        key: text_field(mapping_field(event, "involvedObject"), key) for key in ("name", "uid", "resourceVersion")
    }
    message = text_field(event, "message")[:MAX_MESSAGE]
    return {"metadata": metadata, "involvedObject": involved, "reason": event["reason"], "message": message}
