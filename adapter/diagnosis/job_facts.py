"""The facts about one job: its objects in the manager cluster, and what was not readable.

Matches objects by uid, because names are reused. `explain` judges the facts.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.diagnosis.blocker import as_sentence
from adapter.objects.kuberay_events import RejectionEvent
from adapter.objects.rayjob import JobObject, JobStatus, read_job, read_status
from adapter.objects.unstructured import (
    Raw,
    controller_uid,
    label,
    mapping_field,
    meta,
    printable,
    text_field,
    uid_of,
)
from adapter.objects.workload import active_slice, is_elastic

# The list of clusters in the text of `move_from.ignored_part`.
_IGNORED_CLUSTERS = re.compile(r"\bdo(?:es)? not exist \(([^)]*)")
_LIST_SEPARATOR = re.compile(r", | and \d+ more$")


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job and its objects; a missing object is empty."""

    kind: str  # RayJob or RayCluster
    job: Raw
    workload: Raw = field(default_factory=dict)
    placement: Raw = field(default_factory=dict)
    ray_cluster: Raw = field(default_factory=dict)
    pods: tuple[Raw, ...] = ()  # of the RayCluster
    local_queue: Raw = field(default_factory=dict)
    worker_clusters: Mapping[str, Raw] = field(default_factory=dict)
    checks: frozenset[str] = frozenset()  # our AdmissionChecks
    kuberay_rejection: RejectionEvent | None = None  # of its RayCluster, while that has no pods
    move_notice: str = ""  # the controller's sentence on what it ignores of `move_from`, where we cannot judge
    namespace_notice: str = ""  # why nothing is decided about the namespace's jobs, or empty
    # Plural of a kind -> a sentence why it was not readable.
    unread_reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        return str(meta(self.job).get("namespace") or "")

    @property
    def name(self) -> str:
        return str(meta(self.job).get("name") or "")

    @property
    def queue(self) -> str:
        """The name of the job's LocalQueue, or empty."""
        return label(self.job, names.QUEUE_LABEL)

    @property
    def job_object(self) -> JobObject:
        return read_job(self.kind, self.job)

    @property
    def status(self) -> JobStatus:
        return read_status(self.job)

    @property
    def title(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def our_checks(self) -> frozenset[str]:
        """Our known AdmissionChecks, with the one that the Placement names."""
        placement_check = str((self.placement.get("spec") or {}).get("check") or "")
        return self.checks | ({placement_check} if placement_check else frozenset())


def namespace_notice(events: Iterable[Raw]) -> str:
    """The controller's sentence on an incomplete namespace, from the Events on the namespace; empty if complete.

    The Event is written again every half hour, and a Normal one replaces it.
    """
    return newest_warning(events)


def newest_warning(events: Iterable[Raw]) -> str:
    """The controller's newest sentence in these Events, with its time; empty if it is no warning."""
    own = (event for event in events if text_field(mapping_field(event, "source"), "component") == names.EVENT_SOURCE)
    newest = max(own, key=lambda event: text_field(event, "lastTimestamp"), default={})
    if text_field(newest, "type") != "Warning":
        return ""
    return f"{as_sentence(text_field(newest, 'message'))} (As of {printable(text_field(newest, 'lastTimestamp'))}.)"


def ignored_clusters(event: Raw, clusters: Iterable[str]) -> list[str]:
    """Those of these clusters that an Event of reason MoveFromIgnored names as not existing."""
    listed = _IGNORED_CLUSTERS.search(text_field(event, "message"))
    texts = set(_LIST_SEPARATOR.split(listed[1])) if listed else set()
    return [name for name in clusters if printable(name) in texts]


def workload_of(job: Raw, workloads: Iterable[Raw]) -> Raw:
    """The newest Workload of a job, or the current slice of an elastic job; empty if there is none."""
    own = [workload for workload in workloads if controller_uid(workload) == uid_of(job) and uid_of(job)]
    if any(is_elastic(workload) for workload in own):
        return active_slice(own) or {}
    return max(own, key=_creation_time, default={})


def placement_of(workload: Raw, job: Raw, kind: str, placements: Iterable[Raw]) -> Raw:
    """The newest Placement of a Workload, or empty; without a Workload, the newest with the job's name."""
    own = (placement for placement in placements if _belongs_to(placement, workload, job, kind))
    return max(own, key=_creation_time, default={})


def ray_cluster_name(job: Raw, kind: str) -> str:
    """The name of the job's RayCluster, or empty."""
    if kind == "RayCluster":
        return str(meta(job).get("name") or "")
    return read_status(job).ray_cluster


def pods_of(ray_cluster: Raw, pods: Iterable[Raw]) -> tuple[Raw, ...]:
    """The pods that the RayCluster owns, the head first."""
    own = (pod for pod in pods if controller_uid(pod) == uid_of(ray_cluster) and uid_of(ray_cluster))
    return tuple(sorted(own, key=lambda pod: (not is_head(pod), str(meta(pod).get("name")))))


def is_head(pod: Raw) -> bool:
    """Whether a pod is the head of its RayCluster."""
    return label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD


def _belongs_to(placement: Raw, workload: Raw, job: Raw, kind: str) -> bool:
    spec = placement.get("spec") or {}
    # Only the Placement of an elastic job has the job's uid.
    if elastic_job_uid := (spec.get("job") or {}).get("uid"):
        return bool(elastic_job_uid == uid_of(job))
    if workload:
        return bool((spec.get("workload") or {}).get("uid") == uid_of(workload))
    job_reference = spec.get("job") or {}
    return (job_reference.get("kind"), job_reference.get("name")) == (kind, meta(job).get("name"))


def _creation_time(raw: Raw) -> str:
    return str(meta(raw).get("creationTimestamp") or "")
