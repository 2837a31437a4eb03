"""What does a request to the access server ask for? `/NAMESPACE/GRANT/KEY/` and then what kubectl would ask an API server for.

kubectl looks up what `pods` are and reads the pod before it comes to the point. It gets that much and nothing else: whatever is
not in this list is asked of nobody.
"""

import re
from dataclasses import dataclass
from typing import Final

from adapter.access.grant import SUBRESOURCES

VERSIONS, GROUPS, RESOURCES, POD = "api", "apis", "api/v1", "pod"
_DISCOVERY: Final = (VERSIONS, GROUPS, RESOURCES)
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# As many characters of the alphabet of URLs as make 256 bits, which the command line draws; a longer one is nobody's.
KEY: Final = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request by its path; nothing of it is proved yet."""

    namespace: str
    grant: str
    key: str
    what: str  # VERSIONS, GROUPS, RESOURCES, POD or a subresource of the pod
    pod: str = ""


def asked(path: str) -> Asked | None:
    """What a path asks for, as it came, escapes and all; None for what nobody answers."""
    first, *parts = path.split("/")
    if first or len(parts) < 4:
        return None
    namespace, grant, key, *rest = parts
    if not (NAME.fullmatch(namespace) and NAME.fullmatch(grant) and KEY.fullmatch(key)):
        return None
    if "/".join(rest) in _DISCOVERY:
        return Asked(namespace, grant, key, "/".join(rest))
    return _of_pod(Asked(namespace, grant, key, POD), rest)


def _of_pod(begun: Asked, rest: list[str]) -> Asked | None:
    way, below = rest[:5], rest[6:]
    if way != ["api", "v1", "namespaces", begun.namespace, "pods"] or len(rest) < 6 or not NAME.fullmatch(rest[5]):
        return None
    if below and not (len(below) == 1 and below[0] in SUBRESOURCES):
        return None
    return Asked(begun.namespace, begun.grant, begun.key, below[0] if below else POD, rest[5])
