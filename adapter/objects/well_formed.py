"""Is what came over the wire an object at all: does its frame have the types that every API server gives it?

An API server checks all of this; what comes past it, from a broken or a hostile one, must not stand among what is believed.
Asked where objects come in, so that whoever reads one may rely on it. Of what is within `spec` and `status` nothing is said.
"""

from collections.abc import Callable
from typing import Any, Final

_Holds = Callable[[Any], bool]


def _text(found: Any) -> bool:
    return isinstance(found, str)


def _mapping(found: Any) -> bool:
    return isinstance(found, dict)


def _texts(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(one, str) for one in found.values())


def _mappings(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(one, dict) for one in found)


def _owners(found: Any) -> bool:
    return _mappings(found) and all(_text(one.get(field, "")) for one in found for field in ("kind", "name", "uid"))


# Absent and null are the same: a server written in Go says null for what is empty.
_METADATA: Final[dict[str, tuple[_Holds, str]]] = {
    "namespace": (_text, "text"),
    "uid": (_text, "text"),
    "resourceVersion": (_text, "text"),
    "creationTimestamp": (_text, "text"),
    "deletionTimestamp": (_text, "text"),
    "labels": (_texts, "texts by name"),
    "annotations": (_texts, "texts by name"),
    "ownerReferences": (_owners, "a list of references"),
}


def odd(raw: object) -> str:
    """Why this is no object, a part of a sentence that names the field; empty when it is one."""
    if not isinstance(raw, dict):
        return "it is no JSON object"
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        return "its metadata is no JSON object"
    name = metadata.get("name")
    if not (isinstance(name, str) and name):
        return "its metadata.name is no text, or empty"
    for field, (holds, what) in _METADATA.items():
        if (found := metadata.get(field)) is not None and not holds(found):
            return f"its metadata.{field} is not {what}"
    return _odd_rest(raw)


def _odd_rest(raw: dict[str, Any]) -> str:
    for field in ("spec", "status"):
        if raw.get(field) is not None and not _mapping(raw[field]):
            return f"its {field} is no JSON object"
    conditions = (raw.get("status") or {}).get("conditions")
    if conditions is not None and not _mappings(conditions):
        return "its status.conditions is not a list of JSON objects"
    return ""
