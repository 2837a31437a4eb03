"""Is what came over the wire an object at all: does its frame have the types that every API server gives it?

An API server checks all of this; what comes past it, from a broken or a hostile one, must not stand among what is believed.
Asked where objects come in, so that whoever reads one may rely on it. Of what is within `spec` and `status` nothing is said.
"""

from collections.abc import Callable
from typing import Any, Final

_Predicate = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text_mapping(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_mapping_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _is_owner_list(value: Any) -> bool:
    return _is_mapping_list(value) and all(
        _is_text(one.get(field, "")) for one in value for field in ("kind", "name", "uid")
    )


# Absent and null are the same: a server written in Go says null for what is empty.
_METADATA_TYPES: Final[dict[str, tuple[_Predicate, str]]] = {
    "namespace": (_is_text, "text"),
    "uid": (_is_text, "text"),
    "resourceVersion": (_is_text, "text"),
    "creationTimestamp": (_is_text, "text"),
    "deletionTimestamp": (_is_text, "text"),
    "labels": (_is_text_mapping, "texts by name"),
    "annotations": (_is_text_mapping, "texts by name"),
    "ownerReferences": (_is_owner_list, "a list of references"),
}


def malformed_reason(raw: object) -> str:
    """Why this is no object, a part of a sentence that names the field; empty when it is one."""
    if not isinstance(raw, dict):
        return "it is no JSON object"
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        return "its metadata is no JSON object"
    name = metadata.get("name")
    if not (isinstance(name, str) and name):
        return "its metadata.name is no text, or empty"
    for field, (holds, what) in _METADATA_TYPES.items():
        if (found := metadata.get(field)) is not None and not holds(found):
            return f"its metadata.{field} is not {what}"
    return _malformed_spec_or_status(raw)


def _malformed_spec_or_status(raw: dict[str, Any]) -> str:
    for field in ("spec", "status"):
        if raw.get(field) is not None and not _is_mapping(raw[field]):
            return f"its {field} is no JSON object"
    conditions = (raw.get("status") or {}).get("conditions")
    if conditions is not None and not _is_mapping_list(conditions):
        return "its status.conditions is not a list of JSON objects"
    return ""
