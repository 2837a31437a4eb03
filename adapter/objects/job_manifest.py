"""Job manifests of users, and what Kueue would make of them.

`parse` checks the type of each field and reports all faults at once, with the fields that Kueue requires and KubeRay
does not. Other rules of the API server and of Kueue's webhooks are not checked. Kueue's additions to the head for
KubeRay's sidecars are left out, because the head stays in the manager.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, ParamSpec, TypeVar

from adapter import names
from adapter.objects import kuberay_rules, pod_requests, raycluster, text_values
from adapter.objects.location import LOCATION_KEYS
from adapter.objects.rayjob import JobObject, read_job
from adapter.objects.unstructured import (
    UNREADABLE,
    Raw,
    annotation,
    format_time,
    mapping_field,
    printable,
)
from adapter.objects.workload import PodSet

MAX_PODSETS = 18  # kueue:pkg/controller/jobframework/constants.go MaxPodSets
MAX_NAME_LENGTH = 253
# The limit of a manifest. An object in etcd has at most 1.5 MiB, and a job of 18 groups some 100 KiB.
MAX_JOB_BYTES = 2**20
MAX_TEXT_FAULTS = 8  # of one template; more have a common cause
_MAX_INT32 = 2**31 - 1  # an int32 in Kueue's and KubeRay's types
# The numbers of a worker group, with their defaults.
_NUMBER_DEFAULTS = {"minReplicas": 0, "maxReplicas": 0, "replicas": 0, "numOfHosts": 1}

T = TypeVar("T")
P = ParamSpec("P")


class InvalidJob(ValueError):
    """A manifest that cannot be planned; the text is a sentence, the first of `messages`."""

    def __init__(self, first: str, *more: str) -> None:
        super().__init__(first)
        self.messages = (first, *more)


@dataclass(frozen=True, slots=True)
class JobManifest:
    """A job as its user wrote it, with the podsets that Kueue would make of it."""

    kind: str
    name: str
    namespace: str
    queue: str  # empty: none
    priority_class: str  # a WorkloadPriorityClass; empty: none
    podsets: tuple[PodSet, ...]  # without the submitter
    raw: Raw
    of_service: bool = False  # its user wrote a RayService, of which `raw` is the RayCluster

    @property
    def job(self) -> JobObject:
        return read_job(self.kind, self.raw, of_service=self.of_service)

    @property
    def cluster_spec(self) -> Raw:
        """The spec of its RayCluster."""
        return raycluster.spec_and_path(self.kind, self.raw)[0]

    def __str__(self) -> str:
        return f"{names.RAY_SERVICE if self.of_service else self.kind} {printable(self.name, MAX_NAME_LENGTH)}"


@dataclass(frozen=True, slots=True)
class JobParseResult:
    """A job without its faulty parts, and its faults."""

    manifest: JobManifest | None  # None: no part of it can be judged
    faults: tuple[str, ...]  # sentences, in the order of the spec; `omission` is among them
    omission: str = ""  # the sentence on fields that Kueue requires and KubeRay does not


def parse(raw: object, namespace: str, *, of_service: bool = False) -> JobManifest:
    """Read the manifest of a RayJob or RayCluster (ray.io/v1) that would be submitted in `namespace`.

    `of_service`: `raw` is the RayCluster of a RayService, which the sentences name.
    Raises InvalidJob with sentences that name the field. Source: kueue:pkg/controller/jobs/raycluster/common.go
    BuildPodSets, ValidateCreate; rayjob/rayjob_controller.go PodSets; rayjob_webhook.go validateCreate.
    """
    result = parse_partially(raw, namespace, of_service=of_service)
    if result.faults or result.manifest is None:
        raise InvalidJob(*result.faults)
    return result.manifest


def parse_partially(raw: object, namespace: str, *, of_service: bool = False) -> JobParseResult:
    """Read a manifest as `parse` does, but return its faults with its sound parts.

    `of_service`: the faults name the RayService of which `raw` is the RayCluster.
    """
    faults: list[str] = []
    manifest = _read_or_default(faults, None, _parse_metadata, raw, namespace, of_service)
    parts = manifest and _read_or_default(faults, None, _parse_podsets, manifest, faults)
    if not manifest or not parts:
        return JobParseResult(None, tuple(faults))
    podsets, sound_groups, omission = parts
    sound = _with_worker_groups(manifest, sound_groups) if faults else manifest.raw
    return JobParseResult(replace(manifest, podsets=tuple(podsets), raw=sound), tuple(faults), omission)


def _read_or_default(faults: list[str], default: T, reader: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a reader; the default where it raises, with the fault added to `faults`."""
    try:
        return reader(*args, **kwargs)
    except InvalidJob as error:
        faults.append(str(error))
        return default


