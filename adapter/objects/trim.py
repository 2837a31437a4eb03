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
_LONG_JOB_FIELDS: Final = ("entrypoint", "runtimeEnvYAML", "submitterPodTemplate", "metadata")
_LONG_GROUP_FIELDS: Final = ("template", "rayStartParams")
# Of a Workload's status. Beside these Kueue writes down what it reckons for itself: topology assignments by node, usages, statistics.
_WORKLOAD_STATUS_FIELDS: Final = ("conditions", "admission", "admissionChecks")
_WORKLOAD_ASSIGNMENT_FIELDS: Final = ("name", "flavors", "count")
_GROUP_WORKLOAD_FIELDS: Final = {"spec": ("active", "priority", "podSets"), "status": ("conditions", "admission")}
_GROUP_ASSIGNMENT_FIELDS: Final = ("name", "flavors", "resourceUsage")
_REMOTE_POD_FIELDS: Final = ("nodeName", "overhead", "resources")
_REMOTE_CONTAINER_FIELDS: Final = ("resources", "restartPolicy")  # what pod_requests.py adds up
# Of a worker pod's once its copy was seen: who else may run it, and what its status must agree with (worker/status_mirror.py).
_MANAGER_POD_FIELDS: Final = ("nodeName", "nodeSelector", "restartPolicy", "schedulingGates")
_MANAGER_CONTAINER_FIELDS: Final = ("name", "ports", "envFrom", "restartPolicy", "restartPolicyRules")
_HEAD_ENV: Final = ("FQ_RAY_IP", "RAY_PORT")  # by which the head is known (rewrite/head_address.py)
_COPIED_VOLUME_KINDS: Final = (
    "secret",
    "configMap",
    "projected",
)  # of volumes, what is copied along (objects/references.py)
_OUR_PREFIX: Final = f"{names.DOMAIN}/"
_NODE_FIELDS: Final = {"spec": ("taints", "unschedulable"), "status": ("allocatable", "conditions")}


def without_managed_fields(raw: Raw) -> Raw:
    """Any object, without what its writers note down for themselves."""
    metadata = meta(raw)
    annotations = metadata.get("annotations") or {}
    if "managedFields" not in metadata and _LAST_APPLIED not in annotations:
        return raw
    kept = dict(_drop_fields(metadata, ("managedFields",)))
    if _LAST_APPLIED in annotations:
        kept["annotations"] = _drop_fields(annotations, (_LAST_APPLIED,))
    return {**raw, "metadata": kept}


def ray_cluster(raw: Raw) -> Raw:
    """A RayCluster without the templates of its pods."""
    return _with_spec(raw, _without_templates(raw.get("spec") or {}))


def ray_job(raw: Raw) -> Raw:
    """A RayJob without the templates of its pods, and without what it runs."""
    spec = _drop_fields(raw.get("spec") or {}, _LONG_JOB_FIELDS)
    cluster = spec.get("rayClusterSpec")
    return _with_spec(raw, {**spec, "rayClusterSpec": _without_templates(cluster)} if _is_mapping(cluster) else spec)


def manager_workload(raw: Raw) -> Raw:
    """A manager's Workload without what Kueue reckons for itself."""
    return {
        **without_managed_fields(raw),
        **_with_admission(raw, {"status": _WORKLOAD_STATUS_FIELDS}, _WORKLOAD_ASSIGNMENT_FIELDS),
    }


def group_workload(raw: Raw) -> Raw:
    """A group Workload of ours: what its quota is held for, and what became of it. Kueue makes each pod of the group an owner of it,
    which are thousands; of these only the anchor counts."""
    kept = without_managed_fields(raw)
    metadata, owners = dict(meta(kept)), meta(kept).get("ownerReferences")
    if owners:
        metadata["ownerReferences"] = [one for one in owners if one.get("kind") == "ConfigMap"]
    return {**kept, "metadata": metadata, **_with_admission(raw, _GROUP_WORKLOAD_FIELDS, _GROUP_ASSIGNMENT_FIELDS)}


