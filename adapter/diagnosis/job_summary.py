"""Summarises the Ray jobs of a namespace, or of all namespaces, one row each.

A job is a RayJob, a RayService, or a RayCluster that neither of them owns. Its outcome is the one that `why` gives;
that of a RayService is its active RayCluster's, or the pending one's while none is active.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from adapter import names
from adapter.diagnosis import explain
from adapter.diagnosis.blocker import Diagnosis
from adapter.diagnosis.job_document import Document
from adapter.diagnosis.job_facts import JobFacts, namespace_notice, placement_of, pods_of, ray_cluster_name, workload_of
from adapter.objects.kuberay_events import certain_rejection, involved_uid
from adapter.objects.raycluster import kuberay_owner
from adapter.objects.rayservice import ray_cluster_names
from adapter.objects.unstructured import Raw, controller_uid, key_of, label, mapping_field, meta, text_field, uid_of

T = TypeVar("T")
RAY_CLUSTER = "RayCluster"
_KIND_ORDER = ("RayJob", RAY_CLUSTER, names.RAY_SERVICE)


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
    rejections: Sequence[Raw]  # KubeRay's Events
    namespace_events: Sequence[Raw]  # of the controller, on incomplete namespaces
    unread_reasons: Mapping[str, str]


def describe_jobs(objects: ListedObjects) -> Document:
    """The document of the jobs with a queue label, null for an unknown value. Programs read its field names."""
    index = _ObjectIndex(objects)
    rows = [_job_row(kind, job, index.facts_of(kind, job)) for kind, job in _selected_jobs(objects)]
    rows.sort(key=lambda row: (row["namespace"], _KIND_ORDER.index(row["kind"]), row["name"]))
    notices = dict.fromkeys(index.namespace_notices())
    return {"jobs": rows, "notes": [*notices, *objects.unread_reasons.values()]}


def _selected_jobs(objects: ListedObjects) -> Iterator[tuple[str, Raw]]:
    for kind, jobs in objects.jobs.items():
        for job in jobs:
            is_owned = kind == RAY_CLUSTER and kuberay_owner(job, ("RayJob", names.RAY_SERVICE)) is not None
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
    named = next(iter(ray_cluster_names(service).values()), "")
    message = f"RayCluster {named} is not shown." if named else "KubeRay has not created its RayCluster yet."
    return Diagnosis("Job", "Waits", "NoRayCluster", title, message)


class _ObjectIndex:
    """The objects by what leads to them from a job, so that a job's facts cost the same among many jobs."""

    def __init__(self, objects: ListedObjects) -> None:
        self._objects = objects
        self._ray_clusters = {key_of(raw): raw for raw in objects.ray_clusters}
        self._queues = {key_of(raw): raw for raw in objects.local_queues}
        self._worker_clusters = {key_of(raw)[1]: raw for raw in objects.worker_clusters}
        # With the namespace, because an object of another namespace may name any uid as its owner.
        self._workloads = _group_by(objects.workloads, _owner_key)
        self._placements_by_job = _group_by(objects.placements, _placement_job)
        self._placements_by_workload = _group_by(objects.placements, _placement_workload)
        self._pods = _group_by(objects.pods, _owner_key)
        self._rejections = _group_by(objects.rejections, involved_uid)
        self._namespace_events = _group_by(objects.namespace_events, lambda event: key_of(event)[0])

    def facts_of(self, kind: str, job: Raw) -> JobFacts | None:
        """The facts of a job, or of a RayService's RayCluster; None if it has no RayCluster."""
        if kind != names.RAY_SERVICE:
            return self._job_facts(kind, job)
        namespace, _ = key_of(job)
        ray_clusters = (self._ray_clusters.get((namespace, name)) for name in ray_cluster_names(job).values())
        ray_cluster = next(filter(None, ray_clusters), None)
        return self._job_facts(RAY_CLUSTER, ray_cluster) if ray_cluster else None

    def namespace_notices(self) -> Iterator[str]:
        """The sentences on incomplete namespaces, whose jobs wait."""
        return filter(None, map(namespace_notice, self._namespace_events.values()))

    def _job_facts(self, kind: str, job: Raw) -> JobFacts:
        namespace, name = key_of(job)
        workload = workload_of(job, self._workloads.get((namespace, uid_of(job)), ()))
        ray_cluster = self._ray_clusters.get((namespace, ray_cluster_name(job, kind)), {})
        pods = pods_of(ray_cluster, self._pods.get((namespace, uid_of(ray_cluster)), ()))
        rejections = self._rejections.get(uid_of(ray_cluster), ()) if ray_cluster and not pods else ()
        placements = [
            *self._placements_by_workload.get(uid_of(workload), ()),
            *self._placements_by_job.get((namespace, kind, name), ()),
        ]
        return JobFacts(
            kind,
            job,
            workload,
            placement_of(workload, job, kind, placements),
            ray_cluster,
            pods,
            self._queues.get((namespace, label(job, names.QUEUE_LABEL)), {}),
            worker_clusters=self._worker_clusters,
            checks=self._objects.checks,
            kuberay_rejection=certain_rejection(ray_cluster, rejections) if rejections else None,
            namespace_notice=namespace_notice(self._namespace_events.get(namespace, ())),
            unread_reasons=self._objects.unread_reasons,
        )


def _owner_key(raw: Raw) -> tuple[str, str]:
    """The namespace of an object, and the uid of its controller."""
    return key_of(raw)[0], controller_uid(raw)


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
