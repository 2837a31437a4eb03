"""Rewrites affinity and topology spread of a pod for a worker cluster.

Labels of the manager's nodes are dropped from node affinity. Labels of `ray.io` have another name on remote pods, so
the selectors of pod affinity and of topology spread are renamed.
"""

from collections.abc import Callable, Mapping
from typing import Any

from adapter import names
from adapter.objects.unstructured import Raw

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_RAY_PREFIX = f"{names.RAY_DOMAIN}/"
_MAX_LABEL_NAME_LENGTH = 63

IsManagerLabel = Callable[[str], bool]  # of a node label


def remote_label_key(key: str) -> str:
    """`ray.io/group` -> `rayspan.dev/ray-group`; other labels keep their names.

    A KubeRay in the worker cluster lists and deletes pods by the original name.
    """
    new = f"ray-{key.removeprefix(_RAY_PREFIX)}"
    return f"{names.DOMAIN}/{new}" if key.startswith(_RAY_PREFIX) and len(new) <= _MAX_LABEL_NAME_LENGTH else key


def remote_ray_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    return {remote_label_key(key): value for key, value in (labels or {}).items() if remote_label_key(key) != key}


def scheduling_fields(pod_spec: Raw, is_manager_label: IsManagerLabel) -> dict[str, Any]:
    """Rewrite affinity and topology spread for the worker cluster; empty fields are left out."""
    affinity = {
        kind: rules
        for kind, change in _REWRITE_BY_KIND.items()
        if (rules := change((pod_spec.get("affinity") or {}).get(kind) or {}, is_manager_label))
    }
    unknown = {key: value for key, value in (pod_spec.get("affinity") or {}).items() if key not in _REWRITE_BY_KIND}
    spread = [_rewrite_term(constraint) for constraint in pod_spec.get("topologySpreadConstraints") or ()]
    new = {"affinity": unknown | affinity, "topologySpreadConstraints": spread}
    return {key: value for key, value in new.items() if value}


def _node_affinity(rules: Raw, is_manager_label: IsManagerLabel) -> Raw:
    required = rules.get(_REQUIRED) or {}
    before = list(required.get("nodeSelectorTerms") or ())
    terms = [_without_manager_labels(term, is_manager_label) for term in before]
    # Terms are ORed. A term that had only manager labels is now empty, and counts as matching every node. A term that
    # was empty before matches no node.
    matches_all = any(not term and term is not old for term, old in zip(terms, before, strict=True))
    preferred = [
        {**weighted, "preference": preference}
        for weighted in rules.get(_PREFERRED) or ()
        if (preference := _without_manager_labels(weighted.get("preference") or {}, is_manager_label))
    ]
    new = {
        _REQUIRED: {} if matches_all or not terms else {**required, "nodeSelectorTerms": terms},
        _PREFERRED: preferred,
    }
    return {key: value for key, value in (dict(rules) | new).items() if value}


def _without_manager_labels(term: Raw, is_manager_label: IsManagerLabel) -> Raw:
    expressions = term.get("matchExpressions") or ()
    portable = [expression for expression in expressions if not is_manager_label(expression.get("key") or "")]
    if len(portable) == len(expressions):
        return term
    return {key: value for key, value in {**term, "matchExpressions": portable}.items() if value}


def _pod_affinity(rules: Raw, _: IsManagerLabel) -> Raw:
    required = [_rewrite_term(term) for term in rules.get(_REQUIRED) or ()]
    preferred = [
        {**weighted, "podAffinityTerm": _rewrite_term(weighted.get("podAffinityTerm") or {})}
        for weighted in rules.get(_PREFERRED) or ()
    ]
    new = {_REQUIRED: required, _PREFERRED: preferred}
    return {key: value for key, value in (dict(rules) | new).items() if value}


def _rewrite_term(term: Raw) -> Raw:
    """Rewrite a pod affinity term or a topology spread constraint."""
    new: dict[str, Any] = {}
    if isinstance(term.get("labelSelector"), Mapping):
        new["labelSelector"] = _rewrite_selector(term["labelSelector"], term.get("matchLabelKeys") or ())
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        if field in term:
            new[field] = [remote_label_key(key) for key in term[field] or ()]
    return {**term, **new}


def _rewrite_selector(selector: Raw, keys: Any) -> Raw:
    new: dict[str, Any] = {}
    if "matchLabels" in selector:
        new["matchLabels"] = {remote_label_key(key): value for key, value in (selector["matchLabels"] or {}).items()}
    if "matchExpressions" in selector:
        # The manager's API server has merged matchLabelKeys into the expressions. The worker cluster's merges them
        # again, and rejects a key that the expressions have already (kubernetes:validation.go,
        # ValidateMatchLabelKeysAndMismatchLabelKeys).
        new["matchExpressions"] = [
            {**expression, "key": remote_label_key(expression.get("key") or "")}
            for expression in selector["matchExpressions"] or ()
            if expression.get("key") not in keys
        ]
    # A selector without fields selects all pods, as one with empty fields does; a term without a selector selects none.
    return {key: value for key, value in {**selector, **new}.items() if value}


_REWRITE_BY_KIND: Mapping[str, Callable[[Raw, IsManagerLabel], Raw]] = {
    "nodeAffinity": _node_affinity,
    "podAffinity": _pod_affinity,
    "podAntiAffinity": _pod_affinity,
}
