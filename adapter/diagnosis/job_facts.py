"""What is known of one job: its objects in the manager cluster, as one look found them, and what could not be read?

What belongs to a job is told by uids, for names come again. Nothing is judged here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from adapter import names
from adapter.objects.rayjob import JobObject, JobStatus, read_job, read_status
from adapter.objects.unstructured import Raw, controller_uid, label, meta, uid_of
from adapter.objects.workload import active_slice, is_elastic


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job with what hangs on it; an object that is not there is empty."""

    kind: str  # RayJob or RayCluster
    job: Raw
    workload: Raw = field(default_factory=dict)
    placement: Raw = field(default_factory=dict)
    ray_cluster: Raw = field(default_factory=dict)
    pods: tuple[Raw, ...] = ()  # of the RayCluster
    local_queue: Raw = field(default_factory=dict)
    worker_clusters: Mapping[str, Raw] = field(default_factory=dict)
    checks: frozenset[str] = frozenset()  # the AdmissionChecks that are ours
    unread_reasons: Mapping[str, str] = field(
        default_factory=dict
    )  # plural of a kind -> a sentence that says why it was not read

    @property
    def namespace(self) -> str:
        return str(meta(self.job).get("namespace") or "")

    @property
    def name(self) -> str:
        return str(meta(self.job).get("name") or "")

    @property
    def queue(self) -> str:
        """The LocalQueue that the job names, empty when it names none."""
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
        """The checks that are ours, as far as that can be told: the Placement names its own."""
        named = str((self.placement.get("spec") or {}).get("check") or "")
        return self.checks | ({named} if named else frozenset())


def workload_of(job: Raw, workloads: Iterable[Raw]) -> Raw:
    """The Workload of a job; the youngest, where Kueue made another one; of an elastic job the one that stands for it now. Empty when
    there is none."""
    own = [one for one in workloads if controller_uid(one) == uid_of(job) and uid_of(job)]
    if any(is_elastic(one) for one in own):
        return active_slice(own) or {}
    return max(own, key=_creation_time, default={})


def placement_of(workload: Raw, job: Raw, kind: str, placements: Iterable[Raw]) -> Raw:
    """The youngest Placement of a Workload; by the job's name while the Workload is not known. Empty when there is none."""
    own = (one for one in placements if _belongs_to(one, workload, job, kind))
    return max(own, key=_creation_time, default={})


def ray_cluster_name(job: Raw, kind: str) -> str:
    """What the RayCluster of a job is called, empty while it has none."""
    if kind == "RayCluster":
        return str(meta(job).get("name") or "")
    return read_status(job).ray_cluster


def pods_of(ray_cluster: Raw, pods: Iterable[Raw]) -> tuple[Raw, ...]:
    """Those of the pods that the RayCluster owns, the head first."""
    own = (pod for pod in pods if controller_uid(pod) == uid_of(ray_cluster) and uid_of(ray_cluster))
    return tuple(sorted(own, key=lambda pod: (not is_head(pod), str(meta(pod).get("name")))))


def is_head(pod: Raw) -> bool:
    """Whether a pod is the head of its RayCluster."""
    return label(pod, names.RAY_NODE_TYPE_LABEL) == names.HEAD


def _belongs_to(placement: Raw, workload: Raw, job: Raw, kind: str) -> bool:
    spec = placement.get("spec") or {}
    if of_elastic := (spec.get("job") or {}).get("uid"):
        return bool(of_elastic == uid_of(job))
    if workload:
        return bool((spec.get("workload") or {}).get("uid") == uid_of(workload))
    of = spec.get("job") or {}
    return (of.get("kind"), of.get("name")) == (kind, meta(job).get("name"))


def _creation_time(raw: Raw) -> str:
    return str(meta(raw).get("creationTimestamp") or "")
