"""What does Kueue make of a RayJob or RayCluster: which of its podsets are worker groups, and if it is not submitted yet, its
queue and its podsets?

Whoever writes one that is not submitted is no API server, so every field of that is checked before it is read; what is wrong is an
`Unusable` with a sentence, and so are lines that it lacks and that Kueue asks for where KubeRay alone does not. What else the API
server or Kueue's webhooks might refuse is for them to say. A fault ends the reading of no more than nobody can judge then, so that all
are told at once. The resources that Kueue adds to the head for KubeRay's sidecars are left
out: the head never leaves the manager.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar

from adapter import names
from adapter.objects import pod_requests, raycluster
from adapter.objects.raycluster import RayClusterSpec
from adapter.objects.unstructured import (
    UNREADABLE,
    Raw,
    annotation,
    format_time,
    mapping_field,
    meta,
    parse_time,
    printable,
    text_field,
    uid_of,
)
from adapter.objects.workload import Job, PodSet, Workload

MAX_PODSETS = 18  # kueue:pkg/controller/jobframework/constants.go MaxPodSets
MAX_NAME_LENGTH = 253  # of an object
# Of a job for which a plan is asked. An object in etcd is no larger than 1.5 MiB, and a job of 18 groups takes some 100 KiB.
MAX_JOB_BYTES = 2**20
_MAX_INT32 = 2**31 - 1  # an int32 in Kueue's and KubeRay's types
_NUMBER_DEFAULTS = {
    "minReplicas": 0,
    "maxReplicas": 0,
    "replicas": 0,
    "numOfHosts": 1,
}  # of a worker group, each with its default

_SUBMITTER_MODE = "K8sJobMode"  # the default of spec.submissionMode

T = TypeVar("T")
P = ParamSpec("P")


class InvalidJob(ValueError):
    """Not a job for which a plan can be asked; the text is a sentence, the first one of `every`."""

    def __init__(self, first: str, *more: str) -> None:
        super().__init__(first)
        self.messages = (first, *more)


@dataclass(frozen=True, slots=True)
class JobManifest:
    """A job as its user wrote it, with what Kueue would make of it."""

    kind: str
    name: str
    namespace: str
    queue: str  # empty: it names none
    priority_class: str  # a WorkloadPriorityClass; empty: it names none
    podsets: tuple[PodSet, ...]  # its head and its worker groups
    raw: Raw

    @property
    def job(self) -> "JobObject":
        return read_job(self.kind, self.raw)

    def __str__(self) -> str:
        return f"{self.kind} {printable(self.name, MAX_NAME_LENGTH)}"


@dataclass(frozen=True, slots=True)
class JobParseResult:
    """A job as far as it can be read, and all that keeps it from being one for which a plan can be asked."""

    manifest: (
        JobManifest | None
    )  # without what has a fault; None where nothing of it can be judged, and then it has faults
    faults: tuple[str, ...]  # sentences, in the order of the spec


@dataclass(frozen=True, slots=True)
class JobStatus:
    """What KubeRay reports in the status of a RayJob or RayCluster; each field may be empty."""

    deployment_status: str = ""  # jobDeploymentStatus
    job_status: str = ""  # jobStatus
    state: str = ""  # of a RayCluster
    reason: str = ""
    message: str = ""
    ray_cluster: str = ""  # rayClusterName


@dataclass(frozen=True, slots=True)
class JobObject:
    """A RayJob or RayCluster as it stands."""

    kind: str = ""
    is_known: bool = False  # else nothing is known of it, and the other fields are defaults
    uid: str = ""
    created: datetime | None = None
    deleting: bool = False
    elastic: bool = False  # its annotation says that its size may change
    resizes: bool = False  # its annotation asks KubeRay to resize pods in place
    suspended: bool = False  # spec.suspend
    submission_mode: str = ""  # of a RayJob
    service: Job | None = None  # the RayService that it is of
    cluster: RayClusterSpec = field(default_factory=RayClusterSpec)
    status: JobStatus = field(default_factory=JobStatus)

    @property
    def has_submitter(self) -> bool:
        """Whether a pod of its own submits to the RayCluster, which Kueue counts as the last podset."""
        return self.is_known and self.kind == "RayJob" and self.submission_mode == _SUBMITTER_MODE


def read_ray_job(raw: Raw) -> JobObject:
    """Read a RayJob (kuberay:apis/ray/v1/rayjob_types.go); never raises."""
    return read_job("RayJob", raw)


def read_ray_cluster(raw: Raw) -> JobObject:
    """Read a RayCluster (kuberay:apis/ray/v1/raycluster_types.go); never raises."""
    return read_job("RayCluster", raw)


def read_job(kind: str, raw: Raw) -> JobObject:
    """Read a RayJob or RayCluster; an empty object is an unknown job. Never raises."""
    spec = mapping_field(raw, "spec")
    return JobObject(
        kind=kind,
        is_known=bool(raw),
        uid=uid_of(raw),
        created=parse_time(meta(raw).get("creationTimestamp")),
        deleting=bool(meta(raw).get("deletionTimestamp")),
        elastic=annotation(raw, names.ELASTIC_ANNOTATION) == "true",
        resizes=bool(annotation(raw, names.RAY_IN_PLACE_RESIZE_ANNOTATION)),
        suspended=bool(spec.get("suspend")),
        submission_mode=(text_field(spec, "submissionMode") or _SUBMITTER_MODE) if kind == "RayJob" else "",
        service=raycluster.owning_service(raw),
        cluster=raycluster.read_spec(mapping_field(spec, "rayClusterSpec") if kind == "RayJob" else spec),
        status=read_status(raw),
    )


def read_status(raw: Raw) -> JobStatus:
    """Read the status of a RayJob or RayCluster; never raises."""
    status = mapping_field(raw, "status")
    fields = ("jobDeploymentStatus", "jobStatus", "state", "reason", "message", "rayClusterName")
    return JobStatus(*(text_field(status, name) for name in fields))


UNKNOWN_JOB = JobObject()
UNKNOWN_JOBS = {
    kind: read_job(kind, {}) for kind in names.RAY_KINDS
}  # the same objects, for memos (shell/kube/memo.py)


def job_presence(job: Job, known: JobObject) -> Literal["There", "Leaving", "Gone"]:
    """Whether a job exists, by the object of its name.

    A finalizer may keep a deleted job for hours. A job that is "Gone" may also be one that was not observed yet; its arrival enqueues
    whoever acted on that. A job of another kind than Ray's counts as "There": nothing is known of it.
    """
    if job.kind not in names.RAY_KINDS:
        return "There"
    if known.uid != job.uid:
        return "Gone"
    return "Leaving" if known.deleting else "There"


def is_running(job: Job, known: JobObject) -> bool:
    """Whether a job exists and is not suspended."""
    return job_presence(job, known) == "There" and not known.suspended


def worker_podsets(workload: Workload, job: JobObject) -> list[PodSet]:
    """The podsets of a Workload that are worker groups of its job: identified by their order, for a group may have any name.

    Kueue puts the head first, then the groups in the order of the spec, and last the submitter of a RayJob that has one
    (kueue:pkg/controller/jobs/raycluster/common.go BuildPodSets; rayjob_controller.go addSubmitterPodSet). While the job is not known,
    no podset is taken for a submitter. A job of another kind has no worker groups.
    """
    if workload.job is None or workload.job.kind not in names.RAY_KINDS:
        return []
    rest = list(workload.podsets[1:])
    return rest[:-1] if job.has_submitter and rest and rest[-1].name == names.SUBMITTER else rest


def autoscaler_env(job: JobObject) -> frozenset[str] | None:
    """The variables that the user gave to Ray's autoscaler; None where no autoscaler runs, or version 1, which reads none."""
    cluster = job.cluster
    return cluster.autoscaler_env if cluster.autoscaling and cluster.autoscaler_version != "v1" else None


