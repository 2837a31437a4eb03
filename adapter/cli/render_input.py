"""Reads the objects of a file whose workers `render` prints: worker pods, and jobs with their worker templates."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from adapter import names
from adapter.admission import job_validation, pod_validation, pod_warnings
from adapter.admission.pod_warnings import PodSettings
from adapter.objects import job_manifest, rayservice, specs, text_values
from adapter.objects.job_manifest import InvalidJob, JobManifest
from adapter.objects.specs import PodMapping
from adapter.objects.unstructured import UNREADABLE, Raw, label, mapping_field, meta
from adapter.rewrite import stripping


@dataclass(frozen=True, slots=True)
class RenderInput:
    """A worker pod, or a worker template as a pod."""

    origin: str
    pod: Raw
    rejections: tuple[str, ...] = ()  # fragments: why it cannot have a remote pod
    warnings: tuple[str, ...] = ()  # fragments: what means something else in a worker cluster
    from_template: bool = False


@dataclass(frozen=True, slots=True)
class RenderObject:
    """An object with its workers; a pod is its own only worker."""

    origin: str
    workers: tuple[RenderInput, ...]
    rejections: tuple[str, ...] = ()  # of the whole job
    omission: str = ""  # a sentence on fields without which Kueue does not queue it


def read_object(raw: Raw, settings: PodSettings, mappings: Mapping[str, PodMapping]) -> RenderObject | None:
    """The workers of one object; None for other kinds. Raises InvalidJob with sentences.

    `mappings` are those of the WorkerCluster by its name, empty without one; `settings` are its settings for pods.
    """
    kind, metadata = raw.get("kind"), mapping_field(raw, "metadata")
    origin = f"{kind} {metadata.get('name') or metadata.get('generateName') or 'without a name'}"
    try:
        if kind == "Pod" and label(raw, names.RAY_NODE_TYPE_LABEL) == names.WORKER:
            return _read_pod(raw, origin, mappings)
        if kind in (*names.RAY_KINDS, names.RAY_SERVICE):
            return _read_job(raw, origin, settings, mappings)
    except InvalidJob:
        raise
    except (*UNREADABLE, RecursionError):
        raise unreadable_error(origin) from None
    return None


def unreadable_error(origin: str) -> InvalidJob:
    return InvalidJob(f"{origin} cannot be read; `kubectl apply --dry-run=server` shows what is wrong with it.")


def _read_pod(raw: Raw, origin: str, mappings: Mapping[str, PodMapping]) -> RenderObject:
    _reject_faults(f"{origin}: {fault}." for fault in text_values.template_faults(raw))
    template = {**raw, "spec": _unscheduled_spec(raw)}
    problems = pod_validation.template_problems(template, _namespace_of(raw), mappings)
    return RenderObject(origin, (RenderInput(origin, raw, _limit(problems)),))


def _namespace_of(raw: Raw) -> str:
    return str(meta(raw).get("namespace") or "default")


def _unscheduled_spec(pod: Raw) -> dict[str, Any]:
    """A pod's spec without the additions of admission and the scheduler."""
    spec = stripping.without_token(pod.get("spec") or {})
    return {key: value for key, value in spec.items() if key != "nodeName"}


def _read_job(raw: Raw, origin: str, settings: PodSettings, mappings: Mapping[str, PodMapping]) -> RenderObject:
    is_service = raw.get("kind") == names.RAY_SERVICE
    if is_service and (reason := job_validation.missing_config(raw)):
        raise InvalidJob(f"{origin}: {reason}.")
    job = {"apiVersion": names.RAY_API_VERSION, **(rayservice.ray_cluster(raw) if is_service else raw)}
    job["apiVersion"] = job["apiVersion"] or names.RAY_API_VERSION
    result = job_manifest.parse_partially(job, _namespace_of(raw), of_service=is_service)
    _reject_faults(fault for fault in result.faults if fault != result.omission)
    assert result.manifest is not None
    problems = [*(job_validation.service_problems(raw) if is_service else ())]
    problems += job_validation.job_problems(result.manifest.job)
    workers = tuple(_template_workers(result.manifest, origin, settings, mappings))
    return RenderObject(origin, workers, _limit(problems), result.omission)


def _reject_faults(sentences: Iterable[str]) -> None:
    if faults := _limit(sentences):
        raise InvalidJob(*faults)


def _limit(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(islice(texts, specs.MAX_REPORTED_FAULTS))


def _template_workers(
    manifest: JobManifest, origin: str, settings: PodSettings, mappings: Mapping[str, PodMapping]
) -> Iterator[RenderInput]:
    """The worker groups of a job, also those that have no workers now."""
    job = manifest.job
    own_services = [job.cluster.head_service_of(manifest.name)]
    for index, group in enumerate(manifest.cluster_spec.get("workerGroupSpecs") or ()):
        template, path = group.get("template") or {}, f"{job.cluster_path}.workerGroupSpecs[{index}]"
        warnings = [
            *pod_warnings.start_param_warnings(path, job.cluster.groups[index], manifest.namespace, own_services),
            *pod_warnings.template_warnings(template, own_services, settings, manifest.namespace),
        ]
        problems = [
            *pod_validation.template_problems(template, manifest.namespace, mappings),
            *pod_validation.reserved_key_problems(template),
        ]
        yield RenderInput(
            f"{origin}: worker group {group.get('groupName')}",
            _pod_of_template(manifest.raw, group, template),
            _limit(problems),
            tuple(warnings[: pod_warnings.MAX_WARNINGS]),
            from_template=True,
        )


def _pod_of_template(raw: Raw, group: Raw, template: Raw) -> dict[str, Any]:
    """A template as the first pod of its group, as far as the pod is known before KubeRay creates it."""
    name, metadata = group.get("groupName"), template.get("metadata") or {}
    ray_cluster = meta(raw).get("name")  # not known yet for a RayJob
    labels = {
        **(metadata.get("labels") or {}),
        names.RAY_GCS_CLUSTER_LABEL: ray_cluster,
        names.RAY_GCS_GROUP_LABEL: name,
        names.RAY_NODE_TYPE_LABEL: names.WORKER,
    }
    identity = {"name": f"{ray_cluster}-{name}-worker-0".lower(), "namespace": _namespace_of(raw)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, **identity, "labels": labels},
        "spec": template.get("spec") or {},
    }
