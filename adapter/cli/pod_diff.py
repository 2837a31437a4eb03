"""Lists the differences between a manager pod and its remote pod, with a reason for each.

It compares the two pods and asks nothing of `rewrite.rewriter`. So it also finds differences that nobody intended, and
lists them without a reason.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from adapter import names
from adapter.objects.ray_start import NODE_ADDRESS_PARAM

UNKNOWN_REASON = "no reason is known; please report it"
_ABSENT = object()
_MAX_VALUE_LENGTH = 60  # characters of a value
# Maps that are compared entry by entry, even if one pod lacks the map, because each entry has its own reason.
_COMPARED_BY_KEY = ("metadata.labels", "metadata.annotations")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One difference; `before` or `after` is empty where the field is absent."""

    path: str  # spec.containers[ray-worker].env[RAY_ADDRESS].value
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        if not self.after:
            return f"{self.path} removed, was {self.before}: {self.reason}"
        return f"{self.path} {'changed' if self.before else 'added'}: {self.reason}: {self.after}"


def diff_pods(pod: Mapping[str, Any], remote_pod: Mapping[str, Any]) -> list[FieldChange]:
    """Every differing field, in the order of the manager pod, then those that only the remote pod has.

    List entries with names are compared by name; other lists as a whole.
    """
    return [_explain_change(path, before, after) for path, before, after in _walk_differences("", pod, remote_pod)]


def _walk_differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if before == after and type(before) is type(after):
        return
    absent_entries: Any = {} if path in _COMPARED_BY_KEY else None
    old, new = (_path_entries(absent_entries if value is _ABSENT else value) for value in (before, after))
    if old is None or new is None or not (old or new):
        yield path, before, after
        return
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _walk_differences(f"{path}{key}".removeprefix("."), old.get(key, _ABSENT), new.get(key, _ABSENT))


def _path_entries(value: Any) -> dict[str, Any] | None:
    """A value's entries by path suffix; None when it is compared as a whole."""
    if isinstance(value, Mapping):
        return {f".{key}": item for key, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and item.get("name") for item in value):
        entries: dict[str, Any] = {}
        for item in value:
            name = str(item["name"])
            repeats = sum(key.partition("]")[0] == f"[{name}" for key in entries)
            entries[f"[{name}]" + (f"[{repeats}]" if repeats else "")] = item
        return entries
    return None


def _explain_change(path: str, before: Any, after: Any) -> FieldChange:
    kind = "removed" if after is _ABSENT else "added" if before is _ABSENT else "changed"
    reason = next(
        (reason for pattern, kinds, reason in _COMPILED_RULES if kind in kinds and pattern.search(path)), UNKNOWN_REASON
    )
    if NODE_ADDRESS_PARAM in str(before) and NODE_ADDRESS_PARAM not in str(after) and reason == _HEAD_ADDRESS_REASON:
        reason = f"{reason}; {_NODE_ADDRESS_REASON}"
    return FieldChange(path, _display_value(before), _display_value(after), reason)


def _display_value(value: Any) -> str:
    if value is _ABSENT:
        return ""
    text = " ".join(str(value).split()) or "''"
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 4]} ..."


