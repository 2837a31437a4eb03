"""Which parts of an object does nobody read here, so that it need not be kept?

A controller keeps every object of a kind, and some are mostly what others wrote into them: a Node its images, a RayJob its
templates, which its Workload holds as well, a copy the spec that we made ourselves. Each of these takes an object and leaves it as it was. What they drop, no decision
can read: whoever needs a field of these kinds says so here. What is within `spec` and `status` may be of any type.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeGuard

from adapter import names
from adapter.objects.unstructured import Raw, condition, meta

# kubectl writes the whole object a second time into this annotation.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# What a user writes that may be long. All else of a job stays, for rules that are yet to be written.
_LONG_OF_A_JOB: Final = ("entrypoint", "runtimeEnvYAML", "submitterPodTemplate", "metadata")
_LONG_OF_A_GROUP: Final = ("template", "rayStartParams")
# Of a Workload's status. Beside these Kueue writes down what it reckons for itself: topology assignments by node, usages, statistics.
_OF_A_WORKLOAD: Final = ("conditions", "admission", "admissionChecks")
_OF_ITS_PODSETS: Final = ("name", "flavors", "count")
_OF_A_SHARE: Final = {"spec": ("active", "priority", "podSets"), "status": ("conditions", "admission")}
_OF_ITS_PODS: Final = ("name", "flavors", "resourceUsage")
_OF_A_COPY: Final = ("nodeName", "overhead", "resources")
_OF_ITS_CONTAINERS: Final = ("resources", "restartPolicy")  # what pod_requests.py adds up
# Of a worker pod's once its copy was seen: who else may run it, and what its status must agree with (worker/status_mirror.py).
_OF_A_WORKER: Final = ("nodeName", "nodeSelector", "restartPolicy", "schedulingGates")
_OF_WORKERS_CONTAINERS: Final = ("name", "ports", "envFrom", "restartPolicy", "restartPolicyRules")
_HEADS: Final = ("FQ_RAY_IP", "RAY_PORT")  # by which the head is known (rewrite/head_address.py)
_REFERS: Final = ("secret", "configMap", "projected")  # of volumes, what is copied along (objects/references.py)
_OURS: Final = f"{names.DOMAIN}/"
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


def workload(raw: Raw) -> Raw:
    """A manager's Workload without what Kueue reckons for itself."""
    return {**bare(raw), **_with_admission(raw, {"status": _OF_A_WORKLOAD}, _OF_ITS_PODSETS)}


def share(raw: Raw) -> Raw:
    """A group Workload of ours: what its quota is held for, and what became of it. Kueue makes each pod of the group an owner of it,
    which are thousands; of these only the anchor counts."""
    kept = bare(raw)
    metadata, owners = dict(meta(kept)), meta(kept).get("ownerReferences")
    if owners:
        metadata["ownerReferences"] = [one for one in owners if one.get("kind") == "ConfigMap"]
    return {**kept, "metadata": metadata, **_with_admission(raw, _OF_A_SHARE, _OF_ITS_PODS)}


def worker(raw: Raw) -> Raw:
    """A worker pod of the manager: all of it while a copy may be made. Once one was seen, none is ever made again, and of the spec is
    kept where its head is, what it refers to, its ports, and what of its status may be written."""
    kept = bare(raw)
    if not condition(raw, names.DISPATCHED_CONDITION) or not raw.get("spec"):
        return kept
    spec = dict(_part(raw["spec"], _OF_A_WORKER))
    for field in ("initContainers", "containers"):
        if isinstance(found := raw["spec"].get(field), list):
            spec[field] = [_container(one) if _is_mapping(one) else one for one in found]
    if isinstance(volumes := raw["spec"].get("volumes"), list):
        spec["volumes"] = [one for one in volumes if _is_mapping(one) and any(kind in one for kind in _REFERS)]
    return {**kept, "spec": spec}


def copy(raw: Raw) -> Raw:
    """A worker's copy: which node it has, what it asks for, and what is said of it. Of its annotations ours, for what users and tools
    write into them may be long."""
    metadata = dict(_without(meta(raw), ("managedFields",)))
    if notes := metadata.get("annotations"):
        metadata["annotations"] = {key: text for key, text in notes.items() if key.startswith(_OURS)}
    return {**raw, "metadata": metadata, **({"spec": _asking(raw["spec"] or {})} if "spec" in raw else {})}


def frame(raw: Any) -> Any:
    """Anything without what it holds, of which only the metadata count: what is no object stays what it is."""
    return {"metadata": _without(meta(raw), ("managedFields",))} if _is_mapping(raw) else raw


def node(raw: Raw) -> Raw:
    """A Node's labels and taints, what it has for pods, and whether it is ready."""
    parts = {name: _part(raw.get(name) or {}, fields) for name, fields in _OF_A_NODE.items()}
    return {"metadata": meta(namespace(raw)), **{name: part for name, part in parts.items() if part}}


def namespace(raw: Raw) -> Raw:
    """A namespace, or anything else of which only the labels count, without its annotations: tools hang many of them there."""
    return {**raw, "metadata": _without(meta(raw), ("annotations", "managedFields"))}


def _asking(spec: Raw) -> Raw:
    """What is kept of a copy's spec: with each container what it asks for, in their order."""
    kept = dict(_part(spec, _OF_A_COPY))
    for field in ("initContainers", "containers"):
        if isinstance(found := spec.get(field), list):
            kept[field] = [_part(one, _OF_ITS_CONTAINERS) if _is_mapping(one) else one for one in found]
    return kept


def _container(one: Raw) -> Raw:
    """What is kept of a container of a worker pod: of its env what names the head, or refers to something."""
    kept = dict(_part(one, _OF_WORKERS_CONTAINERS))
    if isinstance(env := one.get("env"), list):
        kept["env"] = [
            said for said in env if _is_mapping(said) and ("valueFrom" in said or said.get("name") in _HEADS)
        ]
    return kept


def _with_spec(raw: Raw, spec: Raw) -> Raw:
    return {**bare(raw), "spec": spec} if spec else bare(raw)


def _with_admission(raw: Raw, parts: Mapping[str, Collection[str]], of_podsets: Collection[str]) -> Raw:
    """These parts of an object, with these fields of each, and of those that Kueue assigned to its podsets."""
    kept = {part: _part(raw[part] or {}, fields) for part, fields in parts.items() if part in raw}
    admission = kept.get("status", {}).get("admission")
    if _is_mapping(admission) and isinstance(assigned := admission.get("podSetAssignments"), list):
        few = [_part(one, of_podsets) if _is_mapping(one) else one for one in assigned]
        kept["status"] = {**kept["status"], "admission": {**admission, "podSetAssignments": few}}
    return kept


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