def manager_pod(raw: Raw) -> Raw:
    """A worker pod of the manager: all of it while a copy may be made. Once one was seen, none is ever made again, and of the spec is
    kept where its head is, what it refers to, its ports, and what of its status may be written."""
    kept = without_managed_fields(raw)
    if not condition(raw, names.DISPATCHED_CONDITION) or not raw.get("spec"):
        return kept
    spec = dict(_keep_fields(raw["spec"], _MANAGER_POD_FIELDS))
    for field in ("initContainers", "containers"):
        if isinstance(found := raw["spec"].get(field), list):
            spec[field] = [_manager_container(one) if _is_mapping(one) else one for one in found]
    if isinstance(volumes := raw["spec"].get("volumes"), list):
        spec["volumes"] = [
            one for one in volumes if _is_mapping(one) and any(kind in one for kind in _COPIED_VOLUME_KINDS)
        ]
    return {**kept, "spec": spec}


def remote_pod(raw: Raw) -> Raw:
    """A worker's copy: which node it has, what it asks for, and what is said of it. Of its annotations ours, for what users and tools
    write into them may be long."""
    metadata = dict(_drop_fields(meta(raw), ("managedFields",)))
    if notes := metadata.get("annotations"):
        metadata["annotations"] = {key: text for key, text in notes.items() if key.startswith(_OUR_PREFIX)}
    return {**raw, "metadata": metadata, **({"spec": _requests_only(raw["spec"] or {})} if "spec" in raw else {})}


def metadata_only(raw: Any) -> Any:
    """Anything without what it holds, of which only the metadata count: what is no object stays what it is."""
    return {"metadata": _drop_fields(meta(raw), ("managedFields",))} if _is_mapping(raw) else raw


def node(raw: Raw) -> Raw:
    """A Node's labels and taints, what it has for pods, and whether it is ready."""
    parts = {name: _keep_fields(raw.get(name) or {}, fields) for name, fields in _NODE_FIELDS.items()}
    return {"metadata": meta(without_annotations(raw)), **{name: part for name, part in parts.items() if part}}


def without_annotations(raw: Raw) -> Raw:
    """A namespace, or anything else of which only the labels count, without its annotations: tools hang many of them there."""
    return {**raw, "metadata": _drop_fields(meta(raw), ("annotations", "managedFields"))}


def _requests_only(spec: Raw) -> Raw:
    """What is kept of a copy's spec: with each container what it asks for, in their order."""
    kept = dict(_keep_fields(spec, _REMOTE_POD_FIELDS))
    for field in ("initContainers", "containers"):
        if isinstance(found := spec.get(field), list):
            kept[field] = [_keep_fields(one, _REMOTE_CONTAINER_FIELDS) if _is_mapping(one) else one for one in found]
    return kept


def _manager_container(container: Raw) -> Raw:
    """What is kept of a container of a worker pod: of its env what names the head, or refers to something."""
    kept = dict(_keep_fields(container, _MANAGER_CONTAINER_FIELDS))
    if isinstance(env := container.get("env"), list):
        kept["env"] = [
            said for said in env if _is_mapping(said) and ("valueFrom" in said or said.get("name") in _HEAD_ENV)
        ]
    return kept


def _with_spec(raw: Raw, spec: Raw) -> Raw:
    return {**without_managed_fields(raw), "spec": spec} if spec else without_managed_fields(raw)


def _with_admission(raw: Raw, parts: Mapping[str, Collection[str]], assignment_fields: Collection[str]) -> Raw:
    """These parts of an object, with these fields of each, and of those that Kueue assigned to its podsets."""
    kept = {part: _keep_fields(raw[part] or {}, fields) for part, fields in parts.items() if part in raw}
    admission = kept.get("status", {}).get("admission")
    if _is_mapping(admission) and isinstance(assigned := admission.get("podSetAssignments"), list):
        few = [_keep_fields(one, assignment_fields) if _is_mapping(one) else one for one in assigned]
        kept["status"] = {**kept["status"], "admission": {**admission, "podSetAssignments": few}}
    return kept


def _without_templates(spec: Raw) -> Raw:
    kept, head, groups = dict(spec), spec.get("headGroupSpec"), spec.get("workerGroupSpecs")
    if _is_mapping(head):
        kept["headGroupSpec"] = _drop_fields(head, _LONG_GROUP_FIELDS)
    if isinstance(groups, list):
        kept["workerGroupSpecs"] = [
            _drop_fields(one, _LONG_GROUP_FIELDS) if _is_mapping(one) else one for one in groups
        ]
    return kept


def _is_mapping(value: object) -> TypeGuard[Raw]:
    return isinstance(value, dict)


def _drop_fields(holder: Raw, fields: Collection[str]) -> Raw:
    return {field: value for field, value in holder.items() if field not in fields}


def _keep_fields(holder: Raw, fields: Iterable[str]) -> Raw:
    return {field: holder[field] for field in fields if field in holder}
