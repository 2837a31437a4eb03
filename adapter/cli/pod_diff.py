"""What differs between a manager's worker pod and its copy, and why?

A comparison of the two as they are, so that nothing is left out: a difference for which no reason is known is listed all
the same. It does not know how the copy was made (`rewrite.rewriter`), and does not judge it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN_REASON = "no reason is known; please report it"
_ABSENT = object()
_MAX_VALUE_LENGTH = 60  # characters of a value
_COMPARED_BY_KEY = (
    "metadata.labels",
    "metadata.annotations",
)  # each entry has a reason of its own, though all come or go


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One difference; `before` or `after` is empty where the field is not there."""

    path: str  # spec.containers[ray-worker].env[RAY_ADDRESS].value
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        if not self.after:
            return f"{self.path} removed, was {self.before}: {self.reason}"
        return f"{self.path} {'changed' if self.before else 'added'}: {self.reason}: {self.after}"


def diff_pods(pod: Mapping[str, Any], remote_pod: Mapping[str, Any]) -> list[FieldChange]:
    """List every field of a pod that differs in its copy, in the order of the pod's fields, then the copy's own ones.

    Entries of a list that have names are compared by name; other lists as a whole.
    """
    return [_explain_change(path, before, after) for path, before, after in _walk_differences("", pod, remote_pod)]


def _walk_differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if before == after and type(before) is type(after):
        return
    bare: Any = {} if path in _COMPARED_BY_KEY else None
    old, new = (_path_entries(bare if one is _ABSENT else one) for one in (before, after))
    if old is None or new is None or not (old or new):
        yield path, before, after
        return
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _walk_differences(f"{path}{key}".removeprefix("."), old.get(key, _ABSENT), new.get(key, _ABSENT))


def _path_entries(value: Any) -> dict[str, Any] | None:
    """A value's parts by what their paths add to its own, None where it has none."""
    if isinstance(value, Mapping):
        return {f".{key}": item for key, item in value.items()}
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and item.get("name") for item in value):
        found: dict[str, Any] = {}
        for item in value:
            name = str(item["name"])
            again = sum(key.partition("]")[0] == f"[{name}" for key in found)
            found[f"[{name}]" + (f"[{again}]" if again else "")] = item
        return found
    return None


def _explain_change(path: str, before: Any, after: Any) -> FieldChange:
    kind = "removed" if after is _ABSENT else "added" if before is _ABSENT else "changed"
    why = next(
        (why for pattern, kinds, why in _COMPILED_RULES if kind in kinds and pattern.search(path)), UNKNOWN_REASON
    )
    return FieldChange(path, _display_value(before), _display_value(after), why)


def _display_value(value: Any) -> str:
    if value is _ABSENT:
        return ""
    text = " ".join(str(value).split()) or "''"
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 4]} ..."


