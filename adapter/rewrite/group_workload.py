"""How is a share's quota held in a worker cluster before any of its pods exists?

By one Kueue *group Workload* without pods, owned by an anchor ConfigMap of ours (docs/upstream.md,
"A group Workload without pods"). Names come from the target, so a crash repeats the same writes. Where Volcano schedules, one PodGroup stands beside
it, for all of the share's workers must start together while the gang starts: Volcano itself would make a group of one for each
pod, for it reads a size from owners of Kubernetes' own kinds only (volcano:pkg/controllers/podgroup/pg_controller_handler.go,
getAnnotationsFromUpperRes). When to create or withdraw either, and whether quota is held, is not decided here.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from adapter import names
from adapter.objects import api_messages
from adapter.objects.pod_requests import PODS, format_quantity, parse_quantity, pod_requests
from adapter.objects.unstructured import Key, Raw, meta
from adapter.rewrite import stripping
from adapter.rewrite.target import Target, anchor_owner, capped_priority, origin_annotations, origin_labels

GCS_WAITER = "wait-gcs-ready"
# What KubeRay hard-codes for the init container that it adds to every worker (kuberay:controllers/ray/common/pod.go).
GCS_WAITER_RESOURCES = {"cpu": "200m", "memory": "256Mi"}
# What Kueue counts of a container. Env, commands and mounts stay at home: a reservation runs nothing, and what is
# private in them need not lie in a second object.
_COUNTED_FIELDS = ("name", "image", "resources", "restartPolicy")
# What a worker cluster may have given a pod, of what its Kueue and its scheduler look at.
_ADMISSION_FIELDS = ("nodeSelector", "tolerations", "affinity", "overhead", "resources", "runtimeClassName")


def role_of_group(group: str) -> str:
    """Name a worker group's podset in every worker cluster: 8 hex digits.

    Kueue's podset name is the group's name in lower case (kueue:raycluster/common.go), so both give the same role.
    """
    return hashlib.sha256(group.lower().encode()).hexdigest()[:8]


def reserved_template(template: Raw, target: Target, *, admitted_spec: Raw | None = None) -> dict[str, Any]:
    """Turn a worker group's podset template (manager) into the pod template that the reservation asks quota for.

    It must never ask for less than the pods that come later: Kueue ungates them by role and count alone
    (kueue:pod_controller.go, group sync), so a pod that asks for more would run on quota that nobody gave. `seen` is the spec that
    such a pod has once the worker cluster's admission is done with it, where that was tried (dry_run_pod.py): sidecars and all.
    """
    spec = stripping.portable_spec(template.get("spec") or {}, target)
    inits = spec.get("initContainers") or ()
    added = not any(container.get("name") == GCS_WAITER for container in inits)
    if admitted_spec:
        spec = _with_admitted_fields(spec, admitted_spec)
    counted = {key: value for key, value in spec.items() if key not in ("volumes", "initContainers", "containers")}
    containers = [_counted_fields(container) for container in spec.get("containers") or ()]
    inits = [_counted_fields(container) for container in spec.get("initContainers") or ()]
    inits = (
        _limit_gcs_waiter(containers, inits) if admitted_spec and added else [*inits, *_gcs_waiter(containers, inits)]
    )
    if inits:
        counted["initContainers"] = inits
    return {
        "metadata": {"labels": stripping.portable_labels(meta(template).get("labels"))},
        "spec": counted | {"containers": containers},
    }


def build_anchor(target: Target, namespace: str) -> dict[str, Any]:
    """Build the ConfigMap that owns the share's Workload and pods: deleting it removes them all.

    Without it the garbage collector would take the Workload, and the quota, as soon as the last pod is replaced.
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
    """Build the share's group Workload; `groups` are (worker group, count, podset template of the manager), `held` what is reserved
    instead of that, by group: what the cluster makes of it, as `template` gives it.

    `priority` is the job's, from its WorkloadPriorityClass in the manager, and counts as far as the WorkerCluster lets it. Only the number goes along: Kueue orders and preempts by
    nothing else (kueue:pkg/util/priority), and never changes that of a Workload that names no class. A reference to a
    class of the same name would bring a right to read classes, and whenever that class is edited its value in place of the
    job's (kueue:workloadpriorityclass_controller.go).
    """
    metadata = _share_metadata(target, namespace)
    metadata["annotations"] |= {names.GROUP_WORKLOAD_ANNOTATION: "true"} | pod_group_annotations(pod_group_name(target))
    metadata["ownerReferences"] = [anchor_owner(target, anchor_uid)]
    known = dry_run_templates or {}
    podsets = [
        _build_podset(group, count, known.get(group) or reserved_template(found, target))
        for group, count, found in groups
    ]
    # NB: sorted by name. Kueue sorts the roles of the pods it finds and looks for them in this list in one pass; in any
    # other order it finishes the Workload as OutOfSync and stops its pods (kueue:pod_controller.go, equivalentToWorkload).
    spec: dict[str, Any] = {
        "active": True,
        "queueName": target.queue,
        "podSets": sorted(podsets, key=lambda podset: str(podset["name"])),
    }
    if (there := capped_priority(priority, target.max_priority)) is not None:
        spec["priority"] = there
    return {"apiVersion": names.KUEUE_API_VERSION, "kind": "Workload", "metadata": metadata, "spec": spec}