def _parse_metadata(raw: object, namespace: str, of_service: bool) -> JobManifest:
    whole = raw if isinstance(raw, dict) else {}
    kind = whole.get("kind")
    if kind not in names.RAY_KINDS or not str(whole.get("apiVersion")).startswith(f"{names.RAY_DOMAIN}/"):
        actual = printable(f"{whole.get('apiVersion')} {kind}") if whole else "no object"
        raise InvalidJob(f"A plan is made for {' or '.join(names.RAY_KINDS)} of {names.RAY_DOMAIN}, found {actual}.")
    meta = _mapping_field(whole, "metadata", f"{kind}:")
    name = _text_field(meta, "name", f"{kind}: metadata") or _text_field(meta, "generateName", f"{kind}: metadata")
    if not name:
        raise InvalidJob(f"{kind}: metadata.name is missing; give it one.")
    manifest = JobManifest(str(kind), name, namespace, "", "", (), whole, of_service)
    labels = _mapping_field(meta, "labels", f"{manifest}: metadata")
    queue = _text_field(labels, names.QUEUE_LABEL, f"{manifest}: metadata.labels")
    priority_class = _text_field(labels, names.PRIORITY_CLASS_LABEL, f"{manifest}: metadata.labels")
    return replace(manifest, queue=queue, priority_class=priority_class)


def build_workload(
    manifest: JobManifest, queue: str, checks: Iterable[str], flavors: Iterable[str], priority: int, now: datetime
) -> Raw:
    """The Workload that Kueue would make of the job in that LocalQueue, with the manager's quota reserved now.

    It has no name, so that no existing object counts as its own. Each podset has all `flavors`, so that a check on some
    of them covers all worker groups (docs/upstream.md, "What a check covers").
    """
    since, assigned = format_time(now), {flavor: flavor for flavor in flavors}
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
            "podSets": [
                {"name": podset.name, "count": podset.count, "template": podset.template} for podset in manifest.podsets
            ],
        },
        "status": {
            "conditions": [{"type": names.QUOTA_RESERVED, "status": "True", "lastTransitionTime": since}],
            "admission": {
                "podSetAssignments": [{"name": podset.name, "flavors": assigned} for podset in manifest.podsets]
            },
            "admissionChecks": [{"name": name, "state": names.CHECK_PENDING} for name in checks],
        },
    }


def observed_priority(priority_class: str, workloads: Iterable[Raw]) -> int | None:
    """The priority of a WorkloadPriorityClass, from a Workload that has it; None without one."""
    for raw in workloads:
        spec = mapping_field(raw, "spec")
        ref = mapping_field(spec, "priorityClassRef")
        if ref.get("kind") == "WorkloadPriorityClass" and ref.get("name") == priority_class:
            return int(spec.get("priority") or 0)
    return None


def _parse_podsets(manifest: JobManifest, faults: list[str]) -> tuple[list[PodSet], list[Raw], str]:
    """The podsets, the groups without their faulty parts, and the omission; raises where no group can be read."""
    cluster, where = _cluster_spec_and_path(manifest, faults)
    head = _read_or_default(faults, {}, _head_template, cluster, where, faults)
    groups = _list_field(cluster, "workerGroupSpecs", where)
    submitter = [names.SUBMITTER] if manifest.job.has_submitter else []
    _reject_too_many_podsets(where, 1 + len(groups) + len(submitter))  # before reading any group
    workers = [
        _parse_worker_group(group, f"{where}.workerGroupSpecs[{index}]", faults) for index, group in enumerate(groups)
    ]
    podsets = [PodSet(names.HEAD, 1, head, frozenset()), *(podset for podset, _ in workers if podset)]
    if _lacks_shutdown(manifest) and _has_deletion_rules(manifest):
        faults.append(f"{manifest}: {kuberay_rules.DELETION_RULES_FAULT}.")
    faults += _duplicate_names(where, [*(podset.name for podset in podsets), *submitter])
    omission = _omission(manifest, where, cluster, groups)
    faults += [omission] if omission else []
    return podsets, [sound for _, sound in workers], omission


