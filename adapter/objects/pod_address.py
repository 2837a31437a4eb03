"""Checks addresses of pods: what a Service's endpoint may have."""

import ipaddress
from typing import Any

_BROADCAST = "255.255.255.255"

PodAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_address(text: Any) -> PodAddress | None:
    """The address that a text is, in the API server's own notation; None if it is none."""
    if not isinstance(text, str) or "%" in text:  # a zone of IPv6
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
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
