"""How many pods of one shape could a cluster's nodes hold, were they empty?

A plausibility check against quota that no node stands behind (a device plugin that is not ready, a machine too small),
not a scheduler: what runs on the nodes is not looked at, since quota counts that, and neither are topology spread or
affinity between pods, nor a gang's other worker groups. Nodes that are not ready or cordoned hold nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter.objects import podrequests
from adapter.objects.raw import Raw, is_true, key_of, meta
from adapter.objects.selectors import meets_all, tolerates
from adapter.quota.flavor import Flavor


@dataclass(frozen=True, slots=True)
class Node:
    """A node that takes pods: what it has, in the units of `objects.podrequests`."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Raw, ...]
    allocatable: podrequests.Resources


def read(objects: Iterable[Raw]) -> tuple[Node, ...]:
    """Read the Node objects that are ready and not cordoned; one that cannot be read is left out."""
    kinds: dict[frozenset[tuple[str, int]], podrequests.Resources] = {}  # one object for equal figures: counted once
    found = (node for raw in objects if (node := _read(raw)))
    return tuple(
        replace(node, allocatable=kinds.setdefault(frozenset(node.allocatable.items()), node.allocatable))
        for node in found
    )


def _read(raw: Raw) -> Node | None:
    spec = raw.get("spec") or {}
    if spec.get("unschedulable") or not is_true(raw, "Ready"):
        return None
    try:
        found = (raw.get("status") or {}).get("allocatable") or {}
        allocatable = {name: podrequests.quantity(text, name) for name, text in found.items()}
    except ValueError:
        return None
    taints = (taint for taint in spec.get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute"))
    return Node(key_of(raw)[1], dict(meta(raw).get("labels") or {}), tuple(taints), allocatable)


def hold(
    nodes: Sequence[Node], pod_spec: Raw, request: podrequests.Resources, flavors: Sequence[Flavor], wanted: int
) -> tuple[int, str]:
    """Count up to `wanted` pods that the nodes could hold, and say in a sentence fragment why it is fewer.

    `flavors` are those that Kueue would assign: it adds their labels to the pod's node selector, and their tolerations.
    """
    takes = _filter(pod_spec, flavors)
    needs = {name: need for name, need in request.items() if need > 0}
    fitting: list[Node] = []
    per_node: dict[int, int] = {}  # machines of one kind share their figures, see `read`
    held = 0
    for node in nodes:
        if takes(node):
            fitting.append(node)
            kind = id(node.allocatable)
            if kind not in per_node:
                per_node[kind] = min((node.allocatable.get(n, 0) // need for n, need in needs.items()), default=wanted)
            held += per_node[kind]
        if held >= wanted:
            return held, ""
    return held, f"its nodes can hold {held}" if held else _none(nodes, fitting, needs)


def _filter(pod_spec: Raw, flavors: Sequence[Flavor]) -> Callable[[Node], bool]:
    """The scheduler's filters on labels and taints, for a pod to which Kueue has added what the flavors say."""
    selector = dict(pod_spec.get("nodeSelector") or {})
    tolerations = list(pod_spec.get("tolerations") or ())
    for one in flavors:
        selector |= one.labels
        tolerations += one.tolerations
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [term.get("matchExpressions") or () for term in required.get("nodeSelectorTerms") or ()]
    wanted = list(selector.items())

    def tolerated(node: Node) -> bool:
        return not node.taints or all(any(tolerates(by, taint) for by in tolerations) for taint in node.taints)

    def takes(node: Node) -> bool:
        for key, value in wanted:  # plain loops: fleets have thousands of nodes
            if node.labels.get(key) != value:
                return False
        if terms and not any(meets_all(term, node.labels) for term in terms):
            return False
        return tolerated(node)

    return takes if wanted or terms else tolerated


def _none(nodes: Sequence[Node], fitting: Sequence[Node], needs: podrequests.Resources) -> str:
    """Why not a single pod could be held."""
    if not nodes:
        return "it has no ready node"
    if not fitting:
        return f"none of its {len(nodes)} ready nodes matches the worker's node selector, affinity and tolerations"
    for name, need in needs.items():
        most = max(node.allocatable.get(name, 0) for node in fitting)
        if not most:
            return f"no node there has allocatable {name}: is its device plugin ready?"
        if most < need:
            return f"no node there is large enough: {name} {podrequests.as_text(most, name)} at most, one worker needs {podrequests.as_text(need, name)}"
    return "its nodes can hold 0"
