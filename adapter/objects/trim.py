"""Drops the fields of watched objects that no decision reads, to save memory in the caches.

Some objects consist mostly of unused fields: a Node's images, a RayJob's templates (which its Workload has as well), a
remote pod's spec. A decision that needs a further field must keep it here. Arguments are not changed. Values inside
`spec` and `status` may have any type.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeGuard

from adapter import names
from adapter.objects import kuberay_rules
from adapter.objects.ray_start import JOIN_PARAMS
from adapter.objects.unstructured import Raw, condition, mapping_field, mapping_list, meta, text_field, truncate

# kubectl writes the whole object into this annotation.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
# Fields that may be long. All others of a job are kept.
_LONG_JOB_FIELDS: Final = ("entrypoint", "runtimeEnvYAML", "submitterPodTemplate", "metadata")
# A worker group's or the head's; of these, the parts that KubeRay's rules read are kept (kuberay_rules.py).
_LONG_GROUP_FIELDS: Final = ("template", "rayStartParams")
_MAX_RULE_VALUE: Final = 8
_MAX_ADDRESS: Final = 512  # of a parameter that names a host, with the shell expression in it
# All but Kueue's topology assignments by node, usages and statistics.
_WORKLOAD_STATUS_FIELDS: Final = ("conditions", "admission", "admissionChecks", "requeueState")
_WORKLOAD_ASSIGNMENT_FIELDS: Final = ("name", "flavors", "count")
_GROUP_WORKLOAD_FIELDS: Final = {
    "spec": ("active", "priority", "podSets", "queueName"),
    "status": ("conditions", "admission", "admissionChecks"),
}
_GROUP_CHECK_FIELDS: Final = ("name", "state", "message")
_GROUP_ASSIGNMENT_FIELDS: Final = ("name", "flavors", "resourceUsage", "count")
_REMOTE_POD_FIELDS: Final = ("nodeName", "overhead", "resources")
_REMOTE_CONTAINER_FIELDS: Final = ("resources", "restartPolicy")  # for pod_requests.py
# Fields of a manager pod whose remote pod was observed: they show whether the manager cluster may run it, and its
# status must agree with them (worker/manager_pod_status.py).
_MANAGER_POD_FIELDS: Final = ("nodeName", "nodeSelector", "restartPolicy", "schedulingGates")
_MANAGER_CONTAINER_FIELDS: Final = ("name", "ports", "envFrom", "restartPolicy", "restartPolicyRules")
_HEAD_ADDRESS_ENV: Final = ("FQ_RAY_IP", "RAY_PORT")  # they identify the head (rewrite/head_address.py)
_COPIED_VOLUME_KINDS: Final = ("secret", "configMap", "projected")  # with copied objects (objects/references.py)
_OUR_PREFIX: Final = f"{names.DOMAIN}/"
_NODE_FIELDS: Final = {"spec": ("taints", "unschedulable"), "status": ("allocatable", "conditions")}


def untrimmed(raw: Raw) -> Raw:
    """The whole object: of an admission policy, managedFields show when it was last changed."""
    return raw


def without_managed_fields(raw: Raw) -> Raw:
    metadata = meta(raw)
    annotations = metadata.get("annotations") or {}
    if "managedFields" not in metadata and _LAST_APPLIED not in annotations:
        return raw
    trimmed = dict(_drop_fields(metadata, ("managedFields",)))
    if _LAST_APPLIED in annotations:
        trimmed["annotations"] = _drop_fields(annotations, (_LAST_APPLIED,))
    return {**raw, "metadata": trimmed}


def ray_cluster(raw: Raw) -> Raw:
    """A RayCluster without its pod templates."""
    return _with_spec(raw, _without_templates(raw.get("spec") or {}))


def ray_job(raw: Raw) -> Raw:
    """A RayJob without its pod templates and its program."""
    spec = dict(_drop_fields(raw.get("spec") or {}, _LONG_JOB_FIELDS))
    if spec.get("submissionMode") == "SidecarMode" and raw["spec"].get("submitterPodTemplate") is not None:
        spec["submitterPodTemplate"] = {}
    cluster = spec.get("rayClusterSpec")
    return _with_spec(raw, {**spec, "rayClusterSpec": _without_templates(cluster)} if _is_mapping(cluster) else spec)


def manager_workload(raw: Raw) -> Raw:
    return {
        **without_managed_fields(raw),
        **_with_admission(raw, {"status": _WORKLOAD_STATUS_FIELDS}, _WORKLOAD_ASSIGNMENT_FIELDS),
    }


def group_workload(raw: Raw) -> Raw:
    """A group Workload of ours: its podsets, conditions, admission, and the answers of its admission checks.

    Kueue makes each pod of the group an owner of the Workload, up to thousands. Of the owners only the anchor is kept.
    """
    trimmed = without_managed_fields(raw)
    metadata, owners = dict(meta(trimmed)), meta(trimmed).get("ownerReferences")
    if owners:
        metadata["ownerReferences"] = [owner for owner in owners if owner.get("kind") == "ConfigMap"]
    parts = dict(_with_admission(raw, _GROUP_WORKLOAD_FIELDS, _GROUP_ASSIGNMENT_FIELDS))
    if "status" in parts and isinstance(checks := parts["status"].get("admissionChecks"), list):
        answers = [_keep_fields(item, _GROUP_CHECK_FIELDS) if _is_mapping(item) else item for item in checks]
        parts["status"] = {**parts["status"], "admissionChecks": answers}
    return {**trimmed, "metadata": metadata, **parts}


def manager_pod(raw: Raw) -> Raw:
    """A manager pod: all of it until its remote pod was observed.

    After that its spec keeps the head's address, the references, the ports, and the fields that its status must agree
    with.
    """
    trimmed = without_managed_fields(raw)
    if not condition(raw, names.DISPATCHED_CONDITION) or not raw.get("spec"):
        return trimmed
    spec = dict(_keep_fields(raw["spec"], _MANAGER_POD_FIELDS))
    for field in ("initContainers", "containers"):
        if isinstance(items := raw["spec"].get(field), list):
            spec[field] = [_manager_container(item) if _is_mapping(item) else item for item in items]
    if isinstance(volumes := raw["spec"].get("volumes"), list):
        spec["volumes"] = [
            volume for volume in volumes if _is_mapping(volume) and any(kind in volume for kind in _COPIED_VOLUME_KINDS)
        ]
    return {**trimmed, "spec": spec}


def head_pod(raw: Raw) -> Raw:
    """A head's pod: its status, and the ports and the token of its containers."""
    trimmed = without_managed_fields(raw)
    containers = [_head_container(item) for item in mapping_list(mapping_field(raw, "spec"), "containers")]
    return {**trimmed, "spec": {"containers": containers}} if "spec" in raw else trimmed


