"""What would a worker cluster make of a copy, were it created now? The pod for a dry run, and what its answer says.

Asked before a share is (docs/upstream.md, "A dry run of a pod"), so that the share holds what will run: LimitRanges, RuntimeClasses and
whatever else adds to pods have then had their say, and what refuses them has refused. The pod is made by the rewriter, as a real
copy is: whoever selects copies by label, annotation or owner takes it for one, and Kueue's webhook gates it. But no head is there yet
that it could name, and its programs and environments stay at home: nothing runs, and what is private in them need not travel for that.
Who is asked when, and for how long an answer counts, is not decided here.
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
from adapter.objects.selectors import tolerates
from adapter.objects.unstructured import MAX_ITEM_LENGTH, UNREADABLE, Raw, meta, truncate
from adapter.objects.worker_pod import Slot
from adapter.rewrite import group_workload, rewriter
from adapter.rewrite.head_address import HeadAddress
from adapter.rewrite.target import Target

# What is private in a container, or new in each job: without it, jobs of one shape are one question. In a real copy these are what the
# template says, and KubeRay's start of Ray with the head's address. Neither a request nor a toleration comes of them, and the API asks
# for none. A policy that looks at them speaks when the first real pod comes (docs/pods.md, "What the worker cluster adds"). What
# Ray is told of the place is none of the template's, and the rewriter writes it here, too.
_PRIVATE_FIELDS = ("env", "envFrom", "command", "args")
# KubeRay gives the Ray container both where it has none, and a policy may want them.
_PROBES: Mapping[str, Any] = {probe: {"exec": {"command": ["true"]}} for probe in ("livenessProbe", "readinessProbe")}
_INIT_CONTAINER_FIELDS = (
    "image",
    "imagePullPolicy",
    "securityContext",
    "volumeMounts",
)  # what its init container has in common with it
# Of what a share is to hold, as JSON: no real pod has more once environments, commands and mounts are left out, and many answers are
# kept for minutes.
MAX_TEMPLATE_BYTES = 32 * 1024
_FOREVER = datetime.max.replace(tzinfo=UTC)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NO_ROUND = 0  # rounds count from 1: no share is ever called after this one
# What an API server answers that does not want the pod; not what it says when it is busy, or knows somebody of that name.
_DENIED_STATUSES = (400, 403, 404, 422)


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """What a worker cluster makes of a copy of one worker group: exactly one of what it holds, why not, and why nobody knows."""

    reserved_template: Mapping[str, Any] = field(
        default_factory=dict
    )  # the template of such a pod, as its share is to hold it
    request: Resources = field(default_factory=dict)  # and what it asks of quota
    scheduling_hash: str = ""  # all that quota and nodes read of it (podrequests.alike)
    denied_reason: str = ""
    unknown_reason: str = ""
    valid_until: datetime = _FOREVER  # when it counts no more


def build_pod(template: Raw, group: str, target: Target, namespace: str) -> dict[str, Any]:
    """Build the pod of a dry run from a worker group's podset template (manager), for the cluster of a target.

    Its name and its share's are none that a pod or a share ever has; of the anchor, which is not there yet, any uid will do.
    """
    role = group_workload.role_of_group(group)
    made = {
        "metadata": _pod_metadata(template, role, group, namespace),
        "spec": _with_kuberay_defaults(template.get("spec") or {}),
    }
    return rewriter.remote_pod(
        made,
        head=HeadAddress(namespace=namespace),
        target=replace(target, share=share_name(target.placement, _NO_ROUND), round=_NO_ROUND),
        role=role,
        total=1,
        slot=str(Slot(ShareKey(target.cluster, _NO_ROUND), role, 0)),
        anchor_uid=target.workload_uid,
        pull_secrets=(template.get("spec") or {}).get("imagePullSecrets") or (),
    )


def digest(template: Raw, group: str, target: Target) -> str:
    """Name all that a dry run depends on but for its cluster and namespace; `target` is one of nowhere, with the queue."""
    text = json.dumps(build_pod(template, group, target, ""), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def parse_response(answer: Raw, template: Raw, target: Target) -> DryRunResult:
    """Read the pod that the cluster would run."""
    try:
        held = group_workload.reserved_template(template, target, admitted_spec=answer["spec"])
        request = _checked_requests(held["spec"])
        return DryRunResult(
            reserved_template=held, request=request, scheduling_hash=scheduling_hash(held["spec"], request)
        )
    except UNREADABLE as error:
        return DryRunResult(unknown_reason=f"its answer cannot be read: {type(error).__name__}")


def parse_error(name: str, status: int, message: str) -> DryRunResult:
    """Read what the API server says instead of taking the pod of that name.

    Where no dry run can be had nothing is known, and the share holds what the template asks for. A copy that asks for more is then
    told of when it stands, which is later, and not worse than never to use such a cluster.
    """
    text = truncate(message.replace(name, "*").removesuffix("."), MAX_ITEM_LENGTH)
    # A right that is missing is the account's, and says nothing of the pod.
    is_unknown = api_messages.takes_no_dry_run(message) or api_messages.lacks_right(message)
    if status in _DENIED_STATUSES and not is_unknown:
        return DryRunResult(denied_reason=text or f"its API server answers {status}")
    return DryRunResult(unknown_reason=text or f"its API server answers {status}")


def _checked_requests(spec: Raw) -> Resources:
    """What a pod asks of quota; raises one of UNREADABLE for a spec that a plan could not go by. Whoever plans it would stumble over
    that, and so would all who queue behind."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    expressions = [
        one for term in required.get("nodeSelectorTerms") or () for one in term.get("matchExpressions") or ()
    ]
    texts = [text for pair in (spec.get("nodeSelector") or {}).items() for text in pair]
    texts += [text for one in expressions for text in (one["key"], *(one.get("values") or ()))]
    for toleration in spec.get("tolerations") or ():
        tolerates(toleration, {})
    request = pod_requests(spec)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    if len(json.dumps(spec)) > MAX_TEMPLATE_BYTES or min(request.values()) < 0:
        raise ValueError
    return request


