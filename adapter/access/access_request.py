"""Parses the path of a request to the access server: `/NAMESPACE/GRANT/KEY/` and then an API server's path for kubectl.

kubectl discovers `pods` and reads the pod before its actual request. Any other path is not served, and causes no
further request.
"""

import re
from dataclasses import dataclass
from typing import Final

from adapter.access.grant import SUBRESOURCES
from adapter.objects.unstructured import NAME_PATTERN

VERSIONS, GROUPS, RESOURCES, POD = "api", "apis", "api/v1", "pod"
_DISCOVERY: Final = (VERSIONS, GROUPS, RESOURCES)
# The command line makes keys of 256 random bits, which are 43 characters of the URL alphabet.
KEY_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """A request by its path; its grant and key are not verified yet."""

    namespace: str
    grant: str
    key: str
    resource: str  # VERSIONS, GROUPS, RESOURCES, POD or a subresource of the pod
    pod: str = ""


def parse_path(path: str) -> AccessRequest | None:
    """The request of a raw path, with its escapes; None for a path that is not served."""
    first, *parts = path.split("/")
    if first or len(parts) < 4:
        return None
    namespace, grant, key, *rest = parts
    if not (NAME_PATTERN.fullmatch(namespace) and NAME_PATTERN.fullmatch(grant) and KEY_PATTERN.fullmatch(key)):
        return None
    if "/".join(rest) in _DISCOVERY:
        return AccessRequest(namespace, grant, key, "/".join(rest))
    return _parse_pod_path(AccessRequest(namespace, grant, key, POD), rest)


def _parse_pod_path(request: AccessRequest, rest: list[str]) -> AccessRequest | None:
    prefix, below = rest[:5], rest[6:]
    if (
        prefix != ["api", "v1", "namespaces", request.namespace, "pods"]
        or len(rest) < 6
        or not NAME_PATTERN.fullmatch(rest[5])
    ):
        return None
    if below and not (len(below) == 1 and below[0] in SUBRESOURCES):
        return None
    return AccessRequest(request.namespace, request.grant, request.key, below[0] if below else POD, rest[5])
