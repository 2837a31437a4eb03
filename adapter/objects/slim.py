"""Which parts of an object does nobody read here, so that it need not be kept?

A controller keeps every object of a kind, and some are mostly what others wrote into them: a Node its images, a RayJob its
templates, which its Workload holds as well. Each of these takes an object and leaves it as it was. What they drop, no decision
can read: whoever needs a field of these kinds says so here. What is within `spec` and `status` may be of any type.
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeGuard

from adapter.objects.raw import Raw, meta

# kubectl writes the whole object a second time into this annotation.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# What a user writes that may be long. All else of a job stays, for rules that are yet to be written.
_LONG_OF_A_JOB: Final = ("entrypoint", "runtimeEnvYAML", "submitterPodTemplate", "metadata")
_LONG_OF_A_GROUP: Final = ("template", "rayStartParams")
_OF_A_NODE: Final = {"spec": ("taints", "unschedulable"), "status": ("allocatable", "conditions")}


def bare(raw: Raw) -> Raw:
    """Any object, without what its writers note down for themselves."""
    metadata = meta(raw)
    annotations = metadata.get("annotations") or {}
    if "managedFields" not in metadata and _LAST_APPLIED not in annotations:
        return raw
    kept = dict(_without(metadata, ("managedFields",)))
    if _LAST_APPLIED in annotations:
        kept["annotations"] = _without(annotations, (_LAST_APPLIED,))
    return {**raw, "metadata": kept}


def ray_cluster(raw: Raw) -> Raw:
    """A RayCluster without the templates of its pods."""
    return _with_spec(raw, _cluster(raw.get("spec") or {}))


def ray_job(raw: Raw) -> Raw:
    """A RayJob without the templates of its pods, and without what it runs."""
    spec = _without(raw.get("spec") or {}, _LONG_OF_A_JOB)
    cluster = spec.get("rayClusterSpec")
    return _with_spec(raw, {**spec, "rayClusterSpec": _cluster(cluster)} if _is_mapping(cluster) else spec)


def node(raw: Raw) -> Raw:
    """A Node's labels and taints, what it has for pods, and whether it is ready."""
    parts = {name: _part(raw.get(name) or {}, fields) for name, fields in _OF_A_NODE.items()}
    return {"metadata": meta(namespace(raw)), **{name: part for name, part in parts.items() if part}}


def namespace(raw: Raw) -> Raw:
    """A namespace, or anything else of which only the labels count, without its annotations: tools hang many of them there."""
    return {**raw, "metadata": _without(meta(raw), ("annotations", "managedFields"))}


def _with_spec(raw: Raw, spec: Raw) -> Raw:
    return {**bare(raw), "spec": spec} if spec else bare(raw)


def _cluster(spec: Raw) -> Raw:
    kept, head, groups = dict(spec), spec.get("headGroupSpec"), spec.get("workerGroupSpecs")
    if _is_mapping(head):
        kept["headGroupSpec"] = _without(head, _LONG_OF_A_GROUP)
    if isinstance(groups, list):
        kept["workerGroupSpecs"] = [_without(one, _LONG_OF_A_GROUP) if _is_mapping(one) else one for one in groups]
    return kept


def _is_mapping(found: object) -> TypeGuard[Raw]:
    return isinstance(found, dict)


def _without(holder: Raw, fields: Collection[str]) -> Raw:
    return {field: value for field, value in holder.items() if field not in fields}


def _part(holder: Raw, fields: Iterable[str]) -> Raw:
    return {field: holder[field] for field in fields if field in holder}
