"""Checks that a received value is an API object: its metadata, conditions and top-level fields have the right types.

An API server checks all of this, but a broken or hostile one may not. Objects are checked on receipt, so that all
readers can rely on it. Values inside `spec` and `status` are not checked, except the list of conditions.
"""

import re
from collections.abc import Callable
from typing import Any, Final

_Predicate = Callable[[Any], bool]
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # a DNS label


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_namespace(value: Any) -> bool:
    """Whether a namespace can have this name; empty stands for none."""
    return isinstance(value, str) and (not value or _NAMESPACE.fullmatch(value) is not None)


def _is_path_segment(name: str) -> bool:
    """As IsValidPathSegmentName (k8s:apimachinery/pkg/api/validation/path/name.go), without control characters."""
    return name not in (".", "..") and name.isprintable() and not {"/", "%"} & {*name}


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text_mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_mapping_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_owner_list(value: Any) -> bool:
    return _is_mapping_list(value) and all(
        _is_text(owner.get(field, "")) for owner in value for field in ("kind", "name", "uid")
    )


# Null is allowed like an absent field: a server written in Go writes null for an empty value.
_METADATA_TYPES: Final[dict[str, tuple[_Predicate, str]]] = {
    "namespace": (is_namespace, "the name of a namespace"),
    "uid": (_is_text, "text"),
    "resourceVersion": (_is_text, "text"),
    "creationTimestamp": (_is_text, "text"),
    "deletionTimestamp": (_is_text, "text"),
    "labels": (_is_text_mapping, "a map of strings"),
    "annotations": (_is_text_mapping, "a map of strings"),
    "ownerReferences": (_is_owner_list, "a list of references"),
}


def malformed_reason(raw: object) -> str:
    """Why this is not an API object, a fragment that names the field; empty when it is one."""
    if not isinstance(raw, dict):
        return "it is not a JSON object"
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        return "its metadata is not a JSON object"
    name = metadata.get("name")
    if not (isinstance(name, str) and name):
        return "its metadata.name is not a string, or is empty"
    if not _is_path_segment(name):
        return "no object can have its metadata.name"
    for field, (holds, what) in _METADATA_TYPES.items():
        if (value := metadata.get(field)) is not None and not holds(value):
            return f"its metadata.{field} is not {what}"
    return _malformed_spec_or_status(raw)


def _malformed_spec_or_status(raw: dict[str, Any]) -> str:
    for field in ("spec", "status"):
        if raw.get(field) is not None and not _is_mapping(raw[field]):
            return f"its {field} is not a JSON object"
    conditions = (raw.get("status") or {}).get("conditions")
    if conditions is not None and not _is_mapping_list(conditions):
        return "its status.conditions is not a list of JSON objects"
    return ""
