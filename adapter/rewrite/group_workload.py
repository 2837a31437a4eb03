"""Builds the group Workload that holds a share's quota before its pods exist, with its anchor and its PodGroup.

The anchor ConfigMap owns the Workload (docs/upstream.md, "A group Workload without pods"). Names come from the target,
so the writes after a crash are the same. With Volcano, a share has one PodGroup, because its workers must start
together. Otherwise Volcano would create a PodGroup for each pod: it reads a size only from owners of Kubernetes' own
kinds (volcano:pkg/controllers/podgroup/pg_controller_handler.go, getAnnotationsFromUpperRes).
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from adapter import names
from adapter.objects import api_messages
from adapter.objects.claimed_resources import claimed_resources, resources_annotation
from adapter.objects.extended_resources import format_names
from adapter.objects.pod_requests import PODS, format_quantity, parse_quantity, pod_requests
from adapter.objects.required_objects import required_objects
from adapter.objects.topology_request import read_topology_request
from adapter.objects.unstructured import Key, Raw, meta
from adapter.rewrite import gcs_waiter, object_names, request_floor, stripping
from adapter.rewrite.gcs_waiter import GCS_WAITER_RESOURCES
from adapter.rewrite.resource_claims import all_claims, excess_claims
from adapter.rewrite.resource_names import requested_names
from adapter.rewrite.target import Target, anchor_owner, capped_priority, origin_annotations, origin_labels

_GCS_WAITER_FLOOR = {names.GCS_WAITER: GCS_WAITER_RESOURCES}
# The container fields that a reserved template keeps: private values need not be in a second object.
_COUNTED_FIELDS = ("name", "image", "resources", "restartPolicy")
# The fields that admission may change, and that Kueue and the scheduler read.
_ADMISSION_FIELDS = ("nodeSelector", "tolerations", "affinity", "overhead", "resources", "runtimeClassName")


def role_of_group(group: str) -> str:
    """Name a worker group's podset in every worker cluster: 8 hex digits.

    Kueue's podset name is the group's name in lower case (kueue:raycluster/common.go).
    """
    return hashlib.sha256(group.lower().encode()).hexdigest()[:8]


def reserved_template(
    template: Raw, target: Target, *, namespace: str = "", admitted_spec: Raw | None = None
) -> dict[str, Any]:
    """Turn a worker group's podset template (manager) into the one that the group Workload requests quota for.

    The result must never request less than the later pods: Kueue ungates them by role and count alone
    (kueue:pod_controller.go, group sync). `admitted_spec` is the spec from a dry run. Where admission lowers a request,
    the template's request stays: a policy may lower the next pod less, or not at all.
    """
    manager_spec = template.get("spec") or {}
    spec = stripping.portable_spec(manager_spec, target)
    spec = object_names.with_class_names(spec, manager_spec, target.pods, namespace)
    inits = spec.get("initContainers") or ()
    added = not any(container.get("name") == names.GCS_WAITER for container in inits)
    if admitted_spec:
        spec = request_floor.with_request_floor(_with_admitted_fields(spec, admitted_spec), spec, _GCS_WAITER_FLOOR)
    counted = {key: value for key, value in spec.items() if key not in ("volumes", "initContainers", "containers")}
    containers = [_counted_fields(container) for container in spec.get("containers") or ()]
    inits = [_counted_fields(container) for container in spec.get("initContainers") or ()]
    inits = (
        _limit_gcs_waiter(containers, inits) if admitted_spec and added else [*inits, *_gcs_waiter(containers, inits)]
    )
    if inits:
        counted["initContainers"] = inits
    claimed = claimed_resources(required_objects(manager_spec), target.pods, namespace)
    annotations = {"annotations": resources_annotation(claimed)} if claimed else {}
    return {
        "metadata": {"labels": stripping.portable_labels(meta(template).get("labels")), **annotations},
        "spec": gcs_waiter.with_worker_requests(counted | {"containers": containers}),
    }


def build_anchor(target: Target, namespace: str) -> dict[str, Any]:
    """Build the ConfigMap that owns the share's Workload and pods.

    Without this owner, the garbage collector would delete the Workload, and free its quota, when the last pod is
    replaced.
    """
    about = (
        f"Worker pods of Workload {namespace}/{target.workload} of manager cluster {target.manager}, "
        f"placed here by rayspan. Deleting this object deletes them and gives their quota back."
    )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _share_metadata(target, namespace),
        "data": {"about": about},
    }


def build_workload(
    target: Target,
    namespace: str,
    groups: Sequence[tuple[str, int, Raw]],
    anchor_uid: str,
    *,
    priority: int | None = None,
    dry_run_templates: Mapping[str, Raw] | None = None,
) -> dict[str, Any]:
    """Build the share's group Workload; `groups` are (worker group, count, podset template of the manager).

    `priority` is from the WorkloadPriorityClass in the manager. Only the number is copied: Kueue orders and preempts by
    nothing else (kueue:pkg/util/priority). A reference to a class would require a right to read classes, and each edit
    of that class would replace the number (kueue:workloadpriorityclass_controller.go).
    """
    metadata = _share_metadata(target, namespace)
    capped = capped_priority(priority, target.max_priority)
    metadata["annotations"] |= {
        names.GROUP_WORKLOAD_ANNOTATION: "true",
        names.PRIORITY_ANNOTATION: str(capped or 0),
        **pod_group_annotations(pod_group_name(target)),
        **_resource_annotations(target, groups),
    }
    metadata["ownerReferences"] = [anchor_owner(target, anchor_uid)]
    known = dry_run_templates or {}
    podsets = [
        _build_podset(group, count, known.get(group) or reserved_template(template, target, namespace=namespace))
        | _topology_request(template)
        for group, count, template in groups
    ]
    # NB: sorted by name, as Kueue sorts the roles of the observed pods. In any other order it finishes the Workload as
    # OutOfSync and stops its pods (kueue:pod_controller.go, equivalentToWorkload).
    spec: dict[str, Any] = {
        "active": True,
        "queueName": target.queue,
        "podSets": sorted(podsets, key=lambda podset: str(podset["name"])),
    }
    if capped is not None:
        spec["priority"] = capped
    return {"apiVersion": names.KUEUE_API_VERSION, "kind": "Workload", "metadata": metadata, "spec": spec}


def excess_requests(pod_spec: Raw, template: Raw, usage: Raw | None = None, pods: int = 0) -> str:
    """A text with the requests of a pod beyond the template that holds quota, or empty.

    An example is `nvidia.com/gpu: 2 instead of 1`. The claims of each ResourceClaimTemplate count, too. KubeRay's init
    container may hold less quota than it requests (`_gcs_waiter`). `usage` is what Kueue counts for `pods` of the
    template, after LimitRanges and RuntimeClasses (kueue:pkg/workload/resources.go, AdjustResources).
    """
    reserved = pod_requests(template.get("spec") or {})
    for name, amount in (usage or {}).items() if pods else ():
        reserved[name] = max(reserved.get(name, 0), parse_quantity(amount, name) // pods)
    uncounted = {
        name: parse_quantity(amount, name) for name, amount in GCS_WAITER_RESOURCES.items() if name not in reserved
    }
    excess = {
        name: amount
        for name, amount in pod_requests(pod_spec).items()
        if amount > max(reserved.get(name, 0), uncounted.get(name, 0))
    }
    return ", ".join(
        [
            *(
                f"{name}: {format_quantity(amount, name)} instead of {format_quantity(reserved.get(name, 0), name)}"
                for name, amount in excess.items()
            ),
            *excess_claims(pod_spec, template.get("spec") or {}),
        ]
    )


def _share_metadata(target: Target, namespace: str) -> dict[str, Any]:
    return {
        "name": target.share,
        "namespace": namespace,
        "labels": origin_labels(target),
        "annotations": origin_annotations(target),
    }


def _resource_annotations(target: Target, groups: Sequence[tuple[str, int, Raw]]) -> dict[str, str]:
    """The names of the share's extended resources: its later pods keep them when the WorkerCluster changes."""
    renames = target.pods.extended_resources
    renamed = [requested_names(template.get("spec") or {}, renames) for _, _, template in groups]
    text = format_names(dict(pair for part in renamed for pair in part.items()))
    return {names.RESOURCE_NAMES_ANNOTATION: text} if text else {}


