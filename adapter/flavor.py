"""May a pod use a ResourceFlavor, and does a label selector choose a namespace?

Labels, taints and tolerations only, as kueue v0.19.2 reads them; how much quota the flavor has is `adapter.cohort`'s
question. It sees no nodes: whether one exists is for the worker cluster's scheduler to find out.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Raw = Mapping[str, Any]
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor; one with a `fault` (a sentence fragment) could not be read and takes no pod."""

    name: str
    labels: Labels = field(default_factory=dict)
    taints: Sequence[Raw] = ()
    tolerations: Sequence[Raw] = ()
    topology: bool = False
    fault: str = ""


def read(name: str, raw: Raw) -> Flavor:
    """Read a ResourceFlavor object; raises AttributeError or TypeError where it is not shaped like one."""
    spec = raw.get("spec") or {}
    taints = [taint for taint in spec.get("nodeTaints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return Flavor(
        name=name,
        labels=dict(spec.get("nodeLabels") or {}),
        taints=tuple(taints),
        tolerations=tuple(dict(toleration) for toleration in spec.get("tolerations") or ()),
        topology=spec.get("topologyName") is not None,
    )


def refusal(flavor: Flavor, pod_spec: Raw, topology_only: bool) -> str:
    """Say in a sentence fragment why a pod may not use the flavor; empty when it may.

    Every NoSchedule and NoExecute taint must be tolerated by the pod or by the flavor itself; nodeSelector and required
    node affinity count only on the label keys that this flavor has. A flavor with a topology takes pods that ask for
    none only where every flavor of the ClusterQueue has one (`topology_only`); how they pack there is not modelled.
    Source: pkg/scheduler/flavorassigner/flavorassigner.go checkFlavorForPodSets, tas_flavorassigner.go.
    """
    if flavor.fault:
        return flavor.fault
    if flavor.topology and not topology_only:
        return f"flavor {flavor.name} takes only pods that ask for a topology"
    tolerations = (*(pod_spec.get("tolerations") or ()), *flavor.tolerations)
    for taint in flavor.taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            return f"flavor {flavor.name} has the taint {_taint_text(taint)}, which the pod does not tolerate"
    if not _matches(flavor.labels, pod_spec):
        return f"flavor {flavor.name} does not match the pod's node selector or affinity"
    return ""


def selects(selector: Raw | None, labels: Labels) -> bool:
    """Say whether a label selector chooses an object with `labels`; None chooses nothing, an empty one everything.

    Source: apimachinery meta/v1 LabelSelectorAsSelector, as kueue uses it for spec.namespaceSelector.
    """
    if selector is None:
        return False
    wanted: Labels = selector.get("matchLabels") or {}
    return _has(labels, wanted) and meets_all(selector.get("matchExpressions") or (), labels)


def _matches(labels: Labels, pod_spec: Raw) -> bool:
    selector = {key: value for key, value in (pod_spec.get("nodeSelector") or {}).items() if key in labels}
    if not _has(labels, selector):
        return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [_relevant(term, labels) for term in required.get("nodeSelectorTerms") or ()]
    # Terms are ORed, so one that asks nothing of this flavor's labels lets every pod in (flavorSelector).
    return not terms or any(meets_all(term, labels) for term in terms)


def _relevant(term: Raw, labels: Labels) -> list[Raw]:
    return [expression for expression in term.get("matchExpressions") or () if expression.get("key") in labels]


def _has(labels: Labels, wanted: Labels) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def meets_all(expressions: Iterable[Raw], labels: Labels) -> bool:
    """Say whether labels meet every expression of a node selector term or a label selector."""
    return all(_meets(expression, labels) for expression in expressions)


def _meets(expression: Raw, labels: Labels) -> bool:
    """One requirement; an operator that does not exist is met by nothing."""
    found = labels.get(expression["key"])
    values: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as operator:
            return len(values) == 1 and _compares(found, operator, values[0])
    return False


def tolerates(toleration: Raw, taint: Raw) -> bool:
    """Say whether a toleration covers a taint, as the scheduler compares them."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            return (toleration.get("value") or "") == (taint.get("value") or "")
        case "Gt" | "Lt" as operator:
            return _compares(taint.get("value"), operator, toleration.get("value"))
    return False


def _compares(left: object, operator: str, right: object) -> bool:
    low, high = (_integer(left), _integer(right)) if operator == "Lt" else (_integer(right), _integer(left))
    return low is not None and high is not None and low < high


def _integer(text: object) -> int | None:
    digits = str(text).removeprefix("-")
    return int(str(text)) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else None


def _taint_text(taint: Raw) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"