def remote_pod(raw: Raw) -> Raw:
    """A remote pod: its node, its requests, its status, our annotations and its ProvisioningRequest."""
    metadata = dict(_drop_fields(meta(raw), ("managedFields",)))
    if annotations := metadata.get("annotations"):
        metadata["annotations"] = {
            key: text
            for key, text in annotations.items()
            if key.startswith(_OUR_PREFIX) or key == names.PROVISIONING_REQUEST_ANNOTATION
        }
    return {**raw, "metadata": metadata, **({"spec": _requests_only(raw["spec"] or {})} if "spec" in raw else {})}


def metadata_only(raw: Any) -> Any:
    """The metadata of an object; another value is returned as it is."""
    return {"metadata": _drop_fields(meta(raw), ("managedFields",))} if _is_mapping(raw) else raw


def node(raw: Raw) -> Raw:
    """A Node's labels, taints, allocatable resources and conditions."""
    parts = {name: _keep_fields(raw.get(name) or {}, fields) for name, fields in _NODE_FIELDS.items()}
    return {"metadata": meta(without_annotations(raw)), **{name: part for name, part in parts.items() if part}}


def without_annotations(raw: Raw) -> Raw:
    """An object without its annotations, such as a namespace, of which only the labels count."""
    return {**raw, "metadata": _drop_fields(meta(raw), ("annotations", "managedFields"))}