def _build_podset(group: str, count: int, template: Raw) -> dict[str, Any]:
    # The group's label is for people: the podset's name is a hash.
    labels = {**(meta(template).get("labels") or {}), names.REMOTE_RAY_GROUP_LABEL: group}
    metadata = {**meta(template), "labels": labels}
    return {"name": role_of_group(group), "count": count, "template": {**template, "metadata": metadata}}


def _topology_request(template: Raw) -> dict[str, Any]:
    request = read_topology_request(template)
    return {"topologyRequest": request.podset_field} if request else {}


def _with_admitted_fields(spec: Raw, admitted_spec: Raw) -> dict[str, Any]:
    """The spec after admission, less what admission writes into every pod."""
    admitted = {
        key: admitted_spec[key]
        for key in (*_ADMISSION_FIELDS, "initContainers", "containers")
        if admitted_spec.get(key)
    }
    tolerations = [
        toleration
        for toleration in admitted.get("tolerations") or ()
        if toleration not in stripping.ADMISSION_TOLERATIONS
    ]
    rest = {
        key: value for key, value in spec.items() if key not in (*_ADMISSION_FIELDS, "initContainers", "containers")
    }
    if claims := all_claims(spec, admitted_spec):
        rest["resourceClaims"] = claims
    return (
        rest | admitted | {"tolerations": tolerations} if tolerations else rest | _drop_field(admitted, "tolerations")
    )