def podset_min_replicas(job: JobObject) -> dict[str, int]:
    """The minimum number of workers of each podset: neither Ray's autoscaler nor KubeRay goes below minReplicas."""
    return {group.podset: group.min_replicas for group in job.cluster.groups}


def podset_zones(job: JobObject) -> dict[str, str]:
    """The zone that Ray labels promise of each podset's workers.

    Ray's autoscaler reads these labels to choose a group, and no podset has them (docs/upstream.md, "Labels of a worker group").
    """
    return {group.podset: group.zone for group in job.cluster.groups if group.zone}


def parse(raw: object, namespace: str) -> JobManifest:
    """Read a RayJob or RayCluster (ray.io/v1); raises Unusable with sentences that name the field.

    `namespace` is where it would be submitted. Source: kueue:pkg/controller/jobs/raycluster/common.go BuildPodSets,
    ValidateCreate; rayjob/rayjob_controller.go PodSets; rayjob_webhook.go validateCreate.
    """
    found = parse_partially(raw, namespace)
    if found.faults or found.manifest is None:
        raise InvalidJob(*found.faults)
    return found.manifest


def parse_partially(raw: object, namespace: str) -> JobParseResult:
    """Read the same as far as it can be read, and say what cannot."""
    faults: list[str] = []
    asked = _read_or_default(faults, None, _parse_metadata, raw, namespace)
    found = asked and _read_or_default(faults, None, _parse_podsets, asked, faults)
    if not asked or not found:
        return JobParseResult(None, tuple(faults))
    podsets, sound = found
    whole = _with_worker_groups(asked, sound) if faults else asked.raw
    return JobParseResult(replace(asked, podsets=tuple(podsets), raw=whole), tuple(faults))


