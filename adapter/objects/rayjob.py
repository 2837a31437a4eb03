"""Typed records of the RayJobs and RayClusters of an API server."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from adapter import names
from adapter.objects import kuberay_rules, raycluster
from adapter.objects.location import Location
from adapter.objects.move_from import NO_MOVE, MoveFrom, read_move_from
from adapter.objects.raycluster import RayClusterSpec
from adapter.objects.unstructured import (
    Raw,
    annotation,
    mapping_field,
    meta,
    parse_time,
    text_field,
    uid_of,
)
from adapter.objects.workload import Job, PodSet, Workload

_SUBMITTER_MODE = "K8sJobMode"  # the default


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a RayJob or RayCluster."""

    deployment_status: str = ""
    job_status: str = ""
    state: str = ""  # of a RayCluster
    reason: str = ""
    message: str = ""
    ray_cluster: str = ""

    @property
    def is_finished(self) -> bool:
        """Whether KubeRay has ended a RayJob, whose quota Kueue then gives back (kueue:pkg/controller/jobs/rayjob).

        A jobStatus of FAILED alone may be followed by a retry.
        """
        return self.deployment_status in ("Complete", "Failed")


@dataclass(frozen=True, slots=True)
class JobObject:
    kind: str = ""
    is_known: bool = False  # False: the other fields are defaults
    of_service: bool = False  # it is not submitted, and its user wrote a RayService
    uid: str = ""
    created: datetime | None = None
    deleting: bool = False
    elastic: bool = False
    resizes: bool = False  # its annotation requests in-place resizes of pods
    suspended: bool = False  # spec.suspend
    submission_mode: str = ""  # of a RayJob
    service: Job | None = None  # the RayService that owns it
    move_from: MoveFrom = NO_MOVE
    kuberay_faults: tuple[str, ...] = ()  # fragments: the rules of KubeRay that it breaks
    cluster: RayClusterSpec = field(default_factory=RayClusterSpec)
    cluster_path: str = "spec"  # where its user wrote the spec of the RayCluster
    status: JobStatus = field(default_factory=JobStatus)

    @property
    def has_submitter(self) -> bool:
        """Whether it has a submitter pod, which Kueue counts as the last podset."""
        return self.is_known and self.kind == "RayJob" and self.submission_mode == _SUBMITTER_MODE


def read_ray_job(raw: Raw) -> JobObject:
    """Read a RayJob (kuberay:apis/ray/v1/rayjob_types.go); never raises."""
    return read_job("RayJob", raw)


def read_ray_cluster(raw: Raw) -> JobObject:
    """Read a RayCluster (kuberay:apis/ray/v1/raycluster_types.go); never raises."""
    return read_job("RayCluster", raw)


def read_job(kind: str, raw: Raw, *, of_service: bool = False) -> JobObject:
    """Read a RayJob or RayCluster; an empty object is an unknown job. Never raises.

    `of_service`: it is the RayCluster of a RayService that is not submitted.
    """
    spec = mapping_field(raw, "spec")
    cluster, cluster_path = raycluster.spec_and_path(kind, raw, of_service=of_service)
    return JobObject(
        kind=kind,
        is_known=bool(raw),
        of_service=of_service,
        uid=uid_of(raw),
        created=parse_time(meta(raw).get("creationTimestamp")),
        deleting=bool(meta(raw).get("deletionTimestamp")),
        elastic=annotation(raw, names.ELASTIC_ANNOTATION) == "true",
        resizes=bool(annotation(raw, names.RAY_IN_PLACE_RESIZE_ANNOTATION)),
        suspended=bool(spec.get("suspend")),
        submission_mode=(text_field(spec, "submissionMode") or _SUBMITTER_MODE) if kind == "RayJob" else "",
        service=raycluster.owning_service(raw),
        move_from=read_move_from(raw),
        kuberay_faults=kuberay_rules.kuberay_faults(kind, raw, of_service=of_service),
        cluster=raycluster.read_spec(cluster),
        cluster_path=cluster_path,
        status=read_status(raw),
    )


def read_status(raw: Raw) -> JobStatus:
    status = mapping_field(raw, "status")
    fields = ("jobDeploymentStatus", "jobStatus", "state", "reason", "message", "rayClusterName")
    return JobStatus(*(text_field(status, name) for name in fields))


UNKNOWN_JOB = JobObject()
UNKNOWN_JOBS = {kind: read_job(kind, {}) for kind in names.RAY_KINDS}  # for memos, which compare identities


def job_presence(job: Job, known: JobObject) -> Literal["There", "Leaving", "Gone"]:
    """Whether a job exists, judged by `known`, the object of its name.

    A finalizer may keep a job "Leaving" for hours. "Gone" includes a job that was not observed yet; its first event
    enqueues its gang again. A job of another kind than Ray's counts as "There".
    """
    if job.kind not in names.RAY_KINDS:
        return "There"
    if known.uid != job.uid:
        return "Gone"
    return "Leaving" if known.deleting else "There"


def is_running(job: Job, known: JobObject) -> bool:
    return job_presence(job, known) == "There" and not known.suspended


def worker_podsets(workload: Workload, job: JobObject) -> list[PodSet]:
    """The podsets of a Workload that are worker groups of its job; none where the job is of another kind.

    A group may have any name, so podsets are identified by their order: the head, the groups as in the spec, then the
    submitter of a RayJob that has one (kueue:pkg/controller/jobs/raycluster/common.go BuildPodSets;
    rayjob_controller.go addSubmitterPodSet). While the job is unknown, no podset counts as submitter.
    """
    if workload.job is None or workload.job.kind not in names.RAY_KINDS:
        return []
    rest = list(workload.podsets[1:])
    return rest[:-1] if job.has_submitter and rest and rest[-1].name == names.SUBMITTER else rest


def autoscaler_env(job: JobObject) -> frozenset[str] | None:
    """The user's variables for Ray's autoscaler; None without an autoscaler, or with version 1, which reads none."""
    cluster = job.cluster
    return cluster.autoscaler_env if cluster.autoscaling and cluster.autoscaler_version != "v1" else None


def podset_min_workers(job: JobObject) -> dict[str, int]:
    """The workers of each podset's minReplicas; Ray's autoscaler and KubeRay never go below that."""
    return {group.podset: group.min_replicas * group.hosts for group in job.cluster.groups}


def podset_hosts(job: JobObject) -> dict[str, int]:
    """The hosts of a replica of each worker group with several."""
    return {group.podset: group.hosts for group in job.cluster.groups if group.hosts > 1}


def podset_locations(job: JobObject) -> dict[str, Location]:
    """The location in the Ray labels of each worker group.

    Ray's autoscaler chooses a group by these labels, and no podset has them
    (docs/upstream.md, "Labels of a worker group").
    """
    return {group.podset: group.location for group in job.cluster.groups if any(group.location)}
