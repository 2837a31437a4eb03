"""What differs between a manager's worker pod and its copy, and why?

A comparison of the two as they are, so that nothing is left out: a difference for which no reason is known is listed all
the same. It does not know how the copy was made (`rewrite.rewriter`), and does not judge it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

UNEXPLAINED = "no reason is known; please report it"
_ABSENT = object()
_CLIPPED = 60  # characters of a value
_BY_KEY = ("metadata.labels", "metadata.annotations")  # each entry has a reason of its own, though all come or go


@dataclass(frozen=True, slots=True)
class Change:
    """One difference; `before` or `after` is empty where the field is not there."""

    path: str  # spec.containers[ray-worker].env[RAY_ADDRESS].value
    before: str
    after: str
    why: str

    def __str__(self) -> str:
        if not self.after:
            return f"{self.path} removed, was {self.before}: {self.why}"
        return f"{self.path} {'changed' if self.before else 'added'}: {self.why}: {self.after}"


def changes(pod: Mapping[str, Any], copy: Mapping[str, Any]) -> list[Change]:
    """List every field of a pod that differs in its copy, in the order of the pod's fields, then the copy's own ones.

    Entries of a list that have names are compared by name; other lists as a whole.
    """
    return [_change(path, before, after) for path, before, after in _differences("", pod, copy)]


def _differences(path: str, before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    if before == after and type(before) is type(after):
        return
    bare: Any = {} if path in _BY_KEY else None
    old, new = (_entries(bare if one is _ABSENT else one) for one in (before, after))
    if old is None or new is None or not (old or new):
        yield path, before, after
        return
    for key in [*old, *(key for key in new if key not in old)]:
        yield from _differences(f"{path}{key}".removeprefix("."), old.get(key, _ABSENT), new.get(key, _ABSENT))


def _entries(value: Any) -> dict[str, Any] | None:
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


def _change(path: str, before: Any, after: Any) -> Change:
    kind = "removed" if after is _ABSENT else "added" if before is _ABSENT else "changed"
    why = next((why for pattern, kinds, why in _REASONS if kind in kinds and pattern.search(path)), UNEXPLAINED)
    return Change(path, _shown(before), _shown(after), why)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return ""
    text = " ".join(str(value).split()) or "''"
    return text if len(text) <= _CLIPPED else f"{text[: _CLIPPED - 4]} ..."


_ANY = ("added", "removed", "changed")
_CONTAINER = r"^spec\.(initContainers|containers)\[[^]]+\]"
_HEAD = "the head's address in place of its Service's name"
_PLACE = "what Ray is told of the place where the pod runs"
_COPIED = "the Secret's or ConfigMap's copy, which has a name of its own there"
_MAPPED = "the WorkerCluster's spec.pods says so"
_TEXTS: tuple[tuple[str, tuple[str, ...], str], ...] = (  # the first that fits
    (r"^status", _ANY, "a copy has a status of its own"),
    (r"^(apiVersion|kind)$", _ANY, "as every object says"),
    (r"^metadata\.ownerReferences", _ANY, "the share's anchor owns it there: deleting that deletes it"),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?rayspan\.dev/ray-",
        _ANY,
        "the label of ray.io, under a name that no KubeRay there acts on",
    ),
    (r"^metadata\.labels\.([^/]*\.)?ray\.io/", ("removed",), "a KubeRay there would take the pod for one of its own"),
    (r"^metadata\.(labels|annotations)\.([^/]*\.)?rayspan\.dev/", _ANY, "where the copy belongs"),
    (
        r"^metadata\.(labels|annotations)\.([^/]*\.)?kueue\.x-k8s\.io/",
        _ANY,
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
        f"no node autoscaler there empties its node, or {_MAPPED}",
    ),
    (r"^metadata\.annotations\..*", ("changed",), f"{_HEAD}, or {_MAPPED}"),
    (r"^metadata\.(labels|annotations)\.", ("added", "changed"), _MAPPED),
    (r"^metadata\.", ("removed",), "it belongs to the object in the manager"),
    (
        r"^spec\.(nodeName|schedulingGates|ephemeralContainers|overhead)",
        ("removed",),
        "the manager set it on its own pod",
    ),
    (r"^spec\.imagePullSecrets", ("added", "changed"), _COPIED),
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
    (r"^spec\.tolerations", ("changed",), f"less what speaks of the manager's nodes, and {_MAPPED}"),
    (
        r"^spec\.(affinity|topologySpreadConstraints)",
        _ANY,
        "less the manager's node labels, and with labels by their names there",
    ),
    (
        r"^spec\.(nodeSelector|tolerations|serviceAccountName|schedulerName|runtimeClassName)",
        ("added", "changed"),
        _MAPPED,
    ),
    (r"^spec\.volumes\[kube-api-access-|^spec\.volumes$", ("removed",), "the manager's API token"),
    (r"(KeyRef|secretRef|configMapRef|\.configMap|\.secret)\.(name|secretName)$", ("changed",), _COPIED),
    (r"^spec\.volumes\[[^]]+\]\.downwardAPI", ("changed",), "labels by their names there"),
    (r"^spec\.volumes\[[^]]+\]\.projected\.sources", ("changed",), f"{_COPIED}, and labels by their names there"),
    (rf"{_CONTAINER}\.envFrom", ("changed",), _COPIED),
    (rf"{_CONTAINER}\.volumeMounts", _ANY, "the mount of the manager's API token"),
    (rf"{_CONTAINER}\.image$|^spec\.volumes\[[^]]+\]\.image", ("changed",), f"the registry: {_MAPPED}"),
    (rf"{_CONTAINER}\.env\[RAY_(NODE_ZONE|NODE_REGION|OVERRIDE_LABELS|OVERRIDE_RESOURCES)\]", _ANY, _PLACE),
    (rf"{_CONTAINER}\.env$", ("added",), _PLACE),
    (rf"{_CONTAINER}\.env\[[^]]+\](\[\d+\])?\.valueFrom", ("removed",), "its value in the manager stands there now"),
    (rf"{_CONTAINER}\.env\[[^]]+\](\[\d+\])?\.value", ("added",), "what it was in the manager"),
    (
        rf"{_CONTAINER}\.terminationMessagePolicy$",
        ("added", "changed"),
        "the last lines of a container that fails are shown in the manager",
    ),
    (rf"{_CONTAINER}\.lifecycle(\.preStop)?$", ("added",), "a Ray node that is stopped is drained first"),
    (rf"{_CONTAINER}\.(env|args|command|lifecycle|\w+Probe)", ("changed",), _HEAD),
)
_REASONS = [(re.compile(pattern), kinds, why) for pattern, kinds, why in _TEXTS]