def _cluster_spec_and_path(manifest: JobManifest, faults: list[str]) -> tuple[Raw, str]:
    spec, where = _mapping_field(manifest.raw, "spec", f"{manifest}:"), f"{manifest}: spec"
    if manifest.kind != "RayJob":
        return spec, f"{where}.rayClusterConfig" if manifest.of_service else where
    _read_or_default(faults, None, _reject_cluster_selector, manifest, spec)
    if not spec.get("rayClusterSpec"):
        raise InvalidJob(f"{manifest}: spec.rayClusterSpec is missing; define the job's workers there.")
    return _mapping_field(spec, "rayClusterSpec", where), f"{where}.rayClusterSpec"


def _with_worker_groups(manifest: JobManifest, groups: list[Raw]) -> Raw:
    spec = mapping_field(manifest.raw, "spec")
    if manifest.kind != "RayJob":
        return {**manifest.raw, "spec": {**spec, "workerGroupSpecs": groups}}
    return {**manifest.raw, "spec": {**spec, "rayClusterSpec": {**spec["rayClusterSpec"], "workerGroupSpecs": groups}}}


def _reject_cluster_selector(manifest: JobManifest, spec: Raw) -> None:
    if spec.get("clusterSelector"):
        raise InvalidJob(
            f"{manifest}: spec.clusterSelector names an existing RayCluster: Kueue does not queue such a job."
        )


def _omission(manifest: JobManifest, where: str, cluster: Raw, groups: list[Any]) -> str:
    """A sentence on all fields that Kueue requires and KubeRay does not; empty if none is missing.

    Kueue's webhook turns an absent rayStartParams into null (docs/upstream.md, "A file that KubeRay alone takes").
    """
    lacks = []
    if _lacks_shutdown(manifest) and not _has_deletion_rules(manifest):
        lacks.append("shutdownAfterJobFinishes: true in spec")
    all_groups = [("headGroupSpec", cluster.get("headGroupSpec"))]
    all_groups += [(f"workerGroupSpecs[{index}]", group) for index, group in enumerate(groups)]
    if bare := [name for name, group in all_groups if isinstance(group, dict) and group.get("rayStartParams") is None]:
        lacks.append(f"rayStartParams: {{}} in {' and '.join(bare)} of {where.removeprefix(f'{manifest}: ')}")
    if not lacks:
        return ""
    return (
        f"{manifest} lacks {', and '.join(lacks)}: Kueue's webhooks reject a {manifest.kind} in a queue without them; "
        f"add each line there, or, if its queue has the label {names.JOB_DEFAULTS_LABEL}, use the output of `kubectl "
        "create --dry-run=server -o yaml`."
    )


def _lacks_shutdown(manifest: JobManifest) -> bool:
    return manifest.kind == "RayJob" and manifest.raw["spec"].get("shutdownAfterJobFinishes") is not True


def _has_deletion_rules(manifest: JobManifest) -> bool:
    return bool(mapping_field(manifest.raw["spec"], "deletionStrategy").get("deletionRules"))


def _duplicate_names(where: str, podsets: list[str]) -> list[str]:
    twice = sorted({name for name in podsets if podsets.count(name) > 1})
    return [
        f"{where}.workerGroupSpecs: the name {printable(name)} is used twice; give each group its own name."
        for name in twice
    ]


def _reject_too_many_podsets(where: str, podsets: int) -> None:
    if podsets > MAX_PODSETS:
        raise InvalidJob(
            f"{where}.workerGroupSpecs: {podsets} podsets with head and submitter, Kueue accepts at most "
            f"{MAX_PODSETS}; use fewer groups."
        )


def _parse_worker_group(group: object, where: str, faults: list[str]) -> tuple[PodSet | None, Raw]:
    """The podset of a worker group, and the group without its faulty parts.

    Kueue counts replicas times hosts. `admission.job_validation` rejects a job that KubeRay counts differently, and
    relies on these checks. A group with a faulty number counts as one worker, so that its template is judged, too.
    """
    if (group_spec := _read_or_default(faults, None, _require_type, group, dict, where, "an object")) is None:
        return None, {}
    name = _read_or_default(faults, "", _group_name, group_spec, where) or where.rpartition(".")[2]
    count = _worker_count(group_spec, where, faults)
    sound = (
        group_spec
        if count is not None
        else {key: value for key, value in group_spec.items() if key not in _NUMBER_DEFAULTS}
    )
    if (template := _read_or_default(faults, None, _worker_template, group_spec, where, faults)) is None:
        # The labels are dropped, too, because their location is for the template.
        return None, {key: value for key, value in sound.items() if key != "labels"}
    # Kueue's podset references are lower case (kueue:apis/kueue/v1beta2/workload_types.go NewPodSetReference).
    return PodSet(name.lower(), 1 if count is None else count, template, frozenset()), sound


