"""Removes the manager's own fields from a pod or a pod template.

Only known fields are removed: a new field is copied, and an incompatibility shows up by name
(docs/upstream.md, "What a worker pod leaves at home").

Environment variables that refer to the pod's own metadata become literals of the manager pod. Ray's autoscaler knows a
node by the manager pod's name (docs/upstream.md, "How Ray's autoscaler knows a node"), and the remote pod lacks the
labels that KubeRay reads back. Fields that are known only where the pod runs (podIP, hostIP, nodeName, limits) stay
references.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from adapter import names
from adapter.objects.cluster_keys import is_cluster_key, is_in_domains
from adapter.objects.unstructured import Raw, meta
from adapter.rewrite import affinity, pod_mapping
from adapter.rewrite.target import Target

DROPPED_METADATA = frozenset({
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "ownerReferences", "generateName", "finalizers", "selfLink",
})  # fmt: skip
DROPPED_SPEC_FIELDS = frozenset({
    # set by the scheduler, by gates, by `kubectl debug`, by a RuntimeClass (admission sets overhead again)
    "nodeName", "schedulingGates", "ephemeralContainers", "overhead",
    # the worker cluster's admission sets its default account and that account's pull secrets (only in a pod that has
    # none; the rewriter restores those of a template)
    "serviceAccountName", "serviceAccount", "imagePullSecrets",
    # the share's Workload sets the priority
    "priority", "priorityClassName", "preemptionPolicy",
    # a cluster-local DNS identity
    "hostname", "subdomain", "hostnameOverride",
    # gang scheduling
    "schedulingGroup", "workloadRef",
})  # fmt: skip
# The domains of the labels and annotations in which KubeRay names the queue and the PodGroup that it created
# (kuberay:controllers/ray/batchscheduler).
SCHEDULER_DOMAINS = (
    "volcano.sh", "yunikorn.apache.org", "kai.scheduler", "scheduling.x-k8s.io", "scheduling.k8s.io",
)  # fmt: skip
# Prefixes of annotations that are dropped. The first makes a kubelet treat the pod as its own static pod; LimitRanger
# records its changes in the second.
NODE_ANNOTATIONS = ("kubernetes.io/config.", "kubernetes.io/limit-ranger")
DROPPED_LABELS = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
TOKEN_VOLUME_PREFIX = "kube-api-access-"  # of the ServiceAccount admission plugin
# The tolerations that the DefaultTolerationSeconds admission plugin writes, in the worker cluster too.
ADMISSION_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for state in ("not-ready", "unreachable")
)


def portable_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Keep the labels that mean the same in every cluster.

    A KubeRay in the worker cluster lists and deletes pods by `ray.io/*` (kuberay:common/association.go).
    """
    domains = (names.RAY_DOMAIN, names.KUEUE_DOMAIN, names.DOMAIN, *SCHEDULER_DOMAINS)
    return {
        k: v
        for k, v in (labels or {}).items()
        if not is_in_domains(k, domains) and not is_cluster_key(k) and DROPPED_LABELS.get(k) != v
    }


def portable_annotations(annotations: Mapping[str, str] | None) -> dict[str, str]:
    domains = (names.KUEUE_DOMAIN, names.DOMAIN, *SCHEDULER_DOMAINS)
    return {
        k: v
        for k, v in (annotations or {}).items()
        if not is_in_domains(k, domains) and not is_cluster_key(k) and not k.startswith(NODE_ANNOTATIONS)
    }


def portable_spec(pod_spec: Raw, target: Target) -> dict[str, Any]:
    """Remove the manager's fields from a pod spec and apply the worker cluster's mapping (`pod_mapping`).

    Node labels and taints of our domain are the manager's; a worker cluster that is a manager as well would read them
    as its own. A scheduler's name is removed: if the scheduler did not run there, the pod would stay Pending for ever.
    """

    def is_manager_label(key: str) -> bool:
        return key in target.manager_flavor_keys or is_in_domains(key, (names.DOMAIN,))

    portable = {key: value for key, value in pod_spec.items() if key not in DROPPED_SPEC_FIELDS}
    if portable.get("schedulerName") not in (None, names.DEFAULT_SCHEDULER):
        del portable["schedulerName"]
    selector = {key: value for key, value in (pod_spec.get("nodeSelector") or {}).items() if not is_manager_label(key)}
    dropped = (*ADMISSION_TOLERATIONS, *target.manager_flavor_tolerations)
    tolerations = [
        toleration
        for toleration in pod_spec.get("tolerations") or ()
        if toleration not in dropped and not is_in_domains(toleration.get("key") or "", (names.DOMAIN,))
    ]
    scheduling = {
        "nodeSelector": selector,
        "tolerations": tolerations,
        **affinity.scheduling_fields(pod_spec, is_manager_label),
    }
    for key in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"):
        portable = _set_or_drop(portable, key, scheduling.get(key))
    return dict(pod_mapping.apply_to_spec(portable, target.pods))


def without_token(pod_spec: Raw) -> dict[str, Any]:
    """Drop the API token volume of the manager's admission, and its mounts.

    The worker cluster's admission adds its own; a token of the manager has the wrong issuer.
    """
    tokens = frozenset(_token_volumes(pod_spec))
    if not tokens:
        return dict(pod_spec)
    volumes = [volume for volume in pod_spec.get("volumes") or () if volume.get("name") not in tokens]
    lists = {
        key: [_without_mounts(container, tokens) for container in pod_spec[key]]
        for key in ("initContainers", "containers")
        if pod_spec.get(key)
    }
    return _set_or_drop({**pod_spec, **lists}, "volumes", volumes)


def _token_volumes(pod_spec: Raw) -> Iterator[str]:
    for volume in pod_spec.get("volumes") or ():
        name = volume.get("name") or ""
        if name.startswith(TOKEN_VOLUME_PREFIX) and "projected" in volume:
            yield name


def _without_mounts(container: Raw, volumes: frozenset[str]) -> Raw:
    mounts = container.get("volumeMounts") or []
    others = [mount for mount in mounts if mount.get("name") not in volumes]
    return container if len(others) == len(mounts) else _set_or_drop(dict(container), "volumeMounts", others)


def _set_or_drop(fields: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    if value:
        return {**fields, key: value}
    return {name: other for name, other in fields.items() if name != key}


_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def resolve_field_ref(entry: Raw, pod: Raw) -> Raw:
    path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") or ""
    value = _field_value(path, meta(pod))
    if value is None:
        return entry
    # A kubelet expands $(NAME) in literals but not in referenced values, and turns a doubled dollar into a single one.
    rest = {key: item for key, item in entry.items() if key != "valueFrom"}
    return {**rest, "value": value.replace("$", "$$")}


def _field_value(path: str, metadata: Raw) -> str | None:
    if path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return str(metadata.get(path.removeprefix("metadata.")) or "")
    if match := _KEYED_FIELD.fullmatch(path):
        kind, key = match.groups()
        if kind == "labels" and key in names.NODE_LOCATION_LABELS:
            return None  # the worker cluster sets it when it binds the remote pod
        return str((metadata.get(kind) or {}).get(key) or "")  # as the kubelet
    return None
