"""The entries by which a WorkerCluster names what exists there and pods may use, and the search in them.

An entry counts for the namespaces that it lists, or for all where it has no list; an empty list counts for none. An
entry with an unknown key is invalid: a misspelt list would open it to all. `required_objects.py` says what a pod needs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field

from adapter.objects.pod_requests import Resources, parse_quantity

_ANY = "*"
_STRICT = ConfigDict(extra="forbid")
_MAX_PATH_LENGTH = 4096  # Linux's PATH_MAX


def _refuse_null(value: object) -> object:
    if value is None:
        raise ValueError("has no entries: name the namespaces, or leave it out for all namespaces")
    return value


_Namespaces = Annotated[tuple[str, ...] | None, BeforeValidator(_refuse_null)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedObject:
    """An entry of a list of names in `spec.pods`, such as `serviceAccounts`."""

    __pydantic_config__ = _STRICT

    name: str  # in the pod; `*`: any
    renamed: Annotated[str, Field(alias="as")] = ""  # in the worker cluster; empty: the same name
    namespaces: _Namespaces = None  # None: all
    read_only: Annotated[bool, Field(alias="readOnly")] = False  # of a claim


def _parse_resources(amounts: Mapping[str, object]) -> dict[str, int]:
    """Read the amounts of resources; raises ValueError unless each is a quantity above zero."""
    resources = {name: parse_quantity(amount, name) for name, amount in amounts.items()}
    if not resources or min(resources.values()) < 1:
        raise ValueError("must have at least one resource, and of each at least 1")
    return resources


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedClaimTemplate(NamedObject):
    """An entry of `spec.pods.resourceClaimTemplates`: a ResourceClaimTemplate, and what Kueue there counts for it."""

    resources: Annotated[Resources, BeforeValidator(_parse_resources)]  # for one claim


NamedT = TypeVar("NamedT", bound=NamedObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPath:
    """An entry of `spec.pods.hostPaths`: a path on the nodes, and all beneath it if it is read only."""

    __pydantic_config__ = _STRICT

    prefix: str
    read_only: Annotated[bool, Field(alias="readOnly")] = True
    namespaces: _Namespaces = None  # None: all


def find_object(entries: Iterable[NamedT], name: str, namespace: str) -> NamedT | None:
    """The first entry for a name in a namespace."""
    return next(
        (entry for entry in entries if entry.name in (_ANY, name) and counts_for(entry.namespaces, namespace)), None
    )


def name_in_cluster(entry: NamedObject, name: str) -> str:
    return entry.renamed or name


def find_path(entries: Sequence[NamedPath], path: str, namespace: str) -> NamedPath | None:
    """The entry with the longest prefix for a host path in a namespace."""
    if is_beneath_writable(entries, path):
        return None
    fitting = [entry for entry in _covering(entries, path) if counts_for(entry.namespaces, namespace)]
    return max(fitting, key=lambda entry: len(entry.prefix), default=None)


def is_beneath_writable(entries: Iterable[NamedPath], path: str) -> bool:
    """Whether a path lies beneath a path that pods of any namespace may write to.

    A pod could put a symbolic link there, and the kubelet follows links in the path of a volume.
    """
    return any(_segments(entry.prefix) != _segments(path) for entry in _covering(entries, path) if not entry.read_only)


def is_nameable_path(path: str) -> bool:
    """Whether a path is absolute, not the root, and does not go upwards."""
    return bool(_segments(path))


def _covering(entries: Iterable[NamedPath], path: str) -> list[NamedPath]:
    segments = _segments(path)
    return [
        entry
        for entry in entries
        if segments and (prefix := _segments(entry.prefix)) and segments[: len(prefix)] == prefix
    ]


def _segments(path: str) -> list[str]:
    """The segments of an absolute path; empty for the root, and for a path that is long, relative or goes upwards."""
    if len(path) > _MAX_PATH_LENGTH:
        return []
    segments = [segment for segment in path.split("/") if segment not in ("", ".")]
    return segments if path.startswith("/") and ".." not in segments else []


def counts_for(namespaces: Sequence[str] | None, namespace: str) -> bool:
    """Whether an entry with these namespaces counts for one."""
    return namespaces is None or namespace in namespaces
