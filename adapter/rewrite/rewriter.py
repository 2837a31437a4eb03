"""What does a manager's KubeRay worker pod look like in a worker cluster?

A pure function of the pod, the head's address and the share: the same input gives the same bytes, so a controller that
crashed after a create repeats it. It does not ask whether the pod may travel (`admission.job_validation`) and does not look for room.
Order inside a container: literals first, then addresses (a literal may hold one), then its last words, the zone, and the hook that drains.
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

# Where a command or an address can stand in a container; `name`, `image` and mounts are names, never addresses.
_TEXT_FIELDS = ("command", "args", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")

# A node autoscaler may empty a node whose pods would fit elsewhere. A Ray worker is no such pod: tasks and objects go with it, and those
# who wait for them wait again. Whoever wants it says so in the template, or for all pods of a cluster in its WorkerCluster.
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
    """Turn a manager's worker pod into the pod to create in the worker cluster, same name and namespace.

    `head` is what `HeadAddress.of` read off the same pod, and is dialled as `target.head` says; `role` the podset's name
    (`groupworkload.role(group)`); `total` the number of pods that the share reserves over all its podsets; `slot` is
    the text of a slot; `anchor_uid` the uid of the share's anchor ConfigMap; `pod_group` the share's Volcano
    PodGroup, empty where it has none; `pull_secrets` what its template says under that name. What KubeRay made of it:
    docs/upstream.md, "The worker pod that KubeRay makes"; the markers: docs/upstream.md, "Pods that join a group Workload".
    """
    head = head.for_cluster(target.head)
    kept = {key: value for key, value in meta(pod).items() if key not in stripping.DROPPED_METADATA}
    annotations = {
        **_NO_DISRUPTION_ANNOTATIONS,
        **head.relocate(stripping.portable_annotations(kept.get("annotations"))),
        **target.pods.annotations,
        **origin_annotations(target),
        names.SLOT_ANNOTATION: slot,
        **head.head_annotations(),
        **_group_annotations(target, role, total),
        **group_workload.pod_group_annotations(pod_group),
    }
    metadata = {
        **kept,
        "labels": _pod_labels(pod, target),
        "annotations": annotations,
        "ownerReferences": [anchor_owner(target, anchor_uid)],
    }
    rest = {key: value for key, value in pod.items() if key != "status"}
    spec = references.rename_in_spec(
        _with_pull_secrets(pull_secrets, _pod_spec(pod, head, target)),
        lambda one: copied_objects.copy_name(one, anchor_uid),
    )
    return {**rest, "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def referenced_objects(pod: Raw, pull_secrets: Sequence[Raw] = ()) -> dict[references.Reference, str]:
    """Find what must be copied before `remote_pod` can start, as `references.wanted` does."""
    return references.find_in_spec(_with_pull_secrets(pull_secrets, stripping.without_token(pod.get("spec") or {})))


def _with_pull_secrets(pull_secrets: Sequence[Raw], spec: dict[str, Any]) -> dict[str, Any]:
    """Let the template's own pull secrets travel; what admission added to a pod without any is the manager's."""
    kept = {key: value for key, value in spec.items() if key != "imagePullSecrets"}
    return {**kept, "imagePullSecrets": list(pull_secrets)} if pull_secrets else kept


def _pod_labels(pod: Raw, target: Target) -> dict[str, str]:
    found = meta(pod).get("labels")
    return {
        **affinity.remote_ray_labels(found),
        **stripping.portable_labels(found),
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
        names.PREBUILT_ANNOTATION: target.share,  # Kueue's webhook wants it equal to the group's name
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
            spec[kind] = [termination_message.with_log(_rewrite_container(one, pod, head)) for one in spec[kind] or ()]
    if ray := spec.get("containers"):
        placed = {**ray[0], "env": zone.with_zone(ray[0].get("env") or (), target)}
        spec["containers"] = [pre_stop.with_hook(placed, spec), *ray[1:]]
    return spec


def _rewrite_container(container: Raw, pod: Raw, head: HeadAddress) -> Raw:
    changed = {field: head.relocate(container[field]) for field in _TEXT_FIELDS if field in container}
    if container.get("env"):
        changed["env"] = [_rewrite_env(entry, pod, head) for entry in container["env"]]
    same = all(changed[field] == container[field] for field in changed)
    return container if same else {**container, **changed}


def _rewrite_env(entry: Raw, pod: Raw, head: HeadAddress) -> Raw:
    entry = head.rewrite_env(resolve_field_ref(entry, pod))
    return {**entry, "value": head.relocate(entry["value"])} if "value" in entry else entry
