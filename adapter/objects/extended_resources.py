"""The names that a WorkerCluster gives the extended resources of the manager (`spec.pods.extendedResources`).

A share keeps the names that it was created with, in an annotation of its group Workload. `rewrite/resource_names.py`
applies them to a pod spec.
"""

import json
import re
from collections.abc import Mapping

_MAX_TEXT_LENGTH = 32 * 1024  # of the 32 pairs of names that the CRD allows, each of the full length
_MAX_DESCRIBED = 4  # in one sentence
# k8s:pkg/apis/core/v1/helper/helpers.go, IsExtendedResourceName: a qualified name outside of kubernetes.io.
_NAME = re.compile(
    r"(?!requests\.)(?![^/]*kubernetes\.io/)[a-z0-9]([-a-z0-9.]{0,242}[a-z0-9])?/"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)


def is_extended_resource(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def format_names(names: Mapping[str, str]) -> str:
    """The names as the text of an annotation; empty without any."""
    return json.dumps(dict(sorted(names.items())), separators=(",", ":")) if names else ""


def read_names(text: str) -> dict[str, str]:
    """The names from such a text; none if it is of another form."""
    if len(text) > _MAX_TEXT_LENGTH:
        return {}
    try:
        pairs = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return pairs if isinstance(pairs, dict) and _are_names(pairs) else {}


def describe_names(names: Mapping[str, str]) -> str:
    """`nvidia.com/gpu is amd.com/gpu there`; empty without any."""
    parts = [f"{name} is {renamed} there" for name, renamed in sorted(names.items())[:_MAX_DESCRIBED]]
    more = len(names) - len(parts)
    return " and ".join([*parts, f"{more} more have other names"] if more else parts)


def _are_names(pairs: Mapping[str, object]) -> bool:
    return all(isinstance(text, str) and is_extended_resource(text) for pair in pairs.items() for text in pair)
