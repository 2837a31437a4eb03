"""Builds the remote pod of a manager's KubeRay worker pod.

A pure function of the pod, the head's address and the share: equal input gives equal bytes, so a controller that
crashed after a create repeats it. `admission.job_validation` decides whether the pod may be dispatched, and the plan
where. Order inside a container: literals first, then addresses (a literal may hold one), then the termination message
policy, the zone, and the preStop hook.
"""

from collections.abc import Sequence
from typing import Any

from adapter import names
from adapter.objects import references
from adapter.objects.unstructured import Raw, meta, uid_of
from adapter.rewrite import (
    affinity,
    copied_objects,
    downward_api,
    group_workload,
    pre_stop,
    stripping,
    termination_message,
    zone,
)
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.stripping import resolve_field_ref
from adapter.rewrite.target import Target, anchor_owner, origin_annotations, origin_labels

# The container fields that can hold an address; `name`, `image` and mounts are names, never addresses.
_TEXT_FIELDS = ("command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

# A node autoscaler may evict pods that would fit on another node. A Ray worker loses its tasks and objects then, and
# their consumers wait again. A user may allow it in the template, an administrator for a whole cluster in its
# WorkerCluster.
_NO_DISRUPTION_ANNOTATIONS = {names.DO_NOT_DISRUPT_ANNOTATION: "true", names.SAFE_TO_EVICT_ANNOTATION: "false"}


def remote_pod(
    pod: Raw,
    *,
    head: HeadAddress,
    target: Target,
    role: str,
    total: int,
    slot: str,
    anchor_uid: str,
    pod_group: str = "",
    pull_secrets: Sequence[Raw] = (),
) -> dict[str, Any]:
    """Turn a manager pod into the remote pod to create in the worker cluster, with the same name and namespace.

    `head` comes from `HeadAddress.from_pod` of the same pod, and is addressed by `target.head`; `role` is the podset's
    name (`group_workload.role_of_group`); `total` the number of pods that the share reserves over all its podsets;
    `slot` the text of a slot; `anchor_uid` the uid of the share's anchor ConfigMap; `pod_group` the share's Volcano
    PodGroup, empty where it has none; `pull_secrets` the template's imagePullSecrets. The input pod: docs/upstream.md,
    "The worker pod that KubeRay makes"; the markers: docs/upstream.md, "Pods that join a group Workload".
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
        **_group_annotations(target, role, total),
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
        lambda reference: copied_objects.copy_name(reference, anchor_uid),
    )
    return {**rest, "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def referenced_objects(pod: Raw, pull_secrets: Sequence[Raw] = ()) -> dict[references.Reference, str]:
    """The objects that must be copied before the remote pod can start, as `references.find_in_spec` returns them."""
    return references.find_in_spec(_with_pull_secrets(pull_secrets, stripping.without_token(pod.get("spec") or {})))


def _with_pull_secrets(pull_secrets: Sequence[Raw], spec: dict[str, Any]) -> dict[str, Any]:
    """Set the template's own pull secrets; those that admission added to a pod without any are the manager's."""
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


def _group_annotations(target: Target, role: str, total: int) -> dict[str, str]:
    """Make the pod a member of the share's admitted group Workload: ungated at once, no finalizer, replaceable."""
    return {
        names.SUSPENDING_PARENT_ANNOTATION: names.DOMAIN,
        names.GROUP_NAME_ANNOTATION: target.share,
        names.PREBUILT_ANNOTATION: target.share,  # Kueue's webhook requires the group's name
        names.GROUP_TOTAL_ANNOTATION: str(total),
        names.ROLE_HASH_ANNOTATION: role,
        names.GROUP_SERVING_ANNOTATION: "true",
    }


def _pod_spec(pod: Raw, head: HeadAddress, target: Target) -> dict[str, Any]:
    spec = stripping.without_token(stripping.portable_spec(pod.get("spec") or {}, target))
    if spec.get("volumes"):
        spec["volumes"] = downward_api.rewrite_volumes(spec["volumes"])
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [
                termination_message.with_log(_rewrite_container(container, pod, head)) for container in spec[kind] or ()
            ]
    if ray := spec.get("containers"):
        zoned = {**ray[0], "env": zone.with_zone(ray[0].get("env") or (), target)}
        spec["containers"] = [pre_stop.with_hook(zoned, spec), *ray[1:]]
    return spec


def _rewrite_container(container: Raw, pod: Raw, head: HeadAddress) -> Raw:
    changed = {field: head.relocate(container[field]) for field in _TEXT_FIELDS if field in container}
    if container.get("env"):
        changed["env"] = [_rewrite_env(entry, pod, head) for entry in container["env"]]
    unchanged = all(changed[field] == container[field] for field in changed)
    return container if unchanged else {**container, **changed}


def _rewrite_env(entry: Raw, pod: Raw, head: HeadAddress) -> Raw:
    entry = head.rewrite_env(resolve_field_ref(entry, pod))
    return {**entry, "value": head.relocate(entry["value"])} if "value" in entry else entry
