"""Finds values that must be text and are none, as YAML reads numbers, booleans and dates without quotes.

An API server rejects the object: its decoder puts no number into a map of strings
(k8s:core/v1/types.go, PodSpec.NodeSelector).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from adapter.objects.unstructured import Raw, mapping_field, mapping_list, meta, printable

_REMEDY = "an API server takes only text there; write it in quotes"
_MAPS = ("labels", "annotations")
_LISTS = ("command", "args")


def template_faults(template: Raw) -> Iterator[str]:
    """A fragment for each such value of a pod, or of a pod template."""
    spec = mapping_field(template, "spec")
    for field in _MAPS:
        yield from mapping_faults(f"metadata.{field}", meta(template).get(field))
    yield from mapping_faults("spec.nodeSelector", spec.get("nodeSelector"))
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(mapping_list(spec, kind)):
            yield from _container_faults(f"spec.{kind}[{index}]", container)


def mapping_faults(path: str, values: object) -> Iterator[str]:
    """A fragment for each key and value of a map of strings that is no text; null counts as empty."""
    for key, value in values.items() if isinstance(values, Mapping) else ():
        where = f"{path} has {printable(key)}: {_as_yaml(value)}"
        if not isinstance(key, str):
            yield f"{where}, whose key is {_kind_of(key)}: {_REMEDY}"
        if value is not None and not isinstance(value, str):
            yield f"{where}, which is {_kind_of(value)}: {_REMEDY}"


def _container_faults(path: str, container: Raw) -> Iterator[str]:
    for variable in mapping_list(container, "env"):
        for field in ("name", "value"):
            if (value := variable.get(field)) is not None and not isinstance(value, str):
                whose = f"{path}.env[{printable(variable.get('name'))}].{field}"
                yield f"{whose} is {_as_yaml(value)}, which is {_kind_of(value)}: {_REMEDY}"
    for field in _LISTS:
        for value in _as_list(container.get(field)):
            if not isinstance(value, str):
                yield f"{path}.{field} has {_as_yaml(value)}, which is {_kind_of(value)}: {_REMEDY}"


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_yaml(value: object) -> str:
    return printable(str(value).lower() if isinstance(value, bool) else value)


def _kind_of(value: object) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case dict() | list():
            return "no text"
    return "a date"
