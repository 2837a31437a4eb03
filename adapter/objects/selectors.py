"""Matches label selectors, node selector terms and tolerations, as the Kubernetes API compares them.

Works on plain labels and taints. Callers decide what follows from a match.
"""

from collections.abc import Iterable, Mapping, Sequence

from adapter.objects.unstructured import Raw

Labels = Mapping[str, str]


def selects(selector: Raw | None, labels: Labels) -> bool:
    """Whether a label selector selects an object with `labels`; None selects nothing, an empty selector everything.

    Source: apimachinery meta/v1 LabelSelectorAsSelector, as kueue uses it for spec.namespaceSelector.
    """
    if selector is None:
        return False
    wanted: Labels = selector.get("matchLabels") or {}
    return has_labels(labels, wanted) and matches_expressions(selector.get("matchExpressions") or (), labels)


def has_labels(labels: Labels, wanted: Labels) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def matches_expressions(expressions: Iterable[Raw], labels: Labels) -> bool:
    """Whether labels match every expression of a node selector term or a label selector."""
    return all(_matches_expression(expression, labels) for expression in expressions)


def _matches_expression(expression: Raw, labels: Labels) -> bool:
    """Whether labels match one expression; an unknown operator matches nothing."""
    value = labels.get(expression["key"])
    values: Sequence[str] = expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            return len(values) == 1 and _is_less_or_greater(value, operator, values[0])
    return False


def tolerates(toleration: Raw, taint: Raw) -> bool:
    """Whether a toleration tolerates a taint."""
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
            return _is_less_or_greater(taint.get("value"), operator, toleration.get("value"))
    return False


def _is_less_or_greater(lhs: object, operator: str, rhs: object) -> bool:
    low, high = (
        (parse_integer(lhs), parse_integer(rhs)) if operator == "Lt" else (parse_integer(rhs), parse_integer(lhs))
    )
    return low is not None and high is not None and low < high


def parse_integer(text: object) -> int | None:
    """Read a whole number as Gt and Lt do; None for any other text."""
    digits = str(text).removeprefix("-")
    return int(str(text)) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else None