_ANY_CHANGE = ("added", "removed", "changed")
_CONTAINER_PATH = r"^spec\.(initContainers|containers)\[[^]]+\]"
_HEAD_ADDRESS_REASON = "the head's address in place of its Service's name"
_LOCATION_REASON = "what Ray is told of the place where the pod runs"
_COPIED_OBJECT_REASON = "the Secret's or ConfigMap's copy, which has a name of its own there"
_POD_MAPPING_REASON = "the WorkerCluster's spec.pods says so"
_REASON_RULES: tuple[tuple[str, tuple[str, ...], str], ...] = (  # the first that fits
    (r"^status", _ANY_CHANGE, "a copy has a status of its own"),
    (r"^(apiVersion|kind)$", _ANY_CHANGE, "as every object says"),
    (r"^metadata\.ownerReferences", _ANY_CHANGE, "the share's anchor owns it there: deleting that deletes it"),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?rayspan\.dev/ray-",
        _ANY_CHANGE,
        "the label of ray.io, under a name that no KubeRay there acts on",
    ),
    (r"^metadata\.labels\.([^/]*\.)?ray\.io/", ("removed",), "a KubeRay there would take the pod for one of its own"),
    (r"^metadata\.(labels|annotations)\.([^/]*\.)?rayspan\.dev/", _ANY_CHANGE, "where the copy belongs"),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?kueue\.x-k8s\.io/",
        _ANY_CHANGE,
        "a member of the share that Kueue admitted there",
    ),
    (
        r"^metadata\.annotations\.scheduling\.k8s\.io/group-name$",
        ("added", "changed"),
        "Volcano starts the share's workers together there",
    ),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?(volcano\.sh|yunikorn\.apache\.org|kai\.scheduler|scheduling\.(x-)?k8s\.io)/",
        ("removed",),
        "it speaks to the manager's scheduler",
    ),
    (r"^metadata\.labels\.app\.kubernetes\.io/", ("removed",), "KubeRay did not make the copy"),
    (r"^metadata\.annotations\.kubernetes\.io/", ("removed",), "the manager's API server or kubelet wrote it"),
    (
        r"^metadata\.annotations\.(karpenter\.sh/do-not-disrupt|cluster-autoscaler\.kubernetes\.io/safe-to-evict)$",
        ("added",),
        f"no node autoscaler there empties its node, or {_POD_MAPPING_REASON}",
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
    (
        r"^spec\.(serviceAccountName|serviceAccount|imagePullSecrets)",
        ("removed",),
        "its name means something in the manager only",
    ),
    (
        r"^spec\.(priority|priorityClassName|preemptionPolicy)",
        ("removed",),
        "the share's Workload has the priority there",
    ),
    (r"^spec\.(hostname|subdomain|hostnameOverride)", ("removed",), "the name is known to the manager's DNS only"),
    (r"^spec\.(schedulingGroup|workloadRef|schedulerName)", ("removed",), "that scheduler's gang is the manager's"),
    (r"^spec\.(nodeSelector|tolerations|affinity)", ("removed",), "it speaks of the manager's nodes"),
    (r"^spec\.tolerations", ("changed",), f"less what speaks of the manager's nodes, and {_POD_MAPPING_REASON}"),
    (
        r"^spec\.(affinity|topologySpreadConstraints)",
        _ANY_CHANGE,
        "less the manager's node labels, and with labels by their names there",
    ),
    (
        r"^spec\.(nodeSelector|tolerations|serviceAccountName|schedulerName|runtimeClassName)",
        ("added", "changed"),
        _POD_MAPPING_REASON,
    ),
    (r"^spec\.volumes\[kube-api-access-|^spec\.volumes$", ("removed",), "the manager's API token"),
    (r"(KeyRef|secretRef|configMapRef|\.configMap|\.secret)\.(name|secretName)$", ("changed",), _COPIED_OBJECT_REASON),
    (r"^spec\.volumes\[[^]]+\]\.downwardAPI", ("changed",), "labels by their names there"),
    (
        r"^spec\.volumes\[[^]]+\]\.projected\.sources",
        ("changed",),
        f"{_COPIED_OBJECT_REASON}, and labels by their names there",
    ),
    (rf"{_CONTAINER_PATH}\.envFrom", ("changed",), _COPIED_OBJECT_REASON),
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
    (
        rf"{_CONTAINER_PATH}\.env\[[^]]+\](\[\d+\])?\.valueFrom",
        ("removed",),
        "its value in the manager stands there now",
    ),
    (rf"{_CONTAINER_PATH}\.env\[[^]]+\](\[\d+\])?\.value", ("added",), "what it was in the manager"),
    (
        rf"{_CONTAINER_PATH}\.terminationMessagePolicy$",
        ("added", "changed"),
        "the last lines of a container that fails are shown in the manager",
    ),
    (rf"{_CONTAINER_PATH}\.lifecycle(\.preStop)?$", ("added",), "a Ray node that is stopped is drained first"),
    (rf"{_CONTAINER_PATH}\.(env|args|command|lifecycle|\w+Probe)", ("changed",), _HEAD_ADDRESS_REASON),
)
_COMPILED_RULES = [(re.compile(pattern), kinds, why) for pattern, kinds, why in _REASON_RULES]
