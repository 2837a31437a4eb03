"""Which objects a request is about: by its path, and by its selectors."""

from collections.abc import Mapping
from functools import lru_cache

from adapter.objects.unstructured import Raw


@lru_cache(maxsize=4096)
def place(path: str) -> tuple[str, str, str, str]:
    """The path of the whole collection, the namespace, the name and the subresource that a path is about."""
    parts = path.strip("/").split("/")
    root, rest = (parts[:2], parts[2:]) if parts[0] == "api" else (parts[:3], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name, sub, *_ = *rest[1:3], "", ""
    return "/".join(["", *root, rest[0]]), namespace, name, sub


def is_selected(raw: Raw, namespace: str, query: Mapping[str, str]) -> bool:
    about = raw["metadata"]
    if namespace and about.get("namespace") != namespace:
        return False
    fields = query.get("fieldSelector", "")
    if fields and not (fields.startswith("metadata.name=") and about["name"] == fields.partition("=")[2]):
        return False
    labels = about.get("labels") or {}
    return all(_holds(term, labels) for term in _terms(query.get("labelSelector", "")))


def _holds(term: str, labels: Mapping[str, str]) -> bool:
    key, equals, value = term.partition("=")
    if key.startswith("!"):
        return key[1:] not in labels
    return labels.get(key) == value if equals else key in labels


@lru_cache(maxsize=256)
def _terms(selector: str) -> tuple[str, ...]:
    """The terms of a selector: `key`, `!key` and `key=value` are all that the product sends."""
    terms = tuple(term for term in selector.split(",") if term)
    if odd := [term for term in terms if " " in term or "!=" in term or "==" in term]:
        raise ValueError(f"the selector {odd[0]!r} is not modelled")
    return terms
