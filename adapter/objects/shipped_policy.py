"""Compares a live admission policy and its binding with the shipped ones, and finds when they were last changed.

A policy of the right name may do something else: an overlay, a tool that merges or another policy engine may have
changed it. So its whole spec must be the shipped one, except for values that an API server fills in and for texts.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from adapter.objects.unstructured import Raw, meta, parse_time, printable

# Texts for people and for the audit log. They decide nothing, so a release may change them.
_TEXT_FIELDS: Final = frozenset(("auditAnnotations", "message", "messageExpression", "reason"))
_DENY, _AUDIT = "Deny", "Audit"
_MAX_SHOWN_LENGTH: Final = 60  # characters of a value in a sentence
# How long a change of a policy or webhook takes to be in force everywhere. An API server watches both and compiles
# changed policies once a second (k8s:apiserver/pkg/admission/plugin/policy/generic/policy_source.go); on a busy machine
# one was not in force after 1.1 s. Times are in whole seconds, and two API servers' clocks may differ by one or two.
EFFECTIVE_AFTER: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class ShippedPolicy:
    """The specs of a shipped policy and of its binding."""

    policy: Raw
    binding: Raw


def find_difference(live: Raw, shipped_spec: Raw) -> str:
    """The first difference of an object's spec from the shipped one, as a predicate of a sentence; empty if none."""
    spec = live.get("spec")
    return "" if spec == shipped_spec else _find_difference("spec", _normalized(spec), _normalized(shipped_spec))


def change_times(raw: Raw) -> Iterator[datetime]:
    """The times of an object's creation and writes; writes to its status are the API server's and do not count."""
    listed = meta(raw).get("managedFields")
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    texts = (entry.get("time") for entry in entries if not entry.get("subresource"))
    times = (parse_time(text) for text in (meta(raw).get("creationTimestamp"), *texts))
    return (time for time in times if time is not None)


def _find_difference(path: str, live: Any, shipped: Any) -> str:
    if live == shipped:
        return ""
    if isinstance(live, Mapping) and isinstance(shipped, Mapping):
        fields = (*shipped, *(field for field in live if field not in shipped))
        pairs = ((f"{path}.{printable(field)}", live.get(field), shipped.get(field)) for field in fields)
        return next(filter(None, (_find_difference(*pair) for pair in pairs)), "")
    if isinstance(live, list) and isinstance(shipped, list) and any(isinstance(item, Mapping) for item in shipped):
        length = max(len(live), len(shipped))
        pairs = ((f"{path}[{i}]", *(_item_at(items, i) for items in (live, shipped))) for i in range(length))
        return next(filter(None, (_find_difference(*pair) for pair in pairs)), "")
    return f"has {path} {_shown(live)}, where {_shown(shipped)} is shipped"


def _item_at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _shown(value: Any) -> str:
    return "nothing" if value is None else printable(json.dumps(value, ensure_ascii=False), _MAX_SHOWN_LENGTH)


def _normalized(value: Any) -> Any:
    """A value without texts and without empty parts, which mean the same as absent ones; None if nothing is left."""
    if isinstance(value, Mapping):
        fields = {field: _normalized(part) for field, part in value.items() if field not in _TEXT_FIELDS}
        present = {field: part for field, part in fields.items() if part is not None}
        return _without_audit(present) or None
    if isinstance(value, list):
        return [_normalized(item) for item in value] or None
    return value


def _without_audit(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a binding without the action Audit beside Deny: it writes to the audit log only."""
    actions = fields.get("validationActions")
    if not isinstance(actions, list) or _DENY not in actions:
        return fields
    return {**fields, "validationActions": [action for action in actions if action != _AUDIT]}