def excess_requests(pod_spec: Raw, template: Raw, usage: Raw | None = None, pods: int = 0) -> str:
    """Say what a pod asks for beyond the template that quota is held for, `nvidia.com/gpu: 2 instead of 1`; empty when nothing.

    What KubeRay's own init container asks for is not held where its user asks for nothing of the kind (`_waiter`). `counted` is what
    Kueue counts for so many `pods` of it, which may be more: of LimitRanges and RuntimeClasses it knows by itself
    (kueue:pkg/workload/resources.go, AdjustResources).
    """
    given = pod_requests(template.get("spec") or {})
    for name, amount in (usage or {}).items() if pods else ():
        given[name] = max(given.get(name, 0), parse_quantity(amount, name) // pods)
    spare = {name: parse_quantity(amount, name) for name, amount in GCS_WAITER_RESOURCES.items() if name not in given}
    more = {
        name: amount
        for name, amount in pod_requests(pod_spec).items()
        if amount > max(given.get(name, 0), spare.get(name, 0))
    }
    return ", ".join(
        f"{name}: {format_quantity(amount, name)} instead of {format_quantity(given.get(name, 0), name)}"
        for name, amount in more.items()
    )


def _share_metadata(target: Target, namespace: str) -> dict[str, Any]:
    return {
        "name": target.share,
        "namespace": namespace,
        "labels": origin_labels(target),
        "annotations": origin_annotations(target),
    }


def _build_podset(group: str, count: int, template: Raw) -> dict[str, Any]:
    labels = {
        **(meta(template).get("labels") or {}),
        names.REMOTE_RAY_GROUP_LABEL: group,
    }  # for people: the podset's name is a hash
    return {"name": role_of_group(group), "count": count, "template": {**template, "metadata": {"labels": labels}}}


def _with_admitted_fields(spec: Raw, admitted_spec: Raw) -> dict[str, Any]:
    """A spec with what the worker cluster gave a pod of it; what its API server writes into every pod is left out."""
    given = {
        key: admitted_spec[key]
        for key in (*_ADMISSION_FIELDS, "initContainers", "containers")
        if admitted_spec.get(key)
    }
    tolerations = [one for one in given.get("tolerations") or () if one not in stripping.ADMISSION_TOLERATIONS]
    kept = {
        key: value for key, value in spec.items() if key not in (*_ADMISSION_FIELDS, "initContainers", "containers")
    }
    return kept | given | {"tolerations": tolerations} if tolerations else kept | _drop_field(given, "tolerations")


def _drop_field(fields: Raw, name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


def _counted_fields(container: Raw) -> dict[str, Any]:
    return {key: container[key] for key in _COUNTED_FIELDS if key in container}


def _gcs_waiter(containers: Sequence[Raw], inits: Sequence[Raw]) -> list[Raw]:
    """Stand in for KubeRay's init container, last as there: its place decides what it is added to or compared with.

    It asks only for what the user's own containers ask for, too: a ClusterQueue that does not cover memory, say, takes no
    Workload that names it, and would refuse every worker on account of a container that its user never wrote.
    """
    if not containers or any(container.get("name") == GCS_WAITER for container in inits):
        return []
    asked = {name for container in (*containers, *inits) for name in _resource_names(container)}
    amounts = {name: amount for name, amount in GCS_WAITER_RESOURCES.items() if name in asked}
    image = {"image": containers[0]["image"]} if "image" in containers[0] else {}
    return [{"name": GCS_WAITER, **image, "resources": {"requests": amounts, "limits": amounts}}]


def _limit_gcs_waiter(containers: Sequence[Raw], inits: Sequence[Raw]) -> list[Raw]:
    """The same for the one of a pod that was tried, which stands in its place among those that the cluster added."""
    others = [container for container in inits if container.get("name") != GCS_WAITER]
    asked = {name for container in (*containers, *others) for name in _resource_names(container)}
    return [
        one if one.get("name") != GCS_WAITER else {**one, "resources": _requested_only(one, asked)} for one in inits
    ]


def _requested_only(container: Raw, resource_names: Collection[str]) -> dict[str, Raw]:
    """Of a container's resources those that are asked for by others, too."""
    resources = container.get("resources") or {}
    lists = {kind: resources.get(kind) or {} for kind in ("requests", "limits")}
    return {
        kind: {name: amount for name, amount in found.items() if name in resource_names}
        for kind, found in lists.items()
    }


def _resource_names(container: Raw) -> set[str]:
    resources = container.get("resources") or {}
    return {*(resources.get("requests") or {}), *(resources.get("limits") or {})}


_SHARED_METADATA = ("name", "namespace", "labels", "ownerReferences")  # what it has in common with its group Workload


def pod_group_name(target: Target) -> str:
    """Name the PodGroup that a share gets when it is made; empty where its pods go to another scheduler."""
    return target.share if target.pods.scheduler == names.VOLCANO_SCHEDULER else ""


def pod_group_annotations(group: str) -> dict[str, str]:
    """Name what makes a pod a member of a PodGroup, nothing for an empty name (volcano:pkg/scheduler/api/job_info.go, getJobID).

    On a group Workload it says that its share has that PodGroup: a WorkerCluster may come to Volcano while shares stand.
    """
    return {names.POD_GROUP_ANNOTATION: group} if group else {}


def build_pod_group(workload: Raw, target: Target, *, starts: bool) -> dict[str, Any] | None:
    """Build the PodGroup of a share from its group Workload (`group_workload`); None where it gets none.

    Volcano takes none of its pods before all are there and have room. One that is replaced later starts as soon as there is
    room for it beside those that run: they count (volcano:pkg/scheduler/api/job_info.go, ReadyTaskNum). A share for a gang that
    runs already (not `starts`) takes its workers one by one, as a drain moves them, so none of them waits for another.
    """
    if not pod_group_name(target):
        return None
    podsets = workload["spec"]["podSets"]
    spec: dict[str, Any] = {"minMember": 1}
    if starts:
        spec = {"minMember": sum(podset["count"] for podset in podsets), "minResources": _total_requests(podsets)}
    # A pod's own word for it is not read by a PodGroup that Volcano did not make.
    if queue := target.pods.annotations.get(names.VOLCANO_QUEUE_ANNOTATION):
        spec["queue"] = queue
    metadata = {key: meta(workload)[key] for key in _SHARED_METADATA}
    return {"apiVersion": names.VOLCANO_API_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def pod_group_error(key: Key, status: int, message: str) -> str:
    """Say why a share's PodGroup (namespace and name) cannot be made, and what to do; `status` and `said` are its API server's."""
    text = f"PodGroup {'/'.join(key)}, which spec.pods.schedulerName {names.VOLCANO_SCHEDULER} asks for, cannot be made: {message}"
    if status == 404:
        return f"{text}; install Volcano there, or let the WorkerCluster name another scheduler"
    if api_messages.lacks_right(message):  # a webhook of Volcano's may refuse by the same status
        return f"{text}; apply kustomize/overlays/worker there"
    return text


def _total_requests(podsets: list[Raw]) -> dict[str, str]:
    """What all pods ask for; not that they are pods, which every node limits by itself."""
    asked: Counter[str] = Counter()
    for podset in podsets:
        each = pod_requests(podset["template"]["spec"])
        asked.update({resource: amount * podset["count"] for resource, amount in each.items() if resource != PODS})
    return {resource: format_quantity(amount, resource) for resource, amount in sorted(asked.items())}