def _drop_field(fields: Raw, name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


def _counted_fields(container: Raw) -> dict[str, Any]:
    return {key: container[key] for key in _COUNTED_FIELDS if key in container}


def _gcs_waiter(containers: Sequence[Raw], inits: Sequence[Raw]) -> list[Raw]:
    """A stand-in for KubeRay's init container; empty if the pod has that container or no containers.

    It must be the last init container: the order decides how its requests are summed. It requests only resources that
    the user's containers request, too. Otherwise a ClusterQueue that does not cover memory would reject every worker
    for a container that the user never wrote.
    """
    if not containers or any(container.get("name") == names.GCS_WAITER for container in inits):
        return []
    requested = {name for container in (*containers, *inits) for name in _resource_names(container)}
    amounts = {name: amount for name, amount in GCS_WAITER_RESOURCES.items() if name in requested}
    image = {"image": containers[0]["image"]} if "image" in containers[0] else {}
    resources = {"resources": {"requests": amounts, "limits": amounts}} if amounts else {}
    return [{"name": names.GCS_WAITER, **image, **resources}]


def _limit_gcs_waiter(containers: Sequence[Raw], inits: Sequence[Raw]) -> list[Raw]:
    """The init containers of an admitted spec, with KubeRay's limited as in `_gcs_waiter`, at its position."""
    others = [container for container in inits if container.get("name") != names.GCS_WAITER]
    requested = {name for container in (*containers, *others) for name in _resource_names(container)}
    return [
        container
        if container.get("name") != names.GCS_WAITER
        else {**_drop_field(container, "resources"), **_requested_only(container, requested)}
        for container in inits
    ]


def _requested_only(container: Raw, resource_names: Collection[str]) -> dict[str, Raw]:
    """The field `resources` with these resources only; empty without any."""
    resources = container.get("resources") or {}
    lists = {
        kind: {name: amount for name, amount in (resources.get(kind) or {}).items() if name in resource_names}
        for kind in ("requests", "limits")
    }
    amounts = {kind: amounts for kind, amounts in lists.items() if amounts}
    return {"resources": amounts} if amounts else {}


def _resource_names(container: Raw) -> set[str]:
    resources = container.get("resources") or {}
    return {*(resources.get("requests") or {}), *(resources.get("limits") or {})}


_SHARED_METADATA = ("name", "namespace", "labels", "ownerReferences")


def pod_group_name(target: Target) -> str:
    return target.share if target.pods.scheduler == names.VOLCANO_SCHEDULER else ""


def pod_group_annotations(group: str) -> dict[str, str]:
    """The annotation that makes a pod a member of a PodGroup (volcano:pkg/scheduler/api/job_info.go, getJobID).

    A group Workload has the annotation if its share has a PodGroup: a WorkerCluster may change to Volcano while it has
    shares.
    """
    return {names.POD_GROUP_ANNOTATION: group} if group else {}


def build_pod_group(workload: Raw, target: Target, *, starts: bool) -> dict[str, Any] | None:
    """Build the PodGroup of a share from its group Workload; None where the share has none.

    Volcano starts no pod before all pods of the group exist and fit. A pod that is replaced later starts as soon as it
    fits beside the running ones, which count (volcano:pkg/scheduler/api/job_info.go, ReadyTaskNum). A share for a
    running gang (not `starts`) gets its workers one by one, as a drain moves them, so its pods start singly.
    """
    if not pod_group_name(target):
        return None
    podsets = workload["spec"]["podSets"]
    spec: dict[str, Any] = {"minMember": 1}
    if starts:
        spec = {"minMember": sum(podset["count"] for podset in podsets), "minResources": _total_requests(podsets)}
    # Volcano reads a pod's annotation only for PodGroups that it creates itself.
    if queue := target.pods.annotations.get(names.VOLCANO_QUEUE_ANNOTATION):
        spec["queue"] = queue
    metadata = {key: meta(workload)[key] for key in _SHARED_METADATA}
    return {"apiVersion": names.VOLCANO_API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def pod_group_error(key: Key, status: int, message: str) -> str:
    text = (
        f"PodGroup {'/'.join(key)}, which spec.pods.schedulerName {names.VOLCANO_SCHEDULER} requires, cannot be "
        f"created: {message}"
    )
    if status == 404:
        return f"{text}; install Volcano there, or let the WorkerCluster name another scheduler"
    if api_messages.lacks_right(message, "create"):  # Volcano's webhook may deny with the same status
        return f"{text}; apply kustomize/overlays/worker there"
    return text


def _total_requests(podsets: list[Raw]) -> dict[str, str]:
    """The requests of all pods, without the resource `pods`, which every node limits itself."""
    total: Counter[str] = Counter()
    for podset in podsets:
        requests = pod_requests(podset["template"]["spec"])
        total.update({resource: amount * podset["count"] for resource, amount in requests.items() if resource != PODS})
    return {resource: format_quantity(amount, resource) for resource, amount in sorted(total.items())}
