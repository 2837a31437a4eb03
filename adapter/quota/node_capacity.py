"""Computes how many pods of one shape a cluster's nodes could hold if they were empty.

This is a plausibility check for quota without nodes (a device plugin that is not ready, a machine too small), not a
scheduler. It ignores running pods, because quota counts them. It also ignores topology spread, affinity between pods,
and other worker groups.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from operator import or_

from adapter.objects import pod_requests
from adapter.objects.selectors import Labels, parse_integer, tolerates
from adapter.objects.unstructured import UNREADABLE, Raw, is_condition_true, mapping_field, meta
from adapter.quota.resource_flavor import Flavor

_NodeSet = int  # a bit mask
_TAINT_FIELDS = ("key", "value", "effect")


@dataclass(frozen=True, slots=True)
class Node:
    labels: Labels
    taints: tuple[Raw, ...]
    allocatable: pod_requests.Resources


@dataclass(slots=True, eq=False)
class NodeIndex:
    """A cluster's nodes, indexed by label, taint and allocatable resources.

    Without the index, the cost of a plan would grow with the number of a pod's terms times the number of nodes.
    """

    count: int = 0
    cordoned: int = 0  # ready nodes that are cordoned; they are in no set
    by_label: dict[str, dict[str, _NodeSet]] = field(default_factory=lambda: defaultdict(dict))  # by key, then value
    by_label_key: dict[str, _NodeSet] = field(default_factory=dict)  # filled on first use
    # For Gt and Lt; filled on first use.
    by_numeric_label: dict[str, tuple[list[int], list[_NodeSet]]] = field(default_factory=dict)
    by_taint: dict[tuple[object, ...], _NodeSet] = field(default_factory=dict)
    by_allocatable: dict[frozenset[tuple[str, int]], tuple[pod_requests.Resources, _NodeSet]] = field(
        default_factory=dict
    )

    @property
    def all_nodes(self) -> _NodeSet:
        return (1 << self.count) - 1

    def add(self, node: Node) -> None:
        bit = 1 << self.count
        self.count += 1
        for key, value in node.labels.items():
            by_value = self.by_label[key]
            by_value[value] = by_value.get(value, 0) | bit
        for taint in node.taints:
            values = tuple(taint.get(name) or "" for name in _TAINT_FIELDS)
            self.by_taint[values] = self.by_taint.get(values, 0) | bit
        machine = frozenset(node.allocatable.items())
        allocatable, node_set = self.by_allocatable.get(machine, (node.allocatable, 0))
        self.by_allocatable[machine] = allocatable, node_set | bit


def index_nodes(schedulable_nodes: Iterable[Node]) -> NodeIndex:
    nodes = NodeIndex()
    for node in schedulable_nodes:
        nodes.add(node)
    return nodes


def parse_nodes(objects: Iterable[Raw]) -> NodeIndex:
    """Read the Node objects that are ready; cordoned ones are only counted, and unreadable ones are skipped."""
    ready = [raw for raw in objects if is_condition_true(raw, "Ready")]
    open_nodes = [raw for raw in ready if not mapping_field(raw, "spec").get("unschedulable")]
    nodes = index_nodes(node for raw in open_nodes if (node := _parse_node(raw)))
    nodes.cordoned = len(ready) - len(open_nodes)
    return nodes


def _parse_node(raw: Raw) -> Node | None:
    try:
        spec = raw.get("spec") or {}
        quantities = (raw.get("status") or {}).get("allocatable") or {}
        allocatable = {name: pod_requests.parse_quantity(text, name) for name, text in quantities.items()}
        taints = [taint for taint in spec.get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")]
        labels = dict(meta(raw).get("labels") or {})
    except UNREADABLE:
        return None
    texts = [*labels.values(), *(taint.get(name) or "" for taint in taints for name in _TAINT_FIELDS)]
    return Node(labels, tuple(taints), allocatable) if all(isinstance(text, str) for text in texts) else None


def pods_that_fit(
    nodes: NodeIndex, pod_spec: Raw, request: pod_requests.Resources, flavors: Sequence[Flavor], wanted: int
) -> tuple[int, str]:
    """Count the pods that the nodes could hold, and a fragment that says why these are fewer than `wanted`.

    `flavors` are those that Kueue would assign to the pods.
    """
    fitting = _matching_nodes(nodes, pod_spec, flavors)
    needs = {name: need for name, need in request.items() if need > 0}
    machines = [
        (allocatable, node_set & fitting)
        for allocatable, node_set in nodes.by_allocatable.values()
        if node_set & fitting
    ]
    count = 0
    for allocatable, node_set in machines:
        count += node_set.bit_count() * min(
            (allocatable.get(name, 0) // need for name, need in needs.items()), default=wanted
        )
    if count >= wanted:
        return count, ""
    reason = (
        f"its nodes can hold {count}"
        if count
        else _no_fit_reason(nodes, [allocatable for allocatable, _ in machines], needs)
    )
    return count, f"{reason}{_cordoned_note(nodes)}"


def _cordoned_note(nodes: NodeIndex) -> str:
    """The nodes that an uncordon would add; empty where all are cordoned, which the reason itself says."""
    if not (nodes.count and nodes.cordoned):
        return ""
    return f", and {nodes.cordoned} more {'is' if nodes.cordoned == 1 else 'are'} cordoned"


def _matching_nodes(nodes: NodeIndex, pod_spec: Raw, flavors: Sequence[Flavor]) -> _NodeSet:
    selector = dict(pod_spec.get("nodeSelector") or {})
    tolerations = list(pod_spec.get("tolerations") or ())
    for flavor in flavors:
        selector |= flavor.labels
        tolerations += flavor.tolerations
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [term.get("matchExpressions") or () for term in required.get("nodeSelectorTerms") or ()]

    matching = nodes.all_nodes
    for key, value in selector.items():
        matching &= _nodes_with_label(nodes, key, [value])
    if terms:
        matching &= _union_of(_nodes_matching_all(nodes, term) for term in terms)
    for values, tainted in nodes.by_taint.items():
        taint = dict(zip(_TAINT_FIELDS, values, strict=True))
        if matching & tainted and not any(tolerates(toleration, taint) for toleration in tolerations):
            matching &= ~tainted
    return matching


def _nodes_matching_all(nodes: NodeIndex, expressions: Iterable[Raw]) -> _NodeSet:
    matching = nodes.all_nodes
    for expression in expressions:
        matching = matching and matching & _nodes_matching(nodes, expression)
    return matching


def _nodes_matching(nodes: NodeIndex, expression: Raw) -> _NodeSet:
    """The nodes that match an expression, by the rules of `selectors.matches_expressions`."""
    key = expression["key"]
    values: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return _nodes_with_label(nodes, key, values)
        case "NotIn":
            return nodes.all_nodes & ~_nodes_with_label(nodes, key, values)
        case "Exists":
            return _nodes_with_key(nodes, key)
        case "DoesNotExist":
            return nodes.all_nodes & ~_nodes_with_key(nodes, key)
        case "Gt" | "Lt" as operator if len(values) == 1 and (limit := parse_integer(values[0])) is not None:
            numbers, below = _numeric_values(nodes, key)
            if operator == "Lt":
                return below[bisect_left(numbers, limit)]
            return below[-1] & ~below[bisect_right(numbers, limit)]
    return 0


def _nodes_with_label(nodes: NodeIndex, key: str, values: Iterable[str]) -> _NodeSet:
    by_value: Mapping[str, _NodeSet] = nodes.by_label.get(key, {})
    return _union_of(by_value.get(value, 0) for value in values)


def _nodes_with_key(nodes: NodeIndex, key: str) -> _NodeSet:
    if key not in nodes.by_label_key:
        nodes.by_label_key[key] = _union_of(nodes.by_label[key].values()) if key in nodes.by_label else 0
    return nodes.by_label_key[key]


def _numeric_values(nodes: NodeIndex, key: str) -> tuple[list[int], list[_NodeSet]]:
    """The sorted numeric values of a label, and for each value the nodes with a lower one.

    One more set at the end has all nodes with a numeric value.
    """
    if key not in nodes.by_numeric_label:
        parsed = ((parse_integer(value), node_set) for value, node_set in nodes.by_label.get(key, {}).items())
        ordered = sorted((number, node_set) for number, node_set in parsed if number is not None)
        below = accumulate((node_set for _, node_set in ordered), or_, initial=0)
        nodes.by_numeric_label[key] = [number for number, _ in ordered], list(below)
    return nodes.by_numeric_label[key]


def _union_of(node_sets: Iterable[_NodeSet]) -> _NodeSet:
    return reduce(or_, node_sets, 0)


def _no_fit_reason(nodes: NodeIndex, fitting: Sequence[pod_requests.Resources], needs: pod_requests.Resources) -> str:
    """Why no node holds a pod; `fitting` has the allocatable resources of each kind of machine that the pod may use."""
    if not nodes.count and nodes.cordoned:
        subject = "its only ready node is" if nodes.cordoned == 1 else f"all of its {nodes.cordoned} ready nodes are"
        return f"{subject} cordoned; see `kubectl get nodes` there, and uncordon what may take workers"
    if not nodes.count:
        return "it has no ready node"
    if not fitting:
        return f"none of its {nodes.count} ready nodes matches the worker's node selector, affinity and tolerations"
    for name, need in needs.items():
        most = max(allocatable.get(name, 0) for allocatable in fitting)
        if not most:
            return f"no node there has allocatable {name}: is its device plugin ready?"
        if most < need:
            return (
                f"no node there is large enough: {name} {pod_requests.format_quantity(most, name)} at most, "
                f"one worker needs {pod_requests.format_quantity(need, name)}"
            )
    return "its nodes can hold 0"
