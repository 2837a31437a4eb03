"""Builds the pod of a dry run, and reads the response of the worker cluster.

The dry run precedes the share (docs/upstream.md, "A dry run of a pod"), so that the share holds the quota of the pod as
admitted, after LimitRanges, RuntimeClasses, webhooks and policies. The rewriter builds the pod, so that selectors by
label, annotation or owner match it, and Kueue's webhook gates it. No head exists yet.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from adapter import names
from adapter.objects import api_messages
from adapter.objects.placement import ShareKey, share_name
from adapter.objects.pod_requests import Resources, pod_requests, scheduling_hash
from adapter.objects.required_objects import required_objects
from adapter.objects.selectors import tolerates
from adapter.objects.unstructured import (
    MAX_ITEM_LENGTH,
    UNREADABLE,
    Raw,
    key_of,
    meta,
    truncate,
)
from adapter.objects.worker_pod import Slot
from adapter.rewrite import group_workload, rewriter
from adapter.rewrite.denied_containers import denied_containers
from adapter.rewrite.gcs_waiter import GCS_WAITER_RESOURCES
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target

# Container fields that a dry run leaves out, because they are private or differ between jobs: so jobs of one shape
# share a dry run. They cause no request and no toleration. A policy on them applies to the first remote pod
# (docs/pods.md, "What the worker cluster adds").
_PRIVATE_FIELDS = ("env", "envFrom", "command", "args")
# KubeRay adds both probes, and a policy may require them.
_PROBES: Mapping[str, Any] = {probe: {"exec": {"command": ["true"]}} for probe in ("livenessProbe", "readinessProbe")}
# The fields that KubeRay copies from the Ray container into its init container.
_INIT_CONTAINER_FIELDS = ("image", "imagePullPolicy", "securityContext", "volumeMounts")
# A larger template counts as unreadable: many results are cached for minutes, and no real pod is larger without
# environments, commands and mounts.
MAX_TEMPLATE_BYTES = 32 * 1024
_FOREVER = datetime.max.replace(tzinfo=UTC)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NO_ROUND = 0  # rounds count from 1
# The statuses of a denial, without those of an overload or of a name conflict.
_DENIED_STATUSES = (400, 403, 404, 422)


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """The result for one worker group: it has exactly one of a reserved template, a denied and an unknown reason."""

    reserved_template: Mapping[str, Any] = field(default_factory=dict)
    request: Resources = field(default_factory=dict)  # of one such pod
    scheduling_hash: str = ""  # see pod_requests.scheduling_hash
    denied_reason: str = ""
    unknown_reason: str = ""
    valid_until: datetime = _FOREVER


def build_pod(template: Raw, group: str, target: Target, namespace: str) -> dict[str, Any]:
    """Build the pod of a dry run from a worker group's podset template (manager), for the cluster of a target.

    No real pod ever has the name of this pod. Any uid serves for the anchor, which does not exist yet.
    """
    role = group_workload.role_of_group(group)
    manager_pod = {
        "metadata": _pod_metadata(template, role, group, namespace),
        "spec": _with_kuberay_defaults(template.get("spec") or {}),
    }
    return rewriter.remote_pod(
        manager_pod,
        head=HeadAddress(namespace=namespace),
        target=replace(target, share=share_name(target.placement, _NO_ROUND), round=_NO_ROUND),
        role=role,
        slot=str(Slot(ShareKey(target.cluster, _NO_ROUND), role, 0)),
        anchor_uid=target.workload_uid,
        pull_secrets=(template.get("spec") or {}).get("imagePullSecrets") or (),
    )


def digest(template: Raw, group: str, target: Target) -> str:
    """Hash all inputs of a dry run except its cluster and namespace.

    What the pod names of a cluster is an input: without a cluster, the pod has none of the cluster's names.
    """
    spec = template.get("spec") or {}
    named = [required_objects(spec), spec.get("priorityClassName"), spec.get("schedulerName")]
    text = json.dumps([build_pod(template, group, target, ""), *named], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_response(answer: Raw, template: Raw, target: Target) -> DryRunResult:
    namespace, _ = key_of(answer)
    try:
        reserved = group_workload.reserved_template(template, target, namespace=namespace, admitted_spec=answer["spec"])
        request = _checked_requests(reserved["spec"])
        return DryRunResult(
            reserved_template=reserved, request=request, scheduling_hash=scheduling_hash(reserved["spec"], request)
        )
    except UNREADABLE as error:
        return DryRunResult(unknown_reason=f"its answer cannot be read: {type(error).__name__}")


def parse_error(pod: Raw, status: int, message: str) -> DryRunResult:
    """Read the API server's error for a pod; a denial by a LimitRange gets the containers that it does not name.

    Where a dry run is impossible, the share holds the template's requests. If a remote pod requests more, this is
    reported once the pod exists, which is better than never using such a cluster.
    """
    name = key_of(pod)[1]
    text = truncate(f"{message.replace(name, '*').removesuffix('.')}{denied_containers(pod, message)}", MAX_ITEM_LENGTH)
    is_unknown = api_messages.takes_no_dry_run(message) or api_messages.lacks_right(message, "create")
    if status in _DENIED_STATUSES and not is_unknown:
        return DryRunResult(denied_reason=text or f"its API server answers {status}")
    return DryRunResult(unknown_reason=text or f"its API server answers {status}")


def _checked_requests(spec: Raw) -> Resources:
    """The requests of a pod; raises one of UNREADABLE for a spec that would make all plans from this gang on fail."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    expressions = [
        expression
        for term in required.get("nodeSelectorTerms") or ()
        for expression in term.get("matchExpressions") or ()
    ]
    texts = [text for pair in (spec.get("nodeSelector") or {}).items() for text in pair]
    texts += [text for rule in expressions for text in (rule["key"], *(rule.get("values") or ()))]
    for toleration in spec.get("tolerations") or ():
        tolerates(toleration, {})
    request = pod_requests(spec)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    if len(json.dumps(spec)) > MAX_TEMPLATE_BYTES or min(request.values()) < 0:
        raise ValueError
    return request