def _pod_metadata(template: Raw, role: str, group: str, namespace: str) -> dict[str, Any]:
    found = meta(template)
    labels = {names.RAY_NODE_TYPE_LABEL: names.WORKER, names.RAY_GCS_GROUP_LABEL: group, **(found.get("labels") or {})}
    annotations = dict(found.get("annotations") or {})
    return {
        "name": f"{names.DRY_RUN_POD_PREFIX}-{role}",
        "namespace": namespace,
        "labels": labels,
        "annotations": annotations,
    }


def _with_kuberay_defaults(spec: Raw) -> dict[str, Any]:
    """A worker group's spec with the init container that KubeRay will add (kuberay:controllers/ray/common/pod.go), whole: a
    LimitRange may find it too small, and a policy its security context too loose. And with probes, whichever."""
    containers = [_without_private_fields(one) for one in spec.get("containers") or ()]
    inits = [_without_private_fields(one) for one in spec.get("initContainers") or ()]
    if not containers:
        return dict(spec)
    ray = containers[0]
    if not any(one.get("name") == group_workload.GCS_WAITER for one in inits):
        same = {key: ray[key] for key in _INIT_CONTAINER_FIELDS if key in ray}
        amounts = group_workload.GCS_WAITER_RESOURCES
        inits.append({"name": group_workload.GCS_WAITER, **same, "resources": {"requests": amounts, "limits": amounts}})
    return {**spec, "containers": [{**_PROBES, **ray}, *containers[1:]], "initContainers": inits}


def _without_private_fields(container: Raw) -> Raw:
    return {key: value for key, value in container.items() if key not in _PRIVATE_FIELDS}
