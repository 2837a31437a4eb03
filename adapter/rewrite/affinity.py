"""Where does a pod want to be, and beside which others, told in the words of a worker cluster?

Labels of the manager's nodes are dropped from node affinity as they are from node selectors. Labels of `ray.io` have
another name on the copies, so the selectors of pod affinity and of topology spread follow. Whether such nodes or pods
exist there is for the scheduler to find out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_RAY_PREFIX = f"{names.RAY_DOMAIN}/"
_LONGEST = 63  # of a label's name after its prefix

Ours = Callable[[str], bool]  # whether a node label is the manager's


def renamed(key: str) -> str:
    """The name that a label of `ray.io` has on a copy (`ray.io/group` -> `rayspan.dev/ray-group`); others keep theirs.

    Under its own name it would wake a KubeRay over there, which lists and deletes pods by it.
    """
    new = f"ray-{key.removeprefix(_RAY_PREFIX)}"
    return f"{names.DOMAIN}/{new}" if key.startswith(_RAY_PREFIX) and len(new) <= _LONGEST else key


def ray_labels(found: Mapping[str, str] | None) -> dict[str, str]:
    """The labels of `ray.io` by the names that they have on a copy."""
    return {renamed(key): value for key, value in (found or {}).items() if renamed(key) != key}


def spec(found: Raw, ours: Ours) -> dict[str, Any]:
    """Give the fields of a pod spec that say where it wants to be, as they are to be there; empty ones are left out.

    `ours` says whether a node label is the manager's alone.
    """
    affinity = {
        kind: rules
        for kind, change in _KINDS.items()
        if (rules := change((found.get("affinity") or {}).get(kind) or {}, ours))
    }
    unknown = {key: value for key, value in (found.get("affinity") or {}).items() if key not in _KINDS}
    spread = [_term(one) for one in found.get("topologySpreadConstraints") or ()]
    new = {"affinity": unknown | affinity, "topologySpreadConstraints": spread}
    return {key: value for key, value in new.items() if value}


def _nodes(rules: Raw, ours: Ours) -> Raw:
    required = rules.get(_REQUIRED) or {}
    before = list(required.get("nodeSelectorTerms") or ())
    terms = [_without(term, ours) for term in before]
    # Terms are ORed: where one asked for nothing but the manager's, every node will do. One that was empty takes no node.
    met = any(not term and term is not old for term, old in zip(terms, before, strict=True))
    preferred = [
        {**one, "preference": left}
        for one in rules.get(_PREFERRED) or ()
        if (left := _without(one.get("preference") or {}, ours))
    ]
    new = {_REQUIRED: {} if met or not terms else {**required, "nodeSelectorTerms": terms}, _PREFERRED: preferred}
    return {key: value for key, value in (dict(rules) | new).items() if value}


def _without(term: Raw, ours: Ours) -> Raw:
    expressions = term.get("matchExpressions") or ()
    kept = [one for one in expressions if not ours(one.get("key") or "")]
    if len(kept) == len(expressions):
        return term
    return {key: value for key, value in {**term, "matchExpressions": kept}.items() if value}


def _pods(rules: Raw, _: Ours) -> Raw:
    required = [_term(term) for term in rules.get(_REQUIRED) or ()]
    preferred = [
        {**one, "podAffinityTerm": _term(one.get("podAffinityTerm") or {})} for one in rules.get(_PREFERRED) or ()
    ]
    new = {_REQUIRED: required, _PREFERRED: preferred}
    return {key: value for key, value in (dict(rules) | new).items() if value}


def _term(term: Raw) -> Raw:
    """A pod affinity term or a topology spread constraint: both select pods by labels."""
    new: dict[str, Any] = {}
    if isinstance(term.get("labelSelector"), Mapping):
        new["labelSelector"] = _selector(term["labelSelector"], term.get("matchLabelKeys") or ())
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if field in term:
            new[field] = [renamed(key) for key in term[field] or ()]
    return {**term, **new}


def _selector(selector: Raw, keys: Any) -> Raw:
    new: dict[str, Any] = {}
    if "matchLabels" in selector:
        new["matchLabels"] = {renamed(key): value for key, value in (selector["matchLabels"] or {}).items()}
    if "matchExpressions" in selector:
        # The manager's API server has merged matchLabelKeys into the expressions. The worker's does it again, and
        # refuses a key that it finds there already (kubernetes:validation.go, ValidateMatchLabelKeysAndMismatchLabelKeys).
        new["matchExpressions"] = [
            {**one, "key": renamed(one.get("key") or "")}
            for one in selector["matchExpressions"] or ()
            if one.get("key") not in keys
        ]
    return {**selector, **new}


_KINDS: Mapping[str, Callable[[Raw, Ours], Raw]] = {
    "nodeAffinity": _nodes,
    "podAffinity": _pods,
    "podAntiAffinity": _pods,
}
