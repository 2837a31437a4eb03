"""Compares the manager's CRDs with those of this version: which fields its API server would drop.

An API server drops a field that a CRD does not declare, and reports no error. So a controller that is newer than its
CRDs would act on a record that lacks what it wrote. The API server publishes the schemas that it has (OpenAPI v3),
that of WorkerAccess only where this component is installed.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from adapter import names
from adapter.objects.unstructured import Raw, mapping_field, mapping_list, printable_list, text_field

MissingFields = Mapping[str, tuple[str, ...]]  # by kind; a kind without missing fields is left out
_MAX_FIELDS: Final = 3  # in one sentence
_MAX_DEPTH: Final = 32
_FOLDER: Final = "manifests/crds"
_COMPONENT_FOLDERS: Final = {names.WORKER_ACCESS_KIND: "kustomize/components/worker-access"}
_KINDS: Final = "x-kubernetes-group-version-kind"
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_OUR_PARTS: Final = ("spec", "status")  # the API server itself declares the others


def missing_fields(shipped: Mapping[str, Raw], document: Raw) -> MissingFields:
    """The fields of the shipped schemas, by kind, that the served ones lack; a kind that is not served is left out."""
    served = dict(_served_schemas(document))
    missing = {
        kind: tuple(field for part in _OUR_PARTS for field in _missing_in_part(part, schema, served[kind]))
        for kind, schema in shipped.items()
        if kind in served
    }
    return {kind: fields for kind, fields in missing.items() if fields}


def _served_schemas(document: Raw) -> Iterator[tuple[str, Raw]]:
    for schema in mapping_field(mapping_field(document, "components"), "schemas").values():
        for kind in mapping_list(schema, _KINDS) if isinstance(schema, dict) else ():
            if f"{kind.get('group')}/{kind.get('version')}" == names.API_VERSION:
                yield text_field(kind, "kind"), schema


def _missing_in_part(part: str, shipped: Raw, served: Raw) -> Iterator[str]:
    properties = mapping_field(shipped, "properties")
    if part in properties:
        declared = mapping_field(served, "properties").get(part)
        yield from _missing_below(part, properties[part], declared, _MAX_DEPTH)


def _missing_below(path: str, shipped: Raw, served: object, depth: int) -> Iterator[str]:
    if not isinstance(served, dict):
        yield path
        return
    if served.get(_OPEN) or not depth:
        return
    for name, schema in mapping_field(shipped, "properties").items():
        declared = mapping_field(served, "properties").get(name, served.get("additionalProperties"))
        yield from _missing_below(f"{path}.{name}", schema, declared, depth - 1)
    for key, suffix in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(shipped.get(key), dict) and isinstance(served.get(key), dict):
            yield from _missing_below(f"{path}{suffix}", shipped[key], served[key], depth - 1)


def outdated_text(missing: MissingFields) -> str:
    """A sentence on the CRDs that are older than the controller; empty if none is."""
    if not missing:
        return ""
    kinds = "; ".join(f"{kind} lacks {printable_list(fields, _MAX_FIELDS)}" for kind, fields in sorted(missing.items()))
    folders = sorted({_COMPONENT_FOLDERS.get(kind, _FOLDER) for kind in missing}, reverse=True)
    return (
        "The CRDs in the manager are older than the controller, and its API server drops what they do not declare: "
        f"{kinds}. Apply the CRDs of this version ({' and '.join(folders)})."
    )


def record_problem(missing: MissingFields) -> str:
    """A sentence why no job is placed: its Placement would lack what the controller writes; else empty."""
    if not (fields := missing.get(names.PLACEMENT_KIND)):
        return ""
    text = outdated_text({names.PLACEMENT_KIND: fields})
    return f"{text} Until then no job is placed; what runs goes on."
