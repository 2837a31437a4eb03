"""Summarises the Ray jobs of a namespace, or of all namespaces, one row each.

A job is a RayJob, a RayService, or a RayCluster that neither of them owns. Its outcome is the one that `why` gives;
that of a RayService is its active RayCluster's, or the pending one's while none is active.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from adapter import names
from adapter.diagnosis import explain
from adapter.diagnosis.blocker import Diagnosis
from adapter.diagnosis.job_document import Document
from adapter.diagnosis.job_facts import JobFacts, placement_of, pods_of, ray_cluster_name, workload_of
from adapter.objects.unstructured import Raw, controller_uid, key_of, label, mapping_field, meta, text_field, uid_of

T = TypeVar("T")
RAY_CLUSTER = "RayCluster"
_KIND_ORDER = ("RayJob", RAY_CLUSTER, names.RAY_SERVICE)
_RELEASE_FIELDS = ("activeServiceStatus", "pendingServiceStatus")  # of a RayService's status


@dataclass(frozen=True, slots=True)
class ListedObjects:
    """All that was read; `jobs` has the selected jobs by kind, the other fields every object."""

    jobs: Mapping[str, Sequence[Raw]]
    ray_clusters: Sequence[Raw]
    workloads: Sequence[Raw]
    placements: Sequence[Raw]
    pods: Sequence[Raw]
    local_queues: Sequence[Raw]
    worker_clusters: Sequence[Raw]
    checks: frozenset[str]  # our AdmissionChecks
    unread_reasons: Mapping[str, str]


def describe_jobs(objects: ListedObjects) -> Document:
    """The document of the jobs with a queue label, null for an unknown value. Programs read its field names."""
    index = _ObjectIndex(objects)
    rows = [_job_row(kind, job, index.facts_of(kind, job)) for kind, job in _selected_jobs(objects)]
    rows.sort(key=lambda row: (row["namespace"], _KIND_ORDER.index(row["kind"]), row["name"]))
    return {"jobs": rows, "notes": list(objects.unread_reasons.values())}


def _selected_jobs(objects: ListedObjects) -> Iterator[tuple[str, Raw]]:
    for kind, jobs in objects.jobs.items():
        for job in jobs:
            is_owned = kind == RAY_CLUSTER and bool(controller_uid(job))
            if label(job, names.QUEUE_LABEL) and not is_owned:
                yield kind, job


def _job_row(kind: str, job: Raw, facts: JobFacts | None) -> Document:
    """The row of a job; `facts` are those of a RayService's RayCluster, None while it has none."""
    diagnosis = explain.diagnose(facts) if facts else _missing_ray_cluster(job)
    status = mapping_field(facts.placement, "status") if facts else {}
    namespace, name = key_of(job)
    return {
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "queue": label(job, names.QUEUE_LABEL),
        "outcome": diagnosis.outcome,
        "stage": diagnosis.stage,
        "reason": diagnosis.reason,
        "sentence": diagnosis.message,
        "workers": text_field(status, "workers") or None,
        "where": text_field(status, "where") or None,
        "created": text_field(meta(job), "creationTimestamp") or None,
    }


def _missing_ray_cluster(service: Raw) -> Diagnosis:
    namespace, name = key_of(service)
    title = f"{names.RAY_SERVICE} {namespace}/{name}"
    return Diagnosis("Job", "Waits", "NoRayCluster", title, "KubeRay has not created its RayCluster yet.")


class _ObjectIndex:
    """The objects by what leads to them from a job, so that a job's facts cost the same among many jobs."""

    def __init__(self, objects: ListedObjects) -> None:
        self._objects = objects
        self._ray_clusters = {key_of(raw): raw for raw in objects.ray_clusters}
        self._queues = {key_of(raw): raw for raw in objects.local_queues}
        self._worker_clusters = {key_of(raw)[1]: raw for raw in objects.worker_clusters}
        self._workloads = _group_by(objects.workloads, controller_uid)
        self._placements_by_job = _group_by(objects.placements, _placement_job)
        self._placements_by_workload = _group_by(objects.placements, _placement_workload)
        self._pods = _group_by(objects.pods, controller_uid)

    def facts_of(self, kind: str, job: Raw) -> JobFacts | None:
        """The facts of a job, or of a RayService's RayCluster; None if it has no RayCluster."""
        if kind != names.RAY_SERVICE:
            return self._job_facts(kind, job)
        ray_clusters = [self._ray_clusters.get(key) for key in _release_keys(job)]
        ray_cluster = next(filter(None, ray_clusters), None)
        return self._job_facts(RAY_CLUSTER, ray_cluster) if ray_cluster else None

    def _job_facts(self, kind: str, job: Raw) -> JobFacts:
        namespace, name = key_of(job)
        workload = workload_of(job, self._workloads.get(uid_of(job), ()))
        ray_cluster = self._ray_clusters.get((namespace, ray_cluster_name(job, kind)), {})
        placements = [
            *self._placements_by_workload.get(uid_of(workload), ()),
            *self._placements_by_job.get((namespace, kind, name), ()),
        ]
        facts = JobFacts(
            kind,
            job,
            workload,
            placement_of(workload, job, kind, placements),
            ray_cluster,
            pods_of(ray_cluster, self._pods.get(uid_of(ray_cluster), ())),
            worker_clusters=self._worker_clusters,
            checks=self._objects.checks,
            unread_reasons=self._objects.unread_reasons,
        )
        return replace(facts, local_queue=self._queues.get((namespace, facts.queue), {}))


def _release_keys(service: Raw) -> list[tuple[str, str]]:
    """Namespace and name of a RayService's RayClusters; a name may be empty."""
    status, namespace = mapping_field(service, "status"), key_of(service)[0]
    return [(namespace, text_field(mapping_field(status, field), "rayClusterName")) for field in _RELEASE_FIELDS]


def _placement_job(placement: Raw) -> tuple[str, str, str]:
    """Namespace, kind and name of a Placement's job."""
    job = mapping_field(mapping_field(placement, "spec"), "job")
    return key_of(placement)[0], text_field(job, "kind"), text_field(job, "name")


def _placement_workload(placement: Raw) -> str:
    """The uid of a Placement's Workload."""
    return text_field(mapping_field(mapping_field(placement, "spec"), "workload"), "uid")


def _group_by(objects: Iterable[Raw], get_group: Callable[[Raw], T]) -> Mapping[T, list[Raw]]:
    groups: defaultdict[T, list[Raw]] = defaultdict(list)
    for raw in objects:
        groups[get_group(raw)].append(raw)
    return groups