def _pod_metadata(template: Raw, role: str, group: str, namespace: str) -> dict[str, Any]:
    metadata = meta(template)
    labels = {
        names.RAY_NODE_TYPE_LABEL: names.WORKER,
        names.RAY_GCS_GROUP_LABEL: group,
        **(metadata.get("labels") or {}),
    }
    annotations = dict(metadata.get("annotations") or {})
    return {
        "name": f"{names.DRY_RUN_POD_PREFIX}-{role}",
        "namespace": namespace,
        "labels": labels,
        "annotations": annotations,
    }


def _with_kuberay_defaults(spec: Raw) -> dict[str, Any]:
    """A worker group's spec with probes and with KubeRay's init container (kuberay:controllers/ray/common/pod.go).

    A LimitRange may find the init container too small, and a policy its security context too loose.
    """
    containers = [_without_private_fields(container) for container in spec.get("containers") or ()]
    inits = [_without_private_fields(container) for container in spec.get("initContainers") or ()]
    if not containers:
        return dict(spec)
    ray = containers[0]
    if not any(container.get("name") == names.GCS_WAITER for container in inits):
        common = {key: ray[key] for key in _INIT_CONTAINER_FIELDS if key in ray}
        amounts = GCS_WAITER_RESOURCES
        inits.append({
            "name": names.GCS_WAITER, **common, "resources": {"requests": amounts, "limits": amounts},
        })  # fmt: skip
    return {**spec, "containers": [{**_PROBES, **ray}, *containers[1:]], "initContainers": inits}


def _without_private_fields(container: Raw) -> Raw:
    return {key: value for key, value in container.items() if key not in _PRIVATE_FIELDS}
