"""Reads addresses in the status of a pod, and checks which of them a Service's endpoint may have."""

import ipaddress
from typing import Any

from adapter.objects.unstructured import Raw

_BROADCAST = "255.255.255.255"

PodAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def reported_addresses(status: Raw, field: str) -> list[Any]:
    """The values of a field of addresses, `podIP` or `hostIP`: those of its plural, else its own."""
    entries = status.get(f"{field}s")
    addresses = [entry.get("ip") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return addresses or [status.get(field)]


def read_address(text: str) -> PodAddress | None:
    """The address that a text is, in any notation; None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parse_address(text: Any) -> PodAddress | None:
    """The address that a text is, in the API server's own notation; None if it is none."""
    if not isinstance(text, str) or "%" in text:  # a zone of IPv6
        return None
    address = read_address(text)
    return address if str(address) == text else None


def parse_pod_address(text: Any) -> PodAddress | None:
    """As `parse_address`, but None for an address that no endpoint may have: loopback, link-local and the like.

    Follows k8s:pkg/apis/core/validation/validation.go, ValidateEndpointIP.
    """
    address = parse_address(text)
    if address is None or getattr(address, "ipv4_mapped", None):
        return None
    is_special = (
        str(address) == _BROADCAST
        or address.is_unspecified
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
    )
    return None if is_special else address