def _read_or_default(faults: list[str], default: T, reader: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a reader finds; where that is a fault, the default, and the fault is noted."""
    try:
        return reader(*args, **kwargs)
    except InvalidJob as error:
        faults.append(str(error))
        return default


def _parse_metadata(raw: object, namespace: str) -> JobManifest:
    """All that does not stand in its spec."""
    whole = raw if isinstance(raw, dict) else {}
    kind = whole.get("kind")
    if kind not in names.RAY_KINDS or not str(whole.get("apiVersion")).startswith(f"{names.RAY_DOMAIN}/"):
        found = printable(f"{whole.get('apiVersion')} {kind}") if whole else "no object"
        raise InvalidJob(f"A plan is made for {' or '.join(names.RAY_KINDS)} of {names.RAY_DOMAIN}, found {found}.")
    meta = _mapping_field(whole, "metadata", f"{kind}:")
    name = _text_field(meta, "name", f"{kind}: metadata") or _text_field(meta, "generateName", f"{kind}: metadata")
    if not name:
        raise InvalidJob(f"{kind}: metadata.name is missing; give it one.")
    asked = JobManifest(str(kind), name, namespace, "", "", (), whole)
    labels = _mapping_field(meta, "labels", f"{asked}: metadata")
    queue = _text_field(labels, names.QUEUE_LABEL, f"{asked}: metadata.labels")
    priority_class = _text_field(labels, names.PRIORITY_CLASS_LABEL, f"{asked}: metadata.labels")
    return replace(asked, queue=queue, priority_class=priority_class)


def build_workload(
    manifest: JobManifest, queue: str, checks: Iterable[str], flavors: Iterable[str], priority: int, now: datetime
) -> Raw:
    """The Workload that Kueue would make of the job in that LocalQueue, as if it held the manager's quota since now.

    It has no name, so that nothing that stands is taken for this job's own, and it is the youngest of its priority. Each
    podset has every one of `flavors`: a check that is limited to some then covers all worker groups
    (docs/upstream.md, "What a check covers").
    """
    since, given = format_time(now), {flavor: flavor for flavor in flavors}
    owner = {
        "apiVersion": manifest.raw["apiVersion"],
        "kind": manifest.kind,
        "name": manifest.name,
        "uid": "",
        "controller": True,
    }
    return {
        "metadata": {
            "namespace": manifest.namespace,
            "creationTimestamp": since,
            "ownerReferences": [owner],
            "annotations": {
                key: "true" for key in [names.ELASTIC_ANNOTATION] if annotation(manifest.raw, key) == "true"
            },
        },
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": one.name, "count": one.count, "template": one.template} for one in manifest.podsets],
        },
        "status": {
            "conditions": [{"type": names.QUOTA_RESERVED, "status": "True", "lastTransitionTime": since}],
            "admission": {"podSetAssignments": [{"name": one.name, "flavors": given} for one in manifest.podsets]},
            "admissionChecks": [{"name": name, "state": names.CHECK_PENDING} for name in checks],
        },
    }


def observed_priority(priority_class: str, workloads: Iterable[Raw]) -> int | None:
    """What a WorkloadPriorityClass is worth, if some Workload was given it; None when nobody shows it."""
    for raw in workloads:
        spec = mapping_field(raw, "spec")
        ref = mapping_field(spec, "priorityClassRef")
        if ref.get("kind") == "WorkloadPriorityClass" and ref.get("name") == priority_class:
            return int(spec.get("priority") or 0)
    return None


def _parse_podsets(manifest: JobManifest, faults: list[str]) -> tuple[list[PodSet], list[Raw]]:
    """Its podsets, and its worker groups without what has a fault. Raises Unusable where it is not worth while to read on."""
    cluster, where = _cluster_spec_and_path(manifest, faults)
    head = _read_or_default(faults, {}, _head_template, cluster, where, faults)
    groups = _list_field(cluster, "workerGroupSpecs", where)
    submitter = [names.SUBMITTER] if manifest.job.has_submitter else []
    _reject_too_many_podsets(where, 1 + len(groups) + len(submitter))  # before any of them is read
    workers = [
        _parse_worker_group(group, f"{where}.workerGroupSpecs[{index}]", faults) for index, group in enumerate(groups)
    ]
    podsets = [PodSet(names.HEAD, 1, head, frozenset()), *(podset for podset, _ in workers if podset)]
    faults += _duplicate_names(where, [*(podset.name for podset in podsets), *submitter])
    _read_or_default(faults, None, _reject_missing_fields, manifest, where, cluster, groups)
    return podsets, [sound for _, sound in workers]


def _cluster_spec_and_path(manifest: JobManifest, faults: list[str]) -> tuple[Raw, str]:
    """The spec of its RayCluster, and where that stands."""
    spec, where = _mapping_field(manifest.raw, "spec", f"{manifest}:"), f"{manifest}: spec"
    if manifest.kind != "RayJob":
        return spec, where
    _read_or_default(faults, None, _reject_cluster_selector, manifest, spec)
    if not spec.get("rayClusterSpec"):
        raise InvalidJob(f"{manifest}: spec.rayClusterSpec is missing; say there which workers it wants.")
    return _mapping_field(spec, "rayClusterSpec", where), f"{where}.rayClusterSpec"


def _with_worker_groups(manifest: JobManifest, groups: list[Raw]) -> Raw:
    """The job with these worker groups."""
    spec = mapping_field(manifest.raw, "spec")
    if manifest.kind != "RayJob":
        return {**manifest.raw, "spec": {**spec, "workerGroupSpecs": groups}}
    return {**manifest.raw, "spec": {**spec, "rayClusterSpec": {**spec["rayClusterSpec"], "workerGroupSpecs": groups}}}


def _reject_cluster_selector(manifest: JobManifest, spec: Raw) -> None:
    if spec.get("clusterSelector"):
        raise InvalidJob(
            f"{manifest}: spec.clusterSelector names a RayCluster that runs already: Kueue does not queue such a job."
        )


def _reject_missing_fields(manifest: JobManifest, where: str, cluster: Raw, groups: list[Any]) -> None:
    """All lines at once that a file lacks which KubeRay alone would take: whoever pastes one need not come back for the next.

    Of an absent rayStartParams Kueue's webhook makes null (docs/upstream.md, "A file that KubeRay alone takes").
    """
    lacks = []
    if manifest.kind == "RayJob" and manifest.raw["spec"].get("shutdownAfterJobFinishes") is not True:
        lacks.append("shutdownAfterJobFinishes: true in spec")
    of = [("headGroupSpec", cluster.get("headGroupSpec"))]
    of += [(f"workerGroupSpecs[{index}]", group) for index, group in enumerate(groups)]
    if bare := [name for name, group in of if isinstance(group, dict) and group.get("rayStartParams") is None]:
        lacks.append(f"rayStartParams: {{}} in {' and '.join(bare)} of {where.removeprefix(f'{manifest}: ')}")
    if lacks:
        raise InvalidJob(
            f"{manifest} lacks {', and '.join(lacks)}: Kueue's webhooks let no {manifest.kind} into a queue without; add each "
            "line there, or ask for what `kubectl create --dry-run=server -o yaml` prints of it, if a policy of your cluster adds them."
        )


def _duplicate_names(where: str, podsets: list[str]) -> list[str]:
    twice = sorted({name for name in podsets if podsets.count(name) > 1})
    return [
        f"{where}.workerGroupSpecs: the name {printable(name)} is taken twice; give each group a name of its own."
        for name in twice
    ]


def _reject_too_many_podsets(where: str, podsets: int) -> None:
    if podsets > MAX_PODSETS:
        raise InvalidJob(
            f"{where}.workerGroupSpecs: {podsets} podsets with head and submitter, Kueue takes {MAX_PODSETS} at "
            "most; use fewer groups."
        )


def _parse_worker_group(group: object, where: str, faults: list[str]) -> tuple[PodSet | None, Raw]:
    """One worker group as Kueue counts it: replicas times hosts; and the group without what has a fault. Where KubeRay would count
    otherwise, the job is refused (`admission.job_validation`), which takes its numbers for checked.

    Absent replicas are 0, because KubeRay's CRD says so before Kueue sees the object. One that cannot be counted has a worker: what
    its template has is judged all the same.
    """
    if (found := _read_or_default(faults, None, _require_type, group, dict, where, "an object")) is None:
        return None, {}
    name = _read_or_default(faults, "", _group_name, found, where) or where.rpartition(".")[2]
    count = _worker_count(found, where, faults)
    sound = found if count is not None else {key: one for key, one in found.items() if key not in _NUMBER_DEFAULTS}
    if (template := _read_or_default(faults, None, _worker_template, found, where, faults)) is None:
        return None, {key: one for key, one in sound.items() if key != "labels"}  # whose zone the template is to have
    # Kueue's podset references are lower case (kueue:apis/kueue/v1beta2/workload_types.go NewPodSetReference).
    return PodSet(name.lower(), 1 if count is None else count, template, frozenset()), sound


def _group_name(group: Raw, where: str) -> str:
    name = _text_field(group, "groupName", where)
    if not name:
        raise InvalidJob(f"{where}.groupName is missing; name the group.")
    return name


def _worker_count(group: Raw, where: str, faults: list[str]) -> int | None:
    """For how many workers Kueue holds quota; None where one of its numbers has a fault."""
    found = {
        key: _read_or_default(faults, None, _int_field, group, key, where, default)
        for key, default in _NUMBER_DEFAULTS.items()
    }
    replicas, hosts = found["replicas"], found["numOfHosts"]
    if replicas is None or hosts is None or None in found.values():
        return None
    count = replicas * max(1, hosts)
    if count > _MAX_INT32:
        faults.append(f"{where}.replicas asks for {count} workers; nobody can count so many.")
        return None
    return count


def _worker_template(group: Raw, where: str, faults: list[str]) -> Raw:
    return _with_zone(_parse_template(group, where, faults), group, where)


def _with_zone(template: Raw, group: Raw, where: str) -> Raw:
    """The template with the zone of the group's Ray labels, for a job that is not submitted has no object to read these from."""
    labels = _mapping_field(group, "labels", where)
    zone, metadata = _text_field(labels, names.RAY_ZONE_LABEL, f"{where}.labels"), template.get("metadata") or {}
    if not zone or annotation(template, names.ZONE_ANNOTATION):
        return template
    annotations = {**(metadata.get("annotations") or {}), names.ZONE_ANNOTATION: zone}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def _head_template(cluster: Raw, where: str, faults: list[str]) -> Raw:
    return _parse_template(_mapping_field(cluster, "headGroupSpec", where), f"{where}.headGroupSpec", faults)


def _parse_template(group: Raw, where: str, faults: list[str]) -> Raw:
    template = _mapping_field(group, "template", where)
    spec = _mapping_field(template, "spec", f"{where}.template")
    if not _list_field(spec, "containers", f"{where}.template.spec"):
        faults.append(f"{where}.template.spec.containers is empty; name Ray's container.")
    try:
        pod_requests.pod_requests(spec)
    except UNREADABLE as error:
        raise InvalidJob(f"{where}.template.spec: its containers' resources cannot be read: {error}.") from None
    return template


def _mapping_field(holder: Raw, field: str, where: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _require_type(holder.get(field) or {}, dict, _field_path(where, field), "an object")
    return found


def _list_field(holder: Raw, field: str, where: str) -> list[Any]:
    found: list[Any] = _require_type(holder.get(field) or [], list, _field_path(where, field), "a list")
    return found


def _text_field(holder: Raw, field: str, where: str) -> str:
    found: str = _require_type(holder.get(field) or "", str, _field_path(where, field), "text")
    return found


def _int_field(holder: Raw, field: str, where: str, default: int) -> int:
    value = holder.get(field)
    found: int = _require_type(default if value is None else value, int, _field_path(where, field), "a whole number")
    if abs(found) > _MAX_INT32:  # which one is not said: it may have thousands of digits
        raise InvalidJob(f"{_field_path(where, field)} is no number of 32 bits; nobody can count so many.")
    if found < 0:
        raise InvalidJob(f"{_field_path(where, field)} is {found}: it must be 0 or more.")
    return found


def _require_type(value: object, kind: type, where: str, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidJob(f"{where} is {str(value)[:40]!r}: it must be {what}.")
    return value


def _field_path(where: str, field: str) -> str:
    return f"{where} {field}" if where.endswith(":") else f"{where}.{field}"