_ANY_CHANGE = ("added", "removed", "changed")
_CONTAINER_PATH = r"^spec\.(initContainers|containers)\[[^]]+\]"
_HEAD_ADDRESS_REASON = "the head's address replaces its Service's name"
_NODE_ADDRESS_REASON = "only the manager resolves the name in node-ip-address, so Ray takes the pod's IP"
_LOCATION_REASON = "the pod's location, for Ray"
_COPIED_OBJECT_REASON = "the copied Secret or ConfigMap has another name there"
_POD_MAPPING_REASON = "as the WorkerCluster's spec.pods specifies"
_REASON_RULES: tuple[tuple[str, tuple[str, ...], str], ...] = (  # the first match applies
    (r"^status", _ANY_CHANGE, "a remote pod has its own status"),
    (r"^(apiVersion|kind)$", _ANY_CHANGE, "every object has it"),
    (r"^metadata\.ownerReferences", _ANY_CHANGE, "the share's anchor owns the remote pod, which is deleted with it"),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?rayspan\.dev/ray-",
        _ANY_CHANGE,
        "the ray.io label, under a name that a KubeRay there ignores",
    ),
    (r"^metadata\.labels\.([^/]*\.)?ray\.io/", ("removed",), "a KubeRay there would treat the pod as its own"),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?rayspan\.dev/",
        _ANY_CHANGE,
        "records what the remote pod belongs to",
    ),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?kueue\.x-k8s\.io/",
        _ANY_CHANGE,
        "makes the pod a member of the share that Kueue admitted there",
    ),
    (
        r"^metadata\.annotations\.scheduling\.k8s\.io/group-name$",
        ("added", "changed"),
        "Volcano starts the share's workers together there",
    ),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?(volcano\.sh|yunikorn\.apache\.org|kai\.scheduler|scheduling\.(x-)?k8s\.io)/",
        ("removed",),
        "it is for the manager's scheduler",
    ),
    (r"^metadata\.labels\.app\.kubernetes\.io/", ("removed",), "KubeRay did not create the remote pod"),
    (r"^metadata\.annotations\.kubernetes\.io/", ("removed",), "the manager's API server or kubelet wrote it"),
    (
        r"^metadata\.annotations\.(karpenter\.sh/do-not-disrupt|cluster-autoscaler\.kubernetes\.io/safe-to-evict)$",
        ("added",),
        f"keeps node autoscalers there from emptying its node, or {_POD_MAPPING_REASON}",
    ),
    (r"^metadata\.annotations\..*", ("changed",), f"{_HEAD_ADDRESS_REASON}, or {_POD_MAPPING_REASON}"),
    (r"^metadata\.(labels|annotations)\.", ("added", "changed"), _POD_MAPPING_REASON),
    (r"^metadata\.", ("removed",), "it belongs to the object in the manager"),
    (
        r"^spec\.(nodeName|schedulingGates|ephemeralContainers|overhead)",
        ("removed",),
        "the manager set it on its own pod",
    ),
    (r"^spec\.imagePullSecrets", ("added", "changed"), _COPIED_OBJECT_REASON),
    (r"^spec\.serviceAccount$", ("removed",), "it is the older name of serviceAccountName"),
    (
        r"^spec\.(serviceAccountName|imagePullSecrets)",
        ("removed",),
        "its name is valid only in the manager",
    ),
    (
        r"^spec\.(priority|priorityClassName|preemptionPolicy)",
        ("removed",),
        "the share's Workload has the priority there",
    ),
    (r"^spec\.(hostname|subdomain|hostnameOverride)", ("removed",), "only the manager's DNS resolves the name"),
    (
        r"^spec\.(schedulingGroup|workloadRef|schedulerName)",
        ("removed",),
        "the gang of that scheduler exists only in the manager",
    ),
    (r"^spec\.(nodeSelector|tolerations|affinity)", ("removed",), "it refers to the manager's nodes"),
    (r"^spec\.tolerations", ("changed",), f"without those for the manager's nodes, and {_POD_MAPPING_REASON}"),
    (
        r"^spec\.(affinity|topologySpreadConstraints)",
        _ANY_CHANGE,
        "without the manager's node labels, and with the label names used there",
    ),
    (
        r"^spec\.(nodeSelector|tolerations|serviceAccountName|schedulerName|runtimeClassName|priorityClassName)",
        ("added", "changed"),
        _POD_MAPPING_REASON,
    ),
    (r"^spec\.volumes\[kube-api-access-|^spec\.volumes$", ("removed",), "the manager's API token"),
    (r"(KeyRef|secretRef|configMapRef|\.configMap|\.secret)\.(name|secretName)$", ("changed",), _COPIED_OBJECT_REASON),
    (r"^spec\.volumes\[[^]]+\]\.downwardAPI", ("changed",), "labels have other names there"),
    (
        r"^spec\.volumes\[[^]]+\]\.projected\.sources",
        ("changed",),
        f"{_COPIED_OBJECT_REASON}, and labels have other names there",
    ),
    (rf"{_CONTAINER_PATH}\.envFrom", ("changed",), _COPIED_OBJECT_REASON),
    (
        r"^spec\.volumes\[[^]]+\]\.persistentVolumeClaim|^spec\.resourceClaims|"
        rf"{_CONTAINER_PATH}\.volumeMounts\[[^]]+\](\[\d+\])?\.(readOnly|recursiveReadOnly|mountPropagation)$",
        _ANY_CHANGE,
        _POD_MAPPING_REASON,
    ),
    (rf"{_CONTAINER_PATH}\.volumeMounts", _ANY_CHANGE, "the mount of the manager's API token"),
    (
        rf"{_CONTAINER_PATH}\.image$|^spec\.volumes\[[^]]+\]\.image",
        ("changed",),
        f"the registry: {_POD_MAPPING_REASON}",
    ),
    (
        rf"{_CONTAINER_PATH}\.env\[RAY_(NODE_ZONE|NODE_REGION|OVERRIDE_LABELS|OVERRIDE_RESOURCES)\]",
        _ANY_CHANGE,
        _LOCATION_REASON,
    ),
    (rf"{_CONTAINER_PATH}\.env$", ("added",), _LOCATION_REASON),
    (rf"{_CONTAINER_PATH}\.env\[[^]]+\](\[\d+\])?$", ("added",), _POD_MAPPING_REASON),
    (
        rf"{_CONTAINER_PATH}\.env\[[^]]+\](\[\d+\])?\.value$",
        ("changed",),
        f"{_HEAD_ADDRESS_REASON}, or {_POD_MAPPING_REASON}",
    ),
    (
        rf"{_CONTAINER_PATH}\.env\[[^]]+\](\[\d+\])?\.valueFrom",
        ("removed",),
        "replaced by its value in the manager",
    ),
    (rf"{_CONTAINER_PATH}\.env\[[^]]+\](\[\d+\])?\.value", ("added",), "its value in the manager"),
    (
        rf"^spec\.initContainers\[{names.GCS_WAITER}\]\.resources",
        ("added", "changed"),
        "as much as the worker requests, so that a LimitRange there that takes the worker takes it; no more quota",
    ),
    (
        rf"{_CONTAINER_PATH}\.resources\.(requests$|(limits|requests)\.[^/]+/)",
        _ANY_CHANGE,
        f"the resource has that name there: {_POD_MAPPING_REASON}",
    ),
    (
        rf"{_CONTAINER_PATH}\.terminationMessagePolicy$",
        ("added", "changed"),
        "the last lines of a container that fails are shown in the manager",
    ),
    (rf"{_CONTAINER_PATH}\.lifecycle(\.preStop)?$", ("added",), "drains the Ray node before it stops"),
    (rf"{_CONTAINER_PATH}\.(env|args|command|lifecycle|\w+Probe)", ("changed",), _HEAD_ADDRESS_REASON),
)
_COMPILED_RULES = [(re.compile(pattern), kinds, reason) for pattern, kinds, reason in _REASON_RULES]
