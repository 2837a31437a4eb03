"""Builds the remote pod of a manager's KubeRay worker pod.

Equal input gives equal bytes, so a controller that crashed after a create repeats the same request. Field references
become literals before addresses are replaced, since a literal may contain an address.
"""

from collections.abc import Sequence
from typing import Any

from adapter import names
from adapter.objects import references
from adapter.objects.topology_request import read_topology_request
from adapter.objects.unstructured import Raw, key_of, meta, uid_of
from adapter.rewrite import (
    affinity,
    copied_objects,
    downward_api,
    gcs_waiter,
    group_workload,
    object_names,
    pod_mapping,
    pre_stop,
    ray_node_env,
    stripping,
    termination_message,
)
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.stripping import resolve_field_ref
from adapter.rewrite.target import Target, anchor_owner, origin_annotations, origin_labels

# The container fields that can hold an address.
_TEXT_FIELDS = ("command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

# A node autoscaler may evict pods that would fit on another node; a Ray worker loses its tasks and objects then. A user
# may allow the eviction in the template, an administrator in the WorkerCluster.
_NO_DISRUPTION_ANNOTATIONS = {names.DO_NOT_DISRUPT_ANNOTATION: "true", names.SAFE_TO_EVICT_ANNOTATION: "false"}


def remote_pod(
    pod: Raw,
    *,
    head: HeadAddress,
    target: Target,
    role: str,
    slot: str,
    anchor_uid: str,
    pod_group: str = "",
    pull_secrets: Sequence[Raw] = (),
) -> dict[str, Any]:
    """Turn a manager pod into the remote pod, with the same name and namespace.

    The input pod is described in docs/upstream.md, "The worker pod that KubeRay makes". The annotations for Kueue are
    described in docs/upstream.md, "Pods that join a group Workload".
    """
    head = head.for_cluster(target.head)
    portable = {key: value for key, value in meta(pod).items() if key not in stripping.DROPPED_METADATA}
    annotations = {
        **_NO_DISRUPTION_ANNOTATIONS,
        **head.relocate(stripping.portable_annotations(portable.get("annotations"))),
        **target.pods.annotations,
        **origin_annotations(target),
        names.SLOT_ANNOTATION: slot,
        **head.head_annotations(),
        **_group_annotations(target, role),
        **_topology_annotation(pod),
        **group_workload.pod_group_annotations(pod_group),
    }
    metadata = {
        **portable,
        "labels": _pod_labels(pod, target),
        "annotations": annotations,
        "ownerReferences": [anchor_owner(target, anchor_uid)],
    }
    rest = {key: value for key, value in pod.items() if key != "status"}
    spec = references.rename_in_spec(
        _with_pull_secrets(pull_secrets, _pod_spec(pod, head, target)),
        lambda reference: copied_objects.copy_name(reference, target.cluster, target.workload_uid),
    )
    return {**rest, "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def referenced_objects(pod: Raw, pull_secrets: Sequence[Raw] = ()) -> dict[references.Reference, str]:
    """The objects to copy before the remote pod starts, each with the field that requires it, empty if optional."""
    return references.find_in_spec(_with_pull_secrets(pull_secrets, stripping.without_token(pod.get("spec") or {})))


def _with_pull_secrets(pull_secrets: Sequence[Raw], spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with these pull secrets instead of its own: those that admission added are the manager's."""
    rest = {key: value for key, value in spec.items() if key != "imagePullSecrets"}
    return {**rest, "imagePullSecrets": list(pull_secrets)} if pull_secrets else rest


def _pod_labels(pod: Raw, target: Target) -> dict[str, str]:
    labels = meta(pod).get("labels")
    return {
        **affinity.remote_ray_labels(labels),
        **stripping.portable_labels(labels),
        **target.pods.labels,
        **origin_labels(target),
        names.POD_UID_LABEL: uid_of(pod),
        names.QUEUE_LABEL: target.queue,
        names.MANAGED_LABEL: "true",
    }


def _group_annotations(target: Target, role: str) -> dict[str, str]:
    """The annotations that make the pod a member of the share's group Workload.

    Kueue ungates such a pod at once, adds no finalizer, and lets it be replaced.
    """
    return {
        names.SUSPENDING_PARENT_ANNOTATION: names.DOMAIN,
        names.GROUP_NAME_ANNOTATION: target.share,
        names.PREBUILT_ANNOTATION: target.share,  # the webhook requires the group's name
        # Some slots stay empty. With the true total, Kueue would count a group with fewer pods as not ready, and evict
        # it after waitForPodsReady.
        names.GROUP_TOTAL_ANNOTATION: "1",
        names.ROLE_HASH_ANNOTATION: role,
        names.GROUP_SERVING_ANNOTATION: "true",
    }


def _topology_annotation(pod: Raw) -> dict[str, str]:
    """Kueue assigns a domain to pods with this annotation only (docs/upstream.md, "Topologies of a worker cluster")."""
    request = read_topology_request(pod)
    return request.pod_annotation if request else {}


def _pod_spec(pod: Raw, head: HeadAddress, target: Target) -> dict[str, Any]:
    manager_spec, namespace = pod.get("spec") or {}, key_of(pod)[0]
    spec = stripping.without_token(stripping.portable_spec(manager_spec, target))
    spec = gcs_waiter.with_worker_requests(object_names.apply_names(spec, manager_spec, target.pods, namespace))
    if spec.get("volumes"):
        spec["volumes"] = downward_api.rewrite_volumes(spec["volumes"])
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [
                termination_message.with_log(_rewrite_container(container, pod, head)) for container in spec[kind] or ()
            ]
    if ray := spec.get("containers"):
        zoned = {**ray[0], "env": ray_node_env.with_zone(ray[0].get("env") or (), target)}
        spec["containers"] = [pre_stop.with_hook(pod_mapping.with_env(zoned, target.pods), spec), *ray[1:]]
    return spec


def _rewrite_container(container: Raw, pod: Raw, head: HeadAddress) -> Raw:
    changed = {field: head.rewrite_command(container[field]) for field in _TEXT_FIELDS if field in container}
    if container.get("env"):
        changed["env"] = [_rewrite_env(entry, pod, head) for entry in container["env"]]
    unchanged = all(changed[field] == container[field] for field in changed)
    return container if unchanged else {**container, **changed}


def _rewrite_env(entry: Raw, pod: Raw, head: HeadAddress) -> Raw:
    entry = head.rewrite_env(resolve_field_ref(entry, pod))
    return {**entry, "value": head.rewrite_command(entry["value"])} if "value" in entry else entry
