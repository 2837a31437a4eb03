"""Finds the names of Services in texts; only the DNS of the cluster that has a Service resolves its name.

Names of `svc.clusterset.local` are left out, because a Multi-Cluster Services API resolves them in every cluster, and
`kubernetes.default.svc`, because every cluster has it.
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_HOST: Final = re.compile(r"[A-Za-z0-9_.-]+")
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_EVERYWHERE_DOMAIN: Final = ["clusterset", "local"]
_EVERYWHERE_SERVICE: Final = ("kubernetes", "default")


@dataclass(frozen=True, slots=True)
class ServiceName:
    name: str
    namespace: str
    text: str  # as it is written


def find_service_names(text: str) -> Iterator[ServiceName]:
    """Yield each `name.namespace.svc`, also with a cluster domain after it or a pod's name before it."""
    for match in _HOST.finditer(text):
        if service := _parse_host(match[0].strip(".")):
            yield service


def is_service_host(host: str, namespace: str) -> bool:
    """Whether a host is the name of a Service, whole or as short as pods of `namespace` may write it."""
    labels = host.removesuffix(".").split(".")
    if not all(map(_DNS_LABEL.fullmatch, labels)) or host == "localhost" or is_address(host):
        return False
    return len(labels) == 1 or labels[1:] == [namespace] or _parse_host(host.removesuffix(".")) is not None


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _parse_host(host: str) -> ServiceName | None:
    labels = host.split(".")
    position = labels.index("svc") if "svc" in labels else 0
    domain = labels[position + 1 :]
    # One label after `svc` is no cluster domain; it may be a Python module's.
    if position < 2 or len(domain) == 1 or domain == _EVERYWHERE_DOMAIN:
        return None
    name, namespace = labels[position - 2 : position]
    is_known = _DNS_LABEL.fullmatch(name) and _DNS_LABEL.fullmatch(namespace)
    return ServiceName(name, namespace, host) if is_known and (name, namespace) != _EVERYWHERE_SERVICE else None
