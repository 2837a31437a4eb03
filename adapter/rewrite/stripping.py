"""What does a pod or a pod template leave behind when it goes to another cluster?

The stance: remove what is known to belong to the manager and keep everything else, so that a new field travels and an
incompatibility shows up by name (docs/upstream.md, "What a worker pod leaves at home"). What must not travel at all is not
removed here but refused (`admission.job_validation`), before any quota is held. What a pod reads of itself becomes a literal: name,
namespace, labels, annotations and uid must stay the manager's, for Ray's autoscaler knows a node by the manager pod's name
(docs/upstream.md, "How Ray's autoscaler knows a node"), and the labels that KubeRay reads back are gone from the copy. What
is true only where the pod runs (podIP, hostIP, nodeName, limits) stays a reference.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw, meta
from adapter.rewrite import affinity, pod_mapping
from adapter.rewrite.target import Target

DROPPED_METADATA = frozenset({
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "managedFields", "ownerReferences", "generateName", "finalizers", "selfLink",
})  # fmt: skip
DROPPED_SPEC_FIELDS = frozenset({
    # set by the manager's scheduler, by gates, by `kubectl debug`, by a RuntimeClass that admission reads again
    "nodeName", "schedulingGates", "ephemeralContainers", "overhead",
    # names of the manager; the worker cluster's admission gives its own default account and that account's pull
    # secrets (it adds them only to a pod that has none; those of a template are put back by the rewriter)
    "serviceAccountName", "serviceAccount", "imagePullSecrets",
    # priority among workloads is Kueue's business there, through the share's Workload
    "priority", "priorityClassName", "preemptionPolicy",
    # a cluster-local DNS identity
    "hostname", "subdomain", "hostnameOverride",
    # a gang of the manager's own scheduler
    "schedulingGroup", "workloadRef",
})  # fmt: skip
# What the manager's scheduler is told: KubeRay names there the queue and the PodGroup that it made
# (kuberay:controllers/ray/batchscheduler).
SCHEDULER_DOMAINS = (
    "volcano.sh", "yunikorn.apache.org", "kai.scheduler", "scheduling.x-k8s.io", "scheduling.k8s.io",
)  # fmt: skip
DEFAULT_SCHEDULER = "default-scheduler"
# A kubelet takes a pod with one of these for a file of its own; LimitRanger writes the other one of what it did in the manager.
NODE_ANNOTATIONS = ("kubernetes.io/config.", "kubernetes.io/limit-ranger")
DROPPED_LABELS = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
TOKEN_VOLUME_PREFIX = "kube-api-access-"  # what the ServiceAccount admission plugin calls its volume
ADMISSION_TOLERATIONS = tuple(  # as the DefaultTolerationSeconds admission plugin writes them; it will do so there too
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for state in ("not-ready", "unreachable")
)


def portable_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Keep the labels that mean the same in every cluster.

    `ray.io/*` would wake a KubeRay over there: it lists and deletes pods by them (kuberay:common/association.go).
    """
    domains = (names.RAY_DOMAIN, names.KUEUE_DOMAIN, names.DOMAIN, *SCHEDULER_DOMAINS)
    return {k: v for k, v in (labels or {}).items() if not _is_in_domains(k, domains) and DROPPED_LABELS.get(k) != v}


def portable_annotations(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Keep the annotations that neither Kueue, nor a scheduler, nor a kubelet, nor we read or wrote in the manager."""
    domains = (names.KUEUE_DOMAIN, names.DOMAIN, *SCHEDULER_DOMAINS)
    return {
        k: v
        for k, v in (annotations or {}).items()
        if not _is_in_domains(k, domains) and not k.startswith(NODE_ANNOTATIONS)
    }


def portable_spec(pod_spec: Raw, target: Target) -> dict[str, Any]:
    """Keep a pod spec's fields, less the manager's, and add what the worker cluster gives its pods (`podmapping`).

    Node labels and taints of our own domain are the manager's (the lock, and the pool of the layout local and remote), whoever
    asked for them: in a worker cluster that is a manager as well they would mean its remote nodes. A scheduler that does
    not run there would leave the pod Pending for ever.
    """

    def ours(key: str) -> bool:
        return key in target.manager_flavor_keys or _is_in_domains(key, (names.DOMAIN,))

    kept = {key: value for key, value in pod_spec.items() if key not in DROPPED_SPEC_FIELDS}
    if kept.get("schedulerName") not in (None, DEFAULT_SCHEDULER):
        del kept["schedulerName"]
    selector = {key: value for key, value in (pod_spec.get("nodeSelector") or {}).items() if not ours(key)}
    drop = (*ADMISSION_TOLERATIONS, *target.manager_flavor_tolerations)
    tolerations = [
        one
        for one in pod_spec.get("tolerations") or ()
        if one not in drop and not _is_in_domains(one.get("key") or "", (names.DOMAIN,))
    ]
    placed = {"nodeSelector": selector, "tolerations": tolerations, **affinity.scheduling_fields(pod_spec, ours)}
    for key in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints"):
        kept = _set_or_drop(kept, key, placed.get(key))
    return dict(pod_mapping.apply_to_spec(kept, target.pods))


def without_token(pod_spec: Raw) -> dict[str, Any]:
    """Drop the API token volume that the manager's admission added, and its mounts in every container.

    The worker cluster's admission adds its own; a manager's token would be of the wrong issuer.
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
    kept = [mount for mount in mounts if mount.get("name") not in volumes]
    return container if len(kept) == len(mounts) else _set_or_drop(dict(container), "volumeMounts", kept)


def _set_or_drop(fields: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Set a field in place, or leave it out when there is nothing in it."""
    if value:
        return {**fields, key: value}
    return {name: kept for name, kept in fields.items() if name != key}


def _is_in_domains(key: str, domains: tuple[str, ...]) -> bool:
    prefix = key.partition("/")[0] if "/" in key else ""
    return any(prefix == domain or prefix.endswith(f".{domain}") for domain in domains)


_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


def resolve_field_ref(entry: Raw, pod: Raw) -> Raw:
    """Turn an env entry that refers to the pod's metadata into the value that the manager's kubelet would give."""
    path = ((entry.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath") or ""
    value = _field_value(path, meta(pod))
    if value is None:
        return entry
    # A kubelet expands $(NAME) in literals but not in referenced values; a doubled dollar is a plain one again.
    kept = {key: item for key, item in entry.items() if key != "valueFrom"}
    return {**kept, "value": value.replace("$", "$$")}


def _field_value(path: str, metadata: Raw) -> str | None:
    if path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return str(metadata.get(path.removeprefix("metadata.")) or "")
    if found := _KEYED_FIELD.fullmatch(path):
        kind, key = found.groups()
        return str((metadata.get(kind) or {}).get(key) or "")  # the kubelet, too, gives "" for a key that is not there
    return None