def _group_name(group: Raw, where: str) -> str:
    name = _text_field(group, "groupName", where)
    if not name:
        raise InvalidJob(f"{where}.groupName is missing; name the group.")
    return name


def _worker_count(group: Raw, where: str, faults: list[str]) -> int | None:
    """The number of workers that Kueue holds quota for; None where a number has a fault."""
    numbers = {
        key: _read_or_default(faults, None, _int_field, group, key, where, default)
        for key, default in _NUMBER_DEFAULTS.items()
    }
    replicas, hosts = numbers["replicas"], numbers["numOfHosts"]
    if replicas is None or hosts is None or None in numbers.values():
        return None
    count = replicas * max(1, hosts)
    if count > _MAX_INT32:
        faults.append(f"{where}.replicas requests {count} workers, more than a 32-bit integer can count; use fewer.")
        return None
    return count


def _worker_template(group: Raw, where: str, faults: list[str]) -> Raw:
    return _with_location(_parse_template(group, where, faults), group, where)


def _with_location(template: Raw, group: Raw, where: str) -> Raw:
    """The template with annotations for the location of the group's Ray labels."""
    labels = _mapping_field(group, "labels", where)
    required = {keys.annotation: _text_field(labels, keys.ray_label, f"{where}.labels") for keys in LOCATION_KEYS}
    missing = {key: value for key, value in required.items() if value and not annotation(template, key)}
    if not missing:
        return template
    metadata = template.get("metadata") or {}
    return {**template, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **missing}}}


def _head_template(cluster: Raw, where: str, faults: list[str]) -> Raw:
    return _parse_template(_mapping_field(cluster, "headGroupSpec", where), f"{where}.headGroupSpec", faults)


def _parse_template(group: Raw, where: str, faults: list[str]) -> Raw:
    params = group.get("rayStartParams")
    faults += (
        f"{fault}." for fault in islice(text_values.mapping_faults(f"{where}.rayStartParams", params), MAX_TEXT_FAULTS)
    )
    template = _mapping_field(group, "template", where)
    spec = _mapping_field(template, "spec", f"{where}.template")
    if not _list_field(spec, "containers", f"{where}.template.spec"):
        faults.append(f"{where}.template.spec.containers is empty; add the Ray container.")
    faults += (f"{where}.template.{fault}." for fault in islice(text_values.template_faults(template), MAX_TEXT_FAULTS))
    try:
        pod_requests.pod_requests(spec)
    except UNREADABLE as error:
        raise InvalidJob(f"{where}.template.spec: its containers' resources cannot be read: {error}.") from None
    return template


def _mapping_field(holder: Raw, field: str, where: str) -> Mapping[str, Any]:
    value: Mapping[str, Any] = _require_type(holder.get(field) or {}, dict, _field_path(where, field), "an object")
    return value


def _list_field(holder: Raw, field: str, where: str) -> list[Any]:
    value: list[Any] = _require_type(holder.get(field) or [], list, _field_path(where, field), "a list")
    return value


def _text_field(holder: Raw, field: str, where: str) -> str:
    value: str = _require_type(holder.get(field) or "", str, _field_path(where, field), "text")
    return value


def _int_field(holder: Raw, field: str, where: str, default: int) -> int:
    value = holder.get(field)
    number: int = _require_type(default if value is None else value, int, _field_path(where, field), "a whole number")
    if abs(number) > _MAX_INT32:  # the message omits it: it may have thousands of digits
        raise InvalidJob(f"{_field_path(where, field)} is not a 32-bit integer; use a smaller number.")
    if number < 0:
        raise InvalidJob(f"{_field_path(where, field)} is {number}: it must be 0 or more.")
    return number


def _require_type(value: object, kind: type, where: str, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InvalidJob(f"{where} is {str(value)[:40]!r}: it must be {what}.")
    return value


def _field_path(where: str, field: str) -> str:
    return f"{where} {field}" if where.endswith(":") else f"{where}.{field}"
