"""How many pods of one shape could a cluster's nodes hold, were they empty?

A plausibility check against quota that no node stands behind (a device plugin that is not ready, a machine too small),
not a scheduler: what runs on the nodes is not looked at, since quota counts that, and neither are topology spread or
affinity between pods. Nodes that are not ready or cordoned hold nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter import flavor, shape
from adapter.facts import Raw, is_true, key_of, meta
from adapter.flavor import Flavor


@dataclass(frozen=True, slots=True)
class Node:
    """A node that takes pods: what it has, in the units of `shape`."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Raw, ...]
    allocatable: shape.Resources


def read(objects: Iterable[Raw]) -> tuple[Node, ...]:
    """Read the Node objects that are ready and not cordoned; one that cannot be read is left out."""
    return tuple(node for raw in objects if (node := _read(raw)))


def _read(raw: Raw) -> Node | None:
    spec = raw.get("spec") or {}
    if spec.get("unschedulable") or not is_true(raw, "Ready"):
        return None
    try:
        found = (raw.get("status") or {}).get("allocatable") or {}
        allocatable = {name: shape.quantity(text, name) for name, text in found.items()}
    except ValueError:
        return None
    taints = (taint for taint in spec.get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute"))
    return Node(key_of(raw)[1], dict(meta(raw).get("labels") or {}), tuple(taints), allocatable)


def hold(
    nodes: Sequence[Node], pod_spec: Raw, request: shape.Resources, flavors: Sequence[Flavor], wanted: int
) -> tuple[int, str]:
    """Count up to `wanted` pods that the nodes could hold, and say in a sentence fragment why it is fewer.

    `flavors` are those that Kueue would assign: it adds their labels to the pod's node selector, and their tolerations.
    """
    as_sent = _with_flavors(pod_spec, flavors)
    needs = {name: need for name, need in request.items() if need > 0}
    fitting: list[Node] = []
    held = 0
    for node in nodes:
        if _takes(node, as_sent):
            fitting.append(node)
            held += min((node.allocatable.get(name, 0) // need for name, need in needs.items()), default=wanted)
        if held >= wanted:
            return held, ""
    return held, _short(nodes, fitting, needs, held)


def _with_flavors(pod_spec: Raw, flavors: Sequence[Flavor]) -> dict[str, Any]:
    selector = dict(pod_spec.get("nodeSelector") or {})
    tolerations = list(pod_spec.get("tolerations") or ())
    for one in flavors:
        selector |= one.labels
        tolerations += one.tolerations
    return {**pod_spec, "nodeSelector": selector, "tolerations": tolerations}


def _takes(node: Node, pod_spec: Raw) -> bool:
    """Whether the scheduler's filters on labels and taints let the pod onto the node."""
    if any(node.labels.get(key) != value for key, value in pod_spec["nodeSelector"].items()):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [term.get("matchExpressions") or () for term in required.get("nodeSelectorTerms") or ()]
    if terms and not any(flavor.meets_all(term, node.labels) for term in terms):
        return False
    return all(any(flavor.tolerates(by, taint) for by in pod_spec["tolerations"]) for taint in node.taints)


def _short(nodes: Sequence[Node], fitting: Sequence[Node], needs: shape.Resources, held: int) -> str:
    if not nodes:
        return "it has no ready node"
    if not fitting:
        return f"none of its {len(nodes)} ready nodes matches the worker's node selector, affinity and tolerations"
    for name, need in needs.items():
        most = max(node.allocatable.get(name, 0) for node in fitting)
        if not most:
            return f"no node there has allocatable {name}: is its device plugin ready?"
        if most < need:
            return f"no node there is large enough: {name} {shape.as_text(most, name)} at most, one worker needs {shape.as_text(need, name)}"
    return f"its nodes can hold {held}"