def _requests_only(spec: Raw) -> Raw:
    trimmed = dict(_keep_fields(spec, _REMOTE_POD_FIELDS))
    for field in ("initContainers", "containers"):
        if isinstance(items := spec.get(field), list):
            trimmed[field] = [
                _keep_fields(item, _REMOTE_CONTAINER_FIELDS) if _is_mapping(item) else item for item in items
            ]
    return trimmed


def _manager_container(container: Raw) -> Raw:
    trimmed = dict(_keep_fields(container, _MANAGER_CONTAINER_FIELDS))
    if isinstance(env := container.get("env"), list):
        trimmed["env"] = [
            entry
            for entry in env
            if _is_mapping(entry) and ("valueFrom" in entry or entry.get("name") in _HEAD_ADDRESS_ENV)
        ]
    return trimmed


def _head_container(container: Raw) -> Raw:
    env = [entry for entry in mapping_list(container, "env") if text_field(entry, "name") == names.RAY_TOKEN_ENV]
    return {**_keep_fields(container, ("name", "ports")), **({"env": env} if env else {})}


def _with_spec(raw: Raw, spec: Raw) -> Raw:
    return {**without_managed_fields(raw), "spec": spec} if spec else without_managed_fields(raw)


def _with_admission(raw: Raw, parts: Mapping[str, Collection[str]], assignment_fields: Collection[str]) -> Raw:
    """The parts of an object with the listed fields, also of each podset assignment."""
    trimmed = {part: _keep_fields(raw[part] or {}, fields) for part, fields in parts.items() if part in raw}
    admission = trimmed.get("status", {}).get("admission")
    if _is_mapping(admission) and isinstance(assigned := admission.get("podSetAssignments"), list):
        assignments = [_keep_fields(item, assignment_fields) if _is_mapping(item) else item for item in assigned]
        trimmed["status"] = {**trimmed["status"], "admission": {**admission, "podSetAssignments": assignments}}
    return trimmed


def _without_templates(spec: Raw) -> Raw:
    trimmed, head, groups = dict(spec), spec.get("headGroupSpec"), spec.get("workerGroupSpecs")
    if _is_mapping(head):
        trimmed["headGroupSpec"] = _trim_group(head)
    if isinstance(groups, list):
        trimmed["workerGroupSpecs"] = [_trim_group(group) if _is_mapping(group) else group for group in groups]
    return trimmed


def _trim_group(group: Raw) -> Raw:
    """The group with only those parts of its long fields that KubeRay's rules read."""
    trimmed = dict(_drop_fields(group, _LONG_GROUP_FIELDS))
    params = mapping_field(group, "rayStartParams")
    kept_params = {name: _shorten(params[name]) for name in kuberay_rules.START_PARAMS if name in params}
    kept_params |= {name: truncate(text, _MAX_ADDRESS) for name in JOIN_PARAMS if (text := text_field(params, name))}
    if kept_params:
        trimmed["rayStartParams"] = kept_params
    spec = mapping_field(mapping_field(group, "template"), "spec")
    kept_spec: dict[str, Any] = dict(_keep_fields(spec, ("restartPolicy",)))
    if env := _rule_variables(spec):
        kept_spec["containers"] = [{"env": env}]
    if kept_spec:
        trimmed["template"] = {"spec": kept_spec}
    return trimmed


def _rule_variables(spec: Raw) -> list[Raw]:
    """The variables of the Ray container that KubeRay's rules read, each once, as the last has it."""
    containers = mapping_list(spec, "containers")
    env = mapping_list(containers[0], "env") if containers else []
    values = {
        name: _shorten(text_field(entry, "value"))
        for entry in env
        if (name := text_field(entry, "name")) in kuberay_rules.HEAD_ENV
    }
    return [{"name": name, "value": value} for name, value in values.items()]


def _shorten(value: Any) -> Any:
    """A value of which the rules read whether there is one, and at most its first characters."""
    return value[:_MAX_RULE_VALUE] if isinstance(value, str) else bool(value)


def _is_mapping(value: object) -> TypeGuard[Raw]:
    return isinstance(value, dict)


def _drop_fields(holder: Raw, fields: Collection[str]) -> Raw:
    return {field: value for field, value in holder.items() if field not in fields}


def _keep_fields(holder: Raw, fields: Iterable[str]) -> Raw:
    return {field: holder[field] for field in fields if field in holder}
